#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nccl-tests' command lines, and what the scripts of others take out of the table: each reader here has the rules of one of
them (cloudai, superbenchmark, FlagPerf, nccl_to_csv of AWS)."""
import json
import pathlib
import re
import tempfile

import job

COLLECTIVES = [*job.COLLECTIVES, "alltoallv", "hypercube"]
UNCHECKED_IN_PLACE = {"alltoallv", "sendrecv"}
SMALL = ["-b", "1K", "-e", "4K", "-f", "2", "-n", "2", "-w", "0"]
MEASURED = ["size", "time", "algbw", "busbw"]


def read_as_cloudai(text):
    """Lines that begin with a digit and have 13 words, whose columns of numbers are numbers."""
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d", line)]
    assert all(len(row) == 13 for row in rows), rows
    assert "# Out of bounds values" in text and "# Avg bus bandwidth" in text
    return [[float(row[i]) for i in (0, 5, 6, 7, 9, 10, 11)] for row in rows]


def read_as_superbenchmark(text, in_place):
    """Columns by their names, counted from the end, between the line of places and the foot."""
    lines = text.splitlines()
    first = max(i for i, line in enumerate(lines) if "out-of-place" in line)
    last = max(i for i, line in enumerate(lines) if "Out of bounds values" in line)
    names = next(line for line in lines[first + 1:last] if "time" in line and "busbw" in line)[1:].split()
    at = {name: (len(names) - 1 - names[::-1].index(name) if in_place and name != "size" else names.index(name)) - len(names)
          for name in MEASURED}
    at["size"] = names.index("size")
    return [[float(row[at[name]]) for name in MEASURED]
            for row in map(str.split, lines[first + 1:last]) if row and row[0].isdigit()]


def read_as_flagperf(text):
    """The last word of the line of the average."""
    average, = [line for line in text.splitlines() if "# Avg bus bandwidth" in line]
    return float(average.split()[-1])


def read_as_aws(text):
    number = r"(\d+\.?\d*)"
    row = (r"^\s*(\d+)\s+\d+\s+(?:float|double|int|half)\s+(?:sum|prod|max|min|none)\s+-?\d+"
           + rf"\s+{number}\s+{number}\s+{number}\s+(\d+|N/A)" * 2)
    average = re.search(rf"# Avg bus bandwidth\s*:\s*{number}", text)
    assert average, text
    return re.findall(row, text, re.MULTILINE), float(average[1])


class NcclTests(job.Test):
    def table(self, *arguments, exit_code=0, seconds=60, prefix=(), **environment):
        ended = self.start(job.perf(*arguments), prefix, **environment).end(seconds)
        self.assertEqual(ended.returncode, exit_code, ended.stderr)
        return ended

    def test_four_readers_understand_every_collective(self):
        for collective in COLLECTIVES:
            with self.subTest(collective):
                text = self.table(collective, "--ranks", 4, *SMALL).stdout
                rows = read_as_cloudai(text)
                self.assertEqual(len(rows), 3)
                # Each part is a multiple of 16 bytes, and of alltoallv nothing stays with the sender.
                self.assertTrue(all(0.9 * size <= row[0] <= size for row, size in zip(rows, (1024, 2048, 4096))), rows)
                self.assertEqual(read_as_superbenchmark(text, False), [row[:4] for row in rows])
                self.assertEqual(read_as_superbenchmark(text, True), [row[:1] + row[4:] for row in rows])
                found, average = read_as_aws(text)
                self.assertEqual([float(row[0]) for row in found], [row[0] for row in rows])
                self.assertEqual({row[4] for row in found}, {"0"})
                self.assertEqual({row[8] for row in found}, {"N/A" if collective in UNCHECKED_IN_PLACE else "0"})
                self.assertEqual(read_as_flagperf(text), average)

    def test_readers_understand_slow_and_unchecked_rows(self):
        text = self.table("all_reduce", "--ranks", 2, "-b", "32M", "-e", "32M", "-n", 1, "-w", 0, "-c", 0).stdout
        (_, *times), = read_as_cloudai(text)
        self.assertTrue(all(time > 0 for time in times), text)
        self.assertIn("validation: 0", text)
        self.assertEqual({row[4] for row in read_as_aws(text)[0]}, {"N/A"})

    def test_option_lists_as_users_have_them(self):
        for line, nranks in (
                ("all_reduce --ranks 2 -b 8 -e 64 -f 2 -g 1 -c 0 -n 5 -w 2 -G 0 -d float", 2),
                ("all_reduce -b 8 -e 64 -f 2 -g 2", 2),
                ("all_reduce_perf -b 8 -e 64 -f 2 -t 2 -g 1", 2),
                ("all_gather -b 1k -e 1k -f 2 -t 2 -g 2", 4),
                ("reduce_scatter --ranks 4 -t 2 -g 1 -b 1KB -e 2KB -i 1KB", 4),
                ("all_reduce --ranks 2 -b 8 -e 64 --nthreads 1 --ngpus 1 --stepbytes 1M --iters 2 --warmup_iters 1 "
                 "--agg_iters 1 --check 1 --blocking 0 --parallel_init 0 --cudagraph 0 --average 1", 2),
                ("alltoall --ranks 2 -b 16K -e 16K -R 1 -N 1 --memory 0", 2),
                ("broadcast --ranks 2 -b 1.5K -e 1.5K -i 0 -f 1 -a 0 -u 3 -y 0 -z 2 -m 3", 2),
                ("hypercube -g 8 -b 1K -e 1K -m 2 -z 1", 8),
                ("alltoallv -t 3 -b 1K -e 1K -m 2 -z 3", 3)):
            with self.subTest(line):
                ended = self.table(*line.split())
                self.assertEqual(ended.stderr, "")
                self.assertEqual(len(re.findall("^#  Rank +", ended.stdout, re.MULTILINE)), nranks)
                self.assertTrue(read_as_cloudai(ended.stdout))

    def test_an_option_without_meaning_is_said_in_one_line(self):
        for option in ("-p", "-G", "-D", "-V", "-x", "-M"):
            with self.subTest(option):
                ended = self.table("all_reduce", *SMALL, "--ranks", 2, option, 1)
                self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)
                self.assertIn(f"{option},--", ended.stderr)
                self.assertIn("has no meaning here", ended.stderr)

    def test_more_columns_and_cycles(self):
        text = self.table("all_reduce", *SMALL, "--ranks", 2, "-N", 2, "-S", 1, "-C", 1, "-I", 1, "-K", 1).stdout
        rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d", line)]
        self.assertEqual([row[0] for row in rows], 2 * ["1024", "2048", "4096"])
        self.assertEqual({len(row) for row in rows}, {13 + 2 * 4 + 2})
        self.assertIn("cputime", text)

    def test_rows_without_end_are_printed_until_the_job_ends(self):
        running = self.start(job.perf("all_reduce", "-b", "8", "-e", "8", "--ranks", 2, "-N", 0, "-n", 1, *job.limit(60)))
        rows = 0
        while rows < 5:
            rows += running.read_line().startswith(" ")
        running.stop()

    def test_json_file_is_that_of_nccl_tests(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "rows.json")
            text = self.table("sendrecv", *SMALL, "--ranks", 2, "-J", path).stdout
            self.assertIn(f"# Writing JSON output to {path}\n", text)
            report = json.loads(path.read_text())
        self.assertEqual([row["size"] for row in report["results"]], [1024, 2048, 4096])
        for row in report["results"]:
            self.assertGreater(row["in_place"]["time"], 0)
            self.assertEqual((row["out_of_place"]["nwrong"], row["in_place"]["nwrong"]), (0, None))
        self.assertIn("sendrecv", report["args"])

    def test_alltoallv_moves_what_the_matrix_says(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("1600 3200 160\n 0 1600 800\n 4800 0 3200\n")
            file.flush()
            matrix = {"NCCL_TESTS_ALLTOALLV_MATRIX_FILE": file.name}
            text = self.table("alltoallv", "--ranks", 3, "-n", 2, **matrix).stdout
            self.assertEqual(read_as_cloudai(text)[0][0], 4800 + 3200)
            text = self.table("alltoallv", "--ranks", 2, "-n", 2, **matrix, NCCL_TESTS_ALLTOALLV_MATRIX_SCALE="0.1").stdout
            self.assertEqual(read_as_cloudai(text)[0][0], 160 + 320)
            ended = self.table("alltoallv", "--ranks", 4, exit_code=2, **matrix)
            self.assertIn("a matrix of 3 ranks, there are 4", ended.stderr)
        ended = self.table("alltoallv", "--ranks", 2, exit_code=2, **matrix)
        self.assertIn("NCCL_TESTS_ALLTOALLV_MATRIX_FILE: cannot read the file", ended.stderr)

    def test_a_bandwidth_that_is_wanted_decides(self):
        ended = self.table("all_reduce", *SMALL, "--ranks", 2, exit_code=1, NCCL_TESTS_MIN_BW="1e6")
        self.assertRegex(ended.stdout, r"# Avg bus bandwidth    : \S+ FAILED\n")
        self.assertRegex(self.table("all_reduce", *SMALL, "--ranks", 2, NCCL_TESTS_MIN_BW="0").stdout,
                         r"# Avg bus bandwidth    : \S+ OK\n")


if __name__ == "__main__":
    job.main()
