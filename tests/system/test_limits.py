"""One rank at its limit of open files: the group comes up, or says whose limit it is."""

from support import COMMAND, RANKS, SystemTest, free_port, main, only_rank

LIMITS = range(3, 41)
AT_ONCE = 4


class DescriptorLimits(SystemTest):
    def judge(self, limit, processes):
        """True if all went well; else all must name rank 1 and the limit of open files."""
        story = "\n".join(p.story() for p in processes)
        codes = [p.popen.returncode for p in processes]
        for code in codes:
            self.assertIn(code, (0, 1, 127), f"limit {limit}: {story}")  # no crash
        if set(codes) == {0}:
            self.assertEqual({e["wrong"] for p in processes for e in p.events("done")}, {0})
            return True
        errors = [e for p in processes for e in p.events("error")]
        if "error while loading shared libraries" in story or "Too many open files" in story:
            return False  # it couldn't even be started, and its loader says why
        self.assertTrue(errors, f"limit {limit}: {story}")
        for error in errors:
            text = f"{error['cause']} {error['remedy']} {error['context']}"
            self.assertIn("open files", text, f"limit {limit}: {story}")
            self.assertEqual(error["rank"], 1, f"limit {limit}: {story}")
        return False

    def in_turn(self, start):
        """Tries all limits, some at once; returns those that were high enough."""
        good = []
        for first in range(LIMITS.start, LIMITS.stop, AT_ONCE):
            started = [(limit, start(limit))
                       for limit in range(first, min(first + AT_ONCE, LIMITS.stop))]
            for limit, group in started:
                self.finish(group)
                with self.subTest(limit=limit):
                    if self.judge(limit, group):
                        good.append(limit)
        # 64 descriptors are the least that any system gives.
        self.assertIn(LIMITS.stop - 1, good)
        # Once it is enough, more is enough too.
        self.assertEqual(good, list(range(good[0], LIMITS.stop)))
        return good

    def test_launched(self):
        for mechanism in ("auto", "fd+socket", "fd+pidfd", "none"):
            def start(limit, mechanism=mechanism):
                argv = only_rank(1, f"prlimit --nofile={limit}", [RANKS])
                return [self.launch(3, *argv, options=["--mechanism", mechanism])]
            good = self.in_turn(start)
            print(f"{mechanism}: enough from {good[0]} on", flush=True)

    def test_by_hand(self):
        def start(limit):
            return self.by_hand(
                3, f"tcp://127.0.0.1:{free_port()}", env={"RANKLINK_JOIN_TIMEOUT": "3s"},
                before=lambda rank: ["prlimit", f"--nofile={limit}"] if rank == 1 else [])
        good = self.in_turn(start)
        print(f"by hand: enough from {good[0]} on", flush=True)

    def test_launcher_with_few_descriptors(self):
        """The launcher raises its own limit as far as it may."""
        process = self.check("-n", 8, before=["prlimit", "--nofile=16:4096"])
        self.assertEqual(process.popen.returncode, 0, process.story())

    def test_launcher_that_may_not_have_more(self):
        for limit in (8, 16, 24, 32, 48):
            with self.subTest(limit=limit):
                process = self.run_to_end("prlimit", f"--nofile={limit}", COMMAND, "run", "-n", 8,
                                          "--", RANKS)
                if process.popen.returncode != 0:
                    self.assertEqual(process.popen.returncode, 1, process.story())
                    self.assertIn("open files", process.stderr, process.story())


if __name__ == "__main__":
    main()
