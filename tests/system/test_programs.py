"""A program's own ways to join: a unique id, a store, settings of its own; and shared buffers."""

import os

from support import RANKS, SystemTest, free_port, main


class Ways(SystemTest):
    def ranks(self, size, *options, env=None):
        """Ranks that know their numbers from their arguments and nothing from the environment."""
        return [self.start(RANKS, "--rank", rank, "--size", size, "--report", "yes", *options,
                           env=env) for rank in range(size)]

    def assert_mapped(self, done):
        for event in done:
            self.assertEqual({r[0] for r in self.routes_of(event["report"]).values()}, {"mapped"})

    def test_unique_id_in_a_file(self):
        for size in (2, 3, 8):
            with self.subTest(size=size):
                self.assert_mapped(self.assert_group_done(
                    self.ranks(size, "--id", f"{self.folder}/id-{size}")))

    def test_unique_id_precedes_the_environment(self):
        group = self.ranks(2, "--id", f"{self.folder}/id", env={
            "RANK": 7, "WORLD_SIZE": 9, "RANKLINK_RENDEZVOUS": "tcp://127.0.0.1:1",
            "RANKLINK_SECRET": "of something else", "MASTER_ADDR": "x", "MASTER_PORT": "1"})
        self.assert_group_done(group)

    def forked(self, who, size):
        process = self.run_to_end(RANKS, "--fork", who, "--size", size, "--report", "yes")
        self.assertEqual(process.popen.returncode, 0, process.story())
        done = process.events("done")
        self.assertEqual(sorted(e["rank"] for e in done), list(range(size)), process.story())
        self.assertEqual({e["wrong"] for e in done}, {0})
        self.assertEqual(len({e["pid"] for e in done}), size)
        self.assert_mapped(done)

    def test_forked_ranks_of_a_parent_that_made_the_id(self):
        for size in (2, 3, 8):
            self.forked("parent", size)

    def test_forked_ranks_of_which_one_makes_the_id(self):
        for size in (2, 3, 8):
            self.forked("rank0", size)

    def test_store(self):
        for size in (2, 3):
            with self.subTest(size=size):
                folder = self.new_folder(f"store-{size}")
                self.assert_mapped(self.assert_group_done(self.ranks(size, "--store", folder)))
                self.assertEqual(os.listdir(folder), ["ranklink_unique_id"])
                os.unlink(f"{folder}/ranklink_unique_id")

    def test_two_groups_in_one_store(self):
        folder = self.new_folder("store")
        first = self.ranks(2, "--store", folder, "--prefix", "first")
        second = self.ranks(3, "--store", folder, "--prefix", "second")
        self.assert_group_done(first)
        self.assert_group_done(second)

    def test_store_without_rank_0(self):
        process = self.start(RANKS, "--rank", 1, "--size", 2, "--store", self.new_folder("store"),
                             env={"RANKLINK_JOIN_TIMEOUT": "700ms"})
        self.assertEqual(process.wait(), 1, process.story())
        error = self.error_of(process)
        self.assertEqual(error["name"], "rendezvous_unreachable")
        self.assertIn("no key ranklink/unique_id", error["cause"])
        self.assertIn("rank 0", error["remedy"])

    def test_id_and_store(self):
        with open(f"{self.folder}/id", "wb") as file:
            file.write(b"\0" * 256)
        process = self.run_to_end(RANKS, "--rank", 1, "--size", 2, "--id", f"{self.folder}/id",
                                  "--store", self.folder)
        self.assertEqual(self.error_of(process)["name"], "bad_argument")

    def test_id_that_is_none(self):
        for content in (b"\0" * 256, os.urandom(256)):
            with open(f"{self.folder}/id", "wb") as file:
                file.write(content)
            process = self.run_to_end(RANKS, "--rank", 1, "--size", 2, "--id", f"{self.folder}/id",
                                      env={"RANKLINK_JOIN_TIMEOUT": "2s"})
            self.assertEqual(process.popen.returncode, 1, process.story())
            self.assertTrue(self.error_of(process)["cause"])

    def test_settings_of_the_program(self):
        group = self.ranks(2, "--id", f"{self.folder}/id", "--set", "RANKLINK_MECHANISM=none",
                           env={"RANKLINK_MECHANISM": "fd+socket"})
        report = self.assert_group_done(group)[0]["report"]
        self.assertEqual({r[0] for r in self.routes_of(report).values()}, {"stream"})
        self.assertIn({"name": "RANKLINK_MECHANISM", "value": "none", "origin": "program"},
                      report["settings"])

    def test_a_rank_that_is_missing(self):
        group = [self.start(RANKS, "--rank", rank, "--size", 3, "--id", f"{self.folder}/id",
                            env={"RANKLINK_JOIN_TIMEOUT": "1500ms"}) for rank in (0, 2)]
        for process in group:
            self.assertEqual(process.wait(), 1, process.story())
            error = self.error_of(process)
            self.assertEqual((error["name"], error["rank"]), ("ranks_missing", 1), error)
            self.assertIn("rank 1", error["cause"])

    def test_large_and_odd_all_reduces(self):
        for count in (1, 2, 3, 1023, 65_537, 3_000_001):
            for mechanism in ("auto", "none"):
                with self.subTest(count=count, mechanism=mechanism):
                    process = self.launch(3, RANKS, "--count", count, "--rounds", 2,
                                          options=["--mechanism", mechanism])
                    self.assertEqual(process.wait(), 0, process.story())
                    self.assertEqual({e["wrong"] for e in process.events("done")}, {0})


class SharedBuffers(SystemTest):
    def look(self, process, size, mapped):
        self.assertEqual(process.wait(), 0, process.story())
        buffers = process.events("buffer")
        self.assertEqual(sorted(e["rank"] for e in buffers), list(range(size)))
        self.assertEqual({e["wrong"] for e in buffers}, {0}, buffers)
        self.assertEqual({e["mapped"] for e in buffers}, {mapped}, buffers)

    def test_mapped(self):
        for mechanism in ("auto", "fd+socket", "fd+pidfd"):
            for size in (1, 2, 3, 8):
                with self.subTest(mechanism=mechanism, size=size):
                    self.look(self.launch(size, RANKS, "--buffer", 64 * 1024,
                                          options=["--mechanism", mechanism]), size, size - 1)

    def test_large(self):
        self.look(self.launch(2, RANKS, "--buffer", 32 << 20), 2, 1)

    def test_none(self):
        process = self.launch(2, RANKS, "--buffer", 4096, options=["--mechanism", "none"])
        # Not mapped: its peers' memory is empty, so what they'd have written isn't there.
        process.wait()
        self.assertEqual({e["mapped"] for e in process.events("buffer")} or {0}, {0},
                         process.story())

    def test_by_hand(self):
        group = self.by_hand(3, f"tcp://127.0.0.1:{free_port()}", "--buffer", 12288)
        self.assert_group_done(group)
        for process in group:
            self.assertEqual([(e["wrong"], e["mapped"]) for e in process.events("buffer")],
                             [(0, 2)], process.story())


if __name__ == "__main__":
    main()
