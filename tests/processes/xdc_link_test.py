# SPDX-License-Identifier: Apache-2.0
"""A link between datacenters is cut while a stream of all_reduce calls runs (`plexus cluster`): the calls go on by the
links that are left, right on all ranks, or fail on all ranks with the link named."""
import itertools
import json
import os
import pathlib
import re
import sys
import tempfile
import time
import unittest

import job

LIBRARY = str(pathlib.Path(job.PLEXUS).parent.parent / "lib" / "libnccl.so")
FOLDER = pathlib.Path(os.environ.get("PLEXUS_TEST_EXAMPLE_DIR", "build/dev/test-bin"))
STREAM = str(pathlib.Path(__file__).parent / "xdc_stream.py")
COUNT = 1 << 16  # floats of a call
CALLS = 30
TIMEOUT_S = 0.5


def available():
    probe = job.Command([job.PLEXUS, "cluster", "up", "--dcs", "2", "--nodes", "2", "--ranks", "1", "--timeout", "20",
                         "--", "true"]).end(40)
    return probe.returncode == 0, probe.stderr.strip()


WORKS, WHY_NOT = available()


@unittest.skipUnless(WORKS, f"no cluster here: {WHY_NOT}")
class XdcLink(job.Test):
    def run_stream(self, *cluster, calls=CALLS, flags=(), restore=False, **environment):
        """The end of the run, what the ranks told, and bytes by link. The cut comes with the first call; the link is
        restored when the ranks' choice has changed."""
        folder = self.enterContext(tempfile.TemporaryDirectory())
        stream = pathlib.Path(folder) / "stream"
        stream.mkdir()
        links = pathlib.Path(folder) / "links.json"
        ended = self.start(
            [job.PLEXUS, "cluster", "up", "--inter", "1gbit,2ms", "--timeout", str(job.bound(60)), "--json", links,
             *cluster, "--cut", f"0@{stream}/running", *(["--restore", f"{stream}/changed"] if restore else []),
             "--", sys.executable, STREAM, stream, COUNT, calls, *flags],
            **{"PLEXUS_TEST_LIBRARY": LIBRARY, "NCCL_DEBUG": "WARN",
               "PLEXUS_XDC_TIMEOUT_MSEC": str(int(TIMEOUT_S * 1000)), **environment}).end(90)
        reported = [json.loads(file.read_text()) for file in stream.glob("rank*.json")]
        return ended, reported, json.loads(links.read_text())

    def check_goes_on(self, nranks, *cluster, **environment):
        ended, reported, links = self.run_stream(*cluster, "--links", "2", **environment)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertEqual(len(reported), nranks)
        self.assertEqual(len({rank["bits"] for rank in reported}), 1, "all ranks have the same bits")
        for rank in reported:
            self.assertEqual(len(rank["times"]), CALLS)
        stall = max(max(rank["times"]) for rank in reported)
        self.assertGreater(stall, TIMEOUT_S, "nothing was cut")
        self.assertLess(stall, job.bound(15 * TIMEOUT_S))
        self.assertRegex(ended.stdout + ended.stderr,
                         r"lost the link to rank \d+ \(node\d+:\d+\) by Socket 0 \(eth0\) > 0 \(eth0\): .* are sent again by "
                         r"Socket 1 \(eth1\) > 1 \(eth1\)")
        self.assertGreater(links["dc0 > dc1 link 1"], 4 * COUNT * CALLS // 2, "the other link carries the stream")
        return stall

    def test_stream_goes_on_by_the_other_link(self):
        stall = self.check_goes_on(8, "--dcs", "2", "--nodes", "4", "--ranks", "2")
        print(f"stall of {stall:.2f} s, links count as lost after {TIMEOUT_S} s", flush=True)

    def test_rings_and_three_datacenters_go_on_too(self):
        self.check_goes_on(4, "--sizes", "2,1,1", "--ranks", "1", NCCL_ALGO="ring")

    def run_with_changes(self, *flags, **environment):
        """Two datacenters of two ranks, with a tuner that chooses by what it is told of the links."""
        return self.run_stream("--dcs", "2", "--nodes", "2", "--ranks", "2", "--links", "2", calls=2000, flags=flags,
                               NCCL_TUNER_PLUGIN=str(FOLDER / "libplexus-tuner-link.so"),
                               PLEXUS_XDC_RETRY_MSEC="200", **environment)

    def test_all_ranks_choose_anew_at_one_call_when_a_link_is_lost_and_when_it_is_back(self):
        ended, reported, _ = self.run_with_changes("--back", restore=True, NCCL_DEBUG="INFO",
                                                   NCCL_DEBUG_SUBSYS="NET,TUNING")
        output = ended.stdout + ended.stderr
        self.assertEqual(ended.returncode, 0, output)
        self.assertEqual(len(reported), 4)
        self.assertEqual(len({rank["bits"] for rank in reported}), 1, "all ranks have the same bits")
        choices = reported[0]["choices"]
        for rank in reported:
            self.assertEqual(rank["choices"], choices, "all ranks change at the same call")
        turns = [choice for choice, _ in itertools.groupby(choices)]
        self.assertEqual(turns[:3], ["tree", "hierarchical", "tree"], output)
        self.assertRegex(output, r"the link to rank \d \(node\d:\d+\) by Socket 0 \(eth0\) > 0 \(eth0\) \(\d+ bytes so far\) is "
                               r"back: messages from \d+ on go by it, no longer by Socket 1 \(eth1\) > 1 \(eth1\)")
        for change in ("500 Mbit/s (before: 1000)", "1000 Mbit/s (before: 500)"):
            self.assertGreater(output.count(change), 0, output)
            self.assertEqual(output.count(change) % 4, 0, f"each rank says so: {change}")

    def check_fails(self, how, why):
        began = time.monotonic()
        ended, reported, _ = self.run_with_changes("--back", "--at-loss", how)
        self.assertNotEqual(ended.returncode, 0)
        self.assertEqual(reported, [], "no rank takes it for a success")
        output = [line for line in (ended.stdout + ended.stderr).splitlines() if re.search(why, line)]
        self.assertGreaterEqual(len(output), 3, ended.stdout + ended.stderr)
        self.assertLess(time.monotonic() - began, job.bound(40))

    def test_a_rank_that_dies_while_the_others_agree_ends_all(self):
        self.check_fails("die", r"rank 3 .*died")

    def test_a_rank_that_aborts_while_the_others_agree_ends_all(self):
        self.check_fails("abort", r"rank 3 .*ncclCommAbort")

    def test_without_another_link_all_ranks_fail_and_name_it(self):
        ended, reported, _ = self.run_stream("--dcs", "2", "--nodes", "2", "--ranks", "1")
        self.assertNotEqual(ended.returncode, 0)
        self.assertEqual(reported, [])
        output = [line for line in (ended.stdout + ended.stderr).splitlines() if "attempts on" in line]
        self.assertRegex("\n".join(output), r"lost the link to rank \d \(node\d:\d+\) by Socket 0 \(eth0\) > 0 \(eth0\)")
        self.assertGreaterEqual(len(output), 2, "each rank says so")


if __name__ == "__main__":
    job.main()
