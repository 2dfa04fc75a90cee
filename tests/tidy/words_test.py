# SPDX-License-Identifier: Apache-2.0
import unittest

import check_words
from case import TreeCase


class WordsTest(TreeCase):
    def problems_of(self, text, name="core/base/a.cpp"):
        self.write(name, text)
        return check_words.check(self.root)

    def test_goto_in_code_is_found_with_its_line(self):
        self.assertEqual(["core/base/a.cpp:2: goto: a destructor cleans up"],
                         self.problems_of("void f() {\n  goto out;\n}\n"))

    def test_goto_in_comment_or_string_is_text(self):
        self.assertEqual([], self.problems_of('// no goto here\n/* goto\n goto */ auto a = "goto";\n'))

    def test_todo_needs_an_issue(self):
        self.assertEqual(1, len(self.problems_of("// TODO: later\n")))
        self.assertEqual(1, len(self.problems_of("// TODO(me): later\n")))
        self.assertEqual([], self.problems_of("// TODO(#41): remove with rdma-core 50\n"))

    def test_other_unfinished_marks_are_refused(self):
        for mark in ("FIXME", "XXX", "HACK"):
            self.assertEqual(1, len(self.problems_of(f"// {mark} x\n")), mark)

    def test_bare_device_abbreviation_is_refused_in_code_only(self):
        self.assertEqual(1, len(self.problems_of("int f(int dev);\n")))
        self.assertEqual([], self.problems_of('open("/dev/shm"); int device;  // ./dev test\n'))

    def test_functions_that_threads_may_not_share_are_refused(self):
        self.assertEqual(1, len(self.problems_of("auto a = std::localtime(&t);\n")))
        self.assertEqual([], self.problems_of("localtime_r(&t, &a); operand(1);\n"))

    def test_tables_of_nccl_keep_its_words(self):
        self.assertEqual([], self.problems_of("int listen(int dev);\n", "plugin-api/nccl_net_v11.h"))

    def test_paths_of_one_machine_are_refused_everywhere(self):
        self.assertEqual(1, len(self.problems_of("see /work/main/x\n", "docs/a.md")))
        self.assertEqual(1, len(self.problems_of("/home/alice/x\n", "docs/a.md")))
        self.assertEqual([], self.problems_of("tests/work/x and /proc/self\n", "docs/a.md"))

    def test_text_does_not_tell_how_it_came_to_be(self):
        self.assertEqual(1, len(self.problems_of("As in the previous session, it\n", "docs/a.md")))
        self.assertEqual(1, len(self.problems_of("AI-generated\n", "docs/a.md")))
        self.assertEqual([], self.problems_of("a TCP session ends\n", "docs/a.md"))

    def test_conflict_marks_are_refused(self):
        self.assertEqual(1, len(self.problems_of("<<<<<<< HEAD\n", "docs/a.md")))

    def test_digit_separator_does_not_hide_what_follows(self):
        self.assertEqual(1, len(self.problems_of("int a = 1'000; goto out; int b = 2'000;\n")))


if __name__ == "__main__":
    unittest.main()
