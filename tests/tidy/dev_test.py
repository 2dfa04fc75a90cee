# SPDX-License-Identifier: Apache-2.0
"""./dev hook and ./dev check --staged, in a small repository of their own."""
import os
import pathlib
import shutil
import subprocess
import unittest

from case import TreeCase

SOURCE = pathlib.Path(__file__).resolve().parents[2]
GOOD, BAD = "int f();\n", "int   f( );\n"


@unittest.skipUnless(shutil.which("git") and shutil.which("clang-format"), "needs git and clang-format")
class DevTest(TreeCase):
    def setUp(self):
        super().setUp()
        self.git("init", "-q")
        for folder in ("core/base", "kernels", "plugin-api", "plugins", "tools"):
            (self.root / folder).mkdir(parents=True)
        for name in ("dev", ".clang-format"):
            shutil.copy(SOURCE / name, self.root)
        for rule in ("layers", "sizes", "words", "listed"):  # these have tests of their own
            self.write(f"tests/tidy/check_{rule}.py", "import pathlib, sys\nsys.exit(pathlib.Path('broken').exists())\n")

    def run_in(self, *command):
        environment = {**{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
                       "HOME": str(self.root), "PLEXUS_SKIP_PACKAGES": "1"}
        return subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=50,
                              check=False)

    def git(self, *words):
        return self.run_in("git", "-c", "user.name=n", "-c", "user.email=e@x", *words)

    def commit(self, text):
        self.write("core/base/a.cpp", text)
        self.git("add", "core")
        return self.git("commit", "-q", "-m", "core: add a")

    def test_the_hook_lets_formatted_sources_pass_and_no_others(self):
        self.assertEqual(0, self.run_in("./dev", "hook").returncode)
        refused = self.commit(BAD)
        self.assertNotEqual(0, refused.returncode)
        self.assertIn("core/base/a.cpp", refused.stderr)
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

    def test_removed_it_refuses_nothing(self):
        self.run_in("./dev", "hook")
        self.assertEqual(0, self.run_in("./dev", "hook", "--remove").returncode)
        self.assertEqual(0, self.commit(BAD).returncode)

    def test_a_hook_of_somebody_else_stays(self):
        hook = self.write(".git/hooks/pre-commit", "#!/bin/sh\n")
        self.assertNotEqual(0, self.run_in("./dev", "hook").returncode)
        self.assertNotEqual(0, self.run_in("./dev", "hook", "--remove").returncode)
        self.assertEqual("#!/bin/sh\n", hook.read_text())


if __name__ == "__main__":
    unittest.main()
