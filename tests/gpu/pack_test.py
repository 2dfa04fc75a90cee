# SPDX-License-Identifier: Apache-2.0
"""What `./dev gpu --pack` makes is complete, small, and runs where nothing of the build is.

Usage: pack_test.py BUILD-FOLDER
"""
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv.pop())
HERE = pathlib.Path(__file__).resolve().parent
MIB_MAX = 16
OF_EVERY_MACHINE = re.compile(r"(linux-vdso|ld-linux-.*|libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so[.0-9]*$")


class Pack(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name) / "unpacked"
        cls.archive = pathlib.Path(cls.temporary.name) / "pack.tar.xz"
        subprocess.run([HERE / "pack", BUILD, cls.archive], check=True)
        with tarfile.open(cls.archive) as packed:
            packed.extractall(cls.folder, filter="data") if sys.version_info >= (3, 12) else packed.extractall(cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def run_all(self, machine, parts):
        # A path without the build's libraries, so that everything found is in the pack.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PLEXUS_", "NCCL_"))}
        environment.pop("LD_LIBRARY_PATH", None)
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        done = subprocess.run([self.folder / "run-all", "--machine", machine, "--parts", parts, "--limit", "800", "--patience", "6",
                               "--out", self.folder / "results"], env=environment, capture_output=True, text=True, check=False)
        return done.returncode, (self.folder / "results" / "summary.md").read_text(encoding="utf-8")

    def test_is_small(self):
        self.assertLess(self.archive.stat().st_size, MIB_MAX << 20)

    def test_brings_all_libraries_that_a_bare_machine_lacks(self):
        files = [*self.folder.glob("bin/*"), *self.folder.glob("lib/*")]
        files.remove(self.folder / "lib/libnccl.so.2")  # ldd cannot trace a filter
        self.assertGreater(len(files), 6)
        for file in files:
            said = subprocess.run(["ldd", file], env={"LD_LIBRARY_PATH": str(self.folder / "lib")}, capture_output=True, text=True,
                                  check=True).stdout
            for line in said.splitlines():
                name = line.split()[0].rsplit("/", 1)[-1]
                with self.subTest(file=file.name, needs=name):
                    self.assertTrue(str(self.folder / "lib") in line or OF_EVERY_MACHINE.match(name), line)

    def test_says_of_each_part_that_there_is_no_gpu(self):
        try:
            subprocess.run(["nvidia-smi"], capture_output=True, check=True)
            self.skipTest("there is a GPU here")
        except (OSError, subprocess.CalledProcessError):
            pass
        code, summary = self.run_all("cuda", "executor,api,measure,processes,sixty_four")
        self.assertEqual(code, 77, summary)
        self.assertEqual(summary.count("| no GPU: no usable GPU here"), 5, summary)

    def test_runs_on_the_software_device(self):
        code, summary = self.run_all("software", "api,processes,symbols")
        self.assertEqual(code, 0, summary)
        self.assertEqual(len(re.findall(r"\| ok", summary)), 3, summary)


if __name__ == "__main__":
    unittest.main()
