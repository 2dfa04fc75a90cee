# SPDX-License-Identifier: Apache-2.0
"""Datacenters as namespaces (`plexus cluster`): the bytes between them, by the interfaces' own counters,
against what each algorithm must move; results checked by `plexus perf`."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import job

S = 2 << 20  # bytes of a call
HEADERS = 1.05  # packet headers, acknowledgements, and other messages between the ranks
FIXED = 300_000  # bootstrap, barriers


def available():
    probe = subprocess.run([job.PLEXUS, "cluster", "up", "--dcs", "2", "--nodes", "2", "--ranks", "1", "--timeout", "20",
                            "--", "true"], capture_output=True, text=True)
    return probe.returncode == 0, probe.stderr.strip()


WORKS, WHY_NOT = available()


def link_bytes(arguments, *words):
    """The end of the run, and bytes by link."""
    with tempfile.TemporaryDirectory() as folder:
        reported = pathlib.Path(folder) / "links.json"
        ended = job.Command([job.PLEXUS, "cluster", "up", "--inter", "1gbit,1ms", "--timeout", "60", "--json", reported,
                             *arguments, "--", *words]).end(90)
        return ended, json.loads(reported.read_text()) if reported.exists() else {}


def perf(collective, operations, *flags):
    """`operations` calls out of place, as many in place, each of S bytes."""
    return (job.PLEXUS, "perf", collective, "-b", S, "-e", S, "-n", operations, "-w", 0, "-c", 1, "--proto", "Simple", *flags)


@unittest.skipUnless(WORKS, f"no cluster here: {WHY_NOT}")
class Cluster(unittest.TestCase):
    def crossing(self, cluster, collective, algorithm):
        """Bytes per call out of the datacenter that sends the most, by the difference of two runs: what does
        not depend on the number of calls falls out."""
        def most(operations):
            ended, links = link_bytes(cluster, *perf(collective, operations, "--algo", algorithm))
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
            return max(sent for link, sent in links.items() if link.startswith("dc"))
        return (most(6) - most(1)) / 10  # 5 calls more, out of place and in place

    def test_ring_crosses_each_border_once(self):
        self.assertLessEqual(self.crossing(["--dcs", "2", "--nodes", "4", "--ranks", "2"], "all_reduce", "ring"), 2.1 * S)

    def test_tree_sends_the_message_once(self):
        self.assertLessEqual(
            self.crossing(["--dcs", "2", "--nodes", "4", "--ranks", "2"], "all_reduce", "allreduce:tree"), 1.1 * S)

    def test_hierarchical_all_reduce_sends_the_message_once(self):
        self.assertLessEqual(
            self.crossing(["--dcs", "2", "--nodes", "4", "--ranks", "2"], "all_reduce", "hierarchical"), 1.1 * S)

    def test_interleaved_uneven_datacenters_cost_no_more(self):
        self.assertLessEqual(self.crossing(["--sizes", "1,2", "--ranks", "2", "--placement", "interleaved"],
                                           "all_reduce", "hierarchical"), 1.1 * S)

    def test_blocks_cross_once(self):
        for collective in ("all_gather", "reduce_scatter"):
            with self.subTest(collective):
                self.assertLessEqual(self.crossing(["--dcs", "2", "--nodes", "2", "--ranks", "2"], collective,
                                                   "hierarchical"), 1.1 * S / 2)

    def test_three_datacenters_and_every_collective_give_right_results(self):
        for collective in ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "alltoall"):
            with self.subTest(collective):
                ended, _ = link_bytes(["--sizes", "1,2,1", "--ranks", "1"], job.PLEXUS, "perf", collective, "-b", "100K",
                                      "-e", "100K", "-n", "1", "-w", "0", "--algo", "hierarchical", "--proto", "Simple")
                self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)

    def test_default_tuner_picks_hierarchical(self):
        ended, _ = link_bytes(["--dcs", "2", "--nodes", "4", "--ranks", "1"], job.PLEXUS, "perf", "all_reduce", "-b", S,
                              "-e", S, "-n", "1", "-w", "0", "--columns", "plexus")
        self.assertIn("hierarchical/", ended.stdout)

    def test_host_without_a_datacenter_is_an_error_that_names_hosts(self):
        with tempfile.NamedTemporaryFile("w") as fabric:
            fabric.write("host node0 dc here\n")
            fabric.flush()
            ended, _ = link_bytes(["--dcs", "2", "--nodes", "2", "--ranks", "1"], "env", f"PLEXUS_FABRIC_FILE={fabric.name}",
                                  *perf("all_reduce", 1))
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("host node1 matches no host line", ended.stdout + ended.stderr)
        self.assertIn("host node0", ended.stdout + ended.stderr)

    def test_nothing_is_left_when_it_is_killed(self):
        run = job.Command([job.PLEXUS, "cluster", "up", "--dcs", "2", "--nodes", "2", "--ranks", "1", "--", "sh", "-c",
                           "echo up; exec sleep 60"])
        run.read_line()
        children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        run.stop()
        for child in children:
            deadline = job.time.monotonic() + job.bound(10)
            while os.path.exists(f"/proc/{child}/cmdline") and pathlib.Path(f"/proc/{child}/cmdline").read_bytes():
                self.assertLess(job.time.monotonic(), deadline, f"process {child} is left")
                job.time.sleep(0.01)


if __name__ == "__main__":
    job.main()
