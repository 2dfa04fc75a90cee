# SPDX-License-Identifier: Apache-2.0
import unittest

import check_sizes
from case import TreeCase


def lines_of(text):
    return {name: size for name, _, size in check_sizes.functions(text)}


def long_function(nlines):
    return "int f() {\n" + "  x();\n" * (nlines - 2) + "}\n"


class FunctionsTest(unittest.TestCase):
    def test_counts_from_first_line_of_the_head_to_the_closing_brace(self):
        self.assertEqual({"f": 4}, lines_of("\nint f(int a,\n      int b) {\n  return a;\n}\n"))

    def test_finds_methods_inside_classes_and_namespaces(self):
        text = "namespace a {\nclass B : public C {\n public:\n  explicit B(int x) : x_(x) {}\n" \
               "  int f() const noexcept {\n    return 1;\n  }\n};\n}\n"
        self.assertEqual({"B": 1, "f": 3}, lines_of(text))

    def test_control_flow_and_lambdas_belong_to_their_function(self):
        text = "void f() {\n  if (a) {\n    g([&](int x) {\n      h(x);\n    });\n  }\n}\nvoid g() {}\n"
        self.assertEqual({"f": 7, "g": 1}, lines_of(text))

    def test_tables_types_and_enums_are_no_functions(self):
        text = "constexpr int k[] = {\n 1, 2 };\nstruct S {\n  int a = 0;\n};\nenum class E {\n kA,\n};\n" \
               "const auto rows = make({\n  1,\n});\n"
        self.assertEqual({}, lines_of(text))

    def test_templates_and_out_of_class_names(self):
        text = "template <class T>\nResult<T> Box<T>::open(int a) {\n  return a;\n}\n"
        self.assertEqual([4], list(lines_of(text).values()))

    def test_braces_in_strings_comments_and_macros_do_not_count(self):
        text = '#define PLEXUS_X(a) \\\n  do { a(); \n' \
               'void f() {\n  // }\n  g("}", \'}\', R"(})");\n}\nvoid h() {}\n'
        self.assertEqual({"f": 4, "h": 1}, lines_of(text))

    def test_digit_separators_are_no_characters(self):
        self.assertEqual({"f": 1, "g": 1}, lines_of("int f() { return 1'000; }\nint g() { return 2'000; }\n"))

    def test_constructor_with_braces_in_its_initialisers(self):
        text = "B::B(int x)\n    : C(x), x_{x}, y_{1, 2} {\n  g();\n}\nvoid h() {}\n"
        self.assertEqual({"B::B": 4, "h": 1}, lines_of(text))

    def test_tests_are_named_by_suite_and_name(self):
        self.assertEqual({"Ring.Turns": 3, "Net.Sends": 1},
                         lines_of("TEST(Ring, Turns) {\n  x();\n}\nTEST_P(Net, Sends) {}\n"))

    def test_function_returning_a_struct(self):
        self.assertEqual({"f": 3}, lines_of("struct point f(struct line l) {\n  return l.a;\n}\n"))


class SizesTest(TreeCase):
    def test_limits_are_inclusive(self):
        self.write("core/base/README.md", "one\n")
        self.write("core/base/a.cpp", long_function(70))
        self.write("core/base/b.hpp", "// x\n" * 800)
        self.assertEqual([], check_sizes.check(self.root, {}))

    def test_one_over_is_reported_with_name_and_limit(self):
        self.write("core/base/README.md", "one\n")
        self.write("core/base/a.cpp", long_function(71))
        self.write("core/base/b.hpp", "// x\n" * 801)
        self.assertEqual(["core/base/a.cpp:f: 71 lines (from line 1), the limit is 70",
                          "core/base/b.hpp: 801 lines, the limit is 800"], check_sizes.check(self.root, {}))

    def test_exception_may_shrink_but_not_grow_and_must_be_kept_true(self):
        self.write("core/base/README.md", "one\n")
        self.write("core/base/a.cpp", long_function(90))
        name = "core/base/a.cpp:f"
        self.assertEqual([], check_sizes.check(self.root, {name: 90}))
        self.assertIn("may shrink, not grow", check_sizes.check(self.root, {name: 89})[0])
        self.assertIn("shrank to 90", check_sizes.check(self.root, {name: 95})[0])
        self.write("core/base/a.cpp", long_function(60))
        self.assertIn("remove it", check_sizes.check(self.root, {name: 90})[0])

    def test_every_folder_has_a_short_readme(self):
        self.write("core/base/a.hpp", "")
        self.assertIn("core/base: no README.md", check_sizes.check(self.root, {})[0])
        self.write("core/base/README.md", "line\n" * 41)
        self.assertEqual(["core/base/README.md: more than 40 lines"], check_sizes.check(self.root, {}))

    def test_exception_file_ignores_comments(self):
        path = self.write("list.txt", "# note\na.cpp 900\nb.cpp:f 71  # why\n")
        self.assertEqual({"a.cpp": 900, "b.cpp:f": 71}, check_sizes.read_exceptions(path))


if __name__ == "__main__":
    unittest.main()
