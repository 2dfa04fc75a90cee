# SPDX-License-Identifier: Apache-2.0
"""A test that fails, hangs or dies is told, and the others run.

Usage: watched_test.py PROGRAM   (watched_program.cpp)
"""
import os
import pathlib
import sys
import time
import unittest

from watched import run_gtest, run_watched

PROGRAM = pathlib.Path(sys.argv.pop())


class Watched(unittest.TestCase):
    def run_tests(self, tests="*", limit=120, each=10, **environment):
        return run_gtest(PROGRAM, tests, {**os.environ, **environment}, limit, each)

    def test_every_test_is_accounted_for(self):
        outcome = self.run_tests()
        self.assertEqual((outcome.word, outcome.note), ("FAILED", "5 passed, 4 failed, 1 skipped"))
        told = {line.split()[0]: line for line in outcome.failures}
        self.assertIn("because of this", told["Some.Fails"])
        self.assertIn("failed", told["Few/Numbers.AreNotTwo/1"])
        self.assertIn("hung", told["Some.Hangs"])
        self.assertIn("died (exit code 3)", told["Some.Dies"])

    def test_what_a_hung_test_started_is_ended(self):
        child = next(line.split()[1] for line in self.run_tests().text.splitlines() if line.startswith("child"))
        state = pathlib.Path(f"/proc/{child}/stat")
        self.assertTrue(not state.exists() or ") Z " in state.read_text(encoding="utf-8"))

    def test_the_end_of_the_time_is_told(self):
        outcome = self.run_tests("Some.Hangs:Some.WorksToo", limit=2, each=60)
        self.assertEqual(outcome.word, "FAILED")
        self.assertIn("not done when the time was over", outcome.failures[-1])
        self.assertIn("not run", outcome.note)

    def test_an_exit_code_after_the_tests_counts(self):
        outcome = self.run_tests("Some.Works", END_CODE="86")
        self.assertIn("ended with exit code 86", outcome.failures[-1])

    def test_a_tool_may_run_the_program(self):
        outcome = run_gtest(PROGRAM, "Some.Works", dict(os.environ), 60, 3, ["/usr/bin/env", "END_CODE=7"])
        self.assertIn("ended with exit code 7", outcome.failures[-1])

    def test_no_gpu_is_no_failure(self):
        self.assertEqual(self.run_tests(LIST_CODE="77").word, "no GPU")

    def test_a_program_without_tests_fails(self):
        self.assertEqual(self.run_tests("No.Such").note, "it has no such tests")

    def test_a_list_that_does_not_come_is_not_waited_for(self):
        begin = time.monotonic()
        self.assertIn("listing", self.run_tests(each=1, LIST_HANGS="1").note)
        self.assertLess(time.monotonic() - begin, 30)

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
