"""A rank that dies: all others end within seconds, and say who, in which step, and how."""

import glob
import os
import signal
import time

from support import (COMMAND, RANKS, SystemTest, crashes_for_real, death_limit, free_port, main,
                     stat_of, wait_until)


class DeathTest(SystemTest):
    def wait_for_all(self, processes, limit):
        """Waits until all have ended, and asserts that it took no longer than that."""
        start = time.monotonic()
        for process in processes:
            process.wait()
        took = time.monotonic() - start
        self.assertLess(took, limit, "\n".join(p.story() for p in processes))

    def all_wait(self, processes, count):
        """Until `count` ranks, all but the one that dies, are in the operation or about to be."""
        def ready():
            events = [e for p in processes for e in p.events()]
            if any(e["event"] == "error" for e in events):
                self.fail("\n".join(p.story() for p in processes))
            return sum(e["event"] == "waiting" for e in events) == count
        wait_until(ready, f"{count} ranks wait")


class UnderTheLauncher(DeathTest):
    # how, exit code of the launcher, what survivors read: error, and words of its cause
    ENDS = (("signal:9", 137, "rank_killed", "SIGKILL"),
            ("signal:11", 139, "rank_killed", "SIGSEGV"),
            ("exit:3", 3, "rank_exited", "code 3"),
            ("exit:0", 1, "rank_exited", "code 0"),
            ("exception", 134, "rank_killed", "SIGABRT"),
            ("fail", 1, "rank_failed", "the program's own cause"),
            ("leave", 1, "rank_left", "left"))

    def dies(self, how, operation, who=1, size=3):
        process = self.launch(size, RANKS, "--die", how, "--who", who, "--when", self.gate,
                              "--operation", operation, env=crashes_for_real())
        self.all_wait([process], size)
        self.open_gate()
        start = time.monotonic()
        # The survivors first; the launcher gives stragglers a second more.
        wait_until(lambda: len(process.events("error")) >= size - 1 or not process.running(),
                   "survivors report")
        took = time.monotonic() - start
        self.wait_for_all([process], 5)
        self.assertLess(took, death_limit(), process.story())
        os.unlink(self.gate)
        return process

    def test_every_end(self):
        for operation in ("all_reduce", "barrier"):
            for how, code, name, words in self.ENDS:
                with self.subTest(operation=operation, how=how):
                    process = self.dies(how, operation)
                    errors = process.events("error")
                    self.assertEqual(sorted(e["reporter"] for e in errors), [0, 2],
                                     process.story())
                    for error in errors:
                        self.assertEqual((error["name"], error["rank"]), (name, 1), error)
                        self.assertIn(words, error["cause"] + error["context"])
                        self.assertTrue(error["step"], error)
                        self.assertIn(operation, error["step"] + error["context"], error)
                    if how == "fail":
                        self.assertEqual(errors[0]["remedy"], "the program's own remedy")
                    self.assertEqual(process.popen.returncode, code, process.story())
                    self.assertIn("rank 1", process.stderr)
                    self.assertIn(words, process.stderr)

    # what it does, its signal, words of the cause
    CRASHES = (("call", signal.SIGSEGV, "it called a function that it doesn't have (address 0)"),
               ("touch", signal.SIGSEGV, "it touched address 0x123450"),
               ("stack", signal.SIGSEGV, "its stack is used up"),
               ("bus", signal.SIGBUS, "has no memory behind it"),
               ("divide", signal.SIGFPE, "it divided an integer by 0"),
               ("abort", signal.SIGABRT, "backtrace: "))

    def test_every_crash(self):
        for what, number, words in self.CRASHES:
            with self.subTest(what=what):
                process = self.dies("crash:" + what, "all_reduce", size=4)
                self.assertEqual(process.popen.returncode, 128 + number, process.story())
                errors = process.events("error")
                self.assertEqual(len(errors), 3, process.story())
                for cause in [e["cause"] for e in errors] + [process.stderr]:
                    self.assertIn(signal.Signals(number).name, cause)
                    self.assertIn(words, cause)
                    self.assertRegex(cause, r"backtrace: [^;]*ranks\+0x")
                    # Once: not again from its stderr.
                    self.assertNotIn("last lines of its stderr: ranklink: crash", cause)

    def test_rank_0(self):
        process = self.dies("signal:9", "all_reduce", who=0)
        for error in process.events("error"):
            self.assertEqual((error["name"], error["rank"]), ("rank_killed", 0), error)
        self.assertEqual(process.popen.returncode, 137)

    def test_one_of_16(self):
        process = self.dies("signal:9", "all_reduce", who=11, size=16)
        errors = process.events("error")
        self.assertEqual(len(errors), 15, process.story())
        self.assertEqual({(e["name"], e["rank"]) for e in errors}, {("rank_killed", 11)})

    def test_before_join(self):
        for how, code, words in (("signal:9", 137, "SIGKILL"), ("exit:3", 3, "code 3"),
                                 ("exit:0", 1, "code 0"), ("exception", 134, "SIGABRT")):
            with self.subTest(how=how):
                process = self.launch(3, RANKS, "--die", how, "--who", 1, "--when", self.gate,
                                      "--early", "yes")
                self.open_gate()
                self.wait_for_all([process], 10)
                os.unlink(self.gate)
                self.assertEqual(process.popen.returncode, code, process.story())
                for error in process.events("error"):
                    self.assertEqual(error["rank"], 1, error)
                    self.assertIn(words, error["cause"])
                self.assertIn("rank 1", process.stderr)

    def test_last_words(self):
        process = self.start(COMMAND, "run", "-n", 2, "--", "sh", "-c",
                             '[ $RANK = 1 ] && { echo "the last words" >&2; exit 9; }; exec "$0"',
                             RANKS)
        self.wait_for_all([process], 20)
        self.assertEqual(process.popen.returncode, 9, process.story())
        error = self.error_of(process)
        self.assertEqual(error["rank"], 1)
        self.assertIn("the last words", error["cause"])

    def test_killed_at_any_moment(self):
        """From outside, at some moment of bring-up or after: whichever, the job ends."""
        for delay_ms in (0, 1, 2, 4, 6, 8, 12, 16, 24, 40):
            with self.subTest(delay_ms=delay_ms):
                process = self.launch(4, RANKS, "--rounds", 10_000_000)
                ranks = wait_until(lambda: [p for p in self.mine() if p != process.pid
                                            and RANKS in self.command_of(p)], "a rank exists")
                time.sleep(delay_ms / 1000)  # what is tested: any moment will do
                os.kill(ranks[-1], signal.SIGKILL)
                self.wait_for_all([process], 10)
                self.assertEqual(process.popen.returncode, 137, process.story())
                self.assertIn("SIGKILL", process.stderr)

    def command_of(self, pid):
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            return file.read()


class ByHand(DeathTest):
    ENDS = (("signal:9", "rank_killed"), ("signal:11", "rank_killed"), ("exit:3", "rank_exited"),
            ("exit:0", "rank_exited"), ("exception", "rank_killed"), ("fail", "rank_failed"),
            ("leave", "rank_left"))

    def dies(self, how, who, operation="all_reduce", size=3, rendezvous=None, env=None):
        group = self.by_hand(size, rendezvous or f"tcp://127.0.0.1:{free_port()}", "--die", how,
                             "--who", who, "--when", self.gate, "--operation", operation,
                             env={**crashes_for_real(), **(env or {})})
        self.all_wait(group, size)
        self.open_gate()
        self.wait_for_all(group, death_limit())
        os.unlink(self.gate)
        survivors = [p for rank, p in enumerate(group) if rank != who]
        for process in survivors:
            self.assertEqual(process.popen.returncode, 1, process.story())
        return [self.error_of(p) for p in survivors]

    def assert_named(self, errors, who, name, operation):
        for error in errors:
            self.assertEqual((error["name"], error["rank"]), (name, who), errors)
            self.assertTrue(error["cause"], error)
            self.assertTrue(error["remedy"], error)
            self.assertIn(operation, error["step"] + error["context"], error)

    def test_every_end(self):
        for how, name in self.ENDS:
            for operation in ("all_reduce", "barrier"):
                with self.subTest(how=how, operation=operation):
                    errors = self.dies(how, 1, operation)
                    self.assert_named(errors, 1, name, operation)
                    if how == "fail":
                        self.assertIn("the program's own cause", errors[0]["cause"])

    def test_every_crash(self):
        for what, number, words in UnderTheLauncher.CRASHES:
            for who in (0, 2):
                with self.subTest(what=what, who=who):
                    errors = self.dies("crash:" + what, who)
                    self.assert_named(errors, who, "rank_killed", "all_reduce")
                    for error in errors:
                        self.assertIn(signal.Signals(number).name, error["cause"])
                        self.assertIn(words, error["cause"])
                        self.assertRegex(error["cause"], r"backtrace: [^;]*ranks\+0x")

    def test_rank_0_which_holds_the_rendezvous(self):
        for how, name in self.ENDS:
            with self.subTest(how=how):
                self.assert_named(self.dies(how, 0), 0, name, "all_reduce")

    def test_rank_0_without_shared_memory(self):
        for how, name in (("signal:9", "rank_killed"), ("exit:3", "rank_exited")):
            errors = self.dies(how, 0, size=4, env={"RANKLINK_MECHANISM": "none"})
            self.assert_named(errors, 0, name, "all_reduce")

    def test_other_ranks_without_shared_memory(self):
        for how, name in self.ENDS:
            with self.subTest(how=how):
                errors = self.dies(how, 2, size=3, env={"RANKLINK_MECHANISM": "none"})
                self.assert_named(errors, 2, name, "all_reduce")

    def test_over_other_rendezvous(self):
        for rendezvous in (f"unix://{self.folder}/meet", "file://" + self.new_folder("meet-here")):
            for who in (0, 2):
                with self.subTest(rendezvous=rendezvous, who=who):
                    errors = self.dies("signal:9", who, rendezvous=rendezvous)
                    self.assert_named(errors, who, "rank_killed", "all_reduce")
                    if who == 0:  # it was killed, so it could not remove what the others met at
                        for left in glob.glob(f"{self.folder}/meet") + glob.glob(
                                f"{self.folder}/meet-here/*"):
                            os.unlink(left)

    def test_a_rank_that_stands_still(self):
        group = self.by_hand(3, f"tcp://127.0.0.1:{free_port()}", "--rounds", 100_000_000,
                             env={"RANKLINK_OP_TIMEOUT": "1s"})
        wait_until(lambda: all(p.events("joining") for p in group), "all join")
        # Deep in its rounds, when it has used the processor for a while.
        wait_until(lambda: all(int(stat_of(p.pid)[11]) + int(stat_of(p.pid)[12]) > 5
                               or not p.running() for p in group), "all are at work")
        group[1].signal(signal.SIGSTOP)
        survivors = [group[0], group[2]]
        self.wait_for_all(survivors, 1 + death_limit())
        for process in survivors:
            error = self.error_of(process)
            self.assertEqual((error["name"], error["rank"]), ("op_timeout", 1), process.story())
            self.assertIn("RANKLINK_OP_TIMEOUT", error["remedy"])
        group[1].kill()

    def test_stopped_for_less_than_the_deadline(self):
        """A rank that is only late is accused of nothing."""
        group = self.by_hand(2, f"tcp://127.0.0.1:{free_port()}", "--rounds", 200,
                             "--hold", self.gate)
        wait_until(lambda: all(p.events("holding") for p in group), "all hold")
        group[1].signal(signal.SIGSTOP)
        self.open_gate()  # rank 0 is in the barrier now
        wait_until(lambda: stat_of(group[1].pid)[0] == "T", "rank 1 stands still")
        time.sleep(0.5)
        self.assertTrue(group[0].running(), group[0].story())
        group[1].signal(signal.SIGCONT)
        self.assert_group_done(group)


class TheLauncherItself(DeathTest):
    def test_killed_launcher(self):
        process = self.launch(3, RANKS, "--hold", self.gate)
        wait_until(lambda: len(process.events("holding")) == 3, "the group stands")
        process.signal(signal.SIGKILL)
        wait_until(lambda: not self.mine(), "nothing of the job is left", timeout=5)

    def test_killed_launcher_of_isolated_ranks(self):
        self.need_root("a pid namespace")
        process = self.launch(2, RANKS, "--hold", self.gate, options=["--isolate", "all"])
        wait_until(lambda: len(process.events("holding")) == 2, "the group stands")
        process.signal(signal.SIGKILL)
        wait_until(lambda: not self.mine(), "nothing of the job is left", timeout=5)

    def test_interrupted_check(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process = self.start(COMMAND, "check", "--hold", "60s", "--json")
            wait_until(lambda: process.stdout.endswith("}\n"), "the group stands")
            process.signal(number)
            self.assertEqual(process.wait(10), 128 + number, process.story())


if __name__ == "__main__":
    main()
