#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What vendors do: with an installed Plexus alone, they copy a template, build it, see it pass the kit, and run a job: the
commands of the installed documents, as they are there.

Usage: installed_test.py CMAKE BUILD_FOLDER
"""
import json
import os
import pathlib
import re
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

    def follow(self, page, *beginnings):
        """Runs the blocks of commands of an installed page that begin so, one after the other; all that they print."""
        fenced = re.findall(r"^```(\w*)\n(.*?)^```$", (self.prefix / "share/doc/plexus/docs" / page).read_text(), re.S | re.M)
        blocks = [text for language, text in fenced if not language]
        commands = [next(block for block in blocks if block.startswith(beginning)) for beginning in beginnings]
        script = "\n".join(["exec 2>&1", "set -e", *commands]).replace("PREFIX", os.fspath(self.prefix))
        return run("bash", "-c", script, cwd=self.root,
                   env={**os.environ, "PATH": f"{self.prefix}/bin:{os.environ['PATH']}"})

    def test_the_page_about_net_plugins_can_be_followed(self):
        printed = self.follow("writing-a-net-plugin.md", "cp -r", "PLEXUS_PLUGIN_PATH=")
        self.assertIn("100% tests passed", printed)
        self.assertIn("using network minimal 1.0", printed)
        self.assertRegex(printed, r"(?m)^# (Wrong elements|Out of bounds values) +: 0 OK")

    def test_the_page_about_tuners_can_be_followed(self):
        printed = self.follow("tuning.md", "cp -r")
        self.assertIn("100% tests passed", printed)
        self.assertRegex(printed, r"(?m)^\S*\s*twoshot.*chosen")

    def test_the_page_about_a_first_tuner_can_be_followed(self):
        page = (self.prefix / "share/doc/plexus/docs/your-first-tuner.md").read_text()
        (self.root / "tuner.c").write_text(re.search(r"^```c\n(.*?)^```", page, re.S | re.M)[1])
        printed = self.follow("your-first-tuner.md", "cc -std=c99", "export NCCL_TUNER_PLUGIN=")
        self.assertIn("0 failed", printed)
        self.assertEqual(len(re.findall(r"(?m)^\* .* chosen$", printed)), 2, printed)
        self.assertRegex(printed, r"(?m)^# (Wrong elements|Out of bounds values) +: 0 OK")

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
