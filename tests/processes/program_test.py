#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`plexus program`: what it exports is proved, drawn, and runs in processes under its name."""
import json
import pathlib
import tempfile
import xml.etree.ElementTree

import job

SAMPLES = pathlib.Path(__file__).parents[1] / "unit/core/programs/msccl"
RIGHT = ["allpairs-allreduce-4", "chain-reduce-3", "chain-reduce-scatter-in-place-4", "direct-reduce-scatter-3",
         "doubling-allgather-4", "hierarchical-alltoall-2x2", "ring-allreduce-4", "stalls-exchange-2",
         "swap-reduce-scatter-in-place-2", "tree-broadcast-6", "tree-reduce-in-place-4"]


class Program(job.Test):
    def program(self, *arguments, exit_code=0):
        ended = self.start([job.PLEXUS, "program", *map(str, arguments)]).end(60)
        self.assertEqual(ended.returncode, exit_code, ended.stderr)
        return ended

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_samples_get_their_verdict(self):
        files = sorted(SAMPLES.glob("*.xml"))
        verdicts = json.loads(self.program("verify", *files, "--json", "-", exit_code=1).stdout)
        self.assertEqual(len(verdicts), 16)
        proved = [pathlib.Path(row["file"]).stem for row in verdicts if row["proved"]]
        self.assertEqual(proved, RIGHT)
        for row in verdicts:
            self.assertTrue(row["proved"] or row["reason"])
        text = self.program("verify", *files, exit_code=1).stdout
        self.assertEqual(text.count("\nproved ") + text.startswith("proved "), len(RIGHT))

    def test_what_is_exported_runs_under_its_name(self):
        for algorithm, nranks, collective in [("ring_all_reduce", 3, "all_reduce"), ("tree_all_reduce", 4, "all_reduce"),
                                              ("pat_all_gather", 4, "all_gather"), ("ring_reduce_scatter", 3, "reduce_scatter")]:
            with self.subTest(algorithm):
                self.program("export", algorithm, "--ranks", nranks, "-o", self.folder / f"{algorithm}.json")
                report = self.run_perf(collective, "-b", "12K", "-e", "12M", "-f", 1024, "-n", 3, "-w", 0, "--ranks", nranks,
                                       "--algo", algorithm, PLEXUS_PROGRAM_PATH=self.folder)
                self.assertEqual(report["wrong_total"], 0)
                self.assertEqual({row["algorithm"] for row in report["rows"]}, {algorithm})

    def test_imported_xml_is_the_same_program(self):
        self.program("import", SAMPLES / "ring-allreduce-4.xml", "-o", self.folder / "ring.json")
        again = json.loads(self.program("verify", self.folder / "ring.json", "--json", "-").stdout)[0]
        first = json.loads(self.program("verify", SAMPLES / "ring-allreduce-4.xml", "--json", "-").stdout)[0]
        for key in ("collective", "nranks", "rounds", "steps", "slots_needed", "candidate"):
            self.assertEqual(again[key], first[key])
        ended = self.program("import", SAMPLES / "wrong-twice-3.xml", exit_code=1)
        self.assertEqual((ended.stdout, ended.stderr.count("\n")), ("", 1))
        self.assertIn("already complete", ended.stderr)

    def test_a_plan_of_mscclpp_is_proved_runs_and_is_simulated(self):
        plan = SAMPLES.parent / "mscclpp/read-reduce-put-3.json"
        verdict = json.loads(self.program("verify", plan, "--json", "-").stdout)[0]
        self.assertEqual((verdict["proved"], verdict["collective"], verdict["nranks"]), (True, "all_reduce", 3))
        self.program("import", plan, "-o", self.folder / "plan.json")
        ran = self.program("run", self.folder / "plan.json", "-b", "12K", "-n", 3, "-w", 0)
        self.assertIn("Out of bounds values : 0 OK", ran.stdout)
        ended = self.start([job.PLEXUS, "sim", "all_reduce", "--program", str(plan), "-b", "12K", "--json", "-"]).end(60)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertGreater(json.loads(ended.stdout)["rows"][0]["time_us"], 2 * 2)  # a read and a put, one after the other

    def test_programs_are_written_for_others(self):
        self.program("export", "tree_all_reduce", "--ranks", 6, "--format", "msccl", "-o", self.folder / "tree.xml")
        self.assertTrue(json.loads(self.program("verify", self.folder / "tree.xml", "--json", "-").stdout)[0]["proved"])
        for form, extra in (("goal", ()), ("chakra", ("--rank", 1))):
            file = self.folder / f"ring.{form}"
            self.program("export", "ring_all_gather", "--ranks", 4, "--bytes", "1M", "--format", form, *extra, "-o", file)
            ended = self.start([job.PLEXUS, "sim", "--workload", str(file), "--json", "-"]).end(60)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            made = json.loads(ended.stdout)
            self.assertEqual(made["ranks"], 4)
            self.assertAlmostEqual(made["best_us"], 3 * (2 + (1 << 18) / 25_000), delta=0.1)  # latency and 200 Gbit/s
        self.program("export", "ring_all_gather", "--ranks", 12, "--bytes", "12K", "--format", "et", "-o", self.folder / "ring.et")
        files = [str(self.folder / f"ring.{rank}.et") for rank in range(12)]
        ended = self.start([job.PLEXUS, "sim", "--workload", *sorted(files), "--ranks", 12, "--json", "-"]).end(60)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        made = json.loads(ended.stdout)
        self.assertEqual(made["ranks"], 12)
        self.assertAlmostEqual(made["best_us"], 11 * (2 + 1024 / 25_000), delta=0.1)

    def test_steps_are_drawn(self):
        text = self.program("show", SAMPLES / "ring-allreduce-4.xml").stdout
        self.assertEqual(text.count("rank "), 4)
        self.assertIn("recv from 3, reduce with input 1, to output 1, send to 1", text)
        self.program("show", SAMPLES / "ring-allreduce-4.xml", "--svg", self.folder / "ring.svg")
        svg = xml.etree.ElementTree.parse(self.folder / "ring.svg")
        boxes = svg.findall(".//{http://www.w3.org/2000/svg}g")
        self.assertEqual(len(boxes), 28)

    def test_proved_files_run_on_real_ranks(self):
        for sample, mode in [("ring-allreduce-4", "threads"), ("doubling-allgather-4", "single"), ("tree-broadcast-6", "single"),
                             ("hierarchical-alltoall-2x2", "procs"), ("chain-reduce-scatter-in-place-4", "threads"),
                             ("tree-reduce-in-place-4", "procs")]:
            with self.subTest(sample):
                ended = self.program("run", SAMPLES / f"{sample}.xml", "-b", "1K", "-e", "70K", "-f", 8, "-n", 2, "-w", 0,
                                     "--mode", mode, *job.limit(50), "--json", "-")
                report = self.check_report(ended)
                self.assertEqual(len({row["algorithm"] for row in report["rows"]}), 1)
                self.assertEqual(report["rows"][0]["algorithm"], xml.etree.ElementTree.parse(SAMPLES / f"{sample}.xml").getroot().get("name").lower())
                self.assertGreater(len({row["bytes"] for row in report["rows"]}), 1)
                self.assertTrue(all(row["time_us"]["median"] > 0 for row in report["rows"]))

    def test_what_is_not_proved_does_not_run(self):
        for sample in ["wrong-twice-3", "deadlock-receive-first-2", "race-forward-3"]:
            verdict = json.loads(self.program("verify", SAMPLES / f"{sample}.xml", "--json", "-", exit_code=1).stdout)[0]
            ended = self.program("run", SAMPLES / f"{sample}.xml", exit_code=1)
            self.assertEqual((ended.stdout, ended.stderr.count("\n")), ("", 1))
            self.assertIn(verdict["reason"], ended.stderr)
        ended = self.program("run", "/nonexistent.xml", exit_code=1)
        self.assertIn("/nonexistent.xml", ended.stderr)

    def test_a_folder_that_is_not_there_is_named(self):
        ended = self.start([job.PLEXUS, "perf", "all_reduce", "-b", "1K", "-e", "1K", "--ranks", "2"],
                           PLEXUS_PROGRAM_PATH="/nonexistent").end(60)
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("/nonexistent", ended.stderr)


if __name__ == "__main__":
    job.main()
