"""`ranklink run` with programs that know nothing of ranklink: ends, output, signals, time."""

import os
import signal
import subprocess
import time

from support import COMMAND, RANKS, SystemTest, main, read, wait_until


class RunTest(SystemTest):
    def sh(self, size, script, *options, env=None, stdin=subprocess.DEVNULL):
        return self.start(COMMAND, "run", "-n", size, *options, "--", "sh", "-c", script, env=env,
                          stdin=stdin)

    def end(self, process, code, within=30):
        start = time.monotonic()
        self.assertEqual(process.wait(), code, process.story())
        self.assertLess(time.monotonic() - start, within, process.story())
        return process


class Ends(RunTest):
    def test_exit_codes(self):
        self.end(self.sh(3, "exit 0"), 0)
        self.end(self.sh(3, '[ $RANK != 1 ] || exit 42'), 42)
        self.end(self.sh(3, '[ $RANK != 2 ] || kill -SEGV $$; sleep 30'), 139)
        self.end(self.sh(3, '[ $RANK != 0 ] || kill -KILL $$; sleep 30'), 137)
        self.end(self.sh(1, "exit 255"), 255)

    def test_the_first_failure_is_the_reason(self):
        # The others are ended by the launcher, which isn't what went wrong.
        process = self.end(self.sh(4, '[ $RANK = 2 ] && exit 7; exec sleep 30'), 7, within=6)
        self.assertIn("rank 2", process.stderr)
        self.assertIn("code 7", process.stderr)
        self.assertNotIn("rank 0", process.stderr)

    def test_others_that_ignore_the_end(self):
        self.end(self.sh(2, "trap '' TERM INT HUP; [ $RANK = 1 ] && exit 7; "
                            "while :; do sleep 1; done"), 7, within=8)

    def test_program_that_is_missing(self):
        for program, words in (("/no/such/program", "ENOENT"), ("no-such-program", "ENOENT"),
                               ("/etc/passwd", "EACCES"), ("/", "EACCES")):
            # A PATH with a folder that this user can't look into would give EACCES.
            process = self.run_to_end(COMMAND, "run", "-n", 2, "--", program,
                                      env={"PATH": "/usr/bin:/bin"})
            self.assertEqual(process.popen.returncode, 1, process.story())
            self.assertIn("RL1601", process.stderr)
            self.assertIn(program, process.stderr)
            self.assertIn(words, process.stderr)
            self.assertIn("remedy", process.stderr)

    def test_what_ranks_leave_behind_is_ended(self):
        process = self.sh(2, "sleep 300 & (setsid sleep 300 &) ; echo started")
        self.end(process, 0, within=10)
        # SystemTest looks for processes that are left.

    def test_last_lines_of_the_failed_rank(self):
        process = self.end(self.sh(2, '[ $RANK = 1 ] && { echo why it failed >&2; exit 5; }; '
                                      'exec sleep 30'), 5)
        self.assertIn("why it failed", process.stderr.partition("ranklink:")[2])


class Output(RunTest):
    def test_prefix(self):
        process = self.end(self.sh(3, "echo out; echo err >&2"), 0)
        self.assertEqual(sorted(process.stdout.splitlines()), ["[0] out", "[1] out", "[2] out"])
        self.assertEqual(sorted(process.stderr.splitlines()), ["[0] err", "[1] err", "[2] err"])

    def test_no_prefix(self):
        process = self.end(self.sh(3, "echo out; echo err >&2", "--no-prefix"), 0)
        self.assertEqual(process.stdout, "out\n" * 3)
        self.assertEqual(process.stderr, "err\n" * 3)

    def test_a_last_line_without_an_end(self):
        process = self.end(self.sh(2, "printf 'no end'"), 0)
        self.assertEqual(sorted(process.stdout.splitlines()), ["[0] no end", "[1] no end"])

    def test_lines_stay_whole(self):
        count, width = 3000, 200
        process = self.end(self.sh(4, f'i=0; line=$(printf "%0{width}d" $RANK); '
                                      f'while [ $i -lt {count} ]; do echo $line; i=$((i+1)); done'),
                           0)
        lines = process.stdout.splitlines()
        self.assertEqual(len(lines), 4 * count)
        self.assertEqual(set(lines), {f"[{r}] " + str(r).zfill(width) for r in range(4)})

    def test_standard_input_is_rank_0s(self):
        with open(f"{self.folder}/input", "w+", encoding="utf-8") as file:
            file.write("what is read\n")
            file.flush()
            file.seek(0)
            process = self.end(self.sh(3, "cat", stdin=file), 0)
        self.assertEqual(process.stdout, "[0] what is read\n")

    def test_variables(self):
        process = self.end(self.sh(3, 'echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE '
                                      '$MASTER_ADDR ${MASTER_PORT:+port} ${KEPT}',
                                   "--no-prefix", env={"KEPT": "kept", "RANK": "9",
                                                       "WORLD_SIZE": "9"}), 0)
        self.assertEqual(sorted(process.stdout.splitlines()),
                         [f"{r} {r} 3 3 127.0.0.1 port kept" for r in range(3)])

    def test_the_secret_is_in_no_argument(self):
        process = self.start(COMMAND, "run", "--no-prefix", "-n", 1, "--", "sh", "-c",
                             'echo "$RANKLINK_SECRET"; tr "\\0" " " < /proc/$PPID/cmdline')
        self.end(process, 0)
        secret, _, command = process.stdout.partition("\n")
        self.assertGreaterEqual(len(secret), 32)
        self.assertNotIn(secret, command)

    def test_limits_of_ranks_are_those_of_the_user(self):
        process = self.run_to_end("prlimit", "--nofile=200:300", COMMAND, "run", "-n", 2,
                                  "--no-prefix", "--", "sh", "-c", "ulimit -Sn; ulimit -Hn")
        self.assertEqual(sorted(process.stdout.split()), ["200", "200", "300", "300"])

    def test_inherited_descriptors(self):
        process = self.end(self.sh(2, 'ls /proc/self/fd | tr "\\n" " "', "--no-prefix"), 0)
        # 0, 1, 2, the launcher's socket, and what ls opens itself.
        self.assertLessEqual(len(process.stdout.split()), 2 * 5, process.stdout)


class Signals(RunTest):
    def say_started(self, process, count):
        wait_until(lambda: process.stdout.count("started") == count or not process.running(),
                   "ranks have started")

    def test_users_signals_are_forwarded(self):
        process = self.sh(2, 'trap "echo got it; exit 0" USR1; echo started; '
                             'while :; do sleep 0.02; done')
        self.say_started(process, 2)
        process.signal(signal.SIGUSR1)
        self.end(process, 0)
        self.assertEqual(process.stdout.count("got it"), 2)

    def test_ends(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number=number):
                process = self.sh(2, 'echo started; exec sleep 300')
                self.say_started(process, 2)
                process.signal(number)
                self.end(process, 128 + number, within=8)

    def test_programs_may_tidy_up(self):
        process = self.sh(2, 'trap "sleep 0.3; echo tidy; exit 0" TERM; echo started; '
                             'while :; do sleep 0.02; done')
        self.say_started(process, 2)
        process.signal(signal.SIGTERM)
        self.end(process, 128 + signal.SIGTERM, within=8)
        self.assertEqual(process.stdout.count("tidy"), 2)

    def test_programs_that_do_not_want_to_end(self):
        process = self.sh(2, 'trap "" INT TERM; echo started; while :; do sleep 0.05; done')
        self.say_started(process, 2)
        process.signal(signal.SIGINT)
        self.end(process, 130, within=10)

    def test_a_second_interrupt_kills(self):
        process = self.sh(2, 'trap "" INT TERM; echo started; while :; do sleep 0.05; done')
        self.say_started(process, 2)
        process.signal(signal.SIGINT)
        time.sleep(0.4)  # a second one, and not an echo of the first
        process.signal(signal.SIGINT)
        self.end(process, 130, within=3)


class Time(RunTest):
    def test_run_timeout(self):
        process = self.sh(3, "[ $RANK = 1 ] || exec sleep 300", "--run-timeout", "700ms")
        self.end(process, 124, within=8)
        self.assertIn("RL1507", process.stderr)
        self.assertIn("rank 0", process.stderr)
        self.assertIn("rank 2", process.stderr)
        self.assertNotIn("rank 1", process.stderr)
        self.assertIn("--run-timeout", process.stderr)

    def test_run_timeout_of_the_environment(self):
        self.end(self.sh(1, "exec sleep 300", env={"RANKLINK_RUN_TIMEOUT": "300ms"}), 124, within=8)

    def test_run_timeout_that_is_not_reached(self):
        self.end(self.sh(2, "exit 0", "--run-timeout", "50s"), 0)

    def test_run_timeout_of_a_group(self):
        process = self.launch(2, RANKS, "--hold", self.gate, options=["--run-timeout", "3s"])
        self.end(process, 124, within=15)
        self.assertIn("RL1507", process.stderr)

    def test_join_timeout(self):
        process = self.launch(3, "sh", "-c", '[ $RANK = 1 ] && exec sleep 300; exec "$0"', RANKS,
                              options=["--join-timeout", "1s"])
        self.end(process, 1, within=10)
        errors = process.events("error")
        self.assertEqual({(e["name"], e["rank"]) for e in errors}, {("ranks_missing", 1)},
                         process.story())
        self.assertIn("rank 1", process.stderr)
        self.assertIn("never joined", process.stderr)

    def test_terminal_stop(self):
        """Ctrl-Z stops the ranks too, and doesn't use up the time they have."""
        process = self.sh(2, "echo started; sleep 0.5", "--run-timeout", "5s")
        wait_until(lambda: process.stdout.count("started") == 2, "ranks have started")
        process.signal(signal.SIGTSTP)
        wait_until(lambda: "T" in read(f"/proc/{process.pid}/stat").rpartition(")")[2][:3],
                   "the launcher stands still")
        os.kill(process.pid, signal.SIGCONT)
        self.end(process, 0)


if __name__ == "__main__":
    main()
