#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`plexus explain` says what a communicator then really does."""
import json
import os
import pathlib
import tempfile

import job


class Explain(job.Test):
    def explain(self, *arguments, **environment):
        ended = self.start([job.PLEXUS, "explain", *arguments, "--json", "-"], **environment).end(120)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return json.loads(ended.stdout)

    def test_a_tuner_whose_numbers_are_no_times(self):
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
            file.write("all_reduce,0,1000000,2,8,doubling,1\n")
            file.flush()
            explained = self.explain("all_reduce", "64K", "--ranks", "3", CSV_TUNER_FILE=file.name,
                                     PLEXUS_PLUGIN_PATH=os.environ.get("PLEXUS_TEST_EXAMPLE_DIR", "build/dev/test-bin"),
                                     NCCL_TUNER_PLUGIN="csv")
        self.assertEqual((explained["chosen"]["algorithm"], explained["chosen"]["predicted_us"]), ("doubling", 0))
        self.assertEqual({row["reason"] for row in explained["candidates"] if row["status"] == "slower"},
                         {"the tuner prefers another algorithm"})

    def test_a_tuner_that_is_not_there_is_looked_for_under_all_its_names(self):
        ended = self.start([job.PLEXUS, "explain", "all_reduce", "8"], NCCL_TUNER_PLUGIN="csv").end(60)
        self.assertIn("looked for libplexus-csv.so, libplexus-tuner-csv.so, libnccl-tuner-csv.so, csv beside", ended.stderr)

    def test_chosen_is_the_shortest_and_what_perf_uses(self):
        for size in ("8", "64K", "4M"):
            with self.subTest(size):
                explained = self.explain("all_reduce", size, "--ranks", "3")
                times = [row["predicted_us"] for row in explained["candidates"] if row["predicted_us"] is not None]
                self.assertEqual(explained["chosen"]["predicted_us"], min(times))
                self.assertEqual([row for row in explained["candidates"] if row["status"] == "chosen"],
                                 [explained["chosen"]])
                report = self.run_perf("all_reduce", "-b", size, "-e", size, "-n", 2, "-w", 0, "--ranks", 3)
                self.assertEqual(report["rows"][0]["algorithm"], explained["chosen"]["algorithm"])
                self.assertEqual(report["rows"][0]["channels"], explained["chosen"]["channels"])

    def test_exclusions_are_named(self):
        explained = self.explain("all_reduce", "8", NCCL_ALGO="allreduce:^allpairs,tree")
        rows = {row["algorithm"]: row for row in explained["candidates"]}
        for excluded in ("allpairs", "tree"):
            self.assertEqual((rows[excluded]["status"], rows[excluded]["reason"]), ("excluded", "excluded by NCCL_ALGO"))
        self.assertNotIn(explained["chosen"]["algorithm"], ("allpairs", "tree"))

    def test_without_a_tuner_the_rules_choose(self):
        explained = self.explain("all_gather", "1M", "--ranks", "4", NCCL_TUNER_PLUGIN="none")
        self.assertEqual((explained["by"], explained["chosen"]["predicted_us"]), ("the built-in rules", None))

    def test_rates_of_the_host_are_measured_once_and_shown(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "rates.txt")
            built_in = self.explain("all_reduce", "8")["host"]
            self.assertEqual((built_in["measured"], built_in["near"]["line_ns"]), (False, 57))
            measured = self.explain("all_reduce", "8", PLEXUS_RATES_FILE=str(file))["host"]
            if not measured["measured"]:
                self.skipTest("the machine is too busy to be measured")
            text = file.read_text()
            self.assertIn(f"near line {measured['near']['line_ns']}\n", text)
            self.assertEqual(self.explain("all_reduce", "8", PLEXUS_RATES_FILE=str(file))["host"], measured)
            self.run_perf("sendrecv", "-b", "64K", "-e", "64K", "-n", 2, "--ranks", 2, PLEXUS_RATES_FILE=str(file))
            self.assertEqual(file.read_text(), text)

    def test_slow_copies_make_processes_read_each_others_memory(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "rates.txt")
            host = self.explain("alltoall", "8", PLEXUS_RATES_FILE=str(file))["host"]
            if not host["measured"]:
                self.skipTest("the machine is too busy to be measured")
            # As if cores were far from each other: copying through slots takes ten times as long.
            lines = [" ".join([*line.split()[:2], *(str(10 * int(time)) for time in line.split()[2:])])
                     if line.startswith("near slots") else line for line in file.read_text().splitlines()]
            file.write_text("\n".join(lines) + "\n")
            slow = self.explain("alltoall", "8", PLEXUS_RATES_FILE=str(file))["host"]
            self.assertEqual(slow["near"]["slots"], [10 * time for time in host["near"]["slots"]])
            self.assertEqual(slow["copy_method"][2:], ["attach"] * 4)
            self.assertEqual(self.explain("alltoall", "8", PLEXUS_RATES_FILE=str(file), PLEXUS_ATTACH="0")["host"]["copy_method"],
                             ["slots"] * 6)

    def test_more_nodes_make_it_slower(self):
        near = self.explain("all_reduce", "1M", "--ranks", "2")["chosen"]["predicted_us"]  # a core for each
        net = self.explain("all_reduce", "1M", "--ranks", "2", "--nodes", "2")["chosen"]["predicted_us"]
        self.assertGreater(net, near)

    def test_measure_times_every_candidate(self):
        explained = self.explain("broadcast", "1K", "--ranks", "2", "--measure")
        possible = [row for row in explained["candidates"] if row["status"] != "excluded"]
        self.assertGreater(len(possible), 3)
        for row in possible:
            self.assertGreater(row["measured_us"], 0)

    def test_datacenters_show_bytes_and_how_far_from_the_least(self):
        explained = self.explain("all_reduce", "64M", "--dcs", "4,4", "--nodes", "4", "--inter", "100mbit,10ms")
        self.assertEqual(explained["chosen"]["algorithm"], "hierarchical")
        self.assertEqual(explained["chosen"]["xdc_bytes"], explained["chosen"]["xdc_bytes_least"])
        self.assertEqual(explained["chosen"]["xdc_bytes_by_pair"], [0, 64 << 20, 64 << 20, 0])
        ring = next(row for row in explained["candidates"] if row["algorithm"] == "ring")
        self.assertAlmostEqual(ring["xdc_bytes"] / ring["xdc_bytes_least"], 1.75)
        table = self.start([job.PLEXUS, "explain", "all_reduce", "64M", "--dcs", "4,4", "--nodes", "4"]).end(60).stdout
        of_bytes = table[table.index("bytes between datacenters"):]
        self.assertIn("ring", of_bytes)
        self.assertNotIn("collnet", of_bytes)  # the network combines: its bytes are not known, and are not 0

    def test_gpus_take_lines_for_small_messages_and_channels_for_large_ones(self):
        small = self.explain("all_reduce", "8", "--ranks", "8", "--cuda", "h200")["chosen"]
        self.assertEqual((small["protocol"], small["channels"]), ("LL", 1))
        large = self.explain("all_reduce", "1G", "--ranks", "8", "--cuda", "h200")["chosen"]
        self.assertEqual(large["protocol"], "Simple")
        self.assertGreater(large["channels"], 4)
        shared = self.explain("all_reduce", "1G", "--ranks", "8", "--cuda", "h200:8")["chosen"]
        self.assertGreater(shared["predicted_us"], large["predicted_us"])

    def test_bad_usage_is_one_sentence(self):
        for arguments in (("xor", "8"), ("all_reduce", "much"), ("all_reduce",), ("send", "8"),
                          ("all_reduce", "8", "--ranks", "1"), ("all_reduce", "8", "--nodes", "2", "--measure"),
                          ("all_reduce", "8", "--cuda", "z80"), ("all_reduce", "8", "--cuda", "h200:0")):
            with self.subTest(arguments):
                ended = self.start([job.PLEXUS, "explain", *arguments]).end(60)
                self.assertEqual((ended.returncode, ended.stdout, ended.stderr.count("\n")), (2, "", 1), ended.stderr)


if __name__ == "__main__":
    job.main()
