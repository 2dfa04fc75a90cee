#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Networks whose devices carry short messages: no message is longer than all of them carry, header included
(tests/abi/plugin/scripted_net.cpp refuses longer ones); and errors of plugins that are wrong about messages."""
import os
import re

import job

OVER_NET = {"NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "1", "NCCL_NET_PLUGIN": "scripted",
            "PLEXUS_PLUGIN_PATH": os.environ["PLEXUS_TEST_EXAMPLE_DIR"]}


def sizes(most):
    return ["-b", "8", "-e", str(min(40 * most, 200000)), "-f", "17", "-n", "1", "-w", "0", *job.limit(50)]


class MessageSize(job.Test):
    def test_messages_are_as_short_as_the_device_wants_them(self):
        for pieces in ({}, {"PLEXUS_SCRIPTED_NET_PIECES": "0"}):
            for most in (128, 1000, 65536):
                for collective in ("all_reduce", "sendrecv", "alltoall", "gather"):
                    with self.subTest(most=most, collective=collective, **pieces):
                        self.run_perf(collective, *sizes(most), "--ranks", 3, "--mode", "procs",
                                      PLEXUS_SCRIPTED_NET_BYTES=str(most), **pieces, **OVER_NET)

    def test_the_shorter_of_both_ends_counts(self):
        rendezvous = f"127.0.0.1:{job.free_port()}"
        ranks = [self.start(job.perf("all_reduce", *sizes(2000), "--rank", rank, "--nranks", 2, "--rendezvous", rendezvous),
                            PLEXUS_SCRIPTED_NET_BYTES=most, NCCL_DEBUG="INFO", **OVER_NET)
                 for rank, most in enumerate(("100000", "2000"))]
        for ended in (rank.end(60) for rank in ranks):
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertIn("slots of 1920 bytes instead of", ended.stdout + ended.stderr)

    def error_of(self, fault):
        ended = self.start(job.perf("sendrecv", "-b", "64", "-e", "64", "-n", "50", "--ranks", 2, "--mode", "procs"),
                           PLEXUS_SCRIPTED_NET_FAULT=fault, **OVER_NET).end(60)
        self.assertNotEqual(ended.returncode, 0)
        return ended.stderr

    def test_a_wrong_size_names_plugin_device_and_numbers(self):
        self.assertRegex(self.error_of("size"), r"test of plugin scripted on device 0 \(\S+\) from rank \d \(\S+\): message \d+ of rank \d "
                                       r"\(\S+\) has 129 bytes as the plugin says, 64 of payload as its header says")

    def test_a_send_without_a_request_is_the_plugins_bug(self):
        self.assertRegex(self.error_of("request"), r"isend of plugin scripted on device 0 \(\S+\) to rank \d \(\S+\) returned PLEXUS_OK but no "
                                       r"request; this is a bug in the plugin")

    def test_an_isend_that_blocks_is_told_once_by_each_rank(self):
        ended = self.start(job.perf("sendrecv", "-b", "64", "-e", "64", "-n", "20", "--ranks", 2, "--mode", "procs"),
                           PLEXUS_SCRIPTED_NET_FAULT="slow", NCCL_DEBUG="WARN", **OVER_NET).end(60)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        reported = re.findall(r"plugin scripted: isend\w* for rank (\d) \(\S+\) took [3-9]\d*\.\d ms, as calls before it did",
                          ended.stdout + ended.stderr)
        self.assertEqual(sorted(reported), ["0", "1"], ended.stdout + ended.stderr)

    def test_a_device_that_carries_nearly_nothing_is_an_error_with_its_name(self):
        ended = self.start(job.perf("all_reduce", *sizes(100), "--ranks", 2, "--mode", "procs"), PLEXUS_SCRIPTED_NET_BYTES="100",
                           **OVER_NET).end(60)
        self.assertNotEqual(ended.returncode, 0)
        self.assertRegex(ended.stderr, r"device \S+ of network scripted carries messages of up to 100 bytes "
                                       r"\(message_bytes_max\), and Plexus needs 128")


if __name__ == "__main__":
    job.main()
