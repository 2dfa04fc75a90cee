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
        self.assertAlmostEqual(row["time_us"], 30 * (5 + 4096 / 1000), places=4)  # each step is rounded to 2^-20 us
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

    def test_bytes_are_mapped_by_link(self):
        kind = "{http://www.w3.org/2000/svg}"
        mib = 1 << 20

        def maps(*flags):
            ended = self.start([job.PLEXUS, "sim", "all_gather", "--links", "-", *flags]).end(60)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            return {group.find(kind + "title").text: [text.text or "" for text in group.iter(kind + "text")]
                    for group in xml.etree.ElementTree.fromstring(ended.stdout).iter(kind + "g")}

        drawn = maps("-r", 4, "-b", 4 * mib, "--algo", "ring,allpairs")
        ring = drawn["all_gather by ring: bytes from rank (row) to rank"]
        self.assertEqual((ring.count("3M"), ring.count("1M")), (4, 0), ring)
        pairs = drawn["all_gather by allpairs: bytes from rank (row) to rank"]
        self.assertEqual((pairs.count("3M"), pairs.count("1M")), (0, 12), pairs)
        # 16 nodes of 8 ranks: the ring leaves each node once, with all blocks but one
        (title, nodes), = maps("-r", 128, "-g", 8, "-b", 128 * 8, "--algo", "ring").items()
        self.assertIn("from node (row) to node", title)
        self.assertEqual(nodes.count("1016"), 16, nodes)
        ended = self.start([job.PLEXUS, "sim", "all_gather", "--links", "-", "-r", 128]).end(60)
        self.assertEqual(ended.returncode, 2)
        self.assertIn("--links maps at most 64 ranks, or nodes", ended.stderr)

    def test_policies_are_plotted_and_their_regrets_mapped(self):
        flags = ["--tuner", "default,none", "-r", "8", "-b", "8", "-e", "32K", "-f", "64", "--svg", "-"]
        for more, titles in ((["all_reduce"], ["default", "none", "best"]), (["--sweep"], ["all_reduce, regret of default in %",
                                                                                           "all_reduce, regret of none in %"])):
            ended = self.start([job.PLEXUS, "sim", *more, *flags]).end(60)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            kind = "{http://www.w3.org/2000/svg}"
            groups = list(xml.etree.ElementTree.fromstring(ended.stdout).iter(kind + "g"))
            self.assertEqual([group.find(kind + "title").text for group in groups][:len(titles)], titles)
        boxes = groups[0].findall(kind + "rect")
        self.assertEqual(len(boxes), 3 * 3, "2, 4, 8 ranks and 3 sizes")
        self.assertEqual(len(groups), 2 * 8, "of 8 collectives")

    def test_channels_that_scatter_need_less_of_each_crossing(self):
        flags = ("all_reduce", "-r", 32, "-g", 4, "--dcs", 2, "--channels", 4, "--algo", "ring", "-b", "64M", "--gbit-per-s", 400,
                 "--near-gbit-per-s", 3600, "--wide-gbit-per-s", 400, "--wide-latency-us", 5)
        together, scattered = (self.sim(*flags, "--scatter", how)[0] for how in ("off", "on"))
        self.assertAlmostEqual(together["node_wide_gbit_per_s"] / scattered["node_wide_gbit_per_s"], 4, delta=0.2)
        ended = self.start([job.PLEXUS, "sim", "all_reduce", "--scatter", "on"]).end(60)
        self.assertEqual(ended.returncode, 2)
        self.assertIn("--scatter: expects several datacenters", ended.stderr)

    def test_a_slow_rank_makes_a_ring_slower_and_a_cut_link_ends_it(self):
        arguments = ("all_reduce", "-r", 8, "-b", "64K", "--algo", "ring", *COSTS)
        without = self.sim(*arguments)[0]["time_us"]
        slow = self.sim(*arguments, "--faults", "rank=3: slow=50us")[0]["time_us"]
        self.assertGreater(slow, max(without, 14 * 50))  # 14 steps, one after the other
        jittered = [self.sim(*arguments, "--faults", "send rank=3: jitter=50us", "--seed", seed)[0]["time_us"] for seed in (1, 1, 2)]
        self.assertEqual(jittered[0], jittered[1])
        self.assertNotEqual(jittered[0], jittered[2])
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "script"
            script.write_text("# after the first message\nsend rank=3 peer=4: cut=8KiB\n")
            ended = self.start([job.PLEXUS, "sim", *map(str, arguments), "--faults", f"@{script}", "--json", "-"]).end(60)
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)
        self.assertIn("rank 4 for a message of rank 3", ended.stderr)
        self.assertIn("rank 4 for a message of rank 3", json.loads(ended.stdout)["rows"][0]["never_ends"])

    def test_a_calibration_makes_ranks_share_cores(self):
        sizes = [16, 1024, 1 << 20]
        ends = {f"{name}_us": [0.1, 0.2, 100] for name in ("send", "recv", "combine", "combine_apart")}
        curve = {"slot_bytes": 131072, "call_us": 0.05, "early_us": 0.01, "bytes": sizes, "copy_us": [0.1, 0.2, 100],
                 **ends, "one_way": {"call_us": 0.05, **ends}}
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "calibration.json"
            file.write_text(json.dumps({"messages": {"cores": 2, "turn_us": 1, "links": {"host": curve}}}))
            flags = ("all_reduce", "-r", 8, "-g", 8, "-b", "1M", "--algo", "ring", "--calls", 3, "--calibration", file)
            on_two, on_eight = self.sim(*flags)[0], self.sim(*flags, "--cores", 8)[0]
            self.assertEqual(on_two["ranks_simulated"], 8)
            self.assertGreater(on_two["time_us"], 3 * on_eight["time_us"])
            ended = self.start([job.PLEXUS, "sim", *map(str, flags), "--near", "net"]).end(60)
            self.assertEqual(ended.returncode, 2)
            self.assertIn("plexus tune --only-messages --net", ended.stderr)

    def test_wrong_use_is_one_sentence(self):
        for arguments, named in [(("all_reduce", "--algo", "rings"), "--algo"), (("all_reduce", "--root", "9"), "--root"),
                                 (("all_reduce", "--fabric", "/nonexistent"), "/nonexistent"),
                                 (("--svg", "x", "--tuner", "none", "--workload", "x"), "--svg"),
                                 (("all_reduce", "--svg", "/nonexistent/x"), "/nonexistent/x"),
                                                                  (("all_reduce", "--latency-us", "0"), "--latency-us"),
                                 (("all_reduce", "--faults", "*: flip=1"), "--faults"),
                                 (("all_reduce", "--calibration", RING), "--only-messages"),
                                 (("all_reduce", "--near", "far"), "--near"), (("all_reduce", "--bind", "core"), "--bind"), (("all_reduce", "--scatter", "1"), "--scatter"), (("all_reduce", "--calls", "0"), "--calls")]:
            ended = self.start([job.PLEXUS, "sim", *arguments]).end(60)
            self.assertEqual((ended.returncode, ended.stderr.count("\n")), (2, 1), ended.stderr)
            self.assertIn(named, ended.stderr)


if __name__ == "__main__":
    job.main()
