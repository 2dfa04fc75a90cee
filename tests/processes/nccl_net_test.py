#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every collective over libraries of NCCL's own net plugin ABI, one fixture per version (tests/abi/nccl_net), and
what users see of the choice."""
import os
import pathlib
import tempfile

import job

FOLDER = os.environ.get("PLEXUS_TEST_EXAMPLE_DIR", "build/dev/test-bin")
VERSIONS = {"tcp-v6": "ncclNetPlugin_v6", "tcp-v7": "ncclNetPlugin_v7", "tcp-v8": "ncclNetPlugin_v8",
            "tcp-v9": "ncclNetPlugin_v9", "tcp-v10": "ncclNetPlugin_v10", "tcp-v11": "ncclNetPlugin_v11",
            "tcp-cross-dc": "ncclNetPlugin_v11 (cross-dc)", "tcp-v12": "ncclNetPlugin_v12"}
SIZES = ["-b", "8", "-e", "1M", "-f", "128", "-n", "2", "-w", "1", *job.limit(50)]
ONE_SIZE = ["-b", "64K", "-e", "64K", "-n", "1", "-w", "0", *job.limit(50)]
OVER_NET = {"NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "1", "PLEXUS_PLUGIN_PATH": FOLDER}


class NcclNet(job.Test):
    def check_all(self, name, sizes):
        for collective in job.COLLECTIVES:
            with self.subTest(collective):
                self.run_perf(collective, *sizes, "--ranks", 3, "--mode", "procs", NCCL_NET_PLUGIN=name, **OVER_NET)

    def test_every_collective_over_v6(self):
        self.check_all("tcp-v6", SIZES)

    def test_every_collective_over_v8(self):
        self.check_all("tcp-v8", SIZES)

    def test_every_collective_over_v12(self):
        self.check_all("tcp-v12", SIZES)

    def test_every_collective_over_the_other_versions(self):
        for name in VERSIONS.keys() - {"tcp-v6", "tcp-v8", "tcp-v12"}:
            with self.subTest(name):
                self.check_all(name, ONE_SIZE)

    def test_every_collective_over_net_socket_through_its_own_nccl_tables(self):
        for version in ("v8", "v9", "v10", "v11", "v12"):
            for collective in job.COLLECTIVES:
                with self.subTest(version=version, collective=collective):
                    self.run_perf(collective, *(SIZES if version == "v12" else ONE_SIZE), "--ranks", 3, "--mode", "procs",
                                  NCCL_NET_PLUGIN="socket", PLEXUS_NET_ABI=version, **OVER_NET)
            ended = self.start([job.PLEXUS, "plugin", "info", "socket"], PLEXUS_NET_ABI=version).end(60)
            self.assertIn(f"chosen   ncclNetPlugin_{version}\n", ended.stdout)

    # see the top of tests/abi/nccl_net/tcp_engine.h
    def test_collectives_over_libraries_with_the_habits_of_real_ones(self):
        for name in ("quirk-shared-endpoint", "quirk-accept-blocks", "quirk-fills-at-init", "quirk-no-sizes"):
            for collective in ("all_reduce", "sendrecv", "alltoall", "broadcast"):
                with self.subTest(library=name, collective=collective):
                    self.run_perf(collective, *ONE_SIZE, "--ranks", 3, "--mode", "procs", "--channels", 2,
                                  NCCL_NET_PLUGIN=name, **OVER_NET)

    def test_nothing_is_sent_before_the_peer_has_accepted(self):
        for mode in ("single", "procs"):
            for collective in ("sendrecv", "alltoall"):
                with self.subTest(mode=mode, collective=collective):
                    self.run_perf(collective, *ONE_SIZE, "--ranks", 2, "--mode", mode, NCCL_NET_PLUGIN="quirk-send-waits",
                                  **OVER_NET)

    def test_one_of_a_list_that_finds_no_device_gives_way_with_a_warning(self):
        ended = self.start(job.perf("all_reduce", *ONE_SIZE, "--ranks", 2, "--mode", "procs"), NCCL_DEBUG="INFO",
                           NCCL_NET_PLUGIN="tcp-v11,net-socket", TCP_FIXTURE_FAULT="devices", **OVER_NET).end(60)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        output = ended.stdout + ended.stderr
        self.assertRegex(output, r"WARN .*tcp-v11.*found no device on this host")
        self.assertIn("using network Socket", output)

    def test_ranks_that_are_threads_share_one_init(self):
        for name in ("tcp-v8", "tcp-v11"):  # v8's fixture refuses a second init
            with self.subTest(name):
                self.run_perf("all_reduce", *SIZES, "--ranks", 3, "--mode", "threads", "--channels", 2,
                              NCCL_NET_PLUGIN=name, **OVER_NET)

    def test_one_line_tells_the_choice(self):
        for name, entry in VERSIONS.items():
            with self.subTest(name):
                ended = self.start(job.perf("all_reduce", *ONE_SIZE, "--ranks", 2, "--mode", "procs"),
                                   NCCL_NET_PLUGIN=f"{name},socket", NCCL_DEBUG="INFO", **OVER_NET).end(60)
                self.assertEqual(ended.returncode, 0, ended.stderr)
                lines = [line for line in (ended.stdout + ended.stderr).splitlines() if "using network" in line]
                self.assertEqual(len(lines), 2, ended.stdout + ended.stderr)  # one for each rank
                for part in (f"({entry})", "2 devices", f"libnccl-net-{name}.so", "not used: socket (a preceding network is used)"):
                    self.assertIn(part, lines[0])

    def test_a_named_plugin_that_fails_is_the_users_error(self):
        ended = self.start(job.perf("all_reduce", *ONE_SIZE, "--ranks", 2, "--mode", "procs"),
                           NCCL_NET_PLUGIN="tcp-v11", TCP_FIXTURE_FAULT="devices", **OVER_NET).end(60)
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("found no device on this host", ended.stderr)

    def test_ranks_with_different_networks_are_told_so(self):
        port = job.free_port()
        ranks = [self.start(job.perf("all_reduce", *ONE_SIZE, "--rank", rank, "--nranks", 2, "--rendezvous",
                                     f"127.0.0.1:{port}"), NCCL_NET_PLUGIN=name, **OVER_NET)
                 for rank, name in enumerate(("tcp-v6", "tcp-v12"))]
        ended = [rank.end(60) for rank in ranks]
        self.assertTrue(all(each.returncode != 0 for each in ended))
        reported = "".join(each.stderr for each in ended)
        self.assertRegex(reported, r"rank (0 \(.*\) and rank 1|1 \(.*\) and rank 0) \(.*\) have no network in common")
        self.assertIn("TcpNew (", reported)

    def test_libnccl_net_so_is_used_when_nothing_is_named(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        folder = made.name
        pathlib.Path(folder, "libnccl-net.so").symlink_to(pathlib.Path(FOLDER, "libnccl-net-tcp-v10.so").resolve())
        for named, expected in (({}, "TcpNew"), ({"NCCL_NET_PLUGIN": "none"}, "Socket"), ({"NCCL_NET": "socket"}, "Socket"),
                                ({"NCCL_NET": "tcpnew"}, "TcpNew"), ({"TCP_FIXTURE_FAULT": "devices"}, "Socket")):
            with self.subTest(named):
                ended = self.start(job.perf("all_reduce", *ONE_SIZE, "--ranks", 2, "--mode", "procs"), NCCL_DEBUG="INFO",
                                   **{**OVER_NET, "PLEXUS_PLUGIN_PATH": folder, **named}).end(60)
                self.assertEqual(ended.returncode, 0, ended.stderr)
                self.assertIn(f"using network {expected}", ended.stdout + ended.stderr)

    def test_plugin_info_shows_the_chosen_entry(self):
        for name, entry in VERSIONS.items():
            ended = self.start([job.PLEXUS, "plugin", "info", name], PLEXUS_PLUGIN_PATH=FOLDER).end(60)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertIn(f"chosen   {entry}\n", ended.stdout)


if __name__ == "__main__":
    job.main()
