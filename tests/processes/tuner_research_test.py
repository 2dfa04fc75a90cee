#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/tuner-research.md: policies in the simulator, and the same policy in a real run."""
import json
import os
import pathlib
import tempfile

import job

EXAMPLES = os.environ.get("PLEXUS_TEST_EXAMPLE_DIR", "build/dev/test-bin")
STEP = pathlib.Path(__file__).parents[1] / "unit/tools/workload/samples/step.json"


class TunerResearch(job.Test):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.policy = self.folder / "policy.csv"
        self.policy.write_text("all_reduce,0,65536,2,1024,doubling,1\nall_reduce,1048576,16777216,32,1024,nearhalving,1\n")
        self.csv = {"CSV_TUNER_FILE": self.policy, "PLEXUS_PLUGIN_PATH": EXAMPLES}

    def sim(self, *arguments, **environment):
        ended = self.start([job.PLEXUS, "sim", *map(str, arguments), "--json", "-"], **environment).end(100)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return json.loads(ended.stdout)

    def test_policies_are_compared_with_the_best(self):
        rows = self.sim("all_reduce", "--ranks", 64, "--ranks-per-node", 8, "--message-us", 0.15, "-b", 8, "-e", "16M", "-f", 64,
                        "--tuner", "default,none")
        self.assertEqual({row["policy"] for row in rows}, {"default", "none"})
        self.assertEqual(len({row["bytes"] for row in rows}), 4)
        for row in rows:
            self.assertGreaterEqual(row["regret"], 0)
            self.assertAlmostEqual(row["regret"], row["time_us"] / row["best_us"] - 1, places=9)
        regrets = {policy: [row["regret"] for row in rows if row["policy"] == policy] for policy in ("default", "none")}
        self.assertLess(sum(regrets["default"]), 0.5 * sum(regrets["none"]), regrets)

    def test_tuners_of_other_abis_are_policies(self):
        tuners = [f"{EXAMPLES}/libnccl-tuner-fixture-v{version}.so" for version in range(2, 7)]
        call = ("all_reduce", "--ranks", 16, "--ranks-per-node", 4, "-b", "64K", "--tuner")
        (default,) = self.sim(*call, "default")
        for mode, chosen in (("tree", "tree"), ("nothing", default["chosen"])):
            rows = self.sim(*call, ",".join(tuners), FIXTURE_TUNER=mode)
            self.assertEqual([(row["policy"], row["chosen"]) for row in rows], [(tuner, chosen) for tuner in tuners])

    def test_a_sweep_has_all_collectives_and_numbers_of_ranks(self):
        rows = self.sim("--sweep", "--ranks", 8, "--ranks-per-node", 4, "-b", "1K", "-e", "32K", "-f", 32, "--tuner", "default,none")
        self.assertEqual({row["ranks"] for row in rows}, {2, 4, 8})
        self.assertEqual(len({row["collective"] for row in rows}), 8)
        self.assertEqual(len(rows), 2 * 3 * 8 * 2)

    def test_a_workload_is_the_sum_of_its_calls(self):
        workload = self.folder / "workload.json"
        workload.write_text(json.dumps({"calls": [{"collective": "all_reduce", "bytes": 65536, "times": 4},
                                                  {"collective": "alltoall", "bytes": 65536}]}))
        cluster = ("--ranks", 16, "--ranks-per-node", 8, "--tuner", "default,none")
        total = self.sim("--workload", workload, *cluster)
        expected = {"default": 0, "none": 0}
        for collective, times in [("all_reduce", 4), ("alltoall", 1)]:
            for row in self.sim(collective, "-b", 65536, *cluster):
                expected[row["policy"]] += times * row["time_us"]
        for policy, time_us in expected.items():
            self.assertAlmostEqual(total["policies"][policy], time_us, places=6)
        workload.write_text('{"calls": [{"collective": "all_reduce"}]}')
        ended = self.start([job.PLEXUS, "sim", "--workload", str(workload), "--tuner", "none"]).end(60)
        self.assertEqual((ended.returncode, ended.stderr.count("\n")), (2, 1))
        self.assertIn("call 0", ended.stderr)

    def test_a_pipeline_sends_between_its_stages(self):
        workload = self.folder / "pipeline.json"
        ahead, back = {"distance": 8, "bytes": 4 << 20}, {"distance": -8, "bytes": 4 << 20}
        workload.write_text(json.dumps({"calls": [{"exchange": [ahead], "times": 16}, {"exchange": [ahead, back], "times": 48},
                                                  {"collective": "all_reduce", "bytes": 1 << 20, "times": 2}]}))
        cluster = ("--ranks", 32, "--ranks-per-node", 8, "--tuner", "default,none")
        total = self.sim("--workload", workload, *cluster)
        message_us = (4 << 20) / 25_000
        expected = 16 * (2 + message_us) + 48 * (2 + 2 * message_us)  # stages in the middle send two, through one port
        rows = {row["policy"]: row["time_us"] for row in self.sim("all_reduce", "-b", "1M", *cluster)}
        for policy, time_us in total["policies"].items():
            self.assertAlmostEqual(time_us, expected + 2 * rows[policy], delta=0.01)
        workload.write_text('{"calls": [{"exchange": [{"distance": 0, "bytes": 8}]}]}')
        ended = self.start([job.PLEXUS, "sim", "--workload", str(workload), "--tuner", "none"]).end(60)
        self.assertEqual((ended.returncode, ended.stderr.count("\n")), (2, 1))
        self.assertIn("call 0", ended.stderr)

    def test_a_step_has_exposed_communication_and_what_would_help(self):
        made = self.sim("--workload", STEP, "--ranks-per-node", 4, "--sensitivity", "--what-if", "rate=2",
                        "--what-if", "compute=2", "--what-if", "order=dp,tp")
        self.assertEqual(made["ranks"], 16)
        predicted = made["predicted"]["default"]
        self.assertAlmostEqual(predicted["compute_us"], 3650)
        self.assertAlmostEqual(predicted["time_us"], predicted["compute_us"] + predicted["exposed_us"], places=3)
        self.assertGreater(predicted["exposed_us"], 0)
        self.assertIn("reduce_scatter of dp", [part["name"] for part in predicted["critical_path"]])
        self.assertAlmostEqual(sum(part["time_us"] for part in predicted["critical_path"]), predicted["time_us"], places=3)
        changes = {row["what"]: row["time_us"] for row in made["what_if"]}
        self.assertEqual(list(changes.values()), sorted(changes.values()))
        self.assertLess(changes["rate x 2"], predicted["time_us"])
        self.assertGreater(changes["compute x 2"], predicted["time_us"])
        self.assertAlmostEqual(changes["communication that costs nothing"], 3650)
        self.assertLess(changes["order dp,tp"], predicted["time_us"])  # its large calls stay in the node
        lost = self.sim("--workload", STEP, "--ranks-per-node", 4, "--dcs", 2, "--what-if", "dcs-lost=1")["what_if"][0]
        self.assertIn("8 of 16 ranks left", lost["what"])
        self.assertLess(lost["change"], 0)

    def test_traces_of_each_rank_wait_for_the_last(self):
        def trace(rank, compute_us):
            file = self.folder / f"step.{rank}.json"
            file.write_text(json.dumps({"calls": [{"compute_us": compute_us}, {"collective": "all_reduce", "bytes": 1 << 20}]}))
            return str(file)

        files = [trace(rank, 500 if rank == 10 else 100) for rank in range(12)]
        cluster = ("--ranks", 12, "--ranks-per-node", 4, "--tuner", "default")
        call_us = self.sim("all_reduce", "-b", "1M", *cluster)[0]["time_us"]
        total = self.sim("--workload", *sorted(files), *cluster, "--what-if", "slow=2@10", "--what-if", "slow=2@9")
        self.assertAlmostEqual(total["policies"]["default"], 500 + call_us, places=3)
        changes = {row["what"]: row["time_us"] for row in total["what_if"]}
        self.assertAlmostEqual(changes["computing of rank 10 x 2"], 1000 + call_us, places=3)
        self.assertAlmostEqual(changes["computing of rank 9 x 2"], 500 + call_us, places=3)
        self.sim("--workload", *files, *cluster, "--export", self.folder / "out.et")
        again = self.sim("--workload", *(self.folder / f"out.{rank}.et" for rank in range(12)), *cluster)
        self.assertAlmostEqual(again["policies"]["default"], 500 + call_us, places=3)
        ended = self.start([job.PLEXUS, "sim", "--workload", *files, files[0] + ".gone", *map(str, cluster)]).end(60)
        self.assertEqual((ended.returncode, ended.stderr.count("\n")), (2, 1), ended.stderr)
        self.assertIn("step.0.json.gone", ended.stderr)

    def test_changes_that_cannot_be_are_one_sentence(self):
        for change in ("rate", "speed=2", "slow=1.2@3", "dcs-lost=1", "rate=0"):
            ended = self.start([job.PLEXUS, "sim", "--workload", str(STEP), "--what-if", change]).end(60)
            self.assertEqual((ended.returncode, ended.stderr.count("\n")), (2, 1), ended.stderr)
            self.assertIn("--what-if", ended.stderr)

    def test_a_policy_goes_from_the_simulator_to_a_real_run(self):
        rows = self.sim("all_reduce", "--ranks", 64, "-b", "1K", "--tuner", "default,csv", **self.csv)
        self.assertEqual({row["policy"]: row["chosen"] for row in rows}["csv"], "doubling")
        rows = self.sim("all_reduce", "--ranks", 64, "--ranks-per-node", 8, "-b", "2M", "--tuner", "none,csv", **self.csv)
        regret = {row["policy"]: row["regret"] for row in rows}
        self.assertEqual(regret["csv"], 0)
        self.assertGreater(regret["none"], 0.5)
        explained = self.start([job.PLEXUS, "explain", "all_reduce", "1K", "--ranks", "3", "--measure", "--json", "-"],
                               NCCL_TUNER_PLUGIN="csv", **self.csv).end(100)
        self.assertEqual(json.loads(explained.stdout)["chosen"]["algorithm"], "doubling")
        report = self.run_perf("all_reduce", "-b", "1K", "-e", "1K", "-n", 2, "-w", 0, "--ranks", 3,
                               NCCL_TUNER_PLUGIN="csv", **self.csv)
        self.assertEqual({row["algorithm"] for row in report["rows"]}, {"doubling"})

    def test_the_online_policy_finds_the_best_within_its_budget(self):
        cluster = ("--ranks", 16, "--ranks-per-node", 4)
        rows = self.sim("--sweep", "--ranks", 8, "--ranks-per-node", 4, "-b", "1K", "-e", "1M", "-f", 32, "--tuner", "default,online")
        regret = {policy: [row["regret"] for row in rows if row["policy"] == policy] for policy in ("default", "online")}
        for by_default, online in zip(regret["default"], regret["online"]):
            self.assertLessEqual(online, by_default + 1e-9)
        self.assertLess(sum(regret["online"]), sum(regret["default"]))
        self.assertTrue(any(row["trials"] > 0 for row in rows if row["policy"] == "online"))
        workload = self.folder / "workload.json"
        for times, worse_most in [(6, 0), (100, 0.5), (100_000, 0)]:
            workload.write_text(json.dumps({"calls": [{"collective": "all_reduce", "bytes": 65536, "times": times}]}))
            total = self.sim("--workload", workload, *cluster, "--tuner", "default,online")["policies"]
            self.assertLessEqual(total["online"], total["default"] * (1 + worse_most) + 1e-9, times)

    def test_the_online_policy_runs_on_real_ranks(self):
        report = self.run_perf("all_reduce", "-b", "1K", "-e", "1K", "-n", 5, "-w", 20, "--ranks", 3, NCCL_TUNER_PLUGIN="online",
                               PLEXUS_ONLINE_BUDGET="1000", PLEXUS_PLUGIN_PATH=EXAMPLES)
        self.assertTrue(report["rows"])
        ended = self.start([job.PLEXUS, "perf", "all_reduce", "-b", "1K", "-e", "1K", "-n", "2", "--ranks", "2"], NCCL_TUNER_PLUGIN="online",
                           PLEXUS_ONLINE_BUDGET="ten", NCCL_DEBUG="WARN").end(60)
        self.assertIn("PLEXUS_ONLINE_BUDGET is 'ten': expects percent", ended.stdout + ended.stderr)


if __name__ == "__main__":
    job.main()
