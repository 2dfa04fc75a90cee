#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that are made by fork, and ranks that fork: children that end, use what is their parent's, or live on."""
import os
import pathlib
import sys
import unittest

import job

DRIVER = str(pathlib.Path(os.environ.get("PLEXUS_TEST_EXAMPLE_DIR", "build/dev/test-bin")) / "fork_ranks")
LIBRARY = str(pathlib.Path(os.environ.get("PLEXUS_TEST_LIB_DIR", "build/dev/lib")) / "libplexus.so")
TRANSPORTS = {"shm": {}, "net": {"NCCL_SHM_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo"},
              "net with threads": {"NCCL_SHM_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo", "NCCL_SOCKET_NTHREADS": "2",
                                   "NCCL_NSOCKS_PERTHREAD": "2"}}
OVER_OFI = {"NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "1", "NCCL_NET_PLUGIN": "net-ofi", "NCCL_SOCKET_IFNAME": "lo",
            "PLEXUS_OFI_PROVIDER": "tcp;ofi_rxm"}
SANITIZED = job.TIME_FACTOR > 1
# A child of a multi-threaded process may start threads; what the missing threads held is no leak.
SANITIZERS = {"TSAN_OPTIONS": "halt_on_error=1:die_after_fork=0", "ASAN_OPTIONS": "detect_leaks=0"}


class Fork(job.Test):
    def run_ranks(self, when, what):
        texts = []
        for transport, environment in TRANSPORTS.items():
            with self.subTest(transport, when=when, what=what):
                ended = self.start([DRIVER, when, what], **SANITIZERS, **environment).end(60)
                self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
                self.assertIn("well", ended.stdout)
                texts.append(ended.stdout)
        return texts

    def test_ranks_made_by_fork_hear_of_each_others_death(self):
        for when in ("before", "after_id", "after_init"):
            for text in self.run_ranks(when, "plain"):
                self.assertIn("rank 1", text)

    def test_a_rank_whose_child_lives_on_is_as_dead(self):
        for when in ("before", "after_id", "after_init"):
            for text in self.run_ranks(when, "orphan"):
                self.assertIn("rank 1", text)

    def test_children_do_not_disturb_their_parents(self):
        for what in ("destroy", "abort", "call", "exit", "make"):
            for when in ("before", "after_init"):
                self.run_ranks(when, what)

    def test_children_that_live_on_are_no_matter_to_ranks_that_leave_in_order(self):
        for when in ("before", "after_id", "after_init"):
            self.run_ranks(when, "workers")

    def test_no_descriptor_outlives_exec(self):
        self.run_ranks("before", "descriptors")

    @unittest.skipIf(SANITIZED, "libfabric is not built for sanitizers")
    def test_over_libfabric(self):
        if not pathlib.Path(LIBRARY).with_name("libplexus-net-ofi.so").exists():
            self.skipTest("net-ofi is not built: there is no libfabric")
        for what in ("orphan", "destroy", "make", "workers"):
            with self.subTest(what):
                ended = self.start([DRIVER, "after_init", what], **OVER_OFI).end(60)
                self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)

    @unittest.skipIf(SANITIZED, "an interpreter without the sanitizer cannot load the library")
    def test_in_python(self):
        program = str(pathlib.Path(__file__).with_name("forking_rank.py"))
        for transport, environment in TRANSPORTS.items():
            with self.subTest(transport):
                # Since 3.12 Python warns of every fork of a process with threads.
                ended = self.start([sys.executable, "-B", "-W", "ignore::DeprecationWarning", program], PLEXUS_TEST_LIBRARY=LIBRARY,
                                   **environment).end(60)
                self.assertEqual((ended.returncode, ended.stdout.strip()), (0, "well"), ended.stdout + ended.stderr)
                self.assertEqual(ended.stderr, "")


if __name__ == "__main__":
    job.main()
