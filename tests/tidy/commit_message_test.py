# SPDX-License-Identifier: Apache-2.0
import unittest

from check_commit_message import check

BODY = "\n\nBecause of that.\n\nChecked: unit tests.\n"


class CommitMessageTest(unittest.TestCase):
    def test_an_area_and_a_body_pass(self):
        for subject in ("core/engine: sleep later", "CHANGELOG, docs: break two lines", "plugins/net-*: one vocabulary"):
            self.assertEqual([], check(subject + BODY), subject)

    def test_a_subject_of_72_columns_passes_and_of_73_does_not(self):
        self.assertEqual([], check("core: ".ljust(72, "x") + BODY))
        self.assertIn("73 columns", check("core: ".ljust(73, "x") + BODY)[0])

    def test_a_subject_without_an_area_is_refused(self):
        for subject in ("Sleep later", "core sleeps later: yes", "core:sleep", ": sleep", "core: "):
            self.assertIn("no area", check(subject.rstrip() + BODY)[0], subject)

    def test_a_body_is_needed_after_a_blank_line(self):
        self.assertIn("no body", check("core: sleep later\n")[0])
        self.assertIn("no body", check("core: sleep later\n\nSigned-off-by: A <a@x>\n")[0])
        self.assertIn("not blank", check("core: sleep later\nBecause.\n")[0])

    def test_what_git_adds_does_not_count(self):
        added = "# Please enter\n# ------------------------ >8 ------------------------\n# Do not touch\ndiff --git a b\n+x\n"
        self.assertIn("no body", check("core: sleep later\n\n" + added)[0])
        self.assertEqual([], check("# hint\n\ncore: sleep later" + BODY + added))

    def test_commits_for_a_rebase_pass(self):
        self.assertEqual([], check("fixup! core: sleep later\n"))


if __name__ == "__main__":
    unittest.main()
