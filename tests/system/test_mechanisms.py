"""What the kernel refuses, or gets wrong, on one rank: all agree on what works instead."""

import os
import time
import unittest

from support import (CORRUPT_MAPPING, DENY_SYSCALL, RANKS, SANITIZED, SystemTest, main, only_rank,
                     segments_of, wait_until)


class Refused(SystemTest):
    """pidfd_getfd and pidfd_open under real seccomp filters."""

    def reports(self, process):
        self.assertEqual(process.wait(), 0, process.story())
        done = sorted(process.events("done"), key=lambda e: e["rank"])
        self.assertEqual({e["wrong"] for e in done}, {0}, process.story())
        reports = [e["report"] for e in done]
        self.assertEqual(len({r["digest"] for r in reports}), 1)
        return reports

    def on_rank_1(self, *rules, trials="all", size=3, mechanism=None):
        argv = only_rank(1, " ".join([DENY_SYSCALL, *rules, "--"]), [RANKS, "--report", "yes"])
        options = ["--mechanism", mechanism] if mechanism else []
        return self.launch(size, *argv, options=options, env={"RANKLINK_TRIALS": trials})

    def test_one_rank_may_not_take(self):
        for report in self.reports(self.on_rank_1("pidfd_getfd=EPERM")):
            self.assertEqual(set(self.routes_of(report).values()), {("mapped", "fd+socket")})
            no = self.verdict_of(report, (1, 0), "fd+pidfd")
            self.assertIs(no["yes"], False)
            self.assertEqual(no["rank"], 1)
            self.assertIn("seccomp", no["cause"])
            self.assertIn("rank 1", no["cause"])
            self.assertIn("EPERM", no["cause"])
            self.assertIn("SYS_PTRACE", no["remedy"])
            # Only its own pulls are refused.
            self.assertIs(self.verdict_of(report, (0, 1), "fd+pidfd")["yes"], True)
            self.assertIs(self.verdict_of(report, (2, 0), "fd+pidfd")["yes"], True)

    def test_one_rank_may_not_open(self):
        for report in self.reports(self.on_rank_1("pidfd_open=ENOSYS")):
            self.assertEqual(set(self.routes_of(report).values()), {("mapped", "fd+socket")})
            # Under the launcher, rank 1 can't make the pidfd that rank 0 would need.
            no = self.verdict_of(report, (0, 1), "fd+pidfd")
            self.assertIs(no["yes"], False)
            self.assertEqual(no["rank"], 1)
            self.assertIn("pidfd_open", no["cause"])
            self.assertIn("ENOSYS", no["cause"])
            self.assertTrue(no["remedy"])

    def test_unknown_to_the_profile(self):
        no = self.verdict_of(self.reports(self.on_rank_1("pidfd_getfd=ENOSYS"))[0], (1, 0),
                             "fd+pidfd")
        self.assertIs(no["yes"], False)
        self.assertIn("ENOSYS", no["cause"])

    def test_explicit_is_obeyed_or_fails_on_all(self):
        for rule in ("pidfd_getfd=EPERM", "pidfd_open=EPERM", "pidfd_open=ENOSYS"):
            with self.subTest(rule=rule):
                process = self.on_rank_1(rule, mechanism="fd+pidfd")
                start = time.monotonic()
                self.assertEqual(process.wait(), 1, process.story())
                self.assertLess(time.monotonic() - start, 10)
                errors = process.events("error")
                self.assertEqual(len(errors), 3, process.story())
                self.assertEqual(process.events("done"), [])
                for error in errors:
                    self.assertEqual(error["name"], "mechanism_unavailable", error)
                    self.assertEqual(error["rank"], 1, error)
                    self.assertIn("fd+pidfd", error["cause"])
                    self.assertIn(rule.partition("=")[0], error["cause"])
                    self.assertIn("SYS_PTRACE", error["remedy"])
                self.assertIn("RL1301", process.stderr)

    def test_check_under_a_filter(self):
        document = self.good_check(before=[DENY_SYSCALL, "pidfd_getfd=EPERM", "--"])
        self.assertEqual(set(self.routes_of(document).values()), {("mapped", "fd+socket")})
        no = self.verdict_of(document, (0, 1), "fd+pidfd")
        self.assertIn("seccomp", no["cause"])

    def test_socket_mechanism_under_the_filter(self):
        for mechanism, route in (("fd+socket", "mapped"), ("none", "stream")):
            document = self.good_check("--mechanism", mechanism, before=[
                DENY_SYSCALL, "pidfd_getfd=EPERM", "pidfd_open=ENOSYS", "process_vm_readv=EPERM",
                "ptrace=EPERM", "kcmp=EPERM", "clone3=ENOSYS", "io_uring_setup=EPERM",
                "userfaultfd=EPERM", "mbind=EPERM", "get_mempolicy=EPERM", "--"])
            self.assertEqual({r[0] for r in self.routes_of(document).values()}, {route})


@unittest.skipIf(SANITIZED, "sanitizers intercept mmap themselves")
class Corrupted(SystemTest):
    """The mapping of one direction of one pair is wrong; only a trial can find that."""

    def corrupted(self, how, mechanism, size=3):
        process = self.launch(size, RANKS, "--report", "yes", "--hold", self.gate,
                              options=["--mechanism", mechanism] if mechanism else [],
                              env={"LD_PRELOAD": CORRUPT_MAPPING, "RANKLINK_TRIALS": "all",
                                   "CORRUPT_MAPPING": f"1:0:{how}"})
        return process

    def test_auto_goes_around_it(self):
        for how in ("private", "other"):
            with self.subTest(how=how):
                process = self.corrupted(how, "")
                wait_until(lambda: len(process.events("holding")) == 3 or not process.running(),
                           "the group stands")
                events = process.events("holding")
                self.assertEqual(len(events), 3, process.story())
                # From outside: ranks 0 and 1 have no mapping of each other's memory any more.
                pids = {e["rank"]: e["pid"] for e in events}
                maps = {rank: segments_of(pid) for rank, pid in pids.items()}
                self.assertNotIn("ranklink-segment-0", maps[1])
                self.assertNotIn("ranklink-segment-1", maps[0])
                self.assertEqual(maps[2]["ranklink-segment-0"], maps[0]["ranklink-segment-0"])
                self.assertEqual(maps[2]["ranklink-segment-1"], maps[1]["ranklink-segment-1"])
                self.open_gate()
                self.assertEqual(process.wait(), 0, process.story())
                self.assertIn("corrupt_mapping: a peer's memory is mapped wrongly", process.stderr)
                done = process.events("done")
                self.assertEqual({e["wrong"] for e in done}, {0}, process.story())
                self.assertEqual(len({e["report"]["digest"] for e in done}), 1)
                report = done[0]["report"]
                routes = self.routes_of(report)
                # One direction alone is of no use.
                self.assertEqual(routes.pop((1, 0))[0], "stream")
                self.assertEqual(routes.pop((0, 1))[0], "stream")
                self.assertEqual(set(routes.values()), {("mapped", "fd+socket")})
                for mechanism in ("fd+socket", "fd+pidfd"):
                    no = self.verdict_of(report, (1, 0), mechanism)
                    self.assertEqual((no["yes"], no["tried"]), (False, True), no)
                    self.assertTrue(no["cause"])
                    self.assertIs(self.verdict_of(report, (0, 1), mechanism)["yes"], True)
                # A slow route is said aloud.
                self.assertIn("go through sockets", process.stderr)
                self.assertIn("from rank 1 to rank 0", process.stderr)
                os.unlink(self.gate)

    def test_explicit_fails_with_the_trial_as_cause(self):
        for mechanism in ("fd+socket", "fd+pidfd"):
            for how in ("private", "other"):
                with self.subTest(mechanism=mechanism, how=how):
                    process = self.corrupted(how, mechanism)
                    self.assertEqual(process.wait(), 1, process.story())
                    errors = process.events("error")
                    self.assertEqual(len(errors), 3, process.story())
                    for error in errors:
                        self.assertEqual(error["name"], "mechanism_unavailable")
                        self.assertEqual({error["rank"], error["peer"]}, {0, 1}, error)
                        self.assertIn(mechanism, error["cause"])

    def test_two_directions(self):
        process = self.launch(4, RANKS, "--report", "yes", "--count", 100_000,
                              env={"LD_PRELOAD": CORRUPT_MAPPING,
                                   "CORRUPT_MAPPING": "1:0:private,0:1:other,3:2:private"})
        self.assertEqual(process.wait(), 0, process.story())
        done = process.events("done")
        self.assertEqual({e["wrong"] for e in done}, {0}, process.story())
        routes = self.routes_of(done[0]["report"])
        streams = {pair for pair, route in routes.items() if route[0] == "stream"}
        self.assertEqual(streams, {(1, 0), (0, 1), (3, 2), (2, 3)})

    def test_shared_buffer_beside_a_stream(self):
        process = self.launch(3, RANKS, "--buffer", 12288, env={
            "LD_PRELOAD": CORRUPT_MAPPING, "CORRUPT_MAPPING": "1:0:private"})
        process.wait()
        self.assertTrue(process.popen.returncode in (0, 1), process.story())
        if process.popen.returncode == 1:
            self.assertEqual(len(process.events("error")), 3, process.story())


if __name__ == "__main__":
    main()
