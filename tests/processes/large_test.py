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


if __name__ == "__main__":
    job.main()
