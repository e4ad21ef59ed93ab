"""The groups of processes: started, asked, watched and ended; nothing of them is left behind."""

import contextlib
import ctypes
import glob
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

from common import Failed, last_lines

LIMIT_S = 60  # of one command
START_S = 60
# A driver ends itself then, should this script be gone. It is longer, since the script counts only
# time in which it was not stopped itself (Ctrl-Z, or someone who wants the machine for a moment).
BACKSTOP_S = 300


def children_of(pids):
    """All processes below these, at any depth."""
    parents = {}
    for stat in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(stat) as file:
            fields = file.read().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(stat.split("/")[2]))
    found, ahead = [], list(pids)
    while ahead:
        below = parents.get(ahead.pop(), [])
        found += below
        ahead += below
    return found


def cpu_seconds(pids):
    """Processor time of these processes' threads, to the nanosecond; times() counts in ticks."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError), \
                        open(f"/proc/{pid}/task/{task}/schedstat") as file:
                    total += int(file.read().split()[0])
    return total / 1e9


class Group:
    """The processes of one library for one number of ranks."""

    all = []  # those that run
    ended_cpu = 0.0  # processor seconds of those that ran

    def __init__(self, library, ranks, capacity):
        self.library, self.ranks = library, ranks
        # In memory, since a library may keep its shared memory there; it goes with the directory.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.directory = tempfile.mkdtemp(prefix="bench-peers-", dir=memory)
        self.processes, self.pids, self.pipes = [], [], []
        self.idle_cpu = self.idle_wall = 0.0
        self.rested = None
        Group.all.append(self)
        try:
            self.command_pipes = [self.pipe(f"command.{rank}") for rank in range(ranks)]
            self.answer_pipes = [self.pipe(f"answer.{rank}") for rank in range(ranks)]
            commands, environment = library.commands(ranks, self.directory, capacity)
            self.described = " ".join([*(f"{k}={v}" for k, v in environment.items()), *commands[0]])
            with open(f"{self.directory}/log", "w") as log:
                for command in commands:
                    self.processes.append(subprocess.Popen(
                        command, env=os.environ | environment, stdin=subprocess.DEVNULL, stdout=log,
                        stderr=log, start_new_session=True))  # Ctrl-C is the script's to handle
            ready = self.answers(START_S)
            self.pids = [int(line.split()[1]) for line in ready]
            launchers = [process.pid for process in self.processes]
            self.pids = sorted({*self.pids, *launchers, *children_of(launchers)})
            self.version = library.version(ready[0].split(" ", 2)[2])
        except (OSError, IndexError, ValueError) as error:
            self.kill()
            raise Failed(f"did not start: {error}") from None
        except BaseException:
            self.kill()
            raise

    def pipe(self, name):
        # Both ends, so that no open blocks, and that ranks see the end when this process is gone,
        # in whatever way.
        os.mkfifo(f"{self.directory}/{name}", 0o600)
        descriptor = os.open(f"{self.directory}/{name}", os.O_RDWR | os.O_CLOEXEC)
        self.pipes.append(descriptor)
        return descriptor

    def log(self):
        with contextlib.suppress(OSError), open(f"{self.directory}/log", errors="replace") as file:
            return file.read()
        return ""

    def states(self):
        """A letter for each process, as in ps."""
        letters = ""
        for pid in self.pids:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
                letters += file.read().rpartition(")")[2].split()[0]
        return letters

    def answers(self, limit):
        """A line from each rank, or Failed."""
        lines = {rank: b"" for rank in range(self.ranks)}
        by_descriptor = dict(zip(self.answer_pipes, lines))
        poll = select.poll()
        for descriptor in by_descriptor:
            poll.register(descriptor, select.POLLIN)
        waited, start = 0.0, time.monotonic()
        last = start
        while by_descriptor:
            ended = [p for p in self.processes if p.poll() is not None]
            ready = poll.poll(200)
            now = time.monotonic()
            # Time in which somebody has stopped this script or the group doesn't count.
            if not ready and "T" not in self.states():
                waited += min(now - last, 1.0)
            last = now
            for descriptor, _ in ready:
                rank = by_descriptor[descriptor]
                lines[rank] += os.read(descriptor, 4096)
                if lines[rank].startswith((b"error", b"wrong")) and lines[rank].endswith(b"\n"):
                    text = lines[rank].decode(errors="replace").strip()
                    raise Failed(f"rank {rank}: {text}")
                if lines[rank].endswith(b"\n"):
                    poll.unregister(descriptor)
                    del by_descriptor[descriptor]
            if ended and by_descriptor:
                code = ended[0].returncode
                how = f"exit {code}" if code >= 0 else signal.Signals(-code).name
                raise Failed(f"its processes ended ({how}): {last_lines(self.log())}")
            if by_descriptor and (waited > limit or now - start > BACKSTOP_S):
                raise Failed(f"ranks {sorted(by_descriptor.values())} did not answer within "
                             f"{limit} s (states {self.states()}): {last_lines(self.log(), 2)}")
        return [line.decode(errors="replace").strip() for line in lines.values()]

    def ask(self, command):
        """Has all ranks do something, and notes whether the group slept until now."""
        if self.rested:
            cpu, wall = self.rested
            self.idle_cpu += cpu_seconds(self.pids) - cpu
            self.idle_wall += time.monotonic() - wall
        for descriptor in self.command_pipes:
            os.write(descriptor, f"{command} {BACKSTOP_S}\n".encode())
        lines = self.answers(LIMIT_S)
        self.rested = cpu_seconds(self.pids), time.monotonic()
        return lines

    def check(self, operation, size):
        """Whether it has the operation, which must then be right."""
        return self.ask(f"check {operation} {size}")[0] == "right"

    def time(self, operation, size, warmup, iterations):
        """Seconds of one call, of the slowest rank."""
        lines = self.ask(f"time {operation} {size} {warmup} {iterations}")
        return max(float(line.split()[1]) for line in lines)

    def end(self):
        """Asks it to leave, and kills it if it doesn't."""
        with contextlib.suppress(OSError):
            for descriptor in self.command_pipes:
                os.write(descriptor, b"quit\n")
        end = time.monotonic() + 10
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
        self.kill()

    def kill(self):
        if self in Group.all and self.processes:
            Group.ended_cpu += cpu_seconds(self.pids)
        launchers = [process.pid for process in self.processes if process.poll() is None]
        below = children_of(launchers)
        for process in self.processes:  # launchers know best how to end theirs
            if process.poll() is None:
                process.terminate()
        end = time.monotonic() + 2
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
        for pid in {*self.pids, *below}:
            if self.is_ours(pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            process.kill()
            process.wait()
        while self.pipes:
            os.close(self.pipes.pop())
        shutil.rmtree(self.directory, ignore_errors=True)
        if self in Group.all:
            Group.all.remove(self)

    def is_ours(self, pid):
        """The number may have become another process's meanwhile; ours are below this script."""
        return pid in children_of([os.getpid()])


def adopt():
    """Processes whose launcher died become children of this one, and can be found and ended."""
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def reap():
    """What was adopted and has ended."""
    known = {process.pid for group in Group.all for process in group.processes}
    for pid in children_of([os.getpid()]):
        if pid not in known:
            with contextlib.suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
