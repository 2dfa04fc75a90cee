#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes of one host that read each other's plain buffers in place (PLEXUS_ATTACH): results, every way in which
the kernel refuses it, and memory that is gone."""
import os
import pathlib
import shutil
import subprocess
import unittest

import job

DRIVER = str(pathlib.Path(os.environ.get("PLEXUS_TEST_EXAMPLE_DIR", "build/dev/test-bin")) / "attach_ranks")
LOG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,P2P,SHM", "NCCL_DEBUG_FILE": "/dev/stderr"}
ALWAYS = {**LOG, "PLEXUS_ATTACH_BYTES": "4096"}  # also where slots would be faster
USED = "via shm/attach"
REFUSED = "plain buffers go through slots"
SIZES = ("-b", "4K", "-e", "1M", "-f", "16", "-n", "3")


def may_unshare():
    return shutil.which("unshare") is not None and subprocess.run(
        ["unshare", "-Ur", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


class Attach(job.Test):
    def run_deed(self, deed, **environment):
        ended = self.start([DRIVER, deed], **ALWAYS, **environment).end(60)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertIn("well", ended.stdout)
        return ended

    def test_it_is_used_and_can_be_switched_off(self):
        self.assertIn(USED, self.run_deed("plain").stderr)
        off = self.run_deed("plain", PLEXUS_ATTACH="0").stderr
        self.assertNotIn(USED, off)
        self.assertIn(f"{REFUSED} (PLEXUS_ATTACH is 0)", off)

    def test_every_collective_is_right_with_every_number_of_operands(self):
        for collective in job.COLLECTIVES:
            for ranks in ("2", "3", "4"):  # one, two and three operands to be read at once
                with self.subTest(collective, ranks=ranks):
                    self.run_perf(collective, "--ranks", ranks, *SIZES, *job.limit(50), **ALWAYS)

    def test_reductions_that_scale_and_average_are_right(self):
        for op in ("avg", "mulsum", "max"):
            for algorithm in ("ring", "allpairs", "twoshot", "tree"):
                with self.subTest(op=op, algorithm=algorithm):
                    self.run_perf("all_reduce", "--ranks", "3", "-d", "int32", "-o", op, "--algo", algorithm, *SIZES,
                                  *job.limit(50), **ALWAYS)

    def test_a_rank_that_may_not_read_makes_all_use_slots(self):
        log = self.run_deed("refused").stderr
        self.assertNotIn(USED, log)
        self.assertEqual(log.count(REFUSED), 1, log)
        self.assertRegex(log, r"rank 1 \(.*\) cannot read rank 0 \(.*\): .*(seccomp|ptrace_scope)")

    def test_refused_later_goes_on(self):
        for deed in ("refused_later", "undumpable_later"):
            with self.subTest(deed):
                self.assertIn(USED, self.run_deed(deed).stderr)

    def test_a_buffer_that_is_gone_is_an_error_that_names_its_rank(self):
        self.assertRegex(self.run_deed("unmapped").stdout,
                         "rank 0: .*cannot read the buffer of rank 1 .*keep a buffer allocated")

    def test_a_rank_that_ends_is_an_error_that_names_it(self):
        self.assertRegex(self.run_deed("exits").stdout, "rank 0: .*rank 1")

    def test_a_rank_that_gives_up_its_call_never_gives_wrong_data(self):
        for _ in range(10):  # the race is open: each run takes another order
            self.run_deed("gives_up")

    @unittest.skipUnless(may_unshare(), "unshare -Ur is not allowed here: no user namespaces")
    def test_in_a_user_namespace(self):
        ended = self.start([DRIVER, "plain"], prefix=["unshare", "-Ur"], **ALWAYS).end(60)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertIn(USED, ended.stderr)


if __name__ == "__main__":
    job.main()
