#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which of several interfaces, addresses and ports the ranks of two hosts use when nobody says. The hosts are network
namespaces that the test makes and removes."""
import json
import pathlib
import shutil
import subprocess
import sys
import time

import job
import netns

LINK = "zlink"  # the others come first
PORT = 29998
ADDRESSES = ("10.93.0.1", "10.93.0.2")
SCRIPTED_RANK = str(pathlib.Path(__file__).with_name("scripted_rank.py"))
LIBRARY = str(pathlib.Path(job.PLEXUS).parent.parent / "lib" / "libnccl.so")


class Rank(job.Command):
    """A process of scripted_rank.py on a host."""
    stdin = subprocess.PIPE

    def __init__(self, host, **environment):
        super().__init__([sys.executable, "-B", SCRIPTED_RANK], ["ip", "netns", "exec", host], PLEXUS_TEST_LIBRARY=LIBRARY,
                         NCCL_HOSTID=host, PLEXUS_BOOTSTRAP_TIMEOUT="120", **environment)

    def tell(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def answer(self):
        return json.loads(self.read_line())

    def stop(self):
        self.process.stdin.close()
        super().stop()


class Interfaces(netns.Test):
    def setUp(self):
        self.hosts = list(self.make_hosts("ab").values())
        for host in self.hosts:
            self.set_up_quickly(host)
        self.join(self.hosts[0], LINK, self.hosts[1], LINK)

    def set_up_quickly(self, host):
        """Without the second in which IPv6 looks for another owner of a new address."""
        self.run_on(host, "sysctl", "-qw", "net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0")

    def run_on(self, host, *command):
        subprocess.run(["ip", "netns", "exec", host, *command], check=True, capture_output=True, timeout=job.bound(20))

    def give_addresses(self):
        for host, address in zip(self.hosts, ADDRESSES):
            netns.ip("-n", host, "addr", "add", f"{address}/24", "dev", LINK)
            self.wait_for_link(host, LINK)

    def add_pair(self, host, address, *up):
        """Two interfaces that are joined and come before the link."""
        netns.ip("-n", host, "link", "add", "aa0", "type", "veth", "peer", "name", "aa1")
        netns.ip("-n", host, "addr", "add", address, "dev", "aa0")
        for interface in up:
            netns.ip("-n", host, "link", "set", interface, "up")

    def initialize(self, *environments):
        """Of both ranks: [code, text, seconds, value]."""
        ranks = []
        for host, environment in zip(self.hosts, environments or ({}, {})):
            ranks.append(Rank(host, **environment))
            self.addCleanup(ranks[-1].stop)
        ranks[0].tell("make_id")
        made = ranks[0].answer()
        self.assertEqual(made[0], 0, made)
        for number, rank in enumerate(ranks):
            rank.tell("init", "world", made[3], 2, number)
        answers = [rank.answer() for rank in ranks]
        if all(answer[0] == 0 for answer in answers):
            for rank in ranks:
                rank.tell("sum", "world")
            answers = [rank.answer() for rank in ranks]
        return answers

    def check(self, *environments):
        for answer in self.initialize(*environments):
            self.assertEqual((answer[0], answer[3]), (0, 2.0), answer)

    def test_an_interface_without_carrier_is_not_used(self):
        self.add_pair(self.hosts[0], "10.55.0.1/24", "aa0")
        self.give_addresses()
        self.check()

    def test_an_interface_that_is_named_gets_time_for_its_carrier(self):
        self.give_addresses()
        netns.ip("-n", self.hosts[1], "link", "set", LINK, "down")
        self.wait_until(20, lambda: "NO-CARRIER" in netns.ip("-n", self.hosts[0], "link", "show", LINK), "it has a carrier")
        rank = Rank(self.hosts[0], NCCL_SOCKET_IFNAME=LINK)
        self.addCleanup(rank.stop)
        rank.tell("make_id")
        refused = rank.answer()
        self.assertIn("matches no network interface that is up and connected", refused[1])
        rank.tell("make_id")
        netns.ip("-n", self.hosts[1], "link", "set", LINK, "up")
        made = rank.answer()
        self.assertEqual(made[0], 0, made)

    def test_a_link_local_address_is_used_only_without_a_global_one(self):
        for host in self.hosts:  # as of a BMC, the same on both
            self.add_pair(host, "169.254.7.7/16", "aa0", "aa1")
        self.give_addresses()
        self.check()

    def test_exclusions_do_not_mean_loopback(self):
        self.give_addresses()
        self.check(*[{"NCCL_SOCKET_IFNAME": "^docker"}] * 2)

    def test_link_local_ipv6_has_the_number_of_the_own_interface(self):
        netns.ip("-n", self.hosts[0], "link", "del", LINK)
        for number in range(3):
            netns.ip("-n", self.hosts[1], "link", "add", f"d{number}", "type", "veth", "peer", "name", f"e{number}")
        self.join(self.hosts[0], LINK, self.hosts[1], LINK)
        for host in self.hosts:
            self.wait_for_link(host, LINK)
            self.wait_until(20, lambda h=host: "fe80" in netns.ip("-n", h, "-6", "addr", "show", "dev", LINK), "no address")
        self.check()

    def test_comm_id_may_be_a_name_that_is_127_0_1_1_at_home(self):
        self.give_addresses()
        for host, home in zip(self.hosts, ("127.0.1.1", ADDRESSES[0])):
            folder = pathlib.Path("/etc/netns") / host
            folder.mkdir(parents=True)
            self.addCleanup(shutil.rmtree, folder)
            (folder / "hosts").write_text(f"127.0.0.1 localhost\n{home} home\n")
        self.check({"NCCL_COMM_ID": f"home:{PORT}"}, {"NCCL_COMM_ID": f"home:{PORT}"})
        self.check({"NCCL_COMM_ID": f"home:{PORT}"}, {"NCCL_COMM_ID": f"{ADDRESSES[0]}:{PORT}"})

    def test_data_keep_to_the_range_of_ports(self):
        self.give_addresses()
        for host in self.hosts:
            self.run_on(host, "sysctl", "-qw", "net.ipv4.ip_local_port_range=50000 60000")
        plugins = ["socket"] + (["ofi"] if (pathlib.Path(job.PLEXUS).parents[1] / "lib/libplexus-net-ofi.so").exists() else [])
        if shutil.which("iptables") is None:
            self.skipTest("iptables, which stands for a firewall, is not installed")
        for host in self.hosts:
            self.run_on(host, "iptables", "-A", "INPUT", "-i", LINK, "-p", "tcp", "--syn", "!", "--dport", "40000:40050",
                        "-j", "DROP")
        for plugin in plugins:
            with self.subTest(plugin):
                self.check(*[{"PLEXUS_PORT_RANGE": "40000-40050", "NCCL_NET_PLUGIN": plugin}] * 2)

    def test_silence_is_an_error_within_a_minute(self):
        self.give_addresses()
        for host, peer in zip(self.hosts, reversed(ADDRESSES)):  # frames go to an address that no card has
            netns.ip("-n", host, "neigh", "replace", peer, "lladdr", "02:00:00:00:00:09", "dev", LINK, "nud", "permanent")
        first, second = Rank(self.hosts[0]), Rank(self.hosts[1])
        self.addCleanup(first.stop)
        self.addCleanup(second.stop)
        first.tell("make_id")
        made = first.answer()
        began = time.monotonic()
        second.tell("init", "world", made[3], 2, 1)
        answer = second.answer()
        self.assertLess(time.monotonic() - began, 60)
        self.assertNotEqual(answer[0], 0)
        for words in (ADDRESSES[0], "port", ADDRESSES[1], "no answer", "NCCL_SOCKET_IFNAME"):
            self.assertIn(words, answer[1])


if __name__ == "__main__":
    job.main()
