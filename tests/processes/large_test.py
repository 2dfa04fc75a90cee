#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Communicators with far more ranks than cores, in one process."""
import job


class Large(job.Test):
    def test_64_threads(self):
        self.run_perf("all_reduce", "--ranks", 64, "--mode", "threads", "-b", "4K", "-e", "64K", "-f", 16)

    def test_1024_ranks_in_one_thread(self):
        report = self.run_perf("all_reduce", "--ranks", 1024, "--mode", "single", "-b", "4K", "-e", "64K", "-f", 16)
        self.assertEqual(report["ranks"], 1024)

    def test_more_connections_than_the_soft_limit_of_open_files(self):
        low = ["bash", "-c", 'ulimit -Sn 64; exec "$@"', "bash"]
        ended = self.start(job.perf("all_reduce", "--ranks", 32, "--mode", "threads", "-b", "4K", "-e", "4K", "-n", 2,
                                    "--json", "-"), low, NCCL_SHM_DISABLE="1", NCCL_P2P_DISABLE="1").end(60)
        self.check_report(ended)


if __name__ == "__main__":
    job.main()
