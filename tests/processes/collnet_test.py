#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduce with the sum between hosts made by a network that reduces: our aggregator, hosted by a rank, or
`plexus aggregator` as one server or two. Hosts are made of processes by NCCL_HOSTID, or are namespaces."""
import itertools
import os
import re

import job
import netns

SIZES = ["-b", "4", "-e", "4M", "-f", "16", "-n", "2", "-w", "1", "-T", "50"]
COLLNET = {"NCCL_COLLNET_ENABLE": "1", "PLEXUS_COLLNET_PLUGIN": "aggregator", "NCCL_SOCKET_IFNAME": "lo"}
PORT = 29998
LINK = "plexus1"


class Collnet(job.Test):
    def start_aggregator(self, prefix=(), address="127.0.0.1:0"):
        server = self.start([job.PLEXUS, "aggregator", "--listen", address], prefix)
        return server, re.search(r"listening at (\S+)", server.read_line()).group(1)

    def start_job(self, hosts, *arguments, prefix=lambda host: (), rendezvous=None, **environment):
        """Ranks of the hosts, given by how many each has; rank 0 prints."""
        names = [host for host, count in enumerate(hosts) for _ in range(count)]
        rendezvous = rendezvous or f"127.0.0.1:{job.free_port()}"
        return [self.start(job.perf("all_reduce", *arguments, "--rank", rank, "--nranks", len(names),
                                    "--rendezvous", rendezvous, "--json", "-"), prefix(host),
                           NCCL_HOSTID=f"host{host}", **environment)
                for rank, host in enumerate(names)]

    def end_job(self, ranks, seconds=60):
        ended = [rank.end(seconds) for rank in ranks]
        for each in ended:
            self.assertEqual(each.returncode, 0, each.stderr)
        return self.check_report(ended[0])

    def run_job(self, hosts, *arguments, **environment):
        return self.end_job(self.start_job(hosts, *arguments, **environment))

    def algorithms(self, report):
        return {row["algorithm"] for row in report["rows"]}


class Hosted(Collnet):
    def test_hosts_of_equal_and_unequal_size(self):
        for family, hosts in itertools.product(("collnetchain", "collnetdirect"), ([1, 1], [2, 2], [1, 2, 3])):
            with self.subTest(family, hosts=hosts):
                report = self.run_job(hosts, *SIZES, NCCL_ALGO=f"allreduce:{family}", **COLLNET)
                self.assertEqual(self.algorithms(report), {family})

    def check_types(self, family, **environment):
        """Every type and operation: 8-bit floats go another way."""
        report = self.run_job([2, 2], "-b", "64K", "-e", "64K", "-n", "1", "-w", "0", "-T", "50", "-d", "all", "-o", "all",
                              NCCL_TUNER_PLUGIN="none", **COLLNET, **environment)
        for row in report["rows"]:
            is_served = not row["type"].startswith("f8")
            self.assertEqual(row["algorithm"] == family, is_served, row)

    def test_every_type_and_operation_by_the_chain(self):
        self.check_types("collnetchain")

    def test_every_type_and_operation_by_the_direct_way(self):
        servers = ",".join(self.start_aggregator()[1] for _ in range(2))
        self.check_types("collnetdirect", PLEXUS_AGGREGATOR=servers)

    def test_it_is_off_unless_asked_for(self):
        environment = {**COLLNET, "NCCL_COLLNET_ENABLE": "0"}
        report = self.run_job([1, 1], *SIZES, **environment)
        self.assertFalse(self.algorithms(report) & {"collnetchain", "collnetdirect"})

    def test_fewer_hosts_than_the_threshold(self):
        ranks = self.start_job([1, 1], *SIZES, NCCL_ALGO="allreduce:collnetchain", NCCL_COLLNET_NODE_THRESHOLD="3",
                               **COLLNET)
        ended = [rank.end(30) for rank in ranks]
        self.assertTrue(all(each.returncode for each in ended))
        # The second one may get the other's departure as its error instead.
        self.assertIn("2 hosts, NCCL_COLLNET_NODE_THRESHOLD is 3", "".join(each.stderr for each in ended))

    def test_a_plugin_that_is_not_there(self):
        environment = {**COLLNET, "PLEXUS_COLLNET_PLUGIN": "nosuch"}
        ranks = self.start_job([1, 1], *SIZES, **environment)
        ended = [rank.end(30) for rank in ranks]
        self.assertTrue(all(each.returncode for each in ended))
        self.assertIn("collnet plugin nosuch was not found", "".join(each.stderr for each in ended))


class Served(Collnet):
    def test_two_servers_are_two_heads(self):
        servers = ",".join(self.start_aggregator()[1] for _ in range(2))
        report = self.run_job([2, 2], *SIZES, NCCL_ALGO="allreduce:collnetdirect", PLEXUS_AGGREGATOR=servers, **COLLNET)
        self.assertEqual(self.algorithms(report), {"collnetdirect"})

    def test_a_killed_aggregator_is_an_error_on_all_ranks(self):
        server, address = self.start_aggregator()
        ranks = self.start_job([2, 1], "-b", "1M", "-e", "1M", "-n", "1000000", "-w", "1", "-T", "60",
                               NCCL_ALGO="allreduce:collnetchain", PLEXUS_AGGREGATOR=address, NCCL_DEBUG="INFO",
                               NCCL_DEBUG_FILE="stderr", **COLLNET)
        # When two heads are connected, the job runs.
        self.wait_until(30, lambda: self.count_connections(server.pid) >= 2, "the heads do not connect")
        server.stop()
        for rank in ranks:
            ended = rank.end(10)
            self.assertNotEqual(ended.returncode, 0)
            self.assertIn("aggregator", ended.stderr)

    def count_connections(self, pid):
        """Sockets of the server, but for the one that listens."""
        links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        return sum(link.startswith("socket:") for link in links) - 1

    def test_no_server_there(self):
        ranks = self.start_job([1, 1], *SIZES, NCCL_ALGO="allreduce:collnetchain",
                               PLEXUS_AGGREGATOR=f"127.0.0.1:{job.free_port()}", **COLLNET)
        ended = [rank.end(50) for rank in ranks]
        self.assertTrue(all(each.returncode for each in ended))
        self.assertIn("is `plexus aggregator` running there?", "".join(each.stderr for each in ended))

    def test_an_address_that_is_none(self):
        ranks = self.start_job([1, 1], *SIZES, PLEXUS_AGGREGATOR="here", **COLLNET)
        ended = [rank.end(30) for rank in ranks]
        self.assertTrue(all(each.returncode for each in ended))
        self.assertIn("PLEXUS_AGGREGATOR=here: 'here' is not an address", "".join(each.stderr for each in ended))


class TwoNamespaces(Collnet, netns.Test):
    def setUp(self):
        self.hosts = list(self.make_hosts("ab").values())
        self.join(self.hosts[0], LINK, self.hosts[1], LINK)
        for host, address in zip(self.hosts, ("10.94.0.1/24", "10.94.0.2/24")):
            netns.ip("-n", host, "addr", "add", address, "dev", LINK)
            self.wait_for_link(host, LINK)

    def test_two_and_two_ranks(self):
        for family in ("collnetchain", "collnetdirect"):
            with self.subTest(family):
                environment = {**COLLNET, "NCCL_SOCKET_IFNAME": LINK, "NCCL_ALGO": f"allreduce:{family}"}
                before = self.bytes_sent(self.hosts[1], LINK)
                ranks = self.start_job([2, 2], *SIZES, rendezvous=f"10.94.0.1:{PORT}",
                                       prefix=lambda host: ["ip", "netns", "exec", self.hosts[host]], **environment)
                self.assertEqual(self.algorithms(self.end_job(ranks)), {family})
                self.assertGreater(self.bytes_sent(self.hosts[1], LINK) - before, 1 << 20, "the data went another way")


if __name__ == "__main__":
    job.main()
