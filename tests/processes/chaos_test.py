#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every collective over net-chaos over net-socket: bad paths give right data, a lost one gives an error."""
import job

SIZES = ["-b", "8", "-e", "256K", "-f", "181", "-n", "1", "-w", "0", *job.limit(50)]
OVER_CHAOS = {"NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "1", "NCCL_NET_PLUGIN": "chaos"}
SCRIPTS = {
    "call again, pieces, other order": "*: again=30% reorder=8 piece=10000",
    "slow and uneven": "send: delay=200us jitter=500us rate=2Gbit/s; send connection=0: stall=64KiB/5ms",
    "all at once": "*: again=20% reorder=4 piece=4096; send: jitter=100us; send connection=1: rate=1Gbit/s",
}


class Chaos(job.Test):
    def test_every_collective_over_bad_paths(self):
        for title, script in SCRIPTS.items():
            for collective in job.COLLECTIVES:
                with self.subTest(title, collective=collective):
                    self.run_perf(collective, *SIZES, "--ranks", 3, PLEXUS_CHAOS_SCRIPT=script, **OVER_CHAOS)

    def test_seeds(self):
        for seed in range(1, 6):
            with self.subTest(seed=seed):
                self.run_perf("all_reduce", *SIZES, "--ranks", 4, PLEXUS_CHAOS_SEED=str(seed),
                              PLEXUS_CHAOS_SCRIPT=SCRIPTS["all at once"], **OVER_CHAOS)

    def test_lost_connection_is_an_error_of_every_collective(self):
        for collective in job.COLLECTIVES:
            with self.subTest(collective):
                ended = self.start(job.perf(collective, "-b", "256K", "-e", "256K", *job.limit(30), "--ranks", 3),
                                   PLEXUS_CHAOS_SCRIPT="send: cut=100000", **OVER_CHAOS).end(60)
                self.assertNotEqual(ended.returncode, 0)
                self.assertIn("lost the connection", ended.stderr)

    def test_through_its_nccl_tables(self):
        for version in ("v8", "v12"):
            self.run_perf("all_reduce", *SIZES, "--ranks", 3, PLEXUS_NET_ABI=version,
                          PLEXUS_CHAOS_SCRIPT=SCRIPTS["all at once"], **OVER_CHAOS)


if __name__ == "__main__":
    job.main()
