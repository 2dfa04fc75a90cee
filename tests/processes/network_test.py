#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that have only a network between them: over loopback, and two and two in two network
namespaces, which stand for two hosts, joined by a veth pair. The test makes both and removes them."""
import job
import netns

SIZES = ["-b", "8", "-e", "1M", "-f", "64", "-n", "2", "-w", "1", *job.limit(50)]
OVER_TCP = {"NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "1"}
PORT = 29999  # a new namespace has all of them free
LINK = "plexus0"


class Loopback(job.Test):
    def test_every_collective_over_tcp(self):
        for collective in job.COLLECTIVES:
            with self.subTest(collective):
                self.run_perf(collective, *SIZES, "--ranks", 3, **OVER_TCP)

    def test_registered_buffers_and_several_sockets(self):
        self.run_perf("all_reduce", *SIZES, "--ranks", 2, "--buffers", "registered", NCCL_NSOCKS_PERTHREAD="2",
                      NCCL_SOCKET_NTHREADS="2", **OVER_TCP)


class TwoHosts(netns.Test):
    def setUp(self):
        self.hosts = list(self.make_hosts("ab").values())
        self.join(self.hosts[0], LINK, self.hosts[1], LINK)
        for host, address in zip(self.hosts, ("10.93.0.1/24", "10.93.0.2/24")):
            netns.ip("-n", host, "addr", "add", address, "dev", LINK)
            self.wait_for_link(host, LINK)

    def test_two_and_two_ranks(self):
        for collective in job.COLLECTIVES:
            with self.subTest(collective):
                before = self.bytes_sent(self.hosts[0], LINK)
                ranks = []
                for rank in range(4):
                    host = self.hosts[rank // 2]
                    ranks.append(self.start(
                        job.perf(collective, *SIZES, "--rank", rank, "--nranks", 4, "--rendezvous", f"10.93.0.1:{PORT}",
                                 "--json", "-"),
                        ["ip", "netns", "exec", host], NCCL_HOSTID=host, NCCL_SOCKET_IFNAME=LINK))
                for rank in (3, 2, 1, 0):
                    ended = ranks[rank].end(60)
                    self.assertEqual(ended.returncode, 0, ended.stderr)
                self.check_report(ended)
                self.assertGreater(self.bytes_sent(self.hosts[0], LINK) - before, 1 << 15, "the data went another way")


if __name__ == "__main__":
    job.main()
