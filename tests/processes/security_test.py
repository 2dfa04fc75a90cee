#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PLEXUS_NET_SECURITY from outside: whole jobs over TCP in every mode, and ranks that differ."""
import os
import time

import job

HOSTS = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_NET": "Socket"}
MODES = ("off", "auth", "tls")


class Security(job.Test):
    def start_hosts(self, *arguments, modes, **environment):
        """Two ranks that are hosts of their own; rank 0 prints."""
        rendezvous = f"127.0.0.1:{job.free_port()}"
        return [self.start(job.perf(*arguments, "--rank", rank, "--nranks", 2, "--rendezvous", rendezvous, "--json", "-"),
                           NCCL_HOSTID=f"host{rank}", PLEXUS_NET_SECURITY=mode, **{**HOSTS, **environment})
                for rank, mode in enumerate(modes)]

    def expect_success(self, ranks):
        ended = [rank.end(60) for rank in ranks]
        for each in ended:
            self.assertEqual(each.returncode, 0, each.stderr)
        self.check_report(ended[0])

    def test_jobs_over_tcp_in_every_mode(self):
        for mode in MODES:
            for sockets in ("1", "3"):
                with self.subTest(mode, sockets=sockets):
                    for collective in ("all_reduce", "alltoall", "sendrecv"):
                        self.expect_success(self.start_hosts(
                            collective, "-b", "4", "-e", "8M", "-f", "32", "-n", "2", "-w", "1", *job.limit(50),
                            modes=(mode, mode), NCCL_NSOCKS_PERTHREAD=sockets))

    def test_ranks_of_different_modes_end_at_once_with_both_names(self):
        for modes in (("auth", "tls"), ("off", "auth"), ("tls", "off")):
            with self.subTest(modes):
                began = time.monotonic()
                ended = [rank.end(40) for rank in self.start_hosts("all_reduce", "-e", "1K", modes=modes)]
                for each, mine, peers in zip(ended, modes, reversed(modes)):
                    self.assertNotEqual(each.returncode, 0)
                    # The introducer is in rank 0's process, and its sentence is what rank 0 gets.
                    self.assertRegex(each.stderr, f"PLEXUS_NET_SECURITY is {mine} here and {peers} at its end")
                self.assertLess(time.monotonic() - began, job.bound(20))

    def test_networks_that_know_nothing_of_it_are_refused_with_tls(self):
        folder = {"PLEXUS_PLUGIN_PATH": os.environ.get("PLEXUS_TEST_EXAMPLE_DIR", "build/dev/test-bin"), "NCCL_NET": ""}
        for settings, text in (({"NCCL_NET_PLUGIN": "tcp-v8"}, "does not take that setting, so that it may send in clear"),
                               ({"NCCL_NET_PLUGIN": "ofi"}, "net-ofi cannot encrypt")):
            for each in self.start_hosts("all_reduce", "-e", "1K", modes=("tls", "tls"), **folder, **settings):
                ended = each.end(30)
                self.assertNotEqual(ended.returncode, 0)
                self.assertIn(text, ended.stderr)

    def test_a_mode_that_is_none_is_named(self):
        for each in self.start_hosts("all_reduce", "-e", "1K", modes=("strong", "strong")):
            ended = each.end(30)
            self.assertNotEqual(ended.returncode, 0)
            self.assertIn("PLEXUS_NET_SECURITY=strong (from the environment) is invalid: expected off, auth or tls", ended.stderr)


if __name__ == "__main__":
    job.main()
