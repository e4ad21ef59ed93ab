"""`ranklink bench`: what it measures, its table, its JSON document, and that its check can fail."""

import os
import pty
import shutil
import signal
import subprocess
import unittest

from support import COMMAND, SANITIZED, SystemTest, children_of, main, wait_until

BLOCKS = ("all_gather", "reduce_scatter", "gather", "scatter", "all_to_all")
MOVING = ("all_gather", "broadcast", "gather", "scatter", "all_to_all", "send_recv")
REDUCING = ("all_reduce", "reduce_scatter", "reduce")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
SHARED = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
TYPES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i8": 1, "u8": 1, "i32": 4, "i64": 8}
OPS = ("sum", "prod", "min", "max", "avg")

# For LD_PRELOAD: rank 1 fills its buffer wrongly, in the last byte of what is so long as no other
# copy of the program. Setting it, not flipping it: a second copy must not put it right.
CORRUPT_COPY = r"""
#include <stdlib.h>
#include <string.h>
void* memcpy(void* to, const void* from, size_t size) {
  memmove(to, from, size);
  const char* rank = size == LENGTH ? getenv("RANK") : 0;
  if (rank && rank[0] == '1') ((unsigned char*)to)[size - 1] = 0x55;
  return to;
}
"""


class BenchTest(SystemTest):
    def bench(self, *options, env=None):
        return self.run_to_end(COMMAND, "bench", *options, env=env)

    def document_of(self, *options, wrong=0):
        process = self.bench(*options, "--json")
        self.assertEqual(process.popen.returncode, 0, process.story())
        self.assertEqual(process.stderr, "", process.story())
        document = process.document()
        self.assertIs(document["ok"], True)
        self.assertEqual(document["wrong"], wrong, process.story())
        self.assertEqual({row["wrong"] for row in document["rows"]}, {wrong}, process.story())
        return document


class Collectives(BenchTest):
    def factor(self, collective, size):
        if collective == "all_reduce":
            return 2 * (size - 1) / size
        return (size - 1) / size if collective in BLOCKS else 1

    def need_arithmetic(self, document, collective, size):
        for row in document["rows"]:
            blocks = size if collective in BLOCKS else 1
            self.assertEqual(row["size"], row["count"] * TYPES[row["type"]] * blocks, row)
            self.assertGreater(row["time_us"], 0)
            self.assertAlmostEqual(row["algbw"] / (row["size"] / row["time_us"] / 1e3), 1)
            self.assertAlmostEqual(row["busbw"], row["algbw"] * self.factor(collective, size))
            self.assertEqual(row["root"], 0 if collective in ROOTED else -1)
            self.assertEqual(row["redop"], "sum" if collective in REDUCING else "none")
        rates = [row["busbw"] for row in document["rows"]]
        self.assertAlmostEqual(document["average_busbw"], sum(rates) / len(rates))

    def test_all_with_two(self):
        for collective in REDUCING + MOVING:
            with self.subTest(collective=collective):
                document = self.document_of(collective, "--max", "64K", "--iterations", "3")
                self.assertEqual(document["ranks"], 2)
                self.assertEqual([r["size"] for r in document["rows"]],
                                 [1 << i for i in range(3, 17)])
                self.need_arithmetic(document, collective, 2)

    def test_all_with_three(self):
        for collective in REDUCING + MOVING:
            with self.subTest(collective=collective):
                document = self.document_of(collective, "-n", 3, "--max", "1M", "--step-factor",
                                            "512", "--iterations", "2")
                self.need_arithmetic(document, collective, 3)
                self.assertEqual([r["size"] for r in document["rows"]],
                                 [12, 4092] if collective in BLOCKS
                                 else [8, 4096])

    def test_all_with_one(self):
        for collective in REDUCING + MOVING + ("barrier",):
            if collective == "send_recv":
                continue
            with self.subTest(collective=collective):
                sizes = [] if collective == "barrier" else ["--max", "1K"]
                process = self.bench(collective, "-n", 1, "--iterations", 2, *sizes)
                self.assertEqual(process.popen.returncode, 0, process.story())
                self.assertIn("# routes: none", process.stdout)

    def test_barrier_has_one_row(self):
        document = self.document_of_barrier()
        self.assertEqual(len(document["rows"]), 1)
        row = document["rows"][0]
        self.assertEqual((row["size"], row["count"], row["algbw"], row["busbw"], row["wrong"]),
                         (0, 0, 0, 0, None))
        self.assertGreater(row["time_us"], 0)
        self.assertIsNone(document["average_busbw"])

    def document_of_barrier(self):
        process = self.bench("barrier", "-n", 3, "--json")
        self.assertEqual(process.popen.returncode, 0, process.story())
        return process.document()

    def test_in_place(self):
        for collective in REDUCING + MOVING:
            if collective == "send_recv":
                continue
            with self.subTest(collective=collective):
                document = self.document_of(collective, "-n", 3, "--in-place", "--min", "100",
                                            "--max", "300K", "--step-factor", 64,
                                            "--iterations", 2)
                self.assertIs(document["in_place"], True)

    def test_shared(self):
        for collective in SHARED:
            for size in (2, 3):
                with self.subTest(collective=collective, size=size):
                    document = self.document_of(collective, "-n", size, "--shared", "--max", "300K",
                                                "--step-factor", 64, "--iterations", 2)
                    self.assertIs(document["shared"], True)
                    self.need_arithmetic(document, collective, size)

    def test_streams(self):
        for collective in REDUCING + MOVING:
            with self.subTest(collective=collective):
                document = self.document_of(collective, "-n", 3, "--mechanism", "none", "--max",
                                            "300K", "--step-factor", 64, "--iterations", 2)
                self.assertEqual({r["route"] for r in document["routes"]}, {"stream"})

    def test_streams_with_a_shared_buffer(self):
        self.document_of("all_reduce", "--shared", "--mechanism", "none", "--max", "64K",
                         "--step-factor", 64, "--iterations", 2)

    def test_other_roots(self):
        for collective in ROOTED:
            with self.subTest(collective=collective):
                document = self.document_of(collective, "-n", 3, "--root", 2, "--max", "4K",
                                            "--step-factor", 16, "--iterations", 2)
                self.assertEqual({row["root"] for row in document["rows"]}, {2})


class TypesAndOps(BenchTest):
    def test_reductions(self):
        for dtype in TYPES:
            for op in OPS:
                with self.subTest(dtype=dtype, op=op):
                    document = self.document_of("all_reduce", "-n", 3, "--dtype", dtype, "--op", op,
                                                "--min", 1, "--max", "4K", "--step-factor", 64,
                                                "--iterations", 1)
                    self.assertEqual({(row["type"], row["redop"]) for row in document["rows"]},
                                     {(dtype, op)})

    def test_moves(self):
        for dtype in ("f16", "u8", "f64"):
            with self.subTest(dtype=dtype):
                self.document_of("all_to_all", "-n", 3, "--dtype", dtype, "--max", "300K",
                                 "--step-factor", 64, "--iterations", 1)


class Document(BenchTest):
    def test_keys(self):
        document = self.document_of("all_reduce", "--min", "4K", "--max", "64K")
        self.assertEqual(set(document), {
            "format", "version", "command", "collective", "ranks", "shared", "in_place", "machine",
            "routes", "rows", "wrong", "average_busbw", "ok"})
        self.assertEqual((document["format"], document["version"]), ("ranklink-bench", 1))
        self.assertEqual(document["command"],
                         "ranklink bench all_reduce --min 4K --max 64K --json")
        self.assertEqual(set(document["machine"]), {"host", "cpu", "cores"})
        self.assertEqual(document["machine"]["cores"], len(os.sched_getaffinity(0)))
        self.assertEqual([(r["from"], r["to"], r["route"], r["mechanism"])
                          for r in document["routes"]],
                         [(0, 1, "mapped", "fd+socket"), (1, 0, "mapped", "fd+socket")])
        for row in document["rows"]:
            self.assertEqual(set(row), {"size", "count", "type", "redop", "root", "iterations",
                                        "time_us", "algbw", "busbw", "wrong"})
        # Without --iterations there are so many that a size takes a while. Each is chosen by a
        # trial, which the machine can make long by what else it does, but hardly all of them.
        self.assertGreater(max(row["iterations"] for row in document["rows"]), 20, document)

    def test_without_a_check(self):
        document = self.bench("all_reduce", "--max", 64, "--iterations", 1, "--no-check",
                              "--json").document()
        self.assertIsNone(document["wrong"])
        self.assertEqual({row["wrong"] for row in document["rows"]}, {None})

    def test_failure(self):
        process = self.bench("all_reduce", "--json", "--max", "900G")
        self.assertEqual(process.popen.returncode, 1, process.story())
        self.assertEqual(process.stderr, "", process.story())
        document = process.document()
        self.assertIs(document["ok"], False)
        self.assertEqual(document["error"]["name"], "memory_short")
        self.assertIn("use a smaller --max", document["error"]["remedy"])


class Table(BenchTest):
    def test_table(self):
        process = self.bench("reduce", "-n", 3, "--dtype", "bf16", "--op", "max", "--min", "1K",
                             "--max", "4K", "--iterations", 2)
        self.assertEqual(process.popen.returncode, 0, process.story())
        self.assertEqual(process.stderr, "", process.story())
        lines = process.stdout.splitlines()
        self.assertTrue(lines[0].startswith("# reduce: 3 ranks on "), lines)
        self.assertEqual(lines[1], "# routes: mapped by fd+socket")
        names, units = lines[4].split(), lines[5].split()
        self.assertEqual(names, ["#", "size", "count", "type", "redop", "root", "time", "algbw",
                                 "busbw", "#wrong"])
        self.assertEqual(units, ["#", "(B)", "(elements)", "(us)", "(GB/s)", "(GB/s)"])
        rows = [line.split() for line in lines if not line.startswith("#")]
        self.assertEqual([row[:5] for row in rows],
                         [[str(size), str(size // 2), "bf16", "max", "0"]
                          for size in (1024, 2048, 4096)])
        self.assertEqual({row[8] for row in rows}, {"0"})
        self.assertEqual(lines[-2], "# wrong: 0")
        self.assertRegex(lines[-1], r"^# average busbw: \d+\.\d\d GB/s$")
        self.assertEqual([line for line in lines if line != line.rstrip()], [])

    def test_without_a_check(self):
        process = self.bench("all_gather", "--no-check", "--max", 8, "--iterations", 1)
        self.assertEqual(process.popen.returncode, 0, process.story())
        self.assertRegex(process.stdout, r"(?m) N/A$")
        self.assertIn("# wrong: not checked", process.stdout)

    def test_progress_on_a_terminal(self):
        ours, theirs = pty.openpty()
        try:
            run = subprocess.run([COMMAND, "bench", "all_reduce", "--min", "1K", "--max", "4K",
                                  "--iterations", "2"], env=self.environment(), check=False,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs)
            os.close(theirs)
            shown = b""
            try:
                while part := os.read(ours, 4096):
                    shown += part
            except OSError:  # the other side is closed
                pass
        finally:
            os.close(ours)
        self.assertEqual(run.returncode, 0, shown)
        for text in (b"measuring 1K ... 1/3", b"measuring 4K ... 3/3"):
            self.assertIn(text, shown)
        self.assertTrue(shown.endswith(b"\r\x1b[K"), shown)
        self.assertNotIn(b"measuring", run.stdout)

    def test_isolated(self):
        self.need_root("namespaces of their own")
        self.document_of("all_reduce", "-n", 2, "--isolate", "pid,net,ipc", "--max", "4K",
                         "--step-factor", 16, "--iterations", 1)


class TheCheckItself(BenchTest):
    @unittest.skipIf(SANITIZED, "sanitizers have a memcpy of their own")
    def test_a_wrong_element_is_counted(self):
        compiler = shutil.which("cc") or shutil.which("c++")
        if not compiler:
            self.skipTest("no compiler to make the library that corrupts")
        count = 12347
        source = os.path.join(self.folder, "corrupt_copy.c")
        library = os.path.join(self.folder, "corrupt_copy.so")
        with open(source, "w", encoding="utf-8") as file:
            file.write(CORRUPT_COPY)
        subprocess.run([compiler, "-x", "c", "-O1", "-fno-builtin", "-shared", "-fPIC",
                        f"-DLENGTH={count * 4}", source, "-o", library], check=True)
        # One element of what rank 1 holds is wrong: it reaches all three, or the root only.
        for collective, options, wrong in (("all_reduce", [], 3), ("broadcast", ["--root", 1], 3),
                                           ("reduce", ["--root", 2], 1)):
            with self.subTest(collective=collective):
                process = self.bench(collective, "-n", 3, "--min", count * 4, "--max", count * 4,
                                     "--iterations", 1, "--json", *options,
                                     env={"LD_PRELOAD": library})
                self.assertEqual(process.popen.returncode, 1, process.story())
                document = process.document()
                self.assertIs(document["ok"], False)
                self.assertEqual(document["rows"][0]["wrong"], wrong, process.story())
                self.assertEqual(document["wrong"], wrong)


class Ending(BenchTest):
    def test_interrupted(self):
        process = self.start(COMMAND, "bench", "all_reduce", "-n", 3, "--max", "4K",
                             "--iterations", 500_000_000)
        wait_until(lambda: "#wrong" in process.stdout, "the ranks are measuring")
        process.signal(signal.SIGINT)
        self.assertEqual(process.wait(10), 128 + signal.SIGINT, process.story())
        self.assertIn("RL1508 interrupted", process.stderr)

    def test_a_rank_that_dies(self):
        process = self.start(COMMAND, "bench", "all_reduce", "-n", 3, "--max", "4K",
                             "--iterations", 500_000_000)
        wait_until(lambda: "#wrong" in process.stdout, "the ranks are measuring")
        os.kill(children_of(process.pid)[0], signal.SIGKILL)
        self.assertEqual(process.wait(10), 1, process.story())
        self.assertIn("SIGKILL", process.stderr)


class Usage(BenchTest):
    def refused(self, *words):
        process = self.bench(*words)
        self.assertEqual(process.popen.returncode, 2, process.story())
        self.assertEqual(process.stdout, "", process.story())
        return process.stderr

    def test_bad_usage_exits_2(self):
        for words, said in (
                ([], "no collective was named"),
                (["all_redcue"], "did you mean all_reduce?"),
                (["all_reduce", "--op", "summ"], "did you mean sum?"),
                (["all_reduce", "--op", "average"], "use one of sum, prod, min, max, avg"),
                (["all_reduce", "--dtype", "f33"], "did you mean f32?"),
                (["all_reduce", "--min", "4X"], "--min 4X is not a size"),
                (["all_reduce", "--max", "0"], "--max 0 is not a size"),
                (["all_reduce", "--max", "-4"], "--max"),
                (["all_reduce", "--max", "99999999G"], "more than any machine has"),
                (["all_reduce", "--min", "1M", "--max", "1K"], "--min 1M is more than --max 1K"),
                (["all_reduce", "--step-factor", "1"], "--step-factor 1 can't be used"),
                (["all_reduce", "--iterations", "0"], "--iterations 0 can't be used"),
                (["broadcast", "--root", "2"], "give a whole number from 0 to 1"),
                (["all_reduce", "--root", "0"], "all_reduce has no --root"),
                (["all_gather", "--op", "sum"], "all_gather has no --op"),
                (["reduce", "--shared"], "reduce has no --shared"),
                (["send_recv", "--in-place"], "send_recv has no --in-place"),
                (["barrier", "--max", "8"], "barrier moves no data"),
                (["send_recv", "-n", "1"], "ask for 2 ranks or more"),
                (["all_reduce", "--mechanism", "sockets"], "RANKLINK_MECHANISM"),
                (["all_reduce", "--isolate", "network"], "did you mean net?"),
                (["all_reduce", "--check", "--no-check"], ""), (["all_reduce", "-n", "0"], ""),
                (["all_reduce", "broadcast"], ""), (["all_reduce", "--bogus"], "")):
            with self.subTest(words=words):
                text = self.refused(*words)
                self.assertTrue(text)
                self.assertIn(said, text)

    def test_help(self):
        process = self.bench("--help")
        self.assertEqual(process.popen.returncode, 0, process.story())
        for word in ("Examples:", "Exit code:", "--no-check", "send_recv", "busbw"):
            self.assertIn(word, process.stdout)
        process = self.run_to_end(COMMAND, "--help")
        self.assertRegex(process.stdout, r"(?m)^ +bench ")
        self.assertNotIn("bench-rank", process.stdout)


if __name__ == "__main__":
    main()
