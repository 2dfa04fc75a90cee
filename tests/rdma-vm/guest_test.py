#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs in the VM: jobs over net-ib between two emulated hosts, a and b, with two rails each.

The RDMA devices of both hosts are in the guest's first network namespace, so a rank is told its host's
with NCCL_IB_HCA; its TCP connections are in the namespace of its host.
"""
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "processes"))
import job  # noqa: E402

RENDEZVOUS = "10.77.1.1"  # host a
MEBIBYTE = 1 << 20
# Ranks poll, on as many virtual CPUs as there are: the test itself goes first.
POLITE = ["nice", "-n", "15"]


def run(*command):
    subprocess.run(command, check=True, timeout=job.bound(20))


def bytes_sent(link):
    return int(pathlib.Path(f"/sys/class/net/{link}/statistics/tx_bytes").read_text())


class Test(job.Test):
    port = 20000

    def start_job(self, ranks_per_host, *arguments, rails=2, **settings):
        """Ranks of one job, first those of host a; rank 0 prints."""
        Test.port += 1
        ranks = []
        for rank in range(2 * ranks_per_host):
            host = "ab"[rank // ranks_per_host]
            devices = ",".join(f"rxe_{host}{rail}" for rail in range(rails))
            environment = {"NCCL_HOSTID": f"host-{host}", "NCCL_NET_PLUGIN": "net-ib",
                           "NCCL_IB_HCA": f"={devices}", **settings}
            if rails > 1:
                environment["NCCL_NET_FORCE_MERGE"] = devices
            ranks.append(self.start(
                job.perf(*arguments, "--rank", rank, "--nranks", 2 * ranks_per_host, "--rendezvous",
                         f"{RENDEZVOUS}:{Test.port}", "--json", "-"), [*POLITE, "ip", "netns", "exec", host],
                **environment))
        return ranks

    def end_job(self, ranks, seconds=60):
        for command in reversed(ranks):
            ended = command.end(seconds)
            self.assertEqual(ended.returncode, 0, ended.stderr)
        return self.check_report(ended)

    def run_job(self, ranks_per_host, *arguments, rails=2, **settings):
        links = [f"{host}{rail}" for host in "ab" for rail in range(rails)]
        before = {link: bytes_sent(link) for link in links}
        report = self.end_job(self.start_job(ranks_per_host, *arguments, rails=rails, **settings))
        for link in links:
            self.assertGreater(bytes_sent(link) - before[link], 1 << 14, f"the data went another way than {link}")
        return report


class Small(Test):
    SIZES = ["-b", "8", "-e", "256K", "-f", "32", "-n", "2", "-w", "1", *job.limit(50)]

    def test_two_and_two_ranks_over_two_rails(self):
        for collective in ("all_reduce", "sendrecv"):
            with self.subTest(collective):
                self.run_job(2, collective, *self.SIZES)

    def test_two_channels_carry_a_message(self):
        """Each has queue pairs of its own; what they sent from registered memory tells how much."""
        size, calls = 1 << 18, 3
        ranks = self.start_job(1, "sendrecv", "-b", size, "-e", size, "-n", calls - 1, "-w", "1", "--buffers", "registered",
                               *job.limit(50), NCCL_NCHANNELS_PER_NET_PEER="2", NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="NET",
                               NCCL_DEBUG_FILE="/dev/stderr")
        for rank in ranks:
            ended = rank.end(60)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertEqual(len(re.findall(r" channel [01] \(send/recv\) -> rank \d via net/IB ", ended.stderr)), 2, ended.stderr)
            sent = re.findall(r"messages with (\d+) bytes were sent to rank \d.* from registered memory", ended.stderr)
            self.assertEqual([int(count) % (size // 2) for count in sent], [0, 0])
            self.assertEqual(sent[0], sent[1])
            self.assertGreaterEqual(int(sent[0]), calls * size // 2)

    def test_registered_memory_is_sent_without_a_copy(self):
        size, calls = 1 << 18, 3
        for buffers, expected in (("registered", size * calls), ("plain", 0)):
            with self.subTest(buffers):
                ranks = self.start_job(1, "sendrecv", "-b", size, "-e", size, "-n", calls - 1, "-w", "1", "--buffers", buffers,
                                       *job.limit(50), NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="NET", NCCL_DEBUG_FILE="/dev/stderr")
                for rank in ranks:
                    ended = rank.end(60)
                    self.assertEqual(ended.returncode, 0, ended.stderr)
                    sent = re.findall(r"messages with (\d+) bytes were sent to rank \d.* from registered memory", ended.stderr)
                    print(f"{buffers}: {sum(map(int, sent))} bytes left from where they lie", flush=True)
                    self.assertGreaterEqual(sum(map(int, sent)), expected)
                    self.assertEqual(sum(map(int, sent)) > 0, expected > 0)


class Collectives(Test):
    SIZES = ["-b", "8", "-e", "512K", "-f", "64", "-n", "1", "-w", "1", *job.limit(60)]

    def test_every_collective_with_two_and_two_ranks(self):
        for rails in (1, 2):
            for qps in (1, 4):
                for collective in job.COLLECTIVES:
                    with self.subTest(collective, rails=rails, qps=qps):
                        self.run_job(2, collective, *self.SIZES, rails=rails, NCCL_IB_QPS_PER_CONNECTION=str(qps),
                                     NCCL_IB_SPLIT_DATA_ON_QPS="1" if qps > 1 else "0")

    def test_every_collective_from_registered_memory(self):
        for collective in job.COLLECTIVES:
            with self.subTest(collective):
                self.run_job(2, collective, *self.SIZES, "--buffers", "registered")


class Datacenters(Test):
    """Two datacenters of two hosts with one device each; RDMA does not reach the other one."""
    HOSTS = [("a", "rxe_a0:1:0"), ("a", "rxe_a1:1:0"), ("b", "rxe_b0:1:9"), ("b", "rxe_b1:1:9")]  # fabric 8 * datacenter + rail

    def test_net_ib_inside_and_net_socket_between(self):
        Test.port += 1
        ranks = []
        fabric = tempfile.NamedTemporaryFile("w", suffix=".fabric")
        self.addCleanup(fabric.close)
        fabric.write("host host-[0-1] device eth* dc one\nhost host-[2-3] device eth* dc two\nlink one two gbit 1 ms 1\n"
                     "host host-[0-1] device rxe_* dc one rail 0\nhost host-[2-3] device rxe_* dc two rail 1\n")
        fabric.flush()
        for rank, (namespace, device) in enumerate(self.HOSTS):
            ranks.append(self.start(
                job.perf("alltoall", "-b", "8", "-e", "64K", "-f", "64", "-n", "2", "-w", "1", *job.limit(100), "--rank", rank,
                         "--nranks", len(self.HOSTS), "--rendezvous", f"{RENDEZVOUS}:{Test.port}", "--json", "-"),
                [*POLITE, "ip", "netns", "exec", namespace], NCCL_HOSTID=f"host-{rank}", NCCL_NET_PLUGIN="net-ib,net-socket",
                NCCL_ALLNET_ENABLE="1", NCCL_IB_HCA=f"={device}", PLEXUS_IB_HCA="fabricid", NCCL_IB_FABRICID_MAXRAIL="8",
                PLEXUS_FABRIC_FILE=fabric.name,
                NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET", NCCL_DEBUG_FILE="/dev/stderr"))
        ended = [rank.end(110) for rank in ranks]
        routes = set()
        for rank, each in enumerate(ended):
            self.assertEqual(each.returncode, 0, each.stderr)
            routes |= {(rank // 2 == int(peer) // 2, network)
                       for peer, network in re.findall(r" -> rank (\d+) via (?:net|xdc)/(\S+) ", each.stderr)}
        self.assertEqual(routes, {(True, "IB"), (False, "Socket")})
        self.check_report(ended[0])


class LongLink(Test):
    """A lossy link of 5 ms in each direction."""
    PORTS = [f"p-{host}{rail}" for host in "ab" for rail in range(2)]

    def setUp(self):
        for port in self.PORTS:
            run("ip", "netns", "exec", "fabric", "tc", "qdisc", "add", "dev", port, "root", "netem", "delay", "5ms",
                "loss", "0.1%")
            self.addCleanup(run, "ip", "netns", "exec", "fabric", "tc", "qdisc", "del", "dev", port, "root")

    def test_collectives_are_right_over_loss_and_delay(self):
        # A lost packet costs the queue pair's timeout; NCCL's default of 20 is 4 s.
        for collective in ("all_reduce", "alltoall"):
            with self.subTest(collective):
                self.run_job(2, collective, "-b", "8", "-e", "512K", "-f", "64", "-n", "2", "-c", "2", "-w", "1",
                             *job.limit(60), NCCL_IB_TIMEOUT="17")


class Faults(Test):
    ALL_REDUCE = ["all_reduce", "-b", "512K", "-e", "512K", "-w", "1"]

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.logs = pathlib.Path(folder.name)
        self.addCleanup(lambda: print(*self.lines("net-ib: .*connection to"), sep="\n", flush=True))

    def start_logged_job(self, ranks_per_host, *arguments):
        return self.start_job(ranks_per_host, *arguments, NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="NET",
                              NCCL_DEBUG_FILE=f"{self.logs}/%p")

    def lines(self, pattern):
        return [line for log in self.logs.iterdir() for line in log.read_text().splitlines() if re.search(pattern, line)]

    def wait_for_bytes(self, link, count, what):
        start = bytes_sent(link)
        self.wait_until(60, lambda: bytes_sent(link) - start > count, what)

    def wait_for_lines(self, pattern, count, what):
        self.wait_until(60, lambda: len(self.lines(pattern)) >= count, what)

    def take_down(self, link):
        self.addCleanup(run, "ip", "link", "set", link, "up")
        run("ip", "link", "set", link, "down")

    def test_a_lost_rail_is_replaced_and_taken_back(self):
        count = 100
        ranks = self.start_logged_job(1, *self.ALL_REDUCE, "-n", count, "-c", count, *job.limit(60))
        self.wait_for_bytes("a1", 4 * MEBIBYTE, "the second rail carried nothing")
        self.take_down("a1")
        self.wait_for_bytes("a0", 4 * MEBIBYTE, "the job did not go on over the first rail")
        run("ip", "link", "set", "a1", "up")
        # each host sends to the other, so there are two connections with two ends each
        self.wait_for_lines("is back in the connection", 4, "the second rail was not taken back")
        self.wait_for_bytes("a1", 2 * MEBIBYTE, "the second rail carried nothing after it was taken back")
        self.end_job(ranks, 70)
        self.assertEqual(len(self.lines("goes on without rxe_[ab]1")), 4)

    def test_what_was_not_acknowledged_is_not_sent_twice(self):
        """Data arrives at b over a rail whose acknowledgements are lost, then the rail is lost too."""
        count = 60
        ranks = self.start_logged_job(1, "sendrecv", "-b", "256K", "-e", "256K", "-w", "1", "-n", count, "-c", count,
                                      "--buffers", "registered", *job.limit(60))
        self.wait_for_bytes("a1", 2 * MEBIBYTE, "the second rail carried nothing")
        port = ["dev", "p-a1", "root"]
        run("ip", "netns", "exec", "fabric", "tc", "qdisc", "add", *port, "netem", "loss", "100%")
        self.addCleanup(run, "ip", "netns", "exec", "fabric", "tc", "qdisc", "del", *port)
        self.wait_for_bytes("a1", 1, "nothing is sent over the second rail")
        self.take_down("a1")
        self.end_job(ranks, 70)
        self.assertTrue(self.lines("goes on without rxe_[ab]1"))

    def test_a_killed_peer_is_an_error_within_5_seconds(self):
        ranks = self.start_job(2, "all_reduce", "-b", "256K", "-e", "256K", "-n", "100000", "-w", "1", *job.limit(120))
        self.wait_for_bytes("a0", MEBIBYTE, "the job did not begin")
        ranks[3].process.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        for rank in (0, 1, 2):
            ended = ranks[rank].end(20)
            self.assertNotEqual(ended.returncode, 0, f"rank {rank} did not notice")
            self.assertRegex(ended.stderr + ended.stdout, re.compile(r"rank 3|lost|peer", re.I))
        self.assertLess(time.monotonic() - killed, 5)


if __name__ == "__main__":
    job.main()
