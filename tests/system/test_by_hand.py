"""Ranks that something else starts: only environment variables tell them about each other."""

import os
import socket
import time

from support import (NOBODY, SECRET, SystemTest, death_limit, free_port, has_ipv6, main,
                     wait_until)

# A /dev/shm of its own, as in a container.
OWN_SHM = ["unshare", "-m", "sh", "-c",
           'mount -t tmpfs -o size=16m tmpfs /dev/shm && exec "$0" "$@"']


class Rendezvous(SystemTest):
    def ways(self):
        yield "tcp", f"tcp://127.0.0.1:{free_port()}"
        yield "tcp by name", f"tcp://localhost:{free_port()}"
        if has_ipv6():
            yield "tcp over IPv6", f"tcp://[::1]:{free_port()}"
        else:
            print("SKIPPED tcp over IPv6: this machine has no ::1")
        yield "unix", f"unix://{self.folder}/meet"
        yield "unix with a long path", "unix://" + self.long_folder(150) + "/meet"
        yield "file", "file://" + self.new_folder("meet-here")

    def long_folder(self, length):
        path = self.folder
        while len(path) < length:
            path = os.path.join(path, "d" * max(1, min(50, length - len(path) - 1)))
            os.mkdir(path)
        os.chmod(path, 0o1777)
        return path

    def test_every_kind(self):
        for name, rendezvous in self.ways():
            for size in (1, 2, 3):
                with self.subTest(way=name, size=size):
                    group = self.by_hand(size, rendezvous, "--report", "yes")
                    done = self.assert_group_done(group)
                    self.assertEqual(len({e["report"]["digest"] for e in done}), 1)
                    for event in done:
                        self.assertEqual(
                            set(self.routes_of(event["report"]).values()),
                            {("mapped", "fd+socket")} if size > 1 else set())

    def test_file_makes_its_own_secret(self):
        folder = self.new_folder("meet", 0o700)
        group = self.by_hand(3, f"file://{folder}", env={"RANKLINK_SECRET": None})
        self.assert_group_done(group)
        self.assertEqual(os.listdir(folder), [])

    def test_8_ranks(self):
        self.assert_group_done(self.by_hand(8, f"tcp://127.0.0.1:{free_port()}"))
        self.assert_group_done(self.by_hand(8, "file://" + self.new_folder("meet")))

    def test_rank_0_comes_last(self):
        for rendezvous in (f"tcp://127.0.0.1:{free_port()}", f"unix://{self.folder}/meet",
                           "file://" + self.new_folder("meet-here")):
            with self.subTest(rendezvous=rendezvous):
                group = self.by_hand(3, rendezvous, ranks=(2, 1))
                wait_until(lambda: all(p.events("joining") for p in group), "ranks 1 and 2 join")
                group += self.by_hand(3, rendezvous, ranks=(0,))
                self.assert_group_done(group)

    def test_master_address_is_the_fallback(self):
        group = self.by_hand(2, None, env={"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()})
        self.assert_group_done(group)
        if has_ipv6():
            group = self.by_hand(2, None, env={"MASTER_ADDR": "::1", "MASTER_PORT": free_port()})
            self.assert_group_done(group)

    def test_rendezvous_precedes_master_address(self):
        # Nothing listens at the master's port, as far as ranklink is concerned.
        with socket.socket() as torch:
            torch.bind(("127.0.0.1", 0))
            torch.listen()
            group = self.by_hand(2, f"tcp://127.0.0.1:{free_port()}",
                                 env={"MASTER_ADDR": "127.0.0.1",
                                      "MASTER_PORT": torch.getsockname()[1]})
            self.assert_group_done(group)

    def test_forced_mechanisms(self):
        for mechanism, route in (("fd+socket", ("mapped", "fd+socket")),
                                 ("fd+pidfd", ("mapped", "fd+pidfd")), ("none", ("stream",))):
            for rendezvous in (f"tcp://127.0.0.1:{free_port()}", f"unix://{self.folder}/meet"):
                with self.subTest(mechanism=mechanism, rendezvous=rendezvous):
                    group = self.by_hand(3, rendezvous, "--report", "yes",
                                         env={"RANKLINK_MECHANISM": mechanism})
                    done = self.assert_group_done(group)
                    for found in self.routes_of(done[0]["report"]).values():
                        self.assertEqual(found[:len(route)], route)

    def test_two_jobs_at_once(self):
        first = self.by_hand(3, f"tcp://127.0.0.1:{free_port()}")
        second = self.by_hand(3, "file://" + self.new_folder("meet"),
                              env={"RANKLINK_SECRET": "the secret of another job"})
        self.assert_group_done(first)
        self.assert_group_done(second)

    def test_the_same_meeting_place_again(self):
        for rendezvous in (f"tcp://127.0.0.1:{free_port()}", f"unix://{self.folder}/meet",
                           "file://" + self.new_folder("meet-here")):
            for _ in range(3):
                self.assert_group_done(self.by_hand(2, rendezvous))

    def test_service_variables_of_kubernetes_are_ignored(self):
        group = self.by_hand(2, f"tcp://127.0.0.1:{free_port()}", env={
            "RANKLINK_PORT": "tcp://10.0.0.1:80", "RANKLINK_SERVICE_HOST": "10.0.0.1",
            "RANKLINK_PORT_80_TCP_ADDR": "10.0.0.1", "RANKLINK_SERVICE_PORT_HTTP": "80"})
        self.assert_group_done(group)


class OtherUser(SystemTest):
    """Rank 1 runs as another user than rank 0 and 2."""

    def setUp(self):
        super().setUp()
        self.need_root("ranks of two users")
        self.need_readable_by_nobody()

    def mixed(self, rendezvous, *options, **more):
        return self.by_hand(3, rendezvous, "--report", "yes", *options,
                            before=lambda rank: self.as_nobody() if rank == 1 else [], **more)

    def test_shared_directory(self):
        meet = self.new_folder("sockets")
        for rendezvous in (f"tcp://127.0.0.1:{free_port()}", f"unix://{self.folder}/meet",
                           "file://" + self.new_folder("meet-here")):
            with self.subTest(rendezvous=rendezvous):
                group = self.mixed(rendezvous, env={"RANKLINK_SOCKET_DIR": meet,
                                                    "RANKLINK_MECHANISM": "fd+socket"})
                done = self.assert_group_done(group)
                report = done[0]["report"]
                self.assertEqual([r["uid"] for r in report["ranks"]], [0, NOBODY, 0])
                self.assertEqual(set(self.routes_of(report).values()), {("mapped", "fd+socket")})

    def test_pulling_is_refused_in_one_direction(self):
        group = self.mixed(f"tcp://127.0.0.1:{free_port()}", env={"RANKLINK_TRIALS": "all"})
        report = self.assert_group_done(group)[0]["report"]
        self.assertEqual(set(self.routes_of(report).values()), {("mapped", "fd+socket")})
        no = self.verdict_of(report, (1, 0), "fd+pidfd")
        self.assertIs(no["yes"], False)
        self.assertIn("uid 0", no["cause"])
        self.assertIn(f"{NOBODY}", no["cause"])
        self.assertIn("EPERM", no["cause"])

    def test_file_of_one_user_is_a_secret(self):
        folder = self.new_folder("meet")
        group = self.mixed(f"file://{folder}", env={"RANKLINK_SECRET": None,
                                                    "RANKLINK_JOIN_TIMEOUT": "1s"})
        self.assertEqual(self.finish(group), [1, 1, 1])
        error = self.error_of(group[1])
        self.assertIn("EACCES", error["cause"])
        self.assertIn("RANKLINK_SECRET", error["remedy"])


class SocketDirectories(SystemTest):
    """Ranks with a /dev/shm of their own each: only the directory that is named joins them."""

    def setUp(self):
        super().setUp()
        self.need_root("a /dev/shm for each rank")

    def apart(self, *options, as_nobody=False, **env):
        user = self.as_nobody() if as_nobody else []
        variables = {"TMPDIR": None, **env}
        return self.by_hand(2, f"tcp://127.0.0.1:{free_port()}", "--report", "yes", *options,
                            env=variables, before=lambda rank: [*OWN_SHM, *user])

    def report_of(self, group):
        return self.assert_group_done(group)[0]["report"]

    def test_each_variable(self):
        for name in ("RANKLINK_SOCKET_DIR", "NVIDIA_DRA_LOCAL_IPC_DIR", "XDG_RUNTIME_DIR",
                     "TMPDIR"):
            with self.subTest(name=name):
                group = self.apart(RANKLINK_MECHANISM="fd+socket", **{name: self.tmp})
                routes = self.routes_of(self.report_of(group))
                self.assertEqual(set(routes.values()), {("mapped", "fd+socket")})

    def test_directories_of_all_lengths(self):
        for length in (60, 100, 106, 107, 108, 109, 200):
            with self.subTest(length=length):
                path = self.folder
                while len(path) < length:
                    room = length - len(path) - 1
                    # Leave room for a slash and a name, or end here.
                    path = os.path.join(path, "d" * (room if room <= 50 else min(50, room - 2)))
                    os.makedirs(path, exist_ok=True)
                self.assertEqual(len(path), length)
                group = self.apart(RANKLINK_MECHANISM="fd+socket", TMPDIR=path)
                routes = self.routes_of(self.report_of(group))
                self.assertEqual(set(routes.values()), {("mapped", "fd+socket")})

    def test_no_directory_in_common(self):
        group = self.apart("--set", "RANKLINK_TRIALS=all")
        report = self.report_of(group)
        self.assertEqual(set(self.routes_of(report).values()), {("mapped", "fd+pidfd")})
        no = self.verdict_of(report, (0, 1), "fd+socket")
        self.assertIn("no directory in common", no["cause"])
        self.assertIn("RANKLINK_SOCKET_DIR", no["remedy"])

    def test_no_directory_in_common_and_no_right_to_pull(self):
        self.need_readable_by_nobody()
        group = self.by_hand(2, f"tcp://127.0.0.1:{free_port()}", "--report", "yes",
                             env={"TMPDIR": None},
                             before=lambda r: [*OWN_SHM, *(self.as_nobody() if r == 1 else [])])
        routes = self.routes_of(self.report_of(group))
        self.assertEqual(routes[(1, 0)][0], "stream")

    def test_explicit_socket_mechanism_needs_one(self):
        group = self.apart(RANKLINK_MECHANISM="fd+socket")
        self.assertEqual(self.finish(group), [1, 1])
        for process in group:
            error = self.error_of(process)
            self.assertEqual(error["name"], "mechanism_unavailable")
            self.assertIn("no directory in common", error["cause"])
            self.assertIn("RANKLINK_SOCKET_DIR", error["remedy"])


class MissingDirectories(SystemTest):
    def test_tmpdir_that_is_missing(self):
        group = self.by_hand(2, f"tcp://127.0.0.1:{free_port()}", "--report", "yes",
                             env={"TMPDIR": self.folder + "/missing"})
        done = self.assert_group_done(group)
        self.assertEqual(set(self.routes_of(done[0]["report"]).values()),
                         {("mapped", "fd+socket")})

    def test_tmpdir_that_is_a_file_or_odd(self):
        file = self.folder + "/file"
        with open(file, "w", encoding="utf-8"):
            pass
        for value in (file, "", "relative/path", self.folder + "/missing\n"):
            with self.subTest(value=value):
                self.assert_group_done(self.by_hand(
                    2, f"tcp://127.0.0.1:{free_port()}", env={"TMPDIR": value}))

    def test_socket_directory_that_is_missing(self):
        missing = self.folder + "/missing"
        group = self.by_hand(2, f"tcp://127.0.0.1:{free_port()}",
                             env={"RANKLINK_SOCKET_DIR": missing, "RANKLINK_JOIN_TIMEOUT": "20s"})
        self.assertEqual(self.finish(group, 15), [1, 1])
        for process in group:
            error = self.error_of(process)
            self.assertEqual(error["name"], "setting_invalid", error)
            self.assertIn(f"RANKLINK_SOCKET_DIR={missing}", error["cause"])
            self.assertTrue(error["remedy"])

    def test_socket_directory_that_is_missing_on_one_rank(self):
        group = self.by_hand(2, f"tcp://127.0.0.1:{free_port()}",
                             env={"RANKLINK_JOIN_TIMEOUT": "20s"},
                             of_rank=lambda r: {"RANKLINK_SOCKET_DIR": "/missing"} if r else {})
        self.assertEqual(self.finish(group, 15), [1, 1])
        for process in group:
            error = self.error_of(process)
            self.assertEqual((error["name"], error["rank"]), ("setting_invalid", 1), error)

    def test_launched_ranks_need_no_directory(self):
        process = self.launch(2, env={"TMPDIR": "/missing", "XDG_RUNTIME_DIR": "/missing"})
        self.assertEqual(process.wait(), 0, process.story())


class Strangers(SystemTest):
    """Whoever knocks at the rendezvous without the secret costs the job nothing."""

    def connect(self, port):
        stranger = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.addCleanup(stranger.close)
        return stranger

    def knocked(self, port, kinds):
        if "closed" in kinds:
            for _ in range(20):
                self.connect(port).close()
        if "silent" in kinds:
            for _ in range(20):
                self.connect(port)
        if "half" in kinds:
            self.connect(port).sendall(b"RLN")
        if "http" in kinds:
            self.connect(port).sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        if "garbage" in kinds:
            self.connect(port).sendall(os.urandom(65536))
        if "long" in kinds:  # the header of a frame of 4 GiB
            self.connect(port).sendall(b"RLNK" + b"\x01\x00\x02\x00" + b"\xff" * 4 + b"\0" * 4)

    def bring_up(self, kinds=(), others=()):
        port = free_port()
        rendezvous = f"tcp://127.0.0.1:{port}"
        group = self.by_hand(3, rendezvous, ranks=(0, 1))

        def open_yet():
            try:
                self.connect(port).close()
                return True
            except ConnectionRefusedError:
                return False
        wait_until(open_yet, "rank 0 listens")
        self.knocked(port, kinds)
        for secret in others:
            # Another job's rank: proves itself with another secret, and is refused at once.
            other = self.by_hand(3, rendezvous, ranks=(2,), env={
                "RANKLINK_SECRET": secret, "RANKLINK_JOIN_TIMEOUT": "20s"})[0]
            self.assertEqual(other.wait(15), 1, other.story())
            error = self.error_of(other)
            self.assertEqual(error["name"], "secret_mismatch", error)
            self.assertNotIn(secret, other.stderr + other.stdout)
            self.assertNotIn(SECRET, other.stderr + other.stdout)
        start = time.monotonic()
        group += self.by_hand(3, rendezvous, ranks=(2,))
        self.assert_group_done(group)
        return time.monotonic() - start

    def test_strangers(self):
        for kind in ("closed", "silent", "half", "http", "garbage", "long"):
            with self.subTest(kind=kind):
                # A stranger has 2 s to prove itself: nobody may have waited for that.
                self.assertLess(self.bring_up([kind]), death_limit())

    def test_all_at_once(self):
        self.assertLess(self.bring_up(["closed", "silent", "half", "http", "garbage", "long"],
                                      others=["another job's secret", "and yet another secret"]),
                        death_limit())

    def test_strangers_that_keep_coming(self):
        port = free_port()
        group = self.by_hand(2, f"tcp://127.0.0.1:{port}", ranks=(0,))
        count = 0
        end = time.monotonic() + 1
        while time.monotonic() < end or count == 0:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
                    stranger.sendall(b"\0" * (count % 64))
                count += 1
            except (ConnectionError, socket.timeout):
                pass
        group += self.by_hand(2, f"tcp://127.0.0.1:{port}", ranks=(1,))
        self.assert_group_done(group)


if __name__ == "__main__":
    main()
