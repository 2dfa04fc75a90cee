#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that have only a network between them: over loopback, and two and two in two network
namespaces, which stand for two hosts, joined by a veth pair. The test makes both and removes them."""
import os
import re
import subprocess

import job

SIZES = ["-b", "8", "-e", "1M", "-f", "64", "-n", "2", "-w", "1", "-T", "50"]
OVER_TCP = {"NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "1"}
PORT = 29999  # a new namespace has all of them free
LINK = "plexus0"


def ip(*arguments):
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=job.bound(20)).stdout


def remove_leftovers():
    """Namespaces of tests that were killed before they could remove them."""
    for line in ip("netns", "list").splitlines():
        match = re.match(r"plexus-(\d+)-[ab]\b", line)
        if match and not job.is_running(int(match[1])):
            subprocess.run(["ip", "netns", "del", line.split()[0]], capture_output=True, check=False)


class Loopback(job.Test):
    def test_every_collective_over_tcp(self):
        for collective in job.COLLECTIVES:
            with self.subTest(collective):
                self.run_perf(collective, *SIZES, "--ranks", 3, **OVER_TCP)

    def test_registered_buffers_and_several_sockets(self):
        self.run_perf("all_reduce", *SIZES, "--ranks", 2, "--buffers", "registered", NCCL_NSOCKS_PERTHREAD="2",
                      NCCL_SOCKET_NTHREADS="2", **OVER_TCP)


class TwoHosts(job.Test):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("making network namespaces needs root")
        self.hosts = [f"plexus-{os.getpid()}-{name}" for name in "ab"]
        try:
            remove_leftovers()
            for host in self.hosts:
                ip("netns", "add", host)
                self.addCleanup(subprocess.run, ["ip", "netns", "del", host], capture_output=True, check=False)
            ip("-n", self.hosts[0], "link", "add", LINK, "type", "veth", "peer", "name", LINK, "netns", self.hosts[1])
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest(f"network namespaces cannot be made here: {getattr(error, 'stderr', None) or error}")
        for host, address in zip(self.hosts, ("10.93.0.1/24", "10.93.0.2/24")):
            ip("-n", host, "addr", "add", address, "dev", LINK)
            ip("-n", host, "link", "set", LINK, "up")
            ip("-n", host, "link", "set", "lo", "up")
        for host in self.hosts:
            self.wait_until(20, lambda host=host: "LOWER_UP" in ip("-n", host, "link", "show", LINK), "the link is down")

    def bytes_sent(self, host):
        text = subprocess.run(["ip", "netns", "exec", host, "cat", f"/sys/class/net/{LINK}/statistics/tx_bytes"],
                              check=True, capture_output=True, text=True, timeout=job.bound(20)).stdout
        return int(text)

    def test_two_and_two_ranks(self):
        for collective in job.COLLECTIVES:
            with self.subTest(collective):
                before = self.bytes_sent(self.hosts[0])
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
                self.assertGreater(self.bytes_sent(self.hosts[0]) - before, 1 << 15, "the data went another way")


if __name__ == "__main__":
    job.main()
