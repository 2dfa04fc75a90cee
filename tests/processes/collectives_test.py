#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every collective gives the right data, in each way to start ranks. MODE is procs, threads or single.

Usage: collectives_test.py MODE [UNITTEST-ARGUMENTS]
"""
import sys

import job

# includes parts of 0 bytes and odd counts with three ranks
SIZES = ["-b", "4", "-e", "256K", "-f", "16"]
QUICK = ["-n", "2", "-w", "1", "-c", "1"]
MODE = sys.argv.pop(1)


class Collectives(job.Test):
    def check_all(self, *arguments, **environment):
        for collective in [*job.COLLECTIVES, "alltoallv", "allgatherv", "reducescatterv", "gatherv", "scatterv", "put"]:
            with self.subTest(collective):
                report = self.run_perf(collective, "--mode", MODE, *QUICK, *arguments, **environment)
                self.assertEqual(report["collective"], collective)
                self.assertEqual(report["mode"], MODE)

    def test_three_ranks_every_root(self):
        self.check_all("--ranks", 3, "-r", "all", *SIZES)

    def test_four_ranks_with_registered_buffers(self):
        self.check_all("--ranks", 4, "--buffers", "registered", *SIZES)
        self.check_all("--ranks", 2, "--buffers", "window", *SIZES)

    def test_asynchronous_streams(self):
        self.check_all("--ranks", 3, "--stream", "async", *SIZES)

    def test_hypercube(self):
        for nranks in (1, 2, 8):
            self.run_perf("hypercube", "--mode", MODE, *QUICK, *SIZES, "--ranks", nranks, "--stream", "async")

    def test_puts_where_no_memory_is_shared(self):
        for stream in ("null", "async"):
            self.run_perf("put", "--mode", MODE, *QUICK, *SIZES, "--ranks", 3, "--stream", stream,
                          NCCL_SHM_DISABLE="1", NCCL_P2P_DISABLE="1")

    def test_one_rank_alone(self):
        self.check_all("--ranks", 1, *SIZES)

    def test_messages_of_many_slots(self):
        self.check_all("--ranks", 2, "-b", "9M", "-e", "9M", "-n", 1)

    def test_low_latency_protocols(self):
        for protocol in ("LL", "LL128"):
            self.check_all("--ranks", 3, "--proto", protocol, *SIZES)

    def test_two_channels(self):
        self.check_all("--ranks", 3, "--channels", 2, *SIZES)


if __name__ == "__main__":
    job.main()
