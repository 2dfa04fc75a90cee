#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every data type with every reduction, and data that is only moved, in every type."""
import job

ROWS_PER_VARIANT = 6  # three sizes, out of place and in place


class Types(job.Test):
    def test_all_reduce_of_every_type_and_op(self):
        report = self.run_perf("all_reduce", "-d", "all", "-o", "all", "-b", "1K", "-e", "1M", "-f", 32,
                               "--ranks", 3, "-n", 1, "-w", 0, seconds=100)
        self.assertEqual(len(report["rows"]), 12 * 6 * ROWS_PER_VARIANT)

    def test_reduce_and_reduce_scatter_of_every_type_and_op(self):
        for collective in ("reduce", "reduce_scatter"):
            with self.subTest(collective):
                self.run_perf(collective, "-d", "all", "-o", "all", "-b", "3K", "-e", "3K", "--mode", "single",
                              "--ranks", 5, "-n", 1, "-w", 0)

    def test_moving_every_type(self):
        for collective in ("broadcast", "all_gather", "alltoall", "sendrecv"):
            with self.subTest(collective):
                self.run_perf(collective, "-d", "all", "-b", "5K", "-e", "5K", "--ranks", 3, "-n", 1, "-w", 0)


if __name__ == "__main__":
    job.main()
