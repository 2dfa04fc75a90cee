#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an installed prefix, moved to another folder, gives to programs: README's first program by pkg-config and by CMake, under
Plexus's name and under NCCL's, runs without LD_LIBRARY_PATH.

Usage: prefix_test.py CMAKE BUILD_FOLDER README.md
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

CMAKE, BUILD, README = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
SUMS = "".join(f"rank {rank}: 10\n" for rank in range(4))
PROJECT = """cmake_minimum_required(VERSION 3.24)
project(First C)
find_package({package} REQUIRED)
add_executable(first first.c)
target_link_libraries(first {target})
"""


class Prefix(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="plexus-prefix-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for component in ("runtime", "development"):
            cls.run_command(CMAKE, "--install", BUILD, "--prefix", cls.folder / "made", "--component", component)
        (cls.folder / "made").rename(cls.folder / "moved")
        cls.libraries = next((cls.folder / "moved").rglob("libplexus.so")).parent
        (cls.folder / "first.c").write_text(re.search(r"```c\n(.*?)```", README.read_text(), re.DOTALL)[1])

    @classmethod
    def run_command(cls, *command, exit_code=0):
        environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        pc_folder = str(cls.folder / "moved/lib/pkgconfig") + ":" + str(getattr(cls, "libraries", "")) + "/pkgconfig"
        ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=cls.folder,
                               env={**environment, "PKG_CONFIG_PATH": pc_folder, "NCCL_DEBUG": "VERSION"})
        if ended.returncode != exit_code:
            raise AssertionError(f"{command}: {ended.stdout}{ended.stderr}")
        return ended.stdout + ended.stderr

    def check_program(self, program, library):
        """It is linked with `library` and adds up, with the prefix's libplexus, which the line of the version names."""
        self.assertIn(library.encode(), program.read_bytes())
        printed = self.run_command(program)
        self.assertTrue(printed.endswith(SUMS), printed)
        self.assertRegex(printed, rf"NCCL version 2\.\d+\.\d+ \(Plexus [\d.]+, {self.libraries}/libplexus\.so\.0\)\n")

    @unittest.skipUnless(shutil.which("pkg-config"), "pkg-config is not installed")
    def test_pkg_config(self):
        for name, library in (("plexus", "libplexus.so.0"), ("nccl", "libnccl.so.2")):
            with self.subTest(name):
                flags = self.run_command("pkg-config", "--cflags", "--libs", name).split()
                self.run_command("cc", "first.c", *flags, "-o", name)
                self.check_program(self.folder / name, library)
        self.assertRegex(self.run_command("pkg-config", "--modversion", "nccl"), r"^2\.\d+\.\d+\n$")

    def configure(self, name, package, target, exit_code=0):
        source = self.folder / name
        source.mkdir()
        shutil.copy(self.folder / "first.c", source)
        (source / "CMakeLists.txt").write_text(PROJECT.format(package=package, target=target))
        return self.run_command(CMAKE, "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={self.folder / 'moved'}",
                                exit_code=exit_code)

    def test_cmake(self):
        for name, package, target, library in (("by-plexus", "Plexus", "Plexus::plexus", "libplexus.so.0"),
                                               ("by-nccl", "NCCL 2.19", "NCCL::nccl", "libnccl.so.2"),
                                               ("by-variables", "NCCL", "${NCCL_LIBRARIES}", "libnccl.so.2"),
                                               ("by-both", "Plexus REQUIRED)\nfind_package(NCCL", "NCCL::nccl", "libnccl.so.2")):
            with self.subTest(name):
                self.configure(name, package, target)
                self.run_command(CMAKE, "--build", self.folder / name / "build")
                self.check_program(self.folder / name / "build/first", library)

    def test_a_static_library_is_refused_by_name(self):
        output = self.configure("static", "NCCL COMPONENTS static", "NCCL::nccl", exit_code=1)
        self.assertIn("no component 'static'", " ".join(output.split()))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
