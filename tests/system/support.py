"""What the system tests share: starting processes, looking at them from outside, leaving nothing.

CMake passes the paths of what is tested in SYSTEM_TEST_ variables (RANKLINK_ would make them
settings of ranklink).
"""

import glob
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

COMMAND = os.environ["SYSTEM_TEST_COMMAND"]
RANKS = os.environ["SYSTEM_TEST_RANKS"]
COLLECTIVES = os.environ["SYSTEM_TEST_COLLECTIVES"]
DENY_SYSCALL = os.environ["SYSTEM_TEST_DENY_SYSCALL"]
CORRUPT_MAPPING = os.environ["SYSTEM_TEST_CORRUPT_MAPPING"]
SANITIZED = os.environ.get("SYSTEM_TEST_SANITIZED", "")

SAFETY_NET = 60.0  # seconds; a test that needs nearly as long is broken
SECRET = "a secret of system tests"
NOBODY = 65534
NAMESPACES = ("pid", "net", "ipc", "uts", "mnt", "user")
IS_ROOT = os.geteuid() == 0

# Sanitizers want to come first among preloaded libraries.
KEPT = ("PATH", "HOME", "LANG", "ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS")


def crashes_for_real():
    """The environment in which a sanitizer leaves crashes to the program."""
    if not SANITIZED:
        return {}
    signals = "".join(f":handle_{name}=0" for name in ("segv", "sigbus", "sigfpe", "sigill",
                                                      "abort"))
    return {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + signals + ":use_sigaltstack=0"}


def death_limit():
    """Seconds in which survivors must end; a machine that is overrun gets more."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return 2.0 if load < 4 and not SANITIZED else 10.0


def wait_until(condition, what, timeout=SAFETY_NET):
    """Polls until `condition()` gives something true, and returns that."""
    end = time.monotonic() + timeout
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(0.005)


def read(path):
    """The file's text, or '' if it's gone."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


def stat_of(pid):
    """The fields of /proc/PID/stat behind the name: state, ppid, ..."""
    return read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children_of(pid):
    return [p for p in processes() if stat_of(p)[1:2] == [str(pid)]]


def descendants_of(pid):
    found = []
    for child in children_of(pid):
        found += [child] + descendants_of(child)
    return found


def variable_of(pid, name):
    """A variable of the environment that the process was started with."""
    for entry in read(f"/proc/{pid}/environ").split("\0"):
        if entry.startswith(name + "="):
            return entry.partition("=")[2]
    return None


def segments_of(pid):
    """{name: inode} of the memory that the process maps of ranks (its own among it)."""
    found = {}
    for line in read(f"/proc/{pid}/maps").splitlines():
        match = re.search(r"\s(\d+)\s+/memfd:(ranklink-segment-\d+)", line)
        if match:
            found[match.group(2)] = int(match.group(1))
    return found


def namespaces_of(pid):
    return {kind: link(f"/proc/{pid}/ns/{kind}") for kind in NAMESPACES}


def switches_of(pid):
    match = re.search(r"^voluntary_ctxt_switches:\s+(\d+)", read(f"/proc/{pid}/status"), re.M)
    return int(match.group(1)) if match else 0


def free_port():
    """A port below those that the kernel gives out by itself, so that it stays free."""
    for _ in range(100):
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise AssertionError("no port is free")


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


def only_rank(rank, wrapper, argv):
    """A command that runs `argv` below `wrapper` on one rank, and as it is on the others."""
    return ["sh", "-c", f'[ "$RANK" = {rank} ] || exec "$0" "$@"; exec {wrapper} "$0" "$@"', *argv]


class Process:
    """A started program whose output goes to files, so that no pipe can fill up."""

    def __init__(self, test, argv, env, stdin=subprocess.DEVNULL):
        self.test = test
        self.argv = argv
        self.out = tempfile.TemporaryFile("w+b")
        self.err = tempfile.TemporaryFile("w+b")
        self.started = time.monotonic()
        self.ended = None
        self.popen = subprocess.Popen(
            argv, env=env, stdin=stdin, stdout=self.out, stderr=self.err, start_new_session=True,
            group=test.group)
        self.pid = self.popen.pid

    def text(self, file):
        # pread, since the process shares the position.
        size = os.fstat(file.fileno()).st_size
        return os.pread(file.fileno(), size, 0).decode(errors="replace")

    @property
    def stdout(self):
        return self.text(self.out)

    @property
    def stderr(self):
        return self.text(self.err)

    def events(self, name=None):
        """The JSON lines that a program of ranks.cpp printed, completely, so far."""
        lines = [re.sub(r"^\[\d+\] ", "", line) for line in self.stdout.split("\n")[:-1]]
        found = [json.loads(line) for line in lines if line.startswith('{"event"')]
        return [e for e in found if name in (None, e["event"])]

    def running(self):
        return self.popen.poll() is None

    def signal(self, number):
        self.popen.send_signal(number)

    def wait(self, timeout=SAFETY_NET):
        try:
            code = self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            text = f"still runs after {timeout} s, in {self.where()}"
            self.kill()
            raise AssertionError(f"{text}\n{self.story()}") from None
        if self.ended is None:
            self.ended = time.monotonic()
        return code

    def where(self):
        return {p: (stat_of(p)[:1], read(f"/proc/{p}/wchan"))
                for p in [self.pid, *descendants_of(self.pid)]}

    def kill(self):
        for pid in [*descendants_of(self.pid), self.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.popen.wait()

    def story(self):
        return (f"$ {' '.join(self.argv)}\nexit code {self.popen.poll()}\n"
                f"--- stdout\n{self.stdout[-6000:]}\n--- stderr\n{self.stderr[-6000:]}")

    def document(self):
        """What `check --json` printed."""
        try:
            return json.loads(self.stdout)
        except ValueError as error:
            raise AssertionError(f"not one JSON document: {error}\n{self.story()}") from None


class SystemTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.token = f"{os.getpid()}-{random.getrandbits(64):x}"
        # A group of the test's own, so that files in /dev/shm show whose they are.
        self.group = random.randrange(100_000, 1_000_000_000) if IS_ROOT else None
        self.folder = tempfile.mkdtemp(prefix="system-test-")
        os.chmod(self.folder, 0o1777)
        self.tmp = self.new_folder("tmp")
        self.gate = os.path.join(self.folder, "gate")
        self.started = []
        self.shm_before = self.shm()
        self.addCleanup(self.clean)

    def new_folder(self, name, mode=0o1777):
        path = os.path.join(self.folder, name)
        os.mkdir(path)
        os.chmod(path, mode)
        return path

    def open_gate(self):
        """Lets programs go on that wait at self.gate."""
        with open(self.gate, "w", encoding="utf-8"):
            pass

    # ---- starting ----

    def environment(self, **more):
        env = {name: os.environ[name] for name in KEPT if name in os.environ}
        env.update(TMPDIR=self.tmp, SYSTEM_TEST_TOKEN=self.token)
        env.update({name: str(value) for name, value in more.items() if value is not None})
        return {name: value for name, value in env.items() if more.get(name, "") is not None}

    def start(self, *argv, env=None, stdin=subprocess.DEVNULL):
        process = Process(self, [str(a) for a in argv], self.environment(**(env or {})), stdin)
        self.started.append(process)
        return process

    def run_to_end(self, *argv, env=None, timeout=SAFETY_NET, stdin=subprocess.DEVNULL):
        process = self.start(*argv, env=env, stdin=stdin)
        process.wait(timeout)
        return process

    def check(self, *options, env=None, before=(), timeout=SAFETY_NET):
        """Runs `ranklink check --json`, and returns its process."""
        return self.run_to_end(*before, COMMAND, "check", "--json", *options, env=env,
                               timeout=timeout)

    def good_check(self, *options, **more):
        process = self.check(*options, **more)
        self.assertEqual(process.popen.returncode, 0, process.story())
        document = process.document()
        self.assertIs(document["ok"], True)
        self.assertTrue(document["all_reduce"])
        for entry in document["all_reduce"]:
            self.assertEqual((entry["wrong"], entry["right"]), (0, True), entry)
        return document

    def launch(self, size, *argv, options=(), env=None, before=()):
        return self.start(*before, COMMAND, "run", "--no-prefix", "-n", size, *options, "--",
                          *(argv or (RANKS,)), env=env)

    def by_hand(self, size, rendezvous, *options, env=None, of_rank=None, before=None, ranks=None):
        """Starts ranks with nothing but environment variables; of_rank(rank) gives more of them,
        before(rank) what stands before the program."""
        started = []
        for rank in range(size) if ranks is None else ranks:
            variables = dict(RANK=rank, WORLD_SIZE=size, RANKLINK_RENDEZVOUS=rendezvous,
                             RANKLINK_SECRET=SECRET)
            variables.update(env or {})
            variables.update(of_rank(rank) if of_rank else {})
            wrapper = before(rank) if before else ()
            started.append(self.start(*wrapper, RANKS, *options, env=variables))
        return started

    def as_nobody(self, *argv):
        """What to put before a program so that an ordinary user runs it."""
        if not IS_ROOT:
            return list(argv)
        return ["setpriv", "--reuid", str(NOBODY), "--regid", str(self.group), "--clear-groups",
                *argv]

    def need_root(self, why):
        if not IS_ROOT:
            self.skipTest(f"{why}: it takes root")

    def need_readable_by_nobody(self):
        """An ordinary user must reach the programs, which may lie in somebody's home."""
        if not IS_ROOT:
            return
        for path in (COMMAND, RANKS):
            seen = subprocess.run(self.as_nobody("test", "-x", path), check=False)
            if seen.returncode != 0:
                self.skipTest(f"an ordinary user can't reach {path}")

    # ---- judging ----

    def finish(self, group, timeout=SAFETY_NET):
        """Waits for all, and returns the exit codes."""
        end = time.monotonic() + timeout
        return [process.wait(max(0.1, end - time.monotonic())) for process in group]

    def assert_group_done(self, group, timeout=SAFETY_NET):
        """All ranks of a group started by hand have computed right; returns the events."""
        codes = self.finish(group, timeout)
        stories = "\n".join(p.story() for p in group)
        self.assertEqual(codes, [0] * len(group), stories)
        done = [event for p in group for event in p.events("done")]
        self.assertEqual(sorted(e["rank"] for e in done), list(range(len(group))), stories)
        self.assertEqual({e["wrong"] for e in done}, {0}, stories)
        return sorted(done, key=lambda event: event["rank"])

    def error_of(self, process):
        """The one error that the program printed."""
        errors = process.events("error")
        self.assertEqual(len(errors), 1, process.story())
        return errors[0]

    def routes_of(self, report):
        """{(from, to): (route, mechanism)} without those of a rank to itself."""
        return {(r["from"], r["to"]): (r["route"], r["mechanism"])
                for r in report["routes"] if r["from"] != r["to"]}

    def verdict_of(self, report, pair, mechanism):
        for route in report["routes"]:
            if (route["from"], route["to"]) == pair:
                for verdict in route["verdicts"]:
                    if verdict["mechanism"] == mechanism:
                        return verdict
        raise AssertionError(f"no verdict on {mechanism} for {pair}: {json.dumps(report)}")

    # ---- leaving nothing ----

    def shm(self):
        return set(glob.glob("/dev/shm/*ranklink*"))

    def mine(self):
        """Processes that this test has started, whoever their parents are now."""
        mark = f"SYSTEM_TEST_TOKEN={self.token}"
        found = []
        for pid in processes():
            if mark in read(f"/proc/{pid}/environ").split("\0") and stat_of(pid)[:1] != ["Z"]:
                found.append(pid)
        return found

    def left_in_shm(self):
        """New files in /dev/shm that no living socket explains. Other tests run beside this one:
        root tells theirs by their group."""
        found = []
        for path in self.shm() - self.shm_before:
            try:
                ours = os.stat(path).st_gid == self.group or not IS_ROOT
            except OSError:
                continue
            if ours and path not in read("/proc/net/unix"):
                found.append(path)
        return found

    def left_files(self):
        found = []
        for folder, _, files in os.walk(self.folder):
            found += [os.path.join(folder, name) for name in files if "ranklink" in name]
        return found

    def assert_nothing_left(self):
        wait_until(lambda: not self.mine(),
                   f"no process is left: {[(p, read(f'/proc/{p}/cmdline')) for p in self.mine()]}",
                   timeout=5)
        wait_until(lambda: not self.left_in_shm(), f"/dev/shm is clean: {self.left_in_shm()}",
                   timeout=5)
        self.assertEqual(self.left_files(), [])

    def clean(self):
        try:
            # A failed test has its own story; what it leaves would only be noise.
            if self.succeeded():
                self.assert_nothing_left()
        finally:
            for process in self.started:
                process.kill()
                process.out.close()
                process.err.close()
            for pid in self.mine():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            shutil.rmtree(self.folder, ignore_errors=True)

    def succeeded(self):
        outcome = self._outcome
        result = getattr(outcome, "result", None)
        if not outcome.success or result is None:
            return False
        return not any(test is self for test, _ in result.skipped)


def main():
    program = unittest.main(module="__main__", verbosity=2, exit=False)
    result = program.result
    for test, reason in result.skipped:
        print(f"SKIPPED {test.id()}: {reason}")
    if not result.wasSuccessful():
        sys.exit(1)
    # ctest calls it skipped when nothing else was left of it.
    sys.exit(77 if result.testsRun and len(result.skipped) >= result.testsRun else 0)
