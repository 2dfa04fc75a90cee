#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where the VM cannot be built, its tests are skipped with the reason, and visibly: here without qemu."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
SECONDS = 60


class Skip(unittest.TestCase):
    def run_without(self, absent):
        """vm_test.py with every program of PATH but those whose names begin with `absent`."""
        with tempfile.TemporaryDirectory() as folder:
            programs = pathlib.Path(folder, "bin")
            programs.mkdir()
            for directory in map(pathlib.Path, os.environ["PATH"].split(":")):
                for program in directory.iterdir() if directory.is_dir() else ():
                    link = programs / program.name
                    if not program.name.startswith(absent) and not link.is_symlink():
                        link.symlink_to(program)
            return subprocess.run([sys.executable, "-B", HERE / "vm_test.py", folder, "10", "512", "true"],
                                  env={**os.environ, "PATH": str(programs)}, capture_output=True, text=True,
                                  timeout=SECONDS, check=False)

    def test_without_qemu_the_reason_is_said(self):
        ended = self.run_without("qemu-system")
        self.assertEqual(ended.returncode, SKIPPED, ended.stdout + ended.stderr)
        self.assertRegex(ended.stdout, r"SKIPPED: the VM .* cannot be built here: .*missing.*qemu-system-x86")


if __name__ == "__main__":
    unittest.main()
