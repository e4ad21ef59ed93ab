"""`ranklink check`: sizes, mechanisms, its JSON document, and what it does, seen from outside."""

import json
import os
import signal

from support import (COMMAND, DENY_SYSCALL, SystemTest, children_of, main, segments_of, switches_of,
                     variable_of, wait_until)

STEPS = ["join", "inspect", "propose", "try", "agree", "ready"]


class Sizes(SystemTest):
    def test_small_groups(self):
        for size in (1, 2, 3, 8):
            with self.subTest(size=size):
                document = self.good_check("-n", size)
                self.assertEqual(document["size"], size)
                self.assertEqual([r["rank"] for r in document["ranks"]], list(range(size)))
                routes = self.routes_of(document)
                self.assertEqual(len(routes), size * (size - 1))
                self.assertEqual(set(routes.values()),
                                 {("mapped", "fd+socket")} if size > 1 else set())

    def test_64_ranks(self):
        process = self.launch(64, options=["--mechanism", "auto"])
        self.assertEqual(process.wait(), 0, process.story())
        done = process.events("done")
        self.assertEqual(sorted(e["rank"] for e in done), list(range(64)), process.story())
        self.assertEqual({e["wrong"] for e in done}, {0})

    def test_without_n_there_are_two(self):
        self.assertEqual(self.good_check()["size"], 2)


class Mechanisms(SystemTest):
    def test_forced(self):
        for mechanism, route in (("fd+socket", "mapped"), ("fd+pidfd", "mapped"),
                                 ("none", "stream")):
            for size in (2, 3):
                with self.subTest(mechanism=mechanism, size=size):
                    document = self.good_check("-n", size, "--mechanism", mechanism)
                    self.assertEqual({r[0] for r in self.routes_of(document).values()}, {route})
                    if mechanism != "none":
                        self.assertEqual({r[1] for r in self.routes_of(document).values()},
                                         {mechanism})
                    # What wasn't asked for isn't even tried.
                    tried = {v["mechanism"] for r in document["routes"] for v in r["verdicts"]}
                    self.assertEqual(tried, {"stream" if mechanism == "none" else mechanism})

    def test_auto_tries_all(self):
        document = self.good_check("-n", 3)
        for route in document["routes"]:
            if route["from"] == route["to"]:
                continue
            self.assertEqual({v["mechanism"]: (v["yes"], v["tried"]) for v in route["verdicts"]},
                             {"fd+socket": (True, True), "fd+pidfd": (True, True),
                              "stream": (True, True)})

    def test_environment_and_option(self):
        document = self.good_check(env={"RANKLINK_MECHANISM": "none"})
        self.assertEqual({r[0] for r in self.routes_of(document).values()}, {"stream"})
        origins = {s["name"]: (s["value"], s["origin"]) for s in document["settings"]}
        self.assertEqual(origins["RANKLINK_MECHANISM"], ("none", "environment"))
        document = self.good_check("--mechanism", "fd+pidfd", env={"RANKLINK_MECHANISM": "none"})
        self.assertEqual({r[1] for r in self.routes_of(document).values()}, {"fd+pidfd"})


class Document(SystemTest):
    """Keys and types of `check --json`, whatever the machine."""

    def need(self, value, kind, where):
        kinds = {"text": str, "whole": int, "number": (int, float), "yes": bool, "list": list,
                 "object": dict}
        self.assertIsInstance(value, kinds[kind], where)
        if kind in ("whole", "number"):
            self.assertNotIsInstance(value, bool, where)

    def need_all(self, entry, kinds, where):
        self.assertEqual(set(entry), set(kinds), where)
        for name, kind in kinds.items():
            self.need(entry[name], kind, f"{where}.{name}")

    def test_success(self):
        document = self.good_check("-n", 3)
        self.need_all(document, {
            "format": "text", "version": "whole", "ok": "yes", "size": "whole", "epoch": "whole",
            "digest": "text", "ready_ms": "number", "processes_ms": "number", "ranks": "list",
            "routes": "list", "timeline": "list", "settings": "list", "all_reduce": "list"},
            "document")
        self.assertEqual((document["format"], document["version"]), ("ranklink-check", 1))
        self.assertRegex(document["digest"], r"^[0-9a-f]{64}$")
        self.assertGreater(document["ready_ms"], 0)
        self.assertGreater(document["processes_ms"], 0)
        for rank in document["ranks"]:
            self.need_all(rank, {
                "rank": "whole", "pid": "whole", "host": "text", "address": "text", "uid": "whole",
                "container": "text", "namespaces": "list", "shares_with_rank_0": "list"}, "ranks")
            self.assertEqual(len(rank["namespaces"]), 6)
            self.assertEqual(len(set(rank["shares_with_rank_0"])), 6)
        self.assertEqual([(r["from"], r["to"]) for r in document["routes"]],
                         [(a, b) for a in range(3) for b in range(3)])
        for route in document["routes"]:
            own = route["from"] == route["to"]
            for name, kind in (("from", "whole"), ("to", "whole"), ("route", "text"),
                               ("mechanism", "text"), ("verdicts", "list")):
                self.need(route[name], kind, f"routes.{name}")
            self.assertEqual(set(route), {"from", "to", "route", "mechanism", "verdicts",
                                          "bandwidth", "latency"})
            if own:
                self.assertEqual((route["route"], route["verdicts"], route["bandwidth"],
                                  route["latency"]), ("self", [], None, None))
                continue
            self.assertIn(route["route"], ("mapped", "stream"))
            self.need(route["bandwidth"], "number", "routes.bandwidth")
            self.need(route["latency"], "number", "routes.latency")
            # Bytes and seconds: a nanosecond is too good, and so is a terabyte a second.
            self.assertTrue(1e6 < route["bandwidth"] < 1e12, route)
            self.assertTrue(1e-9 < route["latency"] < 10, route)
            for verdict in route["verdicts"]:
                self.need_all(verdict, {"mechanism": "text", "yes": "yes", "tried": "yes",
                                        "rank": "whole", "cause": "text", "remedy": "text"},
                              "verdicts")
        steps = {}
        for step in document["timeline"]:
            self.need_all(step, {"rank": "whole", "step": "text", "start_ms": "number",
                                 "end_ms": "number"}, "timeline")
            self.assertLessEqual(step["start_ms"], step["end_ms"], step)
            steps.setdefault(step["rank"], []).append(step["step"])
        self.assertEqual(steps, {rank: STEPS for rank in range(3)})
        for setting in document["settings"]:
            self.need_all(setting, {"name": "text", "value": "text", "origin": "text"}, "settings")
        self.assertIn({"name": "RANKLINK_SECRET", "value": "(set)", "origin": "environment"},
                      document["settings"])
        for entry in document["all_reduce"]:
            self.need_all(entry, {"bytes": "whole", "wrong": "whole", "right": "yes"}, "all_reduce")

    def test_failure(self):
        process = self.check("-n", 2, "--mechanism", "fd+pidfd",
                             before=[DENY_SYSCALL, "pidfd_getfd=EPERM", "--"])
        self.assertEqual(process.popen.returncode, 1, process.story())
        document = process.document()
        self.assertIs(document["ok"], False)
        self.need_all(document["error"], {
            "code": "text", "name": "text", "rank": "whole", "peer": "whole", "step": "text",
            "cause": "text", "remedy": "text", "context": "text"}, "error")
        self.assertRegex(document["error"]["code"], r"^RL\d{4}$")
        self.assertTrue(document["error"]["cause"])
        self.assertTrue(document["error"]["remedy"])

    def test_failure_before_any_rank_runs(self):
        process = self.check("-n", 2, "--isolate", "uts",
                             before=[DENY_SYSCALL, "sethostname=EPERM", "--"])
        self.assertEqual(process.popen.returncode, 1, process.story())
        document = process.document()
        self.assertIs(document["ok"], False)
        self.assertEqual(document["error"]["name"], "isolation_refused")

    def test_text_for_people(self):
        process = self.run_to_end(COMMAND, "check", "-n", 3)
        self.assertEqual(process.popen.returncode, 0, process.story())
        for part in ("Ranks", "Routes", "Mechanisms that worked: fd+pidfd, fd+socket, stream",
                     "Steps", "right on all ranks", "Ready "):
            self.assertIn(part, process.stdout)
        self.assertLessEqual(max(map(len, process.stdout.splitlines())), 140)


class FromOutside(SystemTest):
    def held(self, size, *options):
        """A held group: its launcher, its document, and the pids of its ranks, in order."""
        process = self.start(COMMAND, "check", "-n", size, "--hold", "60s", "--json", *options)

        def shown():
            if not process.running():
                self.fail(process.story())
            try:
                return json.loads(process.stdout)
            except ValueError:
                return None
        document = wait_until(shown, "a held group prints its document")
        pids = sorted(children_of(process.pid), key=lambda pid: int(variable_of(pid, "RANK")))
        self.assertEqual(len(pids), size)
        return process, document, pids

    def release(self, process):
        process.signal(signal.SIGINT)
        self.assertEqual(process.wait(), 128 + signal.SIGINT, process.story())

    def test_mapped_ranks_map_the_same_memory(self):
        for mechanism in ("fd+socket", "fd+pidfd"):
            with self.subTest(mechanism=mechanism):
                process, document, pids = self.held(3, "--mechanism", mechanism)
                self.assertEqual(set(self.routes_of(document).values()), {("mapped", mechanism)})
                maps = [segments_of(pid) for pid in pids]
                self.assertEqual(set(maps[0]), {f"ranklink-segment-{r}" for r in range(3)})
                self.assertEqual(maps[0], maps[1])
                self.assertEqual(maps[0], maps[2])
                self.assertEqual(len(set(maps[0].values())), 3)  # one memory a rank
                self.assertEqual([r["pid"] for r in document["ranks"]], pids)
                self.release(process)

    def test_with_none_no_rank_maps_anothers_memory(self):
        process, document, pids = self.held(3, "--mechanism", "none")
        self.assertEqual({r[0] for r in self.routes_of(document).values()}, {"stream"})
        for rank, pid in enumerate(pids):
            self.assertLessEqual(set(segments_of(pid)), {f"ranklink-segment-{rank}"})
        self.release(process)

    def test_a_group_that_is_held_uses_no_processor(self):
        process, _, pids = self.held(2)
        # It sleeps between looks: it isn't found running each time.
        before = [switches_of(pid) for pid in pids]
        wait_until(lambda: all(switches_of(pid) > b + 5 for pid, b in zip(pids, before)),
                   "held ranks sleep")
        self.release(process)

    def test_hold_ends_by_itself(self):
        process = self.run_to_end(COMMAND, "check", "-n", 2, "--hold", "300ms", "--json")
        self.assertEqual(process.popen.returncode, 0, process.story())
        self.assertIs(process.document()["ok"], True)

    def test_a_rank_that_is_killed_while_held(self):
        process, _, pids = self.held(3)
        os.kill(pids[1], signal.SIGKILL)
        self.assertEqual(process.wait(10), 1, process.story())
        self.assertIn("rank 1", process.stderr)
        self.assertIn("SIGKILL", process.stderr)


class Usage(SystemTest):
    def test_bad_usage_exits_2(self):
        for words in ([], ["chekc"], ["check", "--bogus"], ["check", "-n", "0"],
                      ["check", "-n", "x"], ["check", "-n"], ["check", "-n", "1025"],
                      ["check", "--isolate", "network"], ["check", "--isolate", "pid,"],
                      ["check", "--mechanism", "sockets"], ["check", "--hold", "long"],
                      ["check", "--join-timeout", "-1s"], ["check", "--device", "gpu"],
                      ["run"], ["run", "-n", "2"], ["run", "-n", "2", "--"],
                      ["run", "--", "true"], ["run", "-n", "2", "--bogus", "--", "true"],
                      ["settings", "more"], ["--bogus"]):
            with self.subTest(words=words):
                process = self.run_to_end(COMMAND, *words)
                self.assertEqual(process.popen.returncode, 2, process.story())
                self.assertTrue(process.stderr or process.stdout, process.story())

    def test_near_words_are_suggested(self):
        for words, near in ((["check", "--isolate", "network"], "net"),
                            (["check", "--mechanism", "fd+sockets"], "fd+socket"),
                            (["run", "-n", "2", "--no-prefx", "--", "true"], "--no-prefix")):
            with self.subTest(words=words):
                process = self.run_to_end(COMMAND, *words)
                self.assertIn(f"did you mean {near}?", process.stderr, process.story())

    def test_unknown_setting(self):
        for words in (["check"], ["run", "-n", "1", "--", "true"], ["settings"]):
            process = self.run_to_end(COMMAND, *words, env={"RANKLINK_MECANISM": "none"})
            self.assertEqual(process.popen.returncode, 2, process.story())
            self.assertIn("RL1001", process.stderr)
            self.assertIn("RANKLINK_MECANISM", process.stderr)
            self.assertIn("did you mean RANKLINK_MECHANISM?", process.stderr)

    def test_service_variables_of_kubernetes_are_ignored(self):
        self.good_check(env={
            "RANKLINK_PORT": "tcp://10.0.0.1:80", "RANKLINK_SERVICE_HOST": "10.0.0.1",
            "RANKLINK_SERVICE_PORT": "80", "RANKLINK_SERVICE_PORT_HTTP": "80",
            "RANKLINK_PORT_80_TCP": "tcp://10.0.0.1:80", "RANKLINK_PORT_80_TCP_PROTO": "tcp",
            "RANKLINK_PORT_80_TCP_PORT": "80", "RANKLINK_PORT_80_TCP_ADDR": "10.0.0.1",
            "RANKLINK_WEB_SERVICE_HOST": "10.0.0.2", "RANKLINK_WEB_PORT": "udp://10.0.0.2:53"})

    def test_help_and_version(self):
        for words in (["--help"], ["check", "--help"], ["run", "--help"], ["settings", "--help"],
                      ["--version"]):
            process = self.run_to_end(COMMAND, *words)
            self.assertEqual(process.popen.returncode, 0, process.story())
            self.assertTrue(process.stdout)

    def test_settings_as_json_hide_the_secret(self):
        process = self.run_to_end(COMMAND, "settings", "--json",
                                  env={"RANKLINK_SECRET": "do not show this text",
                                       "RANKLINK_JOIN_TIMEOUT": "7s"})
        self.assertEqual(process.popen.returncode, 0, process.story())
        self.assertNotIn("do not show", process.stdout)
        settings = {s["name"]: (s["value"], s["origin"]) for s in json.loads(process.stdout)}
        self.assertEqual(settings["RANKLINK_JOIN_TIMEOUT"], ("7s", "environment"))
        self.assertEqual(settings["RANKLINK_SECRET"], ("(set)", "environment"))


if __name__ == "__main__":
    main()
