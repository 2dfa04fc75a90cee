# SPDX-License-Identifier: Apache-2.0
"""A test that fails, hangs or dies is told, and the others run."""
import os
import pathlib
import sys
import tempfile
import textwrap
import unittest

from watched import run_gtest, run_watched

# Prints like a GoogleTest program.
PROGRAM = textwrap.dedent("""\
    #!{python}
    import os, subprocess, sys, time
    NAMES = ["Some.Works", "Some.Fails", "Some.Hangs", "Some.Dies", "Some.Skips", "Some.WorksToo"]
    if "--gtest_list_tests" in sys.argv:
        print("Some.")
        for name in NAMES:
            print("  " + name.split(".")[1] + "  # a comment")
        sys.exit(int(os.environ.get("LIST_CODE", "0")))
    wanted = [a for a in sys.argv if a.startswith("--gtest_filter=")][0].split("=")[1].split(":")
    for name in [name for name in NAMES if name in wanted]:
        print(f"[ RUN      ] {{name}}", flush=True)
        if name.endswith("Hangs"):
            child = subprocess.Popen(["sleep", "1000"])
            print("child", child.pid, flush=True)
            time.sleep(1000)
        if name.endswith("Dies"):
            os._exit(3)
        if name.endswith("Fails"):
            print("because of this")
            print(f"[  FAILED  ] {{name}} (1 ms)")
            sys.exit(1)
        print(f"[  SKIPPED ] {{name}} (0 ms)" if name.endswith("Skips") else f"[       OK ] {{name}} (1 ms)")
    print("[  FAILED  ] Some.Works")  # the list at the end names tests again
    sys.exit(int(os.environ.get("END_CODE", "0")))
    """)


class Watched(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.program = pathlib.Path(self.temporary.name) / "program"
        self.program.write_text(PROGRAM.format(python=sys.executable), encoding="utf-8")
        self.program.chmod(0o755)

    def tearDown(self):
        self.temporary.cleanup()

    def run_tests(self, limit=60, each=1, **environment):
        return run_gtest(self.program, "*", {**os.environ, **environment}, limit, each)

    def test_every_test_is_accounted_for(self):
        outcome = self.run_tests()
        self.assertEqual((outcome.word, outcome.note), ("FAILED", "2 passed, 3 failed, 1 skipped"))
        told = {line.split()[0]: line for line in outcome.failures}
        self.assertIn("failed: because of this", told["Some.Fails"])
        self.assertIn("hung", told["Some.Hangs"])
        self.assertIn("died (exit code 3)", told["Some.Dies"])

    def test_what_a_hung_test_started_is_ended(self):
        child = next(line.split()[1] for line in self.run_tests().text.splitlines() if line.startswith("child"))
        state = pathlib.Path(f"/proc/{child}/stat")
        self.assertTrue(not state.exists() or ") Z " in state.read_text(encoding="utf-8"))

    def test_the_end_of_the_time_is_told(self):
        outcome = self.run_tests(limit=2, each=60)
        self.assertEqual(outcome.word, "FAILED")
        self.assertIn("not done when the time was over", outcome.failures[-1])
        self.assertIn("not run", outcome.note)

    def test_an_exit_code_after_the_tests_counts(self):
        outcome = run_gtest(self.program, "*", {**os.environ, "END_CODE": "86"}, 60, 1)
        self.assertIn("ended with exit code 86", outcome.failures[-1])

    def test_a_tool_may_run_the_program(self):
        outcome = run_gtest(self.program, "*", dict(os.environ), 60, 1, ["/usr/bin/env", "END_CODE=7"])
        self.assertIn("ended with exit code 7", outcome.failures[-1])

    def test_no_gpu_is_no_failure(self):
        self.assertEqual(self.run_tests(LIST_CODE="77").word, "no GPU")

    def test_a_program_without_tests_fails(self):
        self.program.write_text(f"#!{sys.executable}\n", encoding="utf-8")
        self.assertEqual(self.run_tests().word, "FAILED")

    def test_commands_are_judged_by_their_exit_code(self):
        def outcome(text, limit=20):
            return run_watched([sys.executable, "-c", text], os.environ, limit)

        self.assertEqual(outcome("print('fine')").word, "ok")
        self.assertEqual(outcome("print('x FAILED: y'); exit(1)").failures, ["x FAILED: y"])
        self.assertEqual(outcome("print('SKIPPED: no such tool here'); exit(77)").word, "not run")
        self.assertEqual(outcome("print('SKIPPED: it sees no GPU here'); exit(77)").word, "no GPU")
        hung = outcome("import time; print('begun', flush=True); time.sleep(100)", limit=1)
        self.assertEqual(hung.word, "FAILED")
        self.assertIn("last: begun", hung.note)
        self.assertEqual(run_watched(["/no/such/program"], os.environ, 5).word, "FAILED")

    def test_tables_keep_their_titles(self):
        outcome = run_watched(["printf", "noise\\nwhat it is\\n\\n| a |\\n|---|\\n| 1 |\\nmore\\n"], os.environ, 20)
        self.assertEqual(outcome.tables, ["", "what it is", "", "| a |", "|---|", "| 1 |"])


if __name__ == "__main__":
    unittest.main()
