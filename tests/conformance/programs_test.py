#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that `plexus plugin check --programs` writes: they compile, fail as the check did, and pass on a right plugin.

Usage: programs_test.py HEADERS, the folder that has plexus/plexus_net.h
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BIN = os.environ["PLEXUS_TEST_BIN_DIR"]
LIBRARIES = os.environ["PLEXUS_TEST_LIB_DIR"]
SOCKET = os.path.join(LIBRARIES, "libplexus-net-socket.so")
CHAOS = os.path.join(LIBRARIES, "libplexus-net-chaos.so")
MUTANT = os.path.join(os.environ["PLEXUS_TEST_EXAMPLE_DIR"], "libplexus-net-mutant.so")
FACTOR = max(1, int(float(os.environ.get("PLEXUS_TEST_TIME_FACTOR", "1"))))


class Programs(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="plexus-programs-"))

    def run_here(self, *command, environment=None, seconds=100):
        return subprocess.run([str(each) for each in command], env={**os.environ, **(environment or {})}, text=True,
                              capture_output=True, timeout=seconds * FACTOR, check=False)

    def write_program(self, library, check, *arguments, **environment):
        """The file of the program that repeats the check's failure."""
        ended = self.run_here(os.path.join(BIN, "plexus"), "plugin", "check", library, "--only", check, "--programs",
                              self.folder, "--patience", FACTOR, *arguments, environment=environment)
        self.assertEqual(ended.returncode, 1, ended.stdout)
        file = self.folder / f"{check}.c"
        self.assertTrue(file.exists(), ended.stderr)
        self.assertIn("repeats it", ended.stderr)
        return file

    def compile(self, file):
        program = file.with_suffix("")
        ended = self.run_here("cc", "-std=gnu11", "-Wall", "-Werror", "-I", HEADERS, file, "-o", program, "-ldl")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return program

    def test_of_native_plugins(self):
        for mutant, check in (("isend_corrupts", "message.odd"), ("isend_crashes", "order.fifo"),
                              ("irecv_reversed", "group.sizes"), ("test_elsewhere", "process.short")):
            with self.subTest(mutant):
                fault = {"PLEXUS_MUTANT": mutant, "PLEXUS_MUTANT_OF": SOCKET}
                file = self.write_program(MUTANT, check, **fault)
                program = self.compile(file)
                failed = self.run_here(program, MUTANT, environment=fault)
                self.assertEqual(failed.returncode, 1, failed.stderr)
                self.assertIn("FAILS", failed.stderr)
                right = self.run_here(program, SOCKET)
                self.assertEqual((right.returncode, right.stdout), (0, "nothing went wrong\n"), right.stderr)

    def test_of_each_abi_of_nccl_without_any_header(self):
        fault = {"PLEXUS_CHAOS_SCRIPT": "recv: flip=3"}
        for abi in ("v8", "v12"):
            with self.subTest(abi):
                file = self.write_program(CHAOS, "message.to_64", "--abi", abi, **fault)
                self.assertNotIn("#include <plexus", file.read_text())
                program = self.compile(file)
                failed = self.run_here(program, CHAOS, environment=fault)
                self.assertEqual(failed.returncode, 1, failed.stderr)
                self.assertIn("a wrong byte", failed.stderr)
                self.assertEqual(self.run_here(program, CHAOS).returncode, 0)

    def test_has_few_messages(self):
        """The check sends 500; the mutant spoils the first that is longer than 100 bytes."""
        fault = {"PLEXUS_MUTANT": "isend_corrupts", "PLEXUS_MUTANT_OF": SOCKET}
        text = self.write_program(MUTANT, "order.random", **fault).read_text()
        self.assertLess(text.count(".what = kSend,"), 50)

    def test_says_where_there_is_none(self):
        ended = self.run_here(os.path.join(BIN, "plexus"), "plugin", "check", MUTANT, "--only", "init.process",
                              "--programs", self.folder,
                              environment={"PLEXUS_MUTANT": "init_environment", "PLEXUS_MUTANT_OF": SOCKET})
        self.assertEqual(ended.returncode, 1)
        self.assertIn("init.process: no program: it is not a check of messages", ended.stderr)


if __name__ == "__main__":
    HEADERS = sys.argv.pop(1)
    unittest.main()
