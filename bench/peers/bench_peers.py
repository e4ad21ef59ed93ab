"""Times ranklink's collectives beside those of Open MPI, Gloo and oneCCL, on this machine.

Installs the peers (Open MPI and Gloo by apt-get, oneCCL by pip into build/peers/), builds a small
driver for each from bench/peers/, and prints a table for each collective and number of ranks.

All groups of processes stay up for the whole run and are measured in turn, point by point, so that
noise of the machine falls on all alike; a group that is not being measured sleeps in read().
A time is the slowest rank's mean of one call, in microseconds, the median of all rounds; a ratio
is theirs / ours, the median over the rounds of that round's ratio: above 1, ranklink is faster.
"""

EPILOG = """\
sizes are as in nccl-tests: the output of all_gather and of gather's root, the input of
reduce_scatter, all_to_all and scatter's root, the buffer of all_reduce, reduce and broadcast, the
message of send_recv, which is half a round trip between ranks 0 and 1. Elements are f32; a rank's
share is at least one, so 8 B among 4 ranks are 16. Input and output are separate and in memory of
plain malloc; `shared` is ranklink's SharedBuffer, in place. Where a library has several algorithms
to choose from (Gloo's all_reduce), the table shows the fastest at each size and the JSON has all.

`-` is what a peer doesn't have, or could not do; the latter is said on stderr, with the reason.

examples:
  scripts/bench-peers                                          all of it: about 20 minutes
  scripts/bench-peers --ranks 2 --collectives all_reduce       a minute
  scripts/bench-peers --max 64K --shared --rounds 15           small sizes, with SharedBuffers
  scripts/bench-peers --peers ours,open_mpi --min 1M           two of them, large sizes
  scripts/bench-peers --json bench/results/peers.json          what a document quotes

It measures ranklink as it was last built in --build; build it first. On a machine that does other
things too, the tables say how much; more --rounds help, and as root `nice -n -10` before it, which
all groups inherit.
"""

import argparse
import datetime
import json
import os
import platform
import re
import signal
import statistics
import sys
import time

from common import ROOT, Failed, call, progress, say
from libraries import COLLECTIVES, LIBRARIES
from processes import Group, adopt, cpu_seconds, reap

SIZES = [8, 64, 128, 512, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 128 << 10, 256 << 10, 1 << 20,
         2 << 20, 4 << 20, 16 << 20, 64 << 20]
IN_SHARES = {"all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"}
SHARED = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"}
ELEMENT = 4

# A measured loop is long enough for a few of the scheduler's time slices, and short enough that
# the machine is the same for all libraries of a round.
LOOP_S = 0.03
RESTARTS = 3  # of a group that failed, for one number of ranks


def machine():
    model = ""
    with open("/proc/cpuinfo") as cpuinfo:
        for line in cpuinfo:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
    }


class Others:
    """How much of the processors was used by what is not ours: the noise."""

    def __init__(self):
        self.start = self.now()

    @staticmethod
    def now():
        with open("/proc/stat") as file:
            ticks = [int(field) for field in file.readline().split()[1:9]]
        idle = ticks[3] + ticks[4]
        tick = os.sysconf("SC_CLK_TCK")
        own = cpu_seconds([os.getpid(), *(pid for group in Group.all for pid in group.pids)])
        return sum(ticks) / tick, (sum(ticks) - idle) / tick - own - Group.ended_cpu

    def percent(self):
        total, others = (after - before for after, before in zip(self.now(), self.start))
        return round(max(0.0, 100 * others / total), 1) if total > 0 else 0.0


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def parse_size(text):
    match = re.fullmatch(r"(\d+)\s*([KMG]?)(i?B)?", text, re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 8, 4K or 64M")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2].upper()]


def sizes_for(collective, ranks, least, largest):
    if collective == "barrier":
        return [0]
    # Whole elements for all; a rank's share of what is put together is at least one.
    unit = ELEMENT * (ranks if collective in IN_SHARES else 1)
    wanted = {size for size in (*SIZES, least, largest) if least <= size <= largest}
    return sorted({max(unit, size // unit * unit) for size in wanted})


def label_of(operation):
    """`ring` of `all_reduce:ring`."""
    return operation.partition(":")[2]


class Bench:
    def __init__(self, given, libraries):
        self.given = given
        self.libraries = libraries
        self.groups = {}
        self.restarts = {}
        self.versions, self.settings = {}, {}
        self.unavailable = {}
        self.floor = self.measure_floor()
        self.idle = []
        self.tables = []
        self.done = 0
        self.total = sum(len(sizes_for(collective, ranks, given.min, given.max))
                         for ranks in given.ranks for collective in given.collectives)
        self.started = time.monotonic()

    def measure_floor(self):
        """What an exchange takes at the least between two cores of this machine."""
        progress("measuring what two cores can do at best")
        try:
            floor = json.loads(call([f"{self.given.build}/bench/exchange_floor"], 120))
        except Failed as failed:
            say(f"no floor: {failed}")
            return None
        sizes = ", ".join(f"{size_text(int(size))} {number(time)}"
                          for size, time in floor["exchange_us"].items())
        print(f"the floor of this machine, us: a line each way {floor['line_ns'] / 1000:.3f}, "
              f"each way {sizes}")
        return floor

    def start(self, name, ranks):
        progress(f"starting {ranks} ranks of {name}")
        try:
            group = Group(self.libraries[name], ranks, self.given.max + (1 << 16))
        except Failed as failed:
            self.groups.pop(name, None)
            self.unavailable[f"{name}, {ranks} ranks"] = str(failed)
            say(f"{name} with {ranks} ranks: {failed}")
            return
        self.groups[name] = group
        # Before --json changes a file of the repository.
        self.versions.setdefault(name, group.version)
        self.settings[f"{name}, {ranks} ranks"] = group.described.replace(
            group.directory, "DIRECTORY").replace(ROOT + "/", "")

    def failed(self, name, what, failed):
        """Says so, and starts the group anew, since what state it is in nobody knows."""
        say(f"{name}: {what}: {failed}")
        ranks = self.groups[name].ranks
        self.groups[name].kill()
        self.restarts[name] = self.restarts.get(name, 0) + 1
        if self.restarts[name] > RESTARTS:
            del self.groups[name]
            self.unavailable[f"{name}, {ranks} ranks"] = "failed too often"
            say(f"{name} with {ranks} ranks failed {RESTARTS + 1} times and is left out")
        else:
            self.start(name, ranks)

    def columns(self, collective):
        """What is measured, as (library, operation, key in the results)."""
        found = []
        for name in self.groups:
            for operation in self.libraries[name].operations(collective):
                label = label_of(operation)
                found.append((name, operation, f"{name}:{label}" if label else name))
            if name == "ours" and self.given.shared and collective in SHARED:
                found.append((name, f"{collective}:shared", "shared"))
        return found

    def point(self, collective, ranks, size):
        """All libraries at one size, in turn."""
        failures, iterations, samples = {}, {}, {}

        def attempt(column, doing, function):
            name, operation, key = column
            if key in failures or name not in self.groups:
                failures.setdefault(key, "its group is gone")
                return None
            try:
                return function(self.groups[name])
            except Failed as failed:
                failures[key] = str(failed)
                samples.pop(key, None)
                self.failed(name, f"{operation}, {ranks} ranks, {size_text(size)}, {doing}", failed)
                return None

        def loops(seconds):
            return max(3 if seconds < 1 else 1, min(200_000, int(LOOP_S / max(seconds, 1e-9))))

        columns = self.columns(collective)
        for column in columns:
            name, operation, key = column
            right = attempt(column, "when checked", lambda group: group.check(operation, size))
            if right is False:
                failures[key] = "not there"
            if not right:
                continue
            # Two tries: the first is of a few cold calls.
            for count in (2, None):
                guess = attempt(column, "when tried", lambda group: group.time(
                    operation, size, 1, count or min(loops(seconds), 1000)))
                if guess is None:
                    break
                seconds = guess
            else:
                iterations[key] = loops(seconds)
                samples[key] = []
        for turn in range(self.given.rounds):
            progress(self.where(collective, ranks, size, turn))
            # Another one begins each round, so that nobody always follows the same one.
            at = turn % max(1, len(columns))
            for column in columns[at:] + columns[:at]:
                name, operation, key = column
                if key not in samples:
                    continue
                count = iterations[key]
                seconds = attempt(column, f"round {turn + 1}", lambda group: group.time(
                    operation, size, max(1, min(count // 5, 2000)), count))
                if seconds is not None:
                    samples[key].append(seconds)
                    # A disturbed try must not make all loops too short.
                    iterations[key] = loops(statistics.median(samples[key]))
        self.done += 1
        return self.summary(size, samples, failures)

    def where(self, collective, ranks, size, turn):
        text = f"{ranks} ranks, {collective}"
        if collective != "barrier":
            text += f", {size_text(size)}"
        text += f", round {turn + 1}/{self.given.rounds}, {100 * self.done // self.total} %"
        if self.done > 3:
            left = (time.monotonic() - self.started) / self.done * (self.total - self.done)
            text += f", about {max(1, round(left / 60))} min left"
        return text

    @staticmethod
    def summary(size, samples, failures):
        results = {key: {"median_us": round(statistics.median(values) * 1e6, 3),
                         "least_us": round(min(values) * 1e6, 3),
                         "rounds_us": [round(value * 1e6, 3) for value in values]}
                   for key, values in samples.items() if values}
        point = {"bytes": size, "results": results, "ratios": {}}
        # Of a library's algorithms, the one that is fastest here.
        point["best"] = best = {}
        for key, result in results.items():
            name = key.partition(":")[0]
            if name not in best or result["median_us"] < results[best[name]]["median_us"]:
                best[name] = key
        if "ours" in best:
            ours = results["ours"]["rounds_us"]
            for name, key in best.items():
                if name != "ours":
                    point["ratios"][name] = round(statistics.median(
                        theirs / mine for theirs, mine in zip(results[key]["rounds_us"], ours)), 3)
        peers = [name for name in best if name not in ("ours", "shared")]
        if peers:
            fastest = min(peers, key=lambda name: results[best[name]]["median_us"])
            point["fastest_peer"] = fastest
            if fastest in point["ratios"]:
                point["ratio_to_fastest"] = point["ratios"][fastest]
        point["failures"] = {key: why for key, why in failures.items() if why != "not there"}
        return point

    def table(self, collective, ranks):
        others = Others()
        points = [self.point(collective, ranks, size)
                  for size in sizes_for(collective, ranks, self.given.min, self.given.max)]
        table = {"collective": collective, "ranks": ranks, "others_cpu_percent": others.percent(),
                 "points": points}
        self.tables.append(table)
        progress("")
        self.show(table)
        self.write()

    def show(self, table):
        peers = [name for name in self.given.peers if name != "ours"]
        ours = "ours" in self.given.peers
        times = [*(["ours"] if ours else []), *(["shared"] if ours and self.given.shared else []),
                 *peers]
        ratios = peers if ours else []
        note = ", ratios theirs / ours" if ours else ""
        print(f"\n{table['collective']}, {table['ranks']} ranks: us{note}; other programs used "
              f"{table['others_cpu_percent']} % of the processors")
        print(f"{'size':>8}" + "".join(f"{name:>11}" for name in times)
              + "".join(f"{'x ' + name:>12}" for name in ratios)
              + (f"{'x fastest':>12}" if ratios else ""))
        for point in table["points"]:
            size = size_text(point["bytes"]) if point["bytes"] else "-"
            line = f"{size:>8}"
            for name in times:
                key = point["best"].get(name)
                line += f"{number(point['results'][key]['median_us']) if key else '-':>11}"
            for name in ratios:
                line += f"{ratio(point['ratios'].get(name)):>12}"
            if ratios:
                line += f"{ratio(point.get('ratio_to_fastest')):>12}"
            print(line)
        sys.stdout.flush()

    def run(self):
        for ranks in self.given.ranks:
            self.restarts = {}
            for name in self.libraries:
                self.start(name, ranks)
            if not self.groups:
                continue
            for collective in self.given.collectives:
                self.table(collective, ranks)
            self.leave(ranks)

    def leave(self, ranks):
        for name, group in self.groups.items():
            # What sleeps takes nothing; more would be a disturbance of the others.
            percent = round(100 * group.idle_cpu / max(group.idle_wall, 1e-9), 2)
            self.idle.append({"library": name, "ranks": ranks, "idle_cpu_percent": percent})
            if percent > 2:
                say(f"{name} with {ranks} ranks used {percent} % of a core while it should have "
                    "slept; the others' times suffer from it")
            progress(f"ending {ranks} ranks of {name}")
            group.end()
            reap()
        self.groups = {}
        progress("")
        self.write()

    def write(self):
        """After each table, so that what is there is kept when the rest fails."""
        if not self.given.json:
            return
        result = {
            "date": datetime.date.today().isoformat(),
            "command": " ".join(["scripts/bench-peers", *sys.argv[1:]]),
            "machine": machine() | {"load_average": [round(x, 2) for x in os.getloadavg()]},
            "floor": self.floor,
            "versions": self.versions,
            "settings": self.settings,
            "rounds": self.given.rounds,
            "times": "microseconds; a round's is the slowest rank's mean of one call",
            "ratios": "theirs / ours, the median of the rounds' ratios; above 1 ranklink is faster",
            "unavailable": self.unavailable,
            "while_idle": self.idle,
            "tables": self.tables,
        }
        with open(self.given.json + ".new", "w") as file:
            file.write(compact(json.dumps(result, indent=1)) + "\n")
        os.replace(self.given.json + ".new", self.given.json)


def compact(text):
    """Lists of numbers on one line each."""
    return re.sub(r"\[\s+([-\d.,\se]+?)\s+\]",
                  lambda match: "[" + re.sub(r"\s+", " ", match[1]) + "]", text)


def number(value):
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def ratio(value):
    return "-" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def list_of(allowed, what):
    def parse(text):
        names = [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(
                    f"there is no {what} {name!r}; there are {', '.join(allowed)}")
        if not names:
            raise argparse.ArgumentTypeError(f"no {what} is named")
        return list(dict.fromkeys(names))
    return parse


def ranks_list(text):
    try:
        ranks = [int(word) for word in text.split(",")]
    except ValueError:
        ranks = []
    if not ranks or min(ranks) < 2:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers from 2, such as 2,4")
    return list(dict.fromkeys(ranks))


def arguments():
    parser = argparse.ArgumentParser(
        prog="scripts/bench-peers", description=__doc__, epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=ranks_list, default="2,4", metavar="LIST",
                        help="numbers of ranks (2,4)")
    parser.add_argument("--collectives", type=list_of(COLLECTIVES, "collective"),
                        default=",".join(COLLECTIVES), metavar="LIST",
                        help=f"which of {', '.join(COLLECTIVES)} (all)")
    parser.add_argument("--min", type=parse_size, default="8", metavar="SIZE",
                        help="the least size (8)")
    parser.add_argument("--max", type=parse_size, default="64M", metavar="SIZE",
                        help="the largest size (64M)")
    parser.add_argument("--peers", type=list_of(list(LIBRARIES), "library"),
                        default=",".join(LIBRARIES), metavar="LIST",
                        help=f"which of {', '.join(LIBRARIES)} (all)")
    parser.add_argument("--rounds", type=int, default=7, metavar="N",
                        help="how often each point is measured (7)")
    parser.add_argument("--shared", action="store_true",
                        help="also measure ranklink's SharedBuffer, where it has the collective")
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    parser.add_argument("--build", default=f"{ROOT}/build", metavar="DIR",
                        help="the build folder (build)")
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error("--rounds is at least 1")
    if not ELEMENT <= given.min <= given.max <= 1 << 30:
        parser.error(f"--min and --max are {ELEMENT} to 1G, the least first")
    given.build = os.path.abspath(given.build)
    return given


def stopped(signum, _):
    raise KeyboardInterrupt(signum)


def main():
    given = arguments()
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, stopped)
    adopt()
    os.makedirs(f"{given.build}/peers", exist_ok=True)
    libraries, unavailable = {}, {}
    bench = None
    try:
        for name in given.peers:
            library = LIBRARIES[name](given.build)
            try:
                library.compile()
                libraries[name] = library
            except Failed as failed:
                unavailable[name] = str(failed)
                say(f"{name} is left out: {failed}")
        bench = Bench(given, libraries)
        bench.unavailable = unavailable
        bench.run()
    except KeyboardInterrupt as stop:
        say("stopped; ending all processes")
        # A second Ctrl-C must not leave any of them behind.
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)
        return 128 + (stop.args[0] if stop.args else signal.SIGINT)
    finally:
        for group in list(Group.all):
            group.kill()
        reap()
    print("\n" + "\n".join(f"{name}: {version}" for name, version in bench.versions.items()))
    if unavailable or bench.unavailable:
        say("left out: " + "; ".join(f"{what}: {why}" for what, why in bench.unavailable.items()))
    return 0 if bench.tables else 1


if __name__ == "__main__":
    sys.exit(main())
