"""Bring-up that can't succeed: every rank ends in time and says who, where, why, and what to do."""

import os
import re
import socket
import stat
import time

from support import (SECRET, SystemTest, death_limit, free_port, main, stat_of, switches_of,
                     wait_until)


def start_time_of(pid):
    return int(stat_of(pid)[19])


def has_joined(process):
    """It has connected and now waits for others: it looks up every few milliseconds."""
    if not process.events("joining"):
        return False
    sockets = [fd for fd in os.listdir(f"/proc/{process.pid}/fd")
               if os.readlink(f"/proc/{process.pid}/fd/{fd}").startswith("socket:")]
    if not sockets:
        return False
    before = switches_of(process.pid)
    time.sleep(0.25)  # ten looks of a rank that waits; one that still shakes hands has none
    return switches_of(process.pid) >= before + 8


class ErrorTest(SystemTest):
    def assert_errors(self, group, name, within=20):
        """All fail with this error in time; returns the errors."""
        start = time.monotonic()
        self.assertEqual(self.finish(group), [1] * len(group), "\n".join(p.story() for p in group))
        self.assertLess(time.monotonic() - start, within)
        errors = [self.error_of(p) for p in group]
        for error in errors:
            self.assertEqual(error["name"], name, errors)
            self.assertRegex(error["code"], r"^RL1\d{3}$")
            self.assertTrue(error["cause"], error)
            self.assertTrue(error["remedy"], error)
            self.assertTrue(error["step"] or name in ("setting_unknown", "setting_invalid"), error)
        for process in group:
            self.assertNotIn(SECRET, process.stdout + process.stderr)
        return errors

    def tcp(self):
        return f"tcp://127.0.0.1:{free_port()}"


class Claims(ErrorTest):
    def test_duplicate_rank(self):
        for rendezvous in (self.tcp(), f"unix://{self.folder}/meet",
                           "file://" + self.new_folder("meet-here")):
            with self.subTest(rendezvous=rendezvous):
                group = self.by_hand(3, rendezvous, ranks=(0, 1, 1))
                errors = self.assert_errors(group, "duplicate_rank")
                for error in errors:
                    self.assertEqual(error["rank"], 1)
                    for claimant in group[1:]:  # both are named
                        self.assertIn(str(claimant.pid), error["cause"])

    def test_rank_0_twice(self):
        # The second opens the same place, and is told that somebody has it.
        group = self.by_hand(2, self.tcp(), ranks=(0, 0), env={"RANKLINK_JOIN_TIMEOUT": "3s"})
        self.assertEqual(self.finish(group), [1, 1])
        names = {self.error_of(p)["name"] for p in group}
        self.assertIn("rendezvous_unusable", names)

    def test_rank_out_of_range(self):
        for rank, size in ((3, 3), (7, 2), (-1, 2)):
            with self.subTest(rank=rank, size=size):
                group = self.by_hand(size, self.tcp(), ranks=(rank,))
                error = self.assert_errors(group, "rank_out_of_range")[0]
                self.assertIn(str(rank), error["cause"])
                self.assertIn(str(size), error["cause"])
                self.assertIn("RANK", error["remedy"])

    def test_numbers_that_are_none(self):
        for variables in ({"RANK": "one"}, {"WORLD_SIZE": ""}, {"RANK": "1 "}, {"RANK": None},
                          {"WORLD_SIZE": None}, {"RANK": "99999999999999999999"}):
            with self.subTest(variables=variables):
                group = self.by_hand(2, self.tcp(), ranks=(1,), env=variables)
                error = self.assert_errors(group, "bad_argument")[0]
                self.assertIn(list(variables)[0], error["cause"])

    def test_size_0(self):
        self.assert_errors(self.by_hand(1, self.tcp(), env={"WORLD_SIZE": 0}), "size_mismatch")

    def test_sizes_that_differ(self):
        group = self.by_hand(2, self.tcp(), of_rank=lambda r: {"WORLD_SIZE": 2 + r})
        for error in self.assert_errors(group, "size_mismatch"):
            # Both claims are named.
            self.assertIn("2", error["cause"])
            self.assertIn("3", error["cause"])
            self.assertIn("WORLD_SIZE", error["remedy"])

    def test_missing_ranks_are_listed(self):
        for rendezvous in (self.tcp(), "file://" + self.new_folder("meet-here")):
            with self.subTest(rendezvous=rendezvous):
                group = self.by_hand(5, rendezvous, ranks=(0, 2, 4),
                                     env={"RANKLINK_JOIN_TIMEOUT": "1500ms"})
                for error in self.assert_errors(group, "ranks_missing", within=8):
                    self.assertEqual(set(re.findall(r"rank (\d)", error["cause"])), {"1", "3"},
                                     error)
                    self.assertIn("RANKLINK_JOIN_TIMEOUT", error["remedy"])

    def test_rank_0_is_missing(self):
        for rendezvous in (self.tcp(), f"unix://{self.folder}/meet",
                           "file://" + self.new_folder("meet-here")):
            with self.subTest(rendezvous=rendezvous):
                group = self.by_hand(3, rendezvous, ranks=(1, 2),
                                     env={"RANKLINK_JOIN_TIMEOUT": "1s"})
                for error in self.assert_errors(group, "rendezvous_unreachable", within=8):
                    self.assertIn("rank 0", error["remedy"])

    def test_a_rank_that_dies_while_others_join(self):
        group = self.by_hand(3, self.tcp(), ranks=(0, 1))
        wait_until(lambda: all(has_joined(p) for p in group), "both wait for rank 2")
        start = time.monotonic()
        group[1].kill()
        self.assertEqual(group[0].wait(), 1, group[0].story())
        self.assertLess(time.monotonic() - start, death_limit())
        error = self.error_of(group[0])
        self.assertEqual((error["name"], error["rank"], error["step"]), ("rank_killed", 1, "join"))
        self.assertIn(str(group[1].pid), error["cause"])

    def test_rank_0_dies_while_others_join(self):
        group = self.by_hand(3, self.tcp(), ranks=(0, 1))
        wait_until(lambda: all(has_joined(p) for p in group), "both wait for rank 2")
        start = time.monotonic()
        group[0].kill()
        self.assertEqual(group[1].wait(), 1, group[1].story())
        self.assertLess(time.monotonic() - start, death_limit())
        error = self.error_of(group[1])
        self.assertEqual((error["name"], error["step"]), ("rendezvous_lost", "join"))
        self.assertIn("rank 0", error["remedy"])


class Secrets(ErrorTest):
    def test_wrong_secret(self):
        for rendezvous in (self.tcp(), f"unix://{self.folder}/meet"):
            with self.subTest(rendezvous=rendezvous):
                wrong = "not the secret of this job"
                group = self.by_hand(2, rendezvous, env={"RANKLINK_JOIN_TIMEOUT": "2s"},
                                     of_rank=lambda r: {"RANKLINK_SECRET": wrong} if r else {})
                self.assertEqual(self.finish(group), [1, 1])
                mine, other = (self.error_of(p) for p in group)
                self.assertEqual(other["name"], "secret_mismatch")
                self.assertIn("RANKLINK_SECRET", other["remedy"])
                # Whoever waits for it learns that somebody was turned away.
                self.assertEqual(mine["name"], "ranks_missing")
                self.assertIn("refused", mine["cause"])
                self.assertIn("secret", mine["cause"])
                for process in group:
                    self.assertNotIn(wrong, process.stdout + process.stderr)
                    self.assertNotIn(SECRET, process.stdout + process.stderr)

    def test_missing_secret(self):
        for rendezvous in (self.tcp(), f"unix://{self.folder}/meet"):
            for error in self.assert_errors(
                    self.by_hand(2, rendezvous, env={"RANKLINK_SECRET": None}), "setting_invalid"):
                self.assertIn("RANKLINK_SECRET", error["cause"])
                self.assertIn("export", error["remedy"])

    def test_short_secret(self):
        group = self.by_hand(1, self.tcp(), env={"RANKLINK_SECRET": "too short"})
        error = self.assert_errors(group, "setting_invalid")[0]
        self.assertIn("RANKLINK_SECRET", error["cause"])
        self.assertNotIn("too short", group[0].stdout + group[0].stderr)

    def test_secret_is_not_logged(self):
        group = self.by_hand(2, self.tcp(), "--report", "yes", env={"RANKLINK_LOG": "debug"})
        self.assert_group_done(group)
        for process in group:
            self.assertNotIn(SECRET, process.stdout + process.stderr)


class SettingsOfRanks(ErrorTest):
    def test_settings_that_disagree(self):
        for one in ("fd+socket", "none"):
            group = self.by_hand(3, self.tcp(), env={"RANKLINK_MECHANISM": one},
                                 of_rank=lambda r: {"RANKLINK_MECHANISM": "auto"} if r == 1 else {})
            for error in self.assert_errors(group, "settings_disagree"):
                self.assertEqual(error["step"], "inspect")
                self.assertIn("RANKLINK_MECHANISM", error["cause"])
                self.assertIn(one, error["cause"])
                self.assertIn("auto", error["cause"])
                self.assertIn("environment", error["cause"])
                self.assertIn("1", error["cause"])

    def test_settings_of_the_program_and_the_environment(self):
        group = []
        rendezvous = self.tcp()
        for rank in range(2):
            options = ["--set", "RANKLINK_MECHANISM=none"] if rank else []
            group += self.by_hand(2, rendezvous, *options, ranks=(rank,),
                                  env={"RANKLINK_MECHANISM": "fd+pidfd"})
        for error in self.assert_errors(group, "settings_disagree"):
            self.assertIn("program", error["cause"])
            self.assertIn("environment", error["cause"])

    def test_settings_that_need_not_agree(self):
        self.assert_group_done(self.by_hand(
            2, self.tcp(), of_rank=lambda r: {"RANKLINK_JOIN_TIMEOUT": f"{30 + r}s",
                                              "RANKLINK_LOG": "error" if r else "warn"}))

    def test_unknown_and_invalid(self):
        for name, value, kind, near in (
                ("RANKLINK_MECANISM", "none", "setting_unknown", "RANKLINK_MECHANISM"),
                ("RANKLINK_RENDEZVOUZ", "tcp://a:1", "setting_unknown", "RANKLINK_RENDEZVOUS"),
                ("RANKLINK_MECHANISM", "fd+sockets", "setting_invalid", "fd+socket"),
                ("RANKLINK_JOIN_TIMEOUT", "soon", "setting_invalid", "30s"),
                ("RANKLINK_RENDEZVOUS", "127.0.0.1:80", "setting_invalid", "tcp://"),
                ("RANKLINK_SOCKET_DIR", "relative", "setting_invalid", "absolute")):
            with self.subTest(name=name, value=value):
                group = self.by_hand(1, self.tcp(), env={name: value})
                error = self.assert_errors(group, kind)[0]
                self.assertIn(name, error["cause"])
                self.assertIn(near, error["remedy"])
                self.assertIn("environment", error["cause"])

    def test_an_error_of_one_rank_reaches_those_who_wait_in_time(self):
        # It fails before it can tell anybody; the others learn at the deadline who is missing.
        group = self.by_hand(2, self.tcp(), env={"RANKLINK_JOIN_TIMEOUT": "1s"},
                             of_rank=lambda r: {"RANKLINK_TYPO": "1"} if r == 1 else {})
        self.assertEqual(self.finish(group), [1, 1])
        self.assertEqual(self.error_of(group[0])["name"], "ranks_missing")
        self.assertEqual(self.error_of(group[1])["name"], "setting_unknown")


class Places(ErrorTest):
    def test_no_place(self):
        error = self.assert_errors(self.by_hand(1, None), "no_rendezvous")[0]
        self.assertIn("ranklink run", error["remedy"])

    def test_port_that_is_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            group = self.by_hand(2, f"tcp://127.0.0.1:{port}",
                                 env={"RANKLINK_JOIN_TIMEOUT": "2s"})
            self.assertEqual(self.finish(group), [1, 1])
        error = self.error_of(group[0])
        self.assertEqual((error["name"], error["rank"]), ("rendezvous_unusable", 0), error)
        self.assertIn("EADDRINUSE", error["cause"])
        self.assertIn(str(port), error["cause"])
        self.assertTrue(error["remedy"])
        # The other rank finds somebody there who isn't a rendezvous.
        self.assertEqual(self.error_of(group[1])["name"], "rendezvous_unreachable")

    def test_places_that_are_none(self):
        for place in ("tcp://127.0.0.1", "tcp://127.0.0.1:port", "tcp://127.0.0.1:70000",
                      "tcp://:29400x"):
            with self.subTest(place=place):
                group = self.by_hand(1, place, env={"RANKLINK_JOIN_TIMEOUT": "5s"})
                self.assert_errors(group, "setting_invalid")

    def test_address_of_another_host(self):
        # An address for documentation, which no host has.
        group = self.by_hand(1, f"tcp://192.0.2.1:{free_port()}",
                             env={"RANKLINK_JOIN_TIMEOUT": "5s"})
        error = self.assert_errors(group, "rendezvous_unusable")[0]
        self.assertIn("EADDRNOTAVAIL", error["cause"])

    def test_name_that_does_not_resolve(self):
        group = self.by_hand(2, f"tcp://no-such-host.invalid:{free_port()}", ranks=(1,),
                             env={"RANKLINK_JOIN_TIMEOUT": "2s"})
        error = self.assert_errors(group, "rendezvous_unreachable", within=30)[0]
        self.assertIn("no-such-host.invalid", error["cause"])

    def test_socket_file_in_a_missing_folder(self):
        group = self.by_hand(1, f"unix://{self.folder}/missing/meet")
        self.assertEqual(self.finish(group), [1])
        error = self.error_of(group[0])
        self.assertIn(f"{self.folder}/missing", error["cause"])
        self.assertIn("ENOENT", error["cause"])

    def test_socket_file_that_a_dead_job_left(self):
        place = f"unix://{self.folder}/meet"
        group = self.by_hand(2, place, ranks=(0,))
        wait_until(lambda: has_joined(group[0]), "rank 0 waits")
        group[0].kill()
        self.assertTrue(os.path.exists(f"{self.folder}/meet"))
        # It is replaced, or whoever runs into it learns what to remove.
        group = self.by_hand(2, place, env={"RANKLINK_JOIN_TIMEOUT": "2s"})
        if self.finish(group) != [0, 0]:
            error = self.error_of(group[0])
            self.assertIn(f"{self.folder}/meet", error["cause"])
            self.assertTrue(error["remedy"])
            os.unlink(f"{self.folder}/meet")

    def test_socket_file_of_a_living_job(self):
        place = f"unix://{self.folder}/meet"
        living = self.by_hand(2, place, ranks=(0,))
        wait_until(lambda: has_joined(living[0]), "rank 0 waits")
        error = self.error_of(self.run_one(2, place, 0))
        self.assertIn(f"{self.folder}/meet", error["cause"])
        living += self.by_hand(2, place, ranks=(1,))
        self.assert_group_done(living)

    def run_one(self, size, place, rank, **env):
        process = self.by_hand(size, place, ranks=(rank,),
                               env={"RANKLINK_JOIN_TIMEOUT": "3s", **env})[0]
        self.assertEqual(process.wait(), 1, process.story())
        return process


class RendezvousFiles(ErrorTest):
    """What an earlier job, or another one, left at file://."""

    def setUp(self):
        super().setUp()
        self.meet = self.new_folder("meet")
        self.file = f"{self.meet}/ranklink.rendezvous"
        self.boot_id = open("/proc/sys/kernel/random/boot_id", encoding="utf-8").read().strip()

    def leave(self, boot_id=None, pid=None, start_time=None, end="end\n", port=1):
        text = (f"ranklink rendezvous 1\nboot_id {boot_id or self.boot_id}\nhost here\n"
                f"pid {pid or 4194304}\nstart_time {start_time or 17}\n"
                f"endpoint tcp://127.0.0.1:{port}\nsecret {'ab' * 32}\n{end}")
        with open(self.file, "w", encoding="utf-8") as file:
            file.write(text)

    def comes_up(self):
        # Rank 1 is there first, and sees what was left.
        group = self.by_hand(2, f"file://{self.meet}", ranks=(1,), env={"RANKLINK_SECRET": None})
        wait_until(lambda: group[0].events("joining"), "rank 1 joins")
        group += self.by_hand(2, f"file://{self.meet}", ranks=(0,), env={"RANKLINK_SECRET": None})
        self.assert_group_done(group)
        self.assertEqual(os.listdir(self.meet), [])

    def test_of_a_dead_process(self):
        self.leave()
        self.comes_up()

    def test_of_a_number_that_another_process_has_now(self):
        self.leave(pid=os.getpid(), start_time=start_time_of(os.getpid()) + 1)
        self.comes_up()

    def test_of_an_earlier_boot(self):
        self.leave(boot_id="00000000-1111-2222-3333-444444444444", pid=os.getpid(),
                   start_time=start_time_of(os.getpid()))
        self.comes_up()

    def test_half_written(self):
        for end in ("", "endpo", "end"):
            with self.subTest(end=end):
                self.leave(end=end)
                self.comes_up()

    def test_garbage(self):
        for content in (b"", b"\0" * 100, os.urandom(5000), b"x" * 100_000,
                        b"ranklink rendezvous 2\nend\n", b"ranklink rendezvous 1\nend\n",
                        b"ranklink rendezvous 1\npid many\nend\n"):
            with self.subTest(content=content[:30]):
                with open(self.file, "wb") as file:
                    file.write(content)
                self.comes_up()

    def test_endpoint_where_a_stranger_listens(self):
        with socket.socket() as stranger:
            stranger.bind(("127.0.0.1", 0))
            stranger.listen()
            self.leave(port=stranger.getsockname()[1])
            group = self.by_hand(2, f"file://{self.meet}", env={"RANKLINK_SECRET": None})
            self.assert_group_done(group)

    def test_not_a_file(self):
        os.mkdir(self.file)
        group = self.by_hand(1, f"file://{self.meet}", env={"RANKLINK_JOIN_TIMEOUT": "3s"})
        self.assertEqual(self.finish(group), [1], group[0].story())
        self.assertIn(self.file, self.error_of(group[0])["cause"])
        os.rmdir(self.file)

    def test_of_another_user(self):
        self.need_root("files of two users")
        self.need_readable_by_nobody()
        self.leave()
        os.chmod(self.file, 0o600)
        # In a folder like /tmp, where it can neither read nor replace it.
        group = self.by_hand(2, f"file://{self.meet}", env={"RANKLINK_SECRET": None,
                                                            "RANKLINK_JOIN_TIMEOUT": "2s"},
                             before=lambda rank: self.as_nobody())
        self.assertEqual(self.finish(group), [1, 1])
        for process in group:
            error = self.error_of(process)
            self.assertIn(self.file, error["cause"])
            self.assertRegex(error["cause"], "EACCES|EPERM")
            self.assertTrue(error["remedy"])
        os.unlink(self.file)

    def test_of_a_living_job(self):
        living = self.by_hand(2, f"file://{self.meet}", ranks=(0,), env={"RANKLINK_SECRET": None})
        wait_until(lambda: os.path.exists(self.file), "rank 0 leaves its file")
        self.assertEqual(stat.S_IMODE(os.stat(self.file).st_mode), 0o600)
        text = open(self.file, encoding="utf-8").read()
        second = self.by_hand(2, f"file://{self.meet}", ranks=(0,), env={"RANKLINK_SECRET": None})
        error = self.assert_errors(second, "rendezvous_unusable")[0]
        self.assertIn(f"pid {living[0].pid}", error["cause"])
        self.assertIn(self.file, error["cause"])
        self.assertEqual(open(self.file, encoding="utf-8").read(), text)
        living += self.by_hand(2, f"file://{self.meet}", ranks=(1,), env={"RANKLINK_SECRET": None})
        self.assert_group_done(living)

    def test_with_a_given_secret_the_file_holds_none(self):
        group = self.by_hand(2, f"file://{self.meet}", ranks=(0,))
        wait_until(lambda: os.path.exists(self.file), "rank 0 leaves its file")
        self.assertNotIn("secret", open(self.file, encoding="utf-8").read())
        group += self.by_hand(2, f"file://{self.meet}", ranks=(1,))
        self.assert_group_done(group)

    def test_missing_folder(self):
        group = self.by_hand(2, f"file://{self.folder}/missing",
                             env={"RANKLINK_JOIN_TIMEOUT": "2s"})
        self.assertEqual(self.finish(group), [1, 1])
        error = self.error_of(group[0])
        self.assertEqual(error["name"], "rendezvous_unusable")
        self.assertIn(f"{self.folder}/missing", error["cause"])


if __name__ == "__main__":
    main()
