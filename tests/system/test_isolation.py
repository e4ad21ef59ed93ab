"""Ranks in namespaces of their own, as root and as an ordinary user."""

import os

from support import (IS_ROOT, NAMESPACES, RANKS, SystemTest, descendants_of, main, namespaces_of,
                     segments_of, variable_of, wait_until)


class Isolation(SystemTest):
    def look(self, kinds, before=()):
        """Holds an isolated group and looks at its namespaces from outside."""
        self.gate = f"{self.folder}/gate-{'-'.join(kinds)}"
        process = self.launch(2, RANKS, "--report", "yes", "--hold", self.gate, before=before,
                              options=["--isolate", ",".join(kinds)])
        wait_until(lambda: len(process.events("holding")) == 2 or not process.running(),
                   "the group stands")
        if not process.running():
            self.refused(process)
        document = process.events("holding")[0]["report"]
        ranks = sorted((p for p in descendants_of(process.pid) if segments_of(p)),
                       key=lambda pid: int(variable_of(pid, "RANK")))
        self.assertEqual(len(ranks), 2)
        first, second = map(namespaces_of, ranks)
        outside = namespaces_of(os.getpid())
        for kind in NAMESPACES:
            with self.subTest(kind=kind):
                self.assertTrue(first[kind])
                same = len({first[kind], second[kind], outside[kind]}) == 1
                apart = len({first[kind], second[kind], outside[kind]}) == 3
                # A user's own namespaces need one of users, which ranklink may add.
                if kind in kinds or kinds == ["all"]:
                    self.assertTrue(apart, (kind, first, second, outside))
                elif kind != "user":
                    self.assertTrue(same, (kind, first, second, outside))
        # The ranks say the same of themselves.
        for rank, seen in zip(document["ranks"], (first, second)):
            inodes = [int(seen[kind].partition("[")[2][:-1]) for kind in NAMESPACES]
            self.assertEqual(rank["namespaces"], inodes)
        shared = {kind for kind in NAMESPACES if first[kind] == second[kind]}
        self.assertEqual(set(document["ranks"][1]["shares_with_rank_0"]), shared)
        # They share memory all the same, really.
        self.assertEqual({r[0] for r in self.routes_of(document).values()}, {"mapped"})
        maps = [segments_of(pid) for pid in ranks]
        self.assertEqual(len(maps[0]), 2)
        self.assertEqual(maps[0], maps[1])
        self.open_gate()
        self.assertEqual(process.wait(), 0, process.story())
        self.assertEqual({e["wrong"] for e in process.events("done")}, {0}, process.story())
        return document

    def refused(self, process):
        """Skips if it is the kernel that refuses, and says so."""
        if "RL1104" in process.stderr and "remedy" in process.stderr:
            self.skipTest("the kernel refuses: " + process.stderr.splitlines()[0])
        self.fail(process.story())

    def test_as_root(self):
        self.need_root("namespaces without a user namespace")
        for kind in NAMESPACES:
            self.look([kind])

    def test_all_as_root(self):
        self.need_root("namespaces without a user namespace")
        self.look(["all"])
        self.look(["pid", "net", "ipc", "uts", "mnt"])

    def test_all_as_ordinary_user(self):
        self.need_readable_by_nobody()
        document = self.look(["all"], before=self.as_nobody())
        self.assertEqual(len(document["ranks"]), 2)

    def test_each_with_user_as_ordinary_user(self):
        self.need_readable_by_nobody()
        for kind in NAMESPACES:
            kinds = ["user"] if kind == "user" else [kind, "user"]
            self.look(kinds, before=self.as_nobody())

    def test_ordinary_user_without_a_user_namespace(self):
        self.need_readable_by_nobody()
        process = self.check("-n", 2, "--isolate", "net", before=self.as_nobody())
        if process.popen.returncode == 0:
            return  # it may add the user namespace by itself
        self.assertEqual(process.popen.returncode, 1, process.story())
        self.assertIn("RL1104", process.stderr)
        self.assertIn("remedy", process.stderr)

    def test_ordinary_user_without_isolation(self):
        self.need_readable_by_nobody()
        document = self.good_check("-n", 3, before=self.as_nobody())
        self.assertEqual({r[0] for r in self.routes_of(document).values()}, {"mapped"})
        if IS_ROOT:
            self.assertEqual({r["uid"] for r in document["ranks"]}, {65534})

    def test_mechanisms_across_all_namespaces(self):
        before = () if IS_ROOT else self.as_nobody()
        for mechanism in ("fd+socket", "none"):
            process = self.check("-n", 3, "--isolate", "all", "--mechanism", mechanism,
                                 before=before)
            if process.popen.returncode != 0:
                self.refused(process)
            route = "mapped" if mechanism == "fd+socket" else "stream"
            self.assertEqual({r[0] for r in self.routes_of(process.document()).values()}, {route})

    def test_pidfd_across_user_namespaces_fails_with_the_cause(self):
        process = self.check("-n", 2, "--isolate", "user", "--mechanism", "fd+pidfd")
        if "RL1104" in process.stderr:
            self.refused(process)
        self.assertEqual(process.popen.returncode, 1, process.story())
        error = process.document()["error"]
        self.assertEqual(error["name"], "mechanism_unavailable")
        self.assertIn("user namespace", error["cause"])
        self.assertIn("EPERM", error["cause"])
        self.assertIn("fd+socket", error["remedy"])

    def test_8_isolated_ranks(self):
        self.need_root("namespaces without a user namespace")
        document = self.good_check("-n", 8, "--isolate", "pid,net,ipc,uts,mnt")
        self.assertEqual(set(self.routes_of(document).values()), {("mapped", "fd+socket")})

    def test_hostnames_differ(self):
        self.need_root("a uts namespace")
        document = self.good_check("-n", 2, "--isolate", "uts")
        self.assertEqual(len({r["host"] for r in document["ranks"]}), 2)

    def test_isolated_program(self):
        self.need_root("namespaces without a user namespace")
        process = self.launch(2, RANKS, "--report", "yes", options=["--isolate", "all"])
        self.assertEqual(process.wait(), 0, process.story())
        self.assertEqual({e["wrong"] for e in process.events("done")}, {0})


if __name__ == "__main__":
    main()
