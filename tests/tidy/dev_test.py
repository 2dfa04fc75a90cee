# SPDX-License-Identifier: Apache-2.0
"""./dev hook and ./dev check --staged, in a small repository of their own.

Usage: dev_test.py HookTest|FormatTest
Ends with 77 and a sentence where a program that the class needs is missing: HookTest needs git, FormatTest clang-format, too.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

from case import TreeCase

SOURCE = pathlib.Path(__file__).resolve().parents[2]
GOOD, BAD = "int f();\n", "int   f( );\n"


class DevCase(TreeCase):
    NEEDS = ("git",)

    def setUp(self):
        super().setUp()
        self.git("init", "-q")
        for folder in ("core/base", "kernels", "plugin-api", "plugins", "tools"):
            (self.root / folder).mkdir(parents=True)
        for name in ("dev", ".clang-format"):
            shutil.copy(SOURCE / name, self.root)
        (self.root / "tests/tidy").mkdir(parents=True)
        shutil.copy(SOURCE / "tests/tidy/check_commit_message.py", self.root / "tests/tidy")
        for rule in ("layers", "sizes", "words", "listed"):  # these have tests of their own
            self.write(f"tests/tidy/check_{rule}.py", "import pathlib, sys\nsys.exit(pathlib.Path('broken').exists())\n")

    def run_in(self, *command):
        environment = {**{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
                       "HOME": str(self.root), "PLEXUS_SKIP_PACKAGES": "1"}
        return subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=50,
                              check=False)

    def git(self, *words):
        return self.run_in("git", "-c", "user.name=n", "-c", "user.email=e@x", *words)

    def commit(self, text, message="core: add a"):
        self.write("core/base/a.cpp", text)
        self.git("add", "core")
        return self.git("commit", "-q", "-m", message, "-m", "Why, and how it was checked.")


class HookTest(DevCase):
    def test_removed_it_refuses_nothing(self):
        self.run_in("./dev", "hook")
        self.assertEqual(0, self.run_in("./dev", "hook", "--remove").returncode)
        self.assertEqual(0, self.commit(BAD).returncode)

    def test_a_hook_of_somebody_else_stays(self):
        for name, other in (("pre-commit", "commit-msg"), ("commit-msg", "pre-commit")):
            hook = self.write(f".git/hooks/{name}", "#!/bin/sh\n")
            self.assertNotEqual(0, self.run_in("./dev", "hook").returncode)
            self.assertNotEqual(0, self.run_in("./dev", "hook", "--remove").returncode)
            self.assertEqual("#!/bin/sh\n", hook.read_text())
            self.assertFalse((self.root / ".git/hooks" / other).exists())
            hook.unlink()

    def test_a_message_without_an_area_or_a_body_is_refused_with_the_reason(self):
        self.run_in("./dev", "hook")
        message = self.write("message", "add a\n")
        refused = self.run_in(".git/hooks/commit-msg", str(message))
        self.assertNotEqual(0, refused.returncode)
        self.assertIn("names no area", refused.stderr)
        self.assertIn("no body", refused.stderr)
        message.write_text("core: add a\n\nBecause.\n", encoding="utf-8")
        self.assertEqual(0, self.run_in(".git/hooks/commit-msg", str(message)).returncode)

    @unittest.skipIf(shutil.which("clang-format"), "clang-format is installed")
    def test_without_clang_format_a_commit_is_refused_with_the_reason(self):
        self.run_in("./dev", "hook")
        refused = self.commit(GOOD)
        self.assertNotEqual(0, refused.returncode)
        self.assertIn("clang-format is missing", refused.stderr)


class FormatTest(DevCase):
    NEEDS = ("git", "clang-format")

    def test_the_hook_lets_formatted_sources_pass_and_no_others(self):
        self.assertEqual(0, self.run_in("./dev", "hook").returncode)
        refused = self.commit(BAD)
        self.assertNotEqual(0, refused.returncode)
        self.assertIn("core/base/a.cpp", refused.stderr)
        self.assertNotEqual(0, self.commit(GOOD, "add a").returncode)
        self.assertEqual(0, self.commit(GOOD).returncode)

    def test_what_is_staged_counts_and_not_the_file(self):
        self.write("core/base/a.cpp", BAD)
        self.git("add", "core")
        self.write("core/base/a.cpp", GOOD)
        self.assertNotEqual(0, self.run_in("./dev", "check", "--staged").returncode)

    def test_a_broken_house_rule_refuses(self):
        self.run_in("./dev", "hook")
        self.write("broken", "")
        self.assertNotEqual(0, self.commit(GOOD).returncode)


def main():
    missing = [tool for tool in globals()[sys.argv[1]].NEEDS if not shutil.which(tool)]
    if missing:
        print(f"skipped: {' and '.join(missing)} not found; apt-get install {' '.join(missing)}")
        sys.exit(77)
    unittest.main(argv=["dev_test.py", "-q", sys.argv[1]])


if __name__ == "__main__":
    main()
