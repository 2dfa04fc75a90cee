#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`plexus run`: what the program finds, what is said at the end, and wrong settings.

Usage: run_test.py PLEXUS PROGRAM    (PROGRAM: cudart_collectives)
"""
import os
import subprocess
import sys
import unittest

PLEXUS, PROGRAM = sys.argv[1], sys.argv[2]
SECONDS = 60 * int(os.environ.get("PLEXUS_TEST_TIME_FACTOR", "1"))


def run(*words, program=(PROGRAM, "2", "1"), **environment):
    return subprocess.run([PLEXUS, "run", *words, *program], capture_output=True, text=True, timeout=SECONDS, check=False,
                          env={**os.environ, **environment})


class Run(unittest.TestCase):
    def test_the_program_finds_its_libraries(self):
        without = subprocess.run([PROGRAM, "2", "1"], capture_output=True, text=True, timeout=SECONDS, check=False)
        self.assertNotEqual(without.returncode, 0)  # nothing but plexus run says where they are
        ended = run()
        self.assertEqual((ended.returncode, ended.stdout), (0, "2 ranks: OK\n"), ended.stderr)

    def test_summary(self):
        ended = run("--summary", "--devices", "3", "--memory", "32M")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertRegex(ended.stderr, r"plexus: 3 virtual devices .* of 33554432 bytes; \d+ streams")

    def test_too_few_devices_and_too_little_memory_are_errors_of_cuda(self):
        for words, environment, wanted in (
                (("--devices", "1"), {}, "invalid device ordinal"),
                ((), {"CUDA_VISIBLE_DEVICES": "5"}, "invalid device ordinal"),
                ((), {"CUDA_VISIBLE_DEVICES": ""}, "no device"),
                (("--memory", "1M"), {}, None)):
            with self.subTest(words=words, **environment):
                ended = run(*words, program=(PROGRAM, "2", "1"), **environment)
                if wanted is None:
                    self.assertEqual(ended.returncode, 0, ended.stderr)
                else:
                    self.assertEqual(ended.returncode, 1)
                    self.assertIn(wanted, ended.stderr)

    def test_a_program_without_cuda_stays_on_the_host(self):
        ended = run("--summary", program=(PLEXUS, "perf", "all_reduce", "-g", "2", "-b", "8", "-e", "8", "-n", "1"))
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertNotIn("virtual devices", ended.stderr)  # nobody has used any

    def test_visible_devices_are_counted_from_zero(self):
        self.assertEqual(run(CUDA_VISIBLE_DEVICES="7,2").returncode, 0)

    def test_wrong_settings_are_named(self):
        for name, value in (("PLEXUS_CUDART_DEVICES", "many"), ("PLEXUS_CUDART_DEVICES", "65"), ("PLEXUS_CUDART_MEMORY", "12X"),
                            ("PLEXUS_CUDART_MEMORY", "99999999999T")):
            with self.subTest(name, value=value):
                ended = run(NCCL_DEBUG="WARN", **{name: value})
                self.assertEqual(ended.returncode, 1)
                self.assertIn(f"{name}={value}", ended.stdout + ended.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
