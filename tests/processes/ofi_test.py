#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every collective over net-ofi, on each software provider of libfabric that can: over loopback, and between two
network namespaces with two links each."""
import glob
import os
import signal
import sys

import job
from netns import ip, remove_leftovers

PROVIDERS = ["tcp;ofi_rxm", "shm"]
SIZES = ["-b", "8", "-e", "1M", "-f", "128", "-n", "2", "-w", "1", *job.limit(50)]
ONE_SIZE = ["-b", "64K", "-e", "64K", "-n", "1", "-w", "0", *job.limit(50)]
# Rows are printed for minutes: after the first one the job runs.
LONG = ["-b", "4M", "-e", "64M", "-i", "4K", "-n", "2", "-w", "1", "--tsv", "-", *job.limit(60)]
OVER_OFI = {"NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "1", "NCCL_NET_PLUGIN": "net-ofi", "NCCL_NET": "ofi"}
PORT = 29999  # a new namespace has all of them free


def read_first_row(command):
    assert command.read_line().startswith("bytes")
    command.read_line()


class Loopback(job.Test):
    def check_all(self, sizes, *arguments, **environment):
        for collective in job.COLLECTIVES:
            with self.subTest(collective, **environment):
                self.run_perf(collective, *sizes, "--ranks", 3, "--mode", "procs", *arguments, **environment, **OVER_OFI)

    def test_every_collective_over_each_provider(self):
        for provider in PROVIDERS:
            self.check_all(SIZES, PLEXUS_OFI_PROVIDER=provider)

    def test_two_rails_and_registration(self):
        self.check_all(ONE_SIZE, "--buffers", "registered", PLEXUS_OFI_PROVIDER="tcp;ofi_rxm", PLEXUS_OFI_RAILS="2",
                       PLEXUS_OFI_STRIPE_MIN="131072", PLEXUS_OFI_REGISTER="always")
        self.run_perf("all_reduce", "-b", "64M", "-e", "64M", "-n", "1", "-w", "0", *job.limit(50), "--ranks", 2, "--mode",
                      "procs", PLEXUS_OFI_RAILS="3", NCCL_BUFFSIZE="16777216", **OVER_OFI)

    def test_ranks_that_are_threads(self):
        for provider in PROVIDERS:
            with self.subTest(provider):
                self.run_perf("all_reduce", *SIZES, "--ranks", 3, "--mode", "threads", PLEXUS_OFI_PROVIDER=provider, **OVER_OFI)

    def test_names_that_the_dead_left_in_shared_memory_are_passed_over(self):
        # Files of a killed process that would have had this process's id: a header of libfabric
        # 1.17's shm (version, flags, process id), with the id of a living process.
        shell = ('for i in 0 1 2; do printf "\\004\\000\\001\\000\\001%4096s" "" | tr " " "\\000" >/dev/shm/$$:0:$i; done; '
                 'exec "$@"')
        ranks = self.start(job.perf("all_reduce", *ONE_SIZE, "--ranks", 2, "--mode", "threads", "--json", "-"),
                           ["sh", "-c", shell, "sh"], PLEXUS_OFI_PROVIDER="shm", FI_LOG_LEVEL="warn", **OVER_OFI)
        self.addCleanup(lambda: [os.unlink(path) for path in glob.glob(f"/dev/shm/{ranks.pid}:0:*")])
        ended = ranks.end(60)
        self.check_report(ended)
        self.assertIn(f"in use ({ranks.pid}:0:2)", ended.stderr)  # otherwise no file was in the way

    def test_its_own_nccl_tables(self):
        for version in ("v8", "v9", "v10", "v11", "v12"):
            with self.subTest(version):
                self.run_perf("all_reduce", *ONE_SIZE, "--ranks", 3, "--mode", "procs", PLEXUS_NET_ABI=version, **OVER_OFI)

    def test_providers_that_cannot_are_refused_in_a_sentence(self):
        for environment, words in (({"PLEXUS_OFI_PROVIDER": "nowhere"}, "no such provider"),
                                   ({"PLEXUS_OFI_PROVIDER": "tcp;ofi_rxm", "FI_PROVIDER": "shm"}, "FI_PROVIDER excludes it")):
            ended = self.start(job.perf("all_reduce", *ONE_SIZE, "--ranks", 2, "--mode", "procs"), **environment,
                               **OVER_OFI).end(60)
            self.assertNotEqual(ended.returncode, 0)
            self.assertIn(words, ended.stdout + ended.stderr)

    def test_a_killed_rank_is_named_by_the_others(self):
        # Not over shm: a process killed inside libfabric may hold a lock that the others wait for
        # (see the plugin's README.md).
        ranks = self.start_ranks(3, "all_reduce", *LONG, PLEXUS_OFI_PROVIDER="tcp;ofi_rxm", **OVER_OFI)
        read_first_row(ranks[0])
        os.kill(ranks[1].pid, signal.SIGKILL)
        for rank in (0, 2):
            ended = ranks[rank].end(40)
            self.assertNotEqual(ended.returncode, 0)
            self.assertIn("rank 1", ended.stderr)


class TwoHosts(job.Test):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("making network namespaces needs root")
        self.hosts = [f"plexus-{os.getpid()}-{name}" for name in "ab"]
        try:
            remove_leftovers()
            for host in self.hosts:
                ip("netns", "add", host)
                self.addCleanup(job.subprocess.run, ["ip", "netns", "del", host], capture_output=True, check=False)
        except (OSError, job.subprocess.CalledProcessError) as error:
            self.skipTest(f"network namespaces cannot be made here: {getattr(error, 'stderr', None) or error}")
        for link in range(2):
            name = f"plexus{link}"
            ip("-n", self.hosts[0], "link", "add", name, "type", "veth", "peer", "name", name, "netns", self.hosts[1])
            for end, host in enumerate(self.hosts):
                ip("-n", host, "addr", "add", f"10.94.{link}.{end + 1}/24", "dev", name)
                ip("-n", host, "link", "set", name, "up")
        for host in self.hosts:
            ip("-n", host, "link", "set", "lo", "up")
            for link in range(2):
                self.wait_until(20, lambda host=host, link=link: "LOWER_UP" in ip("-n", host, "link", "show", f"plexus{link}"),
                                "the link is down")

    def bytes_sent(self, host, link):
        text = job.subprocess.run(["ip", "netns", "exec", host, "cat", f"/sys/class/net/plexus{link}/statistics/tx_bytes"],
                                  check=True, capture_output=True, text=True, timeout=job.bound(20)).stdout
        return int(text)

    def start_all(self, *arguments, ranks=4, **environment):
        started = []
        for rank in range(ranks):
            host = self.hosts[rank * 2 // ranks]
            started.append(self.start(
                job.perf(*arguments, "--rank", rank, "--nranks", ranks, "--rendezvous", f"10.94.0.1:{PORT}"),
                ["ip", "netns", "exec", host], NCCL_HOSTID=host, NCCL_SOCKET_IFNAME="plexus", **environment, **OVER_OFI))
        return started

    def test_two_and_two_ranks(self):
        for collective in job.COLLECTIVES:
            with self.subTest(collective):
                before = self.bytes_sent(self.hosts[0], 0) + self.bytes_sent(self.hosts[0], 1)
                for ended in reversed([rank.end(60) for rank in self.start_all(collective, *SIZES, "--json", "-")]):
                    self.assertEqual(ended.returncode, 0, ended.stderr)
                self.check_report(ended)
                after = self.bytes_sent(self.hosts[0], 0) + self.bytes_sent(self.hosts[0], 1)
                self.assertGreater(after - before, 1 << 15, "the data went another way")

    def test_two_rails_share_the_load(self):
        before = [self.bytes_sent(self.hosts[0], link) for link in range(2)]
        ends = [rank.end(60) for rank in self.start_all("sendrecv", "-b", "32M", "-e", "32M", "-n", "2", "-w", "0",
                                                        *job.limit(50), "--json", "-", ranks=2, PLEXUS_OFI_RAILS="2",
                                                        NCCL_BUFFSIZE="16777216", NCCL_MAX_CTAS="1")]
        for ended in ends:
            self.assertEqual(ended.returncode, 0, ended.stderr)
        self.check_report(ends[0])
        sent = [self.bytes_sent(self.hosts[0], link) - before[link] for link in range(2)]
        self.assertGreater(min(sent), max(sent) // 3, sent)

    def test_a_killed_rank_of_another_host_is_noticed(self):
        ranks = self.start_all("all_reduce", *LONG, ranks=2)
        read_first_row(ranks[0])
        os.kill(ranks[1].pid, signal.SIGKILL)
        ended = ranks[0].end(50)
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("rank 1", ended.stderr)


if __name__ == "__main__":
    if not os.path.exists(os.path.join(os.environ.get("PLEXUS_TEST_LIB_DIR", "build/dev/lib"), "libplexus-net-ofi.so")):
        print("SKIPPED: this build has no net-ofi (libfabric-dev was not found)")
        sys.exit(job.SKIPPED)
    job.main()
