#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that have only a network between them: over loopback, and two and two in two network
namespaces, which stand for two hosts, joined by a veth pair. The test makes both and removes them."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

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


class Channels(job.Test):
    """NCCL_NCHANNELS_PER_NET_PEER between two hosts."""
    CONNECTION = re.compile(r" rank (\d) channel (\d+) \(send/recv\) -> rank \d via net/Socket ")

    def connections(self, size, *reported):
        """Exchanges messages of `size` bytes between ranks with these values; (rank, channel) of what was connected."""
        rendezvous = f"127.0.0.1:{job.free_port()}"
        ranks = [self.start(job.perf("sendrecv", "-d", "uint8", "-b", size, "-e", size, "-n", "2", "-w", "1", *job.limit(50),
                                     "--rank", rank, "--nranks", len(reported), "--rendezvous", rendezvous, "--json", "-"),
                            NCCL_HOSTID=f"host{rank}", NCCL_SOCKET_IFNAME="lo", NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="NET",
                            NCCL_DEBUG_FILE="/dev/stderr", **({"NCCL_NCHANNELS_PER_NET_PEER": str(value)} if value else {}))
                 for rank, value in enumerate(reported)]
        ended = [rank.end(60) for rank in ranks]
        for each in ended:
            self.assertEqual(each.returncode, 0, each.stderr)
        self.check_report(ended[0])
        return sorted((int(rank), int(channel)) for each in ended for rank, channel in self.CONNECTION.findall(each.stderr))

    def expect(self, count):
        return [(rank, channel) for rank in range(2) for channel in range(count)]

    def test_a_long_message_has_several_connections(self):
        for size in (256 << 10, 1000003, 64 << 20):
            with self.subTest(size):
                self.assertEqual(self.connections(size, 2, 2), self.expect(2))

    def test_a_short_message_has_one(self):
        for size in (1, 1001, 128 << 10):
            with self.subTest(size):
                self.assertEqual(self.connections(size, 2, 2), self.expect(1))

    def test_ranks_agree_on_the_smallest_number(self):
        self.assertEqual(self.connections(1 << 20, 4, 3), self.expect(3))
        self.assertEqual(self.connections(1 << 20, 2, None), self.expect(2))

    def test_a_bad_number_is_refused(self):
        ended = self.start(job.perf("sendrecv", "--ranks", 2, *job.limit(50)), NCCL_NCHANNELS_PER_NET_PEER="two").end(60)
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("NCCL_NCHANNELS_PER_NET_PEER=two (from the environment) is invalid: expected 1..64", ended.stderr)


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


class End(job.Command):
    """One end of a connection of net-socket: moves as many messages as it is told."""
    stdin = subprocess.PIPE
    LIBRARY = str(pathlib.Path(os.environ.get("PLEXUS_TEST_LIB_DIR", "build/dev/lib")) / "libplexus-net-socket.so")
    PROGRAM = str(pathlib.Path(os.environ.get("PLEXUS_TEST_EXAMPLE_DIR", "build/dev/test-bin")) / "net_end")

    def __init__(self, host, *arguments, **environment):
        super().__init__([self.PROGRAM, self.LIBRARY, *arguments], ["ip", "netns", "exec", host],
                         NCCL_SOCKET_IFNAME=LINK, **environment)

    def tell(self, messages):
        self.process.stdin.write(f"{messages}\n")
        self.process.stdin.flush()

    def stop(self):
        self.process.stdin.close()
        super().stop()


class DeadNetwork(netns.Test):
    """A connection over a network that drops everything without a word, and one to a peer that is only stopped."""
    LIMIT = 2  # seconds
    MANY = 400  # more messages than the buffers of the sockets take
    WITH_HELPERS = {"NCCL_SOCKET_NTHREADS": "2", "NCCL_NSOCKS_PERTHREAD": "2"}

    def setUp(self):
        self.addresses = ("10.93.0.1", "10.93.0.2")
        self.hosts = list(self.make_hosts("ab").values())
        self.join(self.hosts[0], LINK, self.hosts[1], LINK)
        for host, address in zip(self.hosts, self.addresses):
            netns.ip("-n", host, "addr", "add", f"{address}/24", "dev", LINK)
            self.wait_for_link(host, LINK)

    def end(self, host, *arguments, **environment):
        end = End(host, *arguments, PLEXUS_SOCKET_TIMEOUT_S=str(self.LIMIT), **environment)
        self.addCleanup(end.stop)
        return end

    def connect(self, **environment):
        """The sending and the receiving end, on the two hosts, after one message."""
        recv = self.end(self.hosts[1], "recv", **environment)
        send = self.end(self.hosts[0], "send", recv.read_line().strip(), **environment)
        for end in (send, recv):
            self.assertEqual(end.read_line(), "connected\n")
            end.tell(1)
        for end in (send, recv):
            self.assertEqual(end.read_line(), "moved 1\n")
        return send, recv

    def drop_everything(self):
        """Frames go to addresses that no card has."""
        for host, peer in zip(self.hosts, reversed(self.addresses)):
            netns.ip("-n", host, "neigh", "replace", peer, "lladdr", "02:00:00:00:00:99", "dev", LINK,
                     "nud", "permanent")

    def check_error(self, end, peer, seconds):
        ended = end.end(seconds)
        self.assertIn("lost the connection", ended.stdout)
        self.assertIn(peer, ended.stdout)
        self.assertIn(f"has not answered for {self.LIMIT} s (PLEXUS_SOCKET_TIMEOUT_S)", ended.stdout)

    def check_both(self, ends):
        for end, peer in zip(ends, reversed(self.addresses)):
            self.check_error(end, peer, 20)

    def test_a_network_that_drops_everything_is_an_error_at_both_ends(self):
        streams = [self.connect(), self.connect(**self.WITH_HELPERS)]
        for end in (end for stream in streams for end in stream):
            end.tell(10 * self.MANY * self.MANY)
        waiting = self.connect()
        waiting[1].tell(1)
        closed_window = self.connect()
        closed_window[1].process.send_signal(signal.SIGSTOP)
        closed_window[0].tell(self.MANY)
        self.wait_for_closed_window()
        self.drop_everything()
        for stream in streams:
            self.check_both(stream)
        self.check_error(waiting[1], self.addresses[0], 20)
        waiting[0].tell(1)
        self.check_error(waiting[0], self.addresses[1], 20)
        self.check_error(closed_window[0], self.addresses[1], 20)

    def test_a_link_that_goes_down_is_an_error_at_both_ends(self):
        stream = self.connect()
        for end in stream:
            end.tell(10 * self.MANY * self.MANY)
        netns.ip("-n", self.hosts[0], "link", "set", LINK, "down")
        self.check_both(stream)

    def test_a_path_that_drops_large_segments_is_said_to_have_another_mtu(self):
        if shutil.which("iptables") is None:
            self.skipTest("iptables, which stands for a link with a smaller MTU, is not installed")
        streams = [self.connect(), self.connect(**self.WITH_HELPERS)]
        subprocess.run(["ip", "netns", "exec", self.hosts[1], "iptables", "-A", "INPUT", "-i", LINK, "-p", "tcp",
                        "-m", "length", "--length", "1000:65535", "-j", "DROP"], check=True, capture_output=True,
                       timeout=job.bound(20))
        for stream in streams:
            for end in stream:
                end.tell(self.MANY)
        for send, _ in streams:
            ended = send.end(60)
            self.assertIn("lost the connection", ended.stdout)
            self.assertIn("MTU", ended.stdout)

    def test_a_peer_that_is_stopped_is_alive(self):
        full, waiting = self.connect(), self.connect()
        with_helpers = self.connect(**self.WITH_HELPERS)
        stopped = [full[1], with_helpers[1], waiting[0]]
        for end in stopped:
            end.process.send_signal(signal.SIGSTOP)
        for end in (full[0], with_helpers[0], waiting[1]):
            end.tell(self.MANY)
        time.sleep(3 * self.LIMIT)  # the time that the limit must not count
        for end in stopped:
            end.process.send_signal(signal.SIGCONT)
            end.tell(self.MANY)
        for end in (*full, *waiting, *with_helpers):
            self.assertEqual(end.read_line(), f"moved {self.MANY}\n")

    def wait_for_closed_window(self):
        """Until the kernel of the sending host probes a window that is closed."""
        def is_probed():
            lines = subprocess.run(["ip", "netns", "exec", self.hosts[0], "cat", "/proc/net/tcp"], check=True,
                                   capture_output=True, text=True, timeout=job.bound(20)).stdout.splitlines()
            return any(line.split()[5].startswith("04:") for line in lines[1:])  # 4: the timer of window probes
        self.wait_until(20, is_probed, "the window did not close")


if __name__ == "__main__":
    job.main()
