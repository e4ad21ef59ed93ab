"""All collectives, by real ranks: in groups that overlap, in flight, by threads, on shared memory."""

from support import COLLECTIVES, CORRUPT_MAPPING, DENY_SYSCALL, SANITIZED, SystemTest, main

# One pair that shares no memory among others that do.
ONE_STREAM = {"LD_PRELOAD": CORRUPT_MAPPING, "CORRUPT_MAPPING": "1:0:private"}


class Collectives(SystemTest):
    def right(self, size, steps, seed, mode, options=(), env=None):
        process = self.launch(size, COLLECTIVES, steps, seed, mode, options=options, env=env)
        self.assertEqual(process.wait(), 0, process.story())
        done = process.events("done")
        self.assertEqual(sorted(e["rank"] for e in done), list(range(size)), process.story())
        self.assertEqual({e["wrong"] for e in done}, {0})
        self.assertTrue(all(e["calls"] > 0 for e in done), process.story())

    def test_mixed_calls_in_overlapping_groups(self):
        for size, seed in ((1, 1), (2, 2), (3, 3), (5, 4), (8, 5)):
            with self.subTest(size=size):
                self.right(size, 150, seed, "mixed")

    def test_the_same_over_streams(self):
        for size in (2, 3, 5):
            with self.subTest(size=size):
                self.right(size, 100, 6, "mixed", options=["--mechanism", "none"])

    def test_the_same_over_mixed_routes(self):
        if SANITIZED:
            self.skipTest("sanitizers intercept mmap themselves")
        for size in (3, 5):
            with self.subTest(size=size):
                self.right(size, 100, 7, "mixed", env=ONE_STREAM)

    def test_the_same_by_forced_algorithms(self):
        self.right(3, 100, 8, "mixed", env={
            "RANKLINK_ALGORITHM": "all_reduce=two_phase,barrier=dissemination"})
        self.right(3, 100, 9, "mixed", env={"RANKLINK_ALGORITHM": "all_reduce=flat"})

    PULLED = ",".join(f"{c}=pull" for c in
                      ("all_gather", "broadcast", "gather", "scatter", "all_to_all", "exchange"))

    def test_the_same_by_pulling(self):
        for size in (1, 2, 3, 5):
            with self.subTest(size=size):
                self.right(size, 100, 16, "mixed", env={"RANKLINK_ALGORITHM": self.PULLED})

    def test_pulling_where_it_is_refused(self):
        for before, options in (([DENY_SYSCALL, "process_vm_readv=EPERM", "--"], []),
                                ([DENY_SYSCALL, "process_vm_writev=EPERM", "--"], []),
                                ([], ["--isolate", "pid"])):
            process = self.launch(2, COLLECTIVES, 1, 17, "mixed", options=options, before=before,
                                  env={"RANKLINK_ALGORITHM": "broadcast=pull"})
            self.assertEqual(process.wait(), 1, process.story())
            self.assertEqual({e["code"] for e in process.events("error")}, {"RL1301"})
            self.assertIn("process_vm_readv", process.stderr)
            # Who leaves the choice to the table gets something else.
            process = self.launch(2, COLLECTIVES, 50, 17, "mixed", options=options, before=before)
            self.assertEqual(process.wait(), 0, process.story())

    def test_two_groups_by_two_threads(self):
        for options in ([], ["--mechanism", "none"]):
            self.right(3, 60, 10, "threads", options=options)

    def test_shared_and_registered_memory(self):
        for size in (1, 2, 3, 5):
            with self.subTest(size=size):
                self.right(size, 1, 11, "shared")

    def test_in_namespaces_of_their_own(self):
        self.right(3, 60, 12, "mixed", options=["--isolate", "pid,net,ipc,uts"])

    def test_more_than_two_gibibytes(self):
        if SANITIZED:
            self.skipTest("takes minutes under a sanitizer")
        with open("/proc/meminfo", encoding="ascii") as file:
            free = {line.split(":")[0]: int(line.split()[1]) for line in file}["MemAvailable"]
        if free < 7 << 20:
            self.skipTest(f"needs 7 GiB of free memory, {free >> 20} GiB are")
        self.right(2, 1, 13, "large")

    def test_calls_that_differ(self):
        for options in ([], ["--mechanism", "none"]):
            process = self.launch(3, COLLECTIVES, 1, 14, "differ", options=options)
            self.assertEqual(process.wait(), 1, process.story())
            errors = process.events("error")
            self.assertEqual({e["code"] for e in errors}, {"RL1403"}, process.story())
            self.assertIn("all_reduce f32 sum", process.stderr)
            self.assertIn("broadcast f32 root 0", process.stderr)

    def test_unknown_algorithm(self):
        process = self.launch(2, COLLECTIVES, 1, 15, "mixed",
                              env={"RANKLINK_ALGORITHM": "all_reduce=two_fase"})
        self.assertNotEqual(process.wait(), 0)
        self.assertIn("did you mean all_reduce=two_phase?", process.stderr)


if __name__ == "__main__":
    main()
