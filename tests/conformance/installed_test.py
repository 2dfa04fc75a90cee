#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a vendor does: with an installed Plexus alone, copy the template, build it, see it pass the kit.

Usage: installed_test.py CMAKE BUILD_FOLDER
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CMAKE, BUILD = sys.argv[1], sys.argv[2]


def run(*command, **options):
    ended = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=240,
                           check=False, **options)
    if ended.returncode != 0:
        raise AssertionError(f"{command} ended with {ended.returncode}:\n{ended.stdout}\n{ended.stderr}")
    return ended.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="plexus-installed-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = pathlib.Path(cls.folder.name)
        cls.prefix = cls.root / "prefix"
        run(CMAKE, "--install", BUILD, "--prefix", cls.prefix)

    def test_the_template_builds_and_passes(self):
        mine = self.root / "mine"
        shutil.copytree(self.prefix / "share/plexus/template-net", mine)
        # Uses only what was installed, no header of the source tree.
        run(CMAKE, "-G", "Ninja", "-S", mine, "-B", mine / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}",
            "-DCMAKE_C_FLAGS=-std=c99 -pedantic -Wall -Wextra -Werror")
        run(CMAKE, "--build", mine / "build")
        library = mine / "build/libplexus-net-mine.so"
        self.assertTrue(library.is_file())
        report = json.loads(run(self.prefix / "bin/plexus", "plugin", "check", library, "--json", "-"))
        self.assertEqual(report["failed"], 0)
        self.assertGreaterEqual(report["passed"], 120)

    def test_the_installed_command_finds_its_plugins(self):
        report = json.loads(run(self.prefix / "bin/plexus", "plugin", "check", "net-socket", "--only", "connect",
                                "--json", "-", cwd=self.root))
        self.assertEqual(report["failed"], 0)
        self.assertTrue(report["library"].startswith(os.fspath(self.prefix.resolve())), report["library"])

    def test_headers_compile_alone_as_c99_and_cpp(self):
        for header in ("plexus_net.h", "plexus_plugin.h", "plexus_tuner.h"):
            for compiler, standard in (("cc", "-std=c99"), ("c++", "-std=c++11")):
                source = f"#include <plexus/{header}>\n"
                language = "c" if compiler == "cc" else "c++"
                run(compiler, "-x", language, standard, "-pedantic-errors", "-Werror", "-fsyntax-only",
                    "-I", self.prefix / "include", "-", input=source)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
