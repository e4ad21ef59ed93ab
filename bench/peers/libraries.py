"""The libraries: how each is installed, how its driver is built, and how its ranks are started."""

import contextlib
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

from common import ROOT, Failed, call, progress, say

COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather",
               "scatter", "all_to_all", "barrier", "send_recv"]


def package_version(name):
    done = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", name],
                          capture_output=True, text=True, check=False)
    status, _, version = done.stdout.partition(" ")
    return version if status == "installed" else None


def install(packages):
    """From Debian, if any is missing; the lists of packages may be old, so a second try."""
    missing = [name for name in packages if package_version(name) is None]
    if not missing:
        return
    say(f"installing {' '.join(missing)}")
    root = [] if os.geteuid() == 0 else ["sudo"]
    command = [*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq",
               "--no-install-recommends", *missing]
    try:
        call(command, 600)
    except Failed:
        call([*root, "apt-get", "update", "-qq"], 300)
        call(command, 600)


class Library:
    """One library: how it is installed, how its driver is built, and how its ranks start."""

    name = ""
    packages = []
    collectives = COLLECTIVES
    variants = {}  # collective: algorithms to choose from

    def __init__(self, build):
        self.build = build
        self.folder = f"{build}/peers"
        self.driver = f"{self.folder}/{self.name}"

    def install(self):
        install(self.packages)

    def flags(self):
        """For the compiler, before and after the source file."""
        return [], []

    def compile(self):
        """Builds the driver anew if its source, or how it is built, has changed."""
        self.install()
        sources = [f"{ROOT}/bench/peers/{self.name}.cpp", f"{ROOT}/bench/peers/driver.h"]
        before, after = self.flags()
        # -O3 for this machine, since Gloo's sums are templates, which are compiled here.
        command = ["g++", "-std=c++20", "-O3", "-march=native", "-Wall", "-Wextra", *before,
                   sources[0], "-o", self.driver, *after]
        # Newer headers or another library mean a new build too.
        newest = max(os.stat(path).st_mtime for path in [*sources, *self.depends()])
        stamp = f"{self.driver}.command"
        with contextlib.suppress(OSError):
            with open(stamp) as file:
                same = file.read() == "\n".join(command)
            if same and os.stat(self.driver).st_mtime > newest:
                return
        progress(f"building the driver of {self.name}")
        call(command, 300)
        with open(stamp, "w") as file:
            file.write("\n".join(command))

    def depends(self):
        return []

    def commands(self, ranks, directory, capacity):
        """What to start, and in which environment; one command, or one for each rank."""
        raise NotImplementedError

    def version(self, answered):
        return answered

    def operations(self, collective):
        if collective not in self.collectives:
            return []
        return [f"{collective}:{variant}" for variant in self.variants[collective]] \
            if collective in self.variants else [collective]


class Ours(Library):
    name = "ours"

    def install(self):
        missing = [path for path in (f"{self.build}/libranklink.so", self.launcher())
                   if not os.path.exists(path)]
        if missing:
            raise Failed(f"{missing[0]} is not there: build ranklink first, or name the build "
                         "folder with --build")

    def launcher(self):
        places = [f"{self.build}/ranklink", f"{self.build}/tools/ranklink/ranklink"]
        return next((path for path in places if os.path.isfile(path)), places[0])

    def depends(self):
        return [*glob.glob(f"{ROOT}/include/ranklink/*"), f"{self.build}/libranklink.so"]

    def flags(self):
        return [f"-I{ROOT}/include"], [f"-L{self.build}", f"-Wl,-rpath,{self.build}", "-lranklink"]

    def commands(self, ranks, directory, capacity):
        return [[self.launcher(), "run", "-n", str(ranks), "--no-prefix", "--", self.driver,
                 directory, str(capacity)]], {}

    def version(self, answered):
        try:
            return "ranklink " + call(["git", "-C", ROOT, "describe", "--always", "--dirty"],
                                      20).strip()
        except Failed:
            return answered


class OpenMpi(Library):
    name = "open_mpi"
    packages = ["openmpi-bin", "libopenmpi-dev"]

    def flags(self):
        # As system headers, whose warnings are not ours.
        compile_flags = call(["mpicxx", "--showme:compile"], 20).split()
        return ([re.sub("^-I", "-isystem", flag) for flag in compile_flags],
                call(["mpicxx", "--showme:link"], 20).split())

    def commands(self, ranks, directory, capacity):
        # A core each where there are enough, as Open MPI does by itself: unbound, the scheduler
        # at times puts two spinning ranks on one core, and 8 B take a time slice of 4 ms. With
        # more ranks than cores, those that wait must yield: 15 us instead of 26 ms. All else
        # (shared memory by vader with single copies through CMA, `tuned`) is the default.
        enough = ranks <= len(os.sched_getaffinity(0))
        return [["mpirun", "--oversubscribe", "-n", str(ranks),
                 "--bind-to", "core" if enough else "none",
                 "--mca", "mpi_yield_when_idle", "0" if enough else "1",
                 # Also /dev/shm, but nothing is left there when the ranks had to be killed.
                 "--mca", "btl_vader_backing_directory", directory,
                 "--mca", "orte_tmpdir_base", directory,
                 self.driver, directory, str(capacity)]], {
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def version(self, answered):
        return f"{answered} (Debian {package_version('libopenmpi3') or '?'})"


class Gloo(Library):
    name = "gloo"
    packages = ["libgloo-dev"]
    # The default is ring; the others are there for who asks.
    variants = {"all_reduce": ["ring", "bcube", "halving_doubling"]}

    def flags(self):
        return [], ["-lgloo"]

    def commands(self, ranks, directory, capacity):
        # No launcher: a file store in the directory is where its ranks meet. Not bound to cores,
        # since each has a second thread that serves its sockets.
        return [[self.driver, directory, str(capacity), str(rank), str(ranks)]
                for rank in range(ranks)], {}

    def version(self, answered):
        return f"Gloo {package_version('libgloo-dev')}, over TCP"


class OneCcl(Library):
    name = "oneccl"
    collectives = [name for name in COLLECTIVES if name not in ("gather", "scatter")]

    def __init__(self, build):
        super().__init__(build)
        self.root = f"{self.folder}/oneccl_root"

    def install(self):
        """From PyPI, unpacked into the build folder and not into any Python."""
        self.versions = f"{self.root}/versions"
        if os.path.exists(self.versions):
            return
        try:
            call([sys.executable, "-m", "pip", "--version"], 60)
        except Failed:
            install(["python3-pip"])
        say("fetching oneccl-cpu into build/peers/")
        shutil.rmtree(self.root, ignore_errors=True)
        os.makedirs(self.root)
        with tempfile.TemporaryDirectory(dir=self.folder) as wheels:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check",
                   "--only-binary", ":all:", "-d", wheels]
            # With dependencies: they are Intel MPI, whose shared memory oneCCL uses.
            call([*pip, "oneccl-cpu", "oneccl-cpu-devel"], 600)
            packages = {}
            for wheel in glob.glob(f"{wheels}/*.whl"):
                packages[os.path.basename(wheel).split("-")[0]] = self.unpack(wheel)
            # Recent wheels of oneccl-cpu lack a library that theirs needs; it is in that of oneccl.
            needed = call(["readelf", "-d", f"{self.root}/lib/libccl.so"], 60)
            if "libccl.so.2" in needed and not os.path.exists(f"{self.root}/lib/libccl.so.2"):
                call([*pip, "--no-deps", f"oneccl=={packages['oneccl_cpu']}"], 600)
                for wheel in glob.glob(f"{wheels}/oneccl-*.whl"):
                    self.unpack(wheel, only="libccl.so.2")
        with open(self.versions, "w") as file:  # last, since it means that all is there
            file.write(" ".join(f"{name} {version}" for name, version in sorted(packages.items())
                                if not name.endswith("_devel")))

    def unpack(self, wheel, only=""):
        """The files under a wheel's `data`, which is a prefix of lib, include, bin."""
        with zipfile.ZipFile(wheel) as archive:
            for info in archive.infolist():
                inside = re.match(r"[^/]+\.data/data/(.+[^/])$", info.filename)
                # Not what is large and for other purposes: static libraries, Fortran, GPUs.
                if not inside or only not in inside[1] or inside[1].endswith((".a", ".spv")):
                    continue
                path = f"{self.root}/{inside[1]}"
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with archive.open(info) as source, open(path, "wb") as target:
                    shutil.copyfileobj(source, target)
                if "/bin/" in path:
                    os.chmod(path, 0o755)
        return os.path.basename(wheel).split("-")[1]

    def flags(self):
        lib = f"{self.root}/lib"
        return ([f"-isystem{self.root}/include"],
                [f"-L{lib}", f"-Wl,-rpath,{lib}", f"-Wl,-rpath-link,{lib}", "-lccl",
                 *([f"{lib}/libccl.so.2"] if os.path.exists(f"{lib}/libccl.so.2") else [])])

    def commands(self, ranks, directory, capacity):
        # Through Intel MPI, the default transport: 3 us for 8 B, against 8 ms by libfabric alone.
        # Without worker threads, which would compete with the ranks for the cores.
        environment = {"CCL_ROOT": self.root, "I_MPI_ROOT": self.root,
                       "LD_LIBRARY_PATH": f"{self.root}/lib",
                       "FI_PROVIDER_PATH": f"{self.root}/lib",
                       "CCL_ATL_TRANSPORT": "mpi", "CCL_WORKER_OFFLOAD": "0",
                       "CCL_LOG_LEVEL": "error"}
        if ranks > len(os.sched_getaffinity(0)):
            # With more ranks than cores its own algorithms, and all of Intel MPI that spins, take
            # time slices: 20 ms for 8 B. Intel MPI's collectives, waiting asleep, take 70 us.
            environment |= {"I_MPI_WAIT_MODE": "1", "I_MPI_PIN": "0", "CCL_ATL_SYNC_COLL": "1"}
            environment |= {f"CCL_{name}": "direct" for name in (
                "ALLREDUCE", "ALLGATHER", "ALLGATHERV", "REDUCE_SCATTER", "BCAST", "BROADCAST",
                "REDUCE", "ALLTOALL", "BARRIER")}
        return [[f"{self.root}/bin/mpiexec.hydra", "-launcher", "fork", "-n", str(ranks),
                 self.driver, directory, str(capacity)]], environment

    def version(self, answered):
        with open(self.versions) as file:
            return f"{answered} ({file.read()})"


LIBRARIES = {library.name: library for library in (Ours, OpenMpi, Gloo, OneCcl)}
