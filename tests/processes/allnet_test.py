#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several networks in one communicator (NCCL_ALLNET_ENABLE=1): which network joins which ranks, and every
collective over two of them. Three namespaces stand for hosts: A and B have a fast cable between them, and a slow
network joins all three."""
import json
import os
import pathlib
import re
import tempfile

import job
import netns

FOLDER = os.environ.get("PLEXUS_TEST_EXAMPLE_DIR", "build/dev/test-bin")
SIZES = ["-b", "8", "-e", "1M", "-f", "128", "-n", "2", "-w", "1", *job.limit(50)]
ONE_SIZE = ["-b", "1M", "-e", "1M", "-n", "4", "-w", "1", *job.limit(50)]
OVER_NET = {"NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "1", "PLEXUS_PLUGIN_PATH": FOLDER, "NCCL_ALLNET_ENABLE": "1"}
STREAM = str(pathlib.Path(__file__).parent / "xdc_stream.py")
PORT = 29998  # a new namespace has all of them free
MEBIBYTE = 1 << 20


class OneHost(job.Test):
    """Ranks that may only use networks; each has a list of its own."""

    def run_ranks(self, lists, collective="all_reduce", sizes=ONE_SIZE, **environment):
        port = job.free_port()
        ranks = [self.start(job.perf(collective, *sizes, "--rank", rank, "--nranks", len(lists), "--rendezvous",
                                     f"127.0.0.1:{port}"),
                            **{"NCCL_NET_PLUGIN": plugins, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET",
                               **OVER_NET, **environment})
                 for rank, plugins in enumerate(lists)]
        return [rank.end(60) for rank in reversed(ranks)][::-1]

    def routes(self, ended):
        """(rank, greater rank, network) of every connection."""
        found = set()
        for rank, each in enumerate(ended):
            self.assertEqual(each.returncode, 0, each.stdout + each.stderr)
            for peer, net in re.findall(r" -> rank (\d+) via net/(\S+) ", each.stdout + each.stderr):
                found.add((min(rank, int(peer)), max(rank, int(peer)), net))
        return found

    def test_a_pair_uses_the_first_network_that_both_have(self):
        ended = self.run_ranks(["tcp-v12,socket", "tcp-v12,socket", "socket"])
        self.assertEqual(self.routes(ended), {(0, 1, "TcpNew"), (1, 2, "Socket"), (0, 2, "Socket")})

    def test_lists_in_another_order_and_other_plugins_between(self):
        ended = self.run_ranks(["tcp-v12,tcp-v8,socket", "tcp-v8,socket,tcp-v12", "tcp-v12,socket"], sizes=SIZES)
        self.assertEqual(self.routes(ended), {(0, 2, "TcpNew"), (0, 1, "TcpOld-ready"), (1, 2, "Socket")})

    def test_every_collective_over_two_vendors_networks_at_once(self):
        for collective in job.COLLECTIVES:
            with self.subTest(collective):
                ended = self.run_ranks(["tcp-v12,tcp-v8", "tcp-v8,tcp-v12", "tcp-v8"], collective, SIZES)
                for each in ended:
                    self.assertEqual(each.returncode, 0, each.stdout + each.stderr)
                self.assertIn("TcpOld-ready", {net for _, _, net in self.routes(ended)})

    def test_one_plugin_twice_with_settings_of_its_own(self):
        twice = "first=socket?NCCL_SOCKET_IFNAME==lo,second=socket?NCCL_SOCKET_IFNAME==lo&NCCL_SOCKET_NTHREADS=1"
        other = "second=socket?NCCL_SOCKET_IFNAME==lo"
        ended = self.run_ranks([twice, twice, other])
        self.assertEqual(self.routes(ended), {(0, 1, "first"), (1, 2, "second"), (0, 2, "second")})
        self.assertIn("using network first = Socket", ended[0].stdout + ended[0].stderr)

    def test_nccl_net_picks_some_of_them(self):
        ended = self.run_ranks(["tcp-v12,tcp-v8,socket"] * 2, NCCL_NET="socket,tcpnew")
        self.assertEqual({net for _, _, net in self.routes(ended)}, {"TcpNew"})
        self.assertIn("not used: tcp-v8 is network TcpOld", ended[0].stdout + ended[0].stderr)

    def test_one_line_tells_all_networks_and_why_others_are_not_used(self):
        ended = self.run_ranks(["tcp-v12,absent"] * 2)
        for each in ended:
            reported = each.stdout + each.stderr
            lines = [line for line in reported.splitlines() if "using network" in line]
            self.assertEqual(len(lines), 1, reported)
            for part in ("network TcpNew (ncclNetPlugin_v12) with 2 devices", "; and network Socket",
                         "not used: absent (net plugin 'absent' was not found"):
                self.assertIn(part, lines[0])
            self.assertEqual(reported.count("this host continues without one network"), 1, reported)

    def test_a_host_without_any_of_the_networks_is_an_error(self):
        ended = self.run_ranks(["absent,^socket"] * 2)
        for each in ended:
            self.assertNotEqual(each.returncode, 0)
            self.assertIn("'absent' was not found", each.stderr)

    def test_two_networks_of_one_name_are_an_error(self):
        ended = self.run_ranks(["tcp-v12,tcp-v11"] * 2)
        for each in ended:
            self.assertNotEqual(each.returncode, 0)
        self.assertRegex(ended[0].stderr, "both provide the network TcpNew: label them in NCCL_NET_PLUGIN")

    def test_a_rank_that_cannot_open_its_network_ends_the_others_too(self):
        ended = self.run_ranks(["tcp-v12", "tcp-v12,^socket"], TCP_FIXTURE_FAULT="init", NCCL_ALLNET_ENABLE="0")
        for each in ended:
            self.assertNotEqual(each.returncode, 0)
            self.assertIn("init fails on purpose", each.stderr)

    def test_ranks_without_a_common_network_are_told_both_lists(self):
        ended = self.run_ranks(["tcp-v12,^socket", "tcp-v8,^socket"])
        for each in ended:
            self.assertNotEqual(each.returncode, 0)
            self.assertRegex(each.stderr, r"rank 0 \(.*\) and rank 1 \(.*\) have no network in common|"
                                          r"rank 1 \(.*\) and rank 0 \(.*\) have no network in common")
            self.assertIn("TcpNew (", each.stderr)
            self.assertIn("TcpOld-ready (", each.stderr)


class ThreeHosts(netns.Test):
    def setUp(self):
        self.hosts = self.make_hosts(["a", "b", "c", "switch"])
        switch = self.hosts["switch"]
        netns.ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        netns.ip("-n", switch, "link", "set", "bridge", "up")
        for number, name in enumerate("abc"):
            self.join(self.hosts[name], "slow0", switch, f"port{name}")
            netns.ip("-n", switch, "link", "set", f"port{name}", "master", "bridge")
            netns.ip("-n", self.hosts[name], "addr", "add", f"10.93.1.{number + 1}/24", "dev", "slow0")
        self.join(self.hosts["a"], "fast0", self.hosts["b"], "fast0")
        for number, name in enumerate("ab"):
            netns.ip("-n", self.hosts[name], "addr", "add", f"10.93.2.{number + 1}/24", "dev", "fast0")
            self.wait_for_link(self.hosts[name], "fast0")
        for name in "abc":
            self.wait_for_link(self.hosts[name], "slow0")

    def run_ranks(self, names, collective, plugins, sizes):
        """Runs and returns the bytes that each host sent over (fast0, slow0)."""
        def sent():
            return {name: (self.bytes_sent(self.hosts[name], "fast0") if name in "ab" else 0,
                           self.bytes_sent(self.hosts[name], "slow0")) for name in names}
        before = sent()
        ranks = [self.start(job.perf(collective, *sizes, "--rank", rank, "--nranks", len(names), "--rendezvous",
                                     f"10.93.1.1:{PORT}", "--json", "-"),
                            ["ip", "netns", "exec", self.hosts[name]], NCCL_HOSTID=self.hosts[name],
                            NCCL_OOB_NET_IFNAME="slow0", NCCL_ALLNET_ENABLE="1", NCCL_NET_PLUGIN=plugins)
                 for rank, name in enumerate(names)]
        for rank in reversed(ranks):
            ended = rank.end(60)
            self.assertEqual(ended.returncode, 0, ended.stderr)
        self.check_report(ended)
        return {name: tuple(now - then for now, then in zip(sent()[name], before[name])) for name in names}

    def check_all(self, fast, slow):
        plugins = f"fast={fast}NCCL_SOCKET_IFNAME==fast0,slow={slow}NCCL_SOCKET_IFNAME==slow0"
        for collective in job.COLLECTIVES:
            with self.subTest(collective):
                self.run_ranks("abc", collective, plugins, SIZES)
        pair = self.run_ranks("ab", "all_gather", plugins, ONE_SIZE)
        for name in "ab":
            self.assertGreater(pair[name][0], 2 * MEBIBYTE)
            self.assertLess(pair[name][1], MEBIBYTE // 8, "the slow network carries only the control plane")
        # A ring a > b > c > a: each rank sends to its next one only.
        ring = self.run_ranks("abc", "all_gather", plugins, [*ONE_SIZE, "--algo", "ring"])
        self.assertGreater(ring["a"][0], 2 * MEBIBYTE)
        self.assertLess(ring["a"][1], MEBIBYTE // 2)
        self.assertLess(ring["b"][0], MEBIBYTE // 2)
        self.assertGreater(ring["b"][1], 2 * MEBIBYTE)
        self.assertGreater(ring["c"][1], 2 * MEBIBYTE)

    def stream(self, plugins, algorithm):
        """A stream of all_reduce calls on all hosts: a and b are one datacenter, c another. What it prints, and the
        hash of its results' bits."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        hosts = {name: self.hosts[name] for name in "abc"}
        (folder / "fabric").write_text("".join(f"host {host} dc {'far' if name == 'c' else 'near'}\n"
                                               for name, host in hosts.items()))
        ranks = [self.start(["python3", STREAM, folder, 10_001, 4, "--fractions"], ["ip", "netns", "exec", host],
                            RANK=str(rank), WORLD_SIZE="3", NCCL_HOSTID=host, NCCL_OOB_NET_IFNAME="slow0",
                            NCCL_ALLNET_ENABLE="1", NCCL_NET_PLUGIN=plugins, NCCL_ALGO=algorithm, NCCL_PROTO="Simple",
                            NCCL_MAX_CTAS="1", NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="NET",
                            PLEXUS_OFI_PROVIDER="tcp;ofi_rxm", PLEXUS_FABRIC_FILE=str(folder / "fabric"),
                            PLEXUS_TEST_LIBRARY=str(pathlib.Path(job.PLEXUS).parent.parent / "lib" / "libnccl.so"))
                 for rank, host in enumerate(hosts.values())]
        ended = [rank.end(60) for rank in reversed(ranks)][::-1]
        for each in ended:
            self.assertEqual(each.returncode, 0, each.stdout + each.stderr)
        bits = {json.loads(file.read_text())["bits"] for file in folder.glob("rank*.json")}
        self.assertEqual(len(bits), 1, "all ranks have the same bits")
        return "".join(each.stdout + each.stderr for each in ended), bits

    def test_net_ofi_inside_and_sockets_between_give_the_bits_of_one_plugin(self):
        socket = "socket?NCCL_SOCKET_IFNAME==slow0"
        for algorithm in ("ring", "hierarchical", "dcpairs"):
            with self.subTest(algorithm):
                reported, of_two = self.stream(f"inside=net-ofi?NCCL_SOCKET_IFNAME==fast0,between={socket}", algorithm)
                self.assertRegex(reported, r" -> rank [01] via net/inside ")
                self.assertRegex(reported, r" -> rank 2 via xdc/between ")
                _, of_one = self.stream(f"between={socket}", algorithm)
                self.assertEqual(of_two, of_one)

    def test_every_collective_with_sockets_on_both(self):
        self.check_all("socket?", "socket?")

    def test_every_collective_with_another_plugin_on_the_slow_one(self):
        self.check_all("socket?", "chaos?PLEXUS_CHAOS_SCRIPT=*: again=10% reorder=4&")


if __name__ == "__main__":
    job.main()
