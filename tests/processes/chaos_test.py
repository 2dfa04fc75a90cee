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
    "completions come late": "*: late=300us",
    "other connections' completions come first": "*: overtake=500us",
    "completions only in tests of other connections": "*: elsewhere=5ms",
    "late, mixed and elsewhere": "*: late=50us overtake=200us elsewhere=2ms reorder=8 again=20%",
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

    def end_two_hosts(self, *arguments, script, **environment):
        """Two ranks that are hosts of their own, rank 1 with a script; how they ended."""
        rendezvous = f"127.0.0.1:{job.free_port()}"
        ranks = [self.start(job.perf("all_reduce", *arguments, *job.limit(30), "--rank", rank, "--nranks", 2,
                                     "--rendezvous", rendezvous, "--json", "-"), NCCL_HOSTID=f"host{rank}",
                            NCCL_SOCKET_IFNAME="lo", NCCL_NET_PLUGIN="chaos", PLEXUS_CHAOS_SCRIPT=script * rank,
                            **environment) for rank in range(2)]
        return [rank.end(60) for rank in ranks]

    def test_a_flipped_bit_is_found_and_names_the_link_on_both_sides(self):
        size = ["-d", "uint8", "-b", "100K", "-e", "100K", "-n", "1", "-w", "0"]
        positions = [102500 * message + 1000 for message in range(6)]  # one is in data that perf checks
        found = [sum(each.returncode for each in self.end_two_hosts(*size, script=f"recv: flip={position}"))
                 for position in positions]
        self.assertTrue(any(found), "nobody sees a flipped bit without a checksum either")
        for abi in ("native", "v8"):
            with self.subTest(abi=abi):
                for each in self.end_two_hosts(*size, script="recv: flip=1000", PLEXUS_NET_CHECKSUM="1", PLEXUS_NET_ABI=abi):
                    self.assertNotEqual(each.returncode, 0)
                    self.assertRegex(each.stderr, r"the link from rank 0 \(.*\) to rank 1 by \S+ 0 \(lo\) > 0 \(lo\) "
                                     "changed data on its way: the CRC32C of a message of")

    def test_a_flipped_bit_of_a_header_is_found(self):
        for each in self.end_two_hosts("-e", "1K", script="recv: flip=33", PLEXUS_NET_CHECKSUM="1"):
            self.assertNotEqual(each.returncode, 0)
            self.assertIn("the CRC32C of a message's header", each.stderr)

    def test_checksums_change_nothing_where_nothing_is_changed(self):
        for plugin in ("socket", "chaos"):
            for collective in job.COLLECTIVES:
                with self.subTest(plugin, collective=collective):
                    settings = {**OVER_CHAOS, "NCCL_NET_PLUGIN": plugin, "PLEXUS_NET_CHECKSUM": "1"}
                    self.run_perf(collective, *SIZES, "--ranks", 3, PLEXUS_CHAOS_SCRIPT=SCRIPTS["all at once"], **settings)

    def test_ranks_must_agree_about_checksums(self):
        rendezvous = f"127.0.0.1:{job.free_port()}"
        ranks = [self.start(job.perf("all_reduce", "-e", "1K", "--rank", rank, "--nranks", 2, "--rendezvous", rendezvous),
                            PLEXUS_NET_CHECKSUM=str(rank)) for rank in range(2)]
        for each in [rank.end(40) for rank in ranks]:
            self.assertNotEqual(each.returncode, 0)
            self.assertIn("PLEXUS_NET_CHECKSUM is '0' on rank 0", each.stderr)

    def test_ranks_that_are_threads_over_completions_of_others(self):
        for collective in job.COLLECTIVES:
            for script in ("*: overtake=500us", "*: elsewhere=5ms"):
                with self.subTest(collective, script=script):
                    self.run_perf(collective, *SIZES, "--ranks", 3, "--mode", "threads", PLEXUS_CHAOS_SCRIPT=script, **OVER_CHAOS)

    def test_through_its_nccl_tables(self):
        for version in ("v8", "v12"):
            self.run_perf("all_reduce", *SIZES, "--ranks", 3, PLEXUS_NET_ABI=version,
                          PLEXUS_CHAOS_SCRIPT=SCRIPTS["all at once"], **OVER_CHAOS)


if __name__ == "__main__":
    job.main()
