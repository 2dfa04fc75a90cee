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


def owners_of(text):
    return [(owner, name, size) for owner, name, _, size in check_sizes.bodies(text)]


class BodiesTest(unittest.TestCase):
    def test_bodies_in_and_out_of_a_class_belong_to_it(self):
        text = "namespace a {\nclass [[nodiscard]] B final : public C {\n int f() const {\n  return 1;\n }\n" \
               "  B() = default;\n};\nint free() { return 0; }\nB::~B() {\n  g();\n}\n}\n"
        self.assertEqual([("B", "f", 3), ("", "free", 1), ("B", "B::~B", 3)], owners_of(text))

    def test_nested_classes_are_their_own(self):
        text = "struct A {\n struct B {\n  void f() {}\n };\n void g() {}\n};\nvoid A::B::h() {}\nvoid A::i() {}\n"
        self.assertEqual([("A::B", "f", 1), ("A", "g", 1), ("A::B", "A::B::h", 1), ("A", "A::i", 1)], owners_of(text))

    def test_templates_enums_and_variables_of_a_struct_are_no_owners(self):
        text = "template <class T, class U>\nstruct Box {\n T f() { return {}; }\n};\nenum class E { kA };\n" \
               "struct point p = {1, 2};\nstruct point f(struct line l) { return l.a; }\nint g() { return 1; }\n"
        self.assertEqual([("Box", "f", 1), ("", "f", 1), ("", "g", 1)], owners_of(text))


class ClassLimitsTest(TreeCase):
    def setUp(self):
        super().setUp()
        self.write("core/base/README.md", "one\n")

    def methods(self, number, lines):
        return "".join(f"void A::f{i}() {{\n" + "  x();\n" * (lines - 2) + "}\n" for i in range(number))

    def test_limits_are_inclusive_and_over_all_files_of_the_folder(self):
        self.write("core/base/a.cpp", self.methods(10, 20))
        self.write("core/base/b.cpp", self.methods(5, 40))
        self.assertEqual([], check_sizes.check(self.root, {}))
        self.write("core/base/a.hpp", "class A {\n void one_more() {}\n};\n")
        self.assertEqual(["core/base:A.lines: 401 lines of bodies, the limit is 400"], check_sizes.check(self.root, {}))

    def test_methods_are_counted(self):
        self.write("core/base/a.cpp", self.methods(31, 2))
        self.assertEqual(["core/base:A.methods: 31 methods, the limit is 30"], check_sizes.check(self.root, {}))

    def test_classes_of_one_name_in_two_folders_are_two(self):
        self.write("core/os/README.md", "one\n")
        self.write("core/base/a.cpp", self.methods(20, 2))
        self.write("core/os/a.cpp", self.methods(20, 2))
        self.assertEqual([], check_sizes.check(self.root, {}))

    def test_an_exception_may_shrink_only(self):
        self.write("core/base/a.cpp", self.methods(35, 2))
        self.assertEqual([], check_sizes.check(self.root, {"core/base:A.methods": 35}))
        self.assertIn("may shrink, not grow", check_sizes.check(self.root, {"core/base:A.methods": 34})[0])
        self.assertIn("shrank to 35", check_sizes.check(self.root, {"core/base:A.methods": 36})[0])
        self.write("core/base/a.cpp", self.methods(30, 2))
        self.assertIn("remove it", check_sizes.check(self.root, {"core/base:A.methods": 35})[0])

    def test_tests_may_have_long_classes(self):
        self.write("tests/unit/README.md", "one\n")
        self.write("tests/unit/a.cpp", self.methods(31, 20))
        self.assertEqual([], check_sizes.check(self.root, {}))


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
