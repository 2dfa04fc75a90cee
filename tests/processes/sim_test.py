#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`plexus sim` from outside: formulas, files, traces, fabrics."""
import json
import pathlib
import tempfile
import xml.etree.ElementTree

import job

RING = pathlib.Path(__file__).parents[1] / "unit/core/programs/msccl/ring-allreduce-4.xml"
COSTS = ["--latency-us", "5", "--gbit-per-s", "8", "--near-latency-us", "5", "--near-gbit-per-s", "8"]


class Sim(job.Test):
    def sim(self, *arguments):
        ended = self.start([job.PLEXUS, "sim", *map(str, arguments), "--json", "-"]).end(60)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return json.loads(ended.stdout)["rows"]

    def test_a_ring_is_its_formula(self):
        row = self.sim("all_reduce", "-r", 16, "-b", "64K", "--algo", "ring", *COSTS)[0]
        self.assertAlmostEqual(row["time_us"], 30 * (5 + 4096 / 1000), places=6)
        self.assertEqual(row["ranks_simulated"], 1)

    def test_all_algorithms_are_swept(self):
        rows = self.sim("all_reduce", "-r", 8, "-b", 1024, "-e", "16K", "-f", 16)
        self.assertEqual({row["bytes"] for row in rows}, {1024, 16384})
        self.assertLessEqual({"ring", "tree", "doubling", "halving", "twoshot"}, {row["algorithm"] for row in rows})

    def test_a_file_takes_as_long_as_the_same_algorithm(self):
        built_in = self.sim("all_reduce", "-r", 4, "-b", "64K", "--algo", "ring", *COSTS)[0]
        from_file = self.sim("all_reduce", "--program", RING, "-b", "64K", *COSTS)[0]
        self.assertEqual(from_file["time_us"], built_in["time_us"])

    def test_two_datacenters_on_a_fabric_share_their_link(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "model"
            trace = pathlib.Path(folder) / "trace.json"
            model.write_text("dc a torus size=4 gbit_per_s=400 latency_us=1\ndc b torus size=4 gbit_per_s=400 latency_us=1\n"
                             "between a b cables=1 gbit_per_s=8 latency_us=1000\n")
            rows = {row["algorithm"]: row["time_us"]
                    for row in self.sim("all_reduce", "-r", 8, "-b", "8M", "--fabric", model, "--dcs", 2,
                                        "--algo", "ring,hierarchical", "--trace", trace)}
            # a ring crosses with everything twice in each direction, 2 * 7/8 of 8 MiB over 1 GB/s
            self.assertGreater(rows["ring"], 1.75 * 8.388e3)
            self.assertLess(rows["hierarchical"], rows["ring"])
            events = json.loads(trace.read_text())["traceEvents"]
            self.assertEqual({event["ph"] for event in events}, {"M", "X", "C"})

    def test_times_are_plotted_against_size_and_ranks(self):
        ended = self.start([job.PLEXUS, "sim", "all_reduce", "-r", "16", "-b", "8", "-e", "32K", "-f", "16", "--algo", "ring,doubling",
                            "--svg", "-"]).end(60)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        svg = xml.etree.ElementTree.fromstring(ended.stdout)
        kind = "{http://www.w3.org/2000/svg}"
        lines = [(group.find(kind + "title").text, group.find(kind + "path").get("d").count(",")) for group in svg.iter(kind + "g")]
        # 4 sizes of 16 ranks, and 8 bytes of 2, 4, 8 and 16
        self.assertEqual(lines, [("ring", 4), ("doubling", 4), ("ring", 4), ("doubling", 4)])
        texts = [text.text for text in svg.iter(kind + "text")]
        self.assertIn("all_reduce of 16 ranks", texts)
        self.assertIn("all_reduce of 8 bytes", texts)

    def test_wrong_use_is_one_sentence(self):
        for arguments, named in [(("all_reduce", "--algo", "rings"), "--algo"), (("all_reduce", "--root", "9"), "--root"),
                                 (("all_reduce", "--fabric", "/nonexistent"), "/nonexistent"),
                                 (("all_reduce", "--svg", "x", "--tuner", "none"), "--svg"),
                                 (("all_reduce", "--svg", "/nonexistent/x"), "/nonexistent/x"),
                                 (("all_reduce", "--latency-us", "0"), "--latency-us")]:
            ended = self.start([job.PLEXUS, "sim", *arguments]).end(60)
            self.assertEqual((ended.returncode, ended.stderr.count("\n")), (2, 1), ended.stderr)
            self.assertIn(named, ended.stderr)


if __name__ == "__main__":
    job.main()
