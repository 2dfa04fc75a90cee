# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
import pathlib
import re
import subprocess
import tempfile
import unittest

import campaign
import mutate

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

PROJECT = """cmake_minimum_required(VERSION 3.18)
project(tiny CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/test-bin")
add_executable(tiny_test rules.cpp)
"""
RULES = """int limit(int a) {
  if (a > 3) {
    return 3;
  }
  return a;
}

int main() {
  return limit(7) == 3 && limit(1) == 1 ? 0 : 1;
}
"""


def mutants_of(text):
    return {mutate.apply(text, each) for each in mutate.mutations(text)}


class MutateTest(unittest.TestCase):
    def test_operators_bounds_and_negations(self):
        self.assertEqual({"bool f() { return a <= b || !c; }\n", "bool f() { return a < b && !c; }\n",
                          "bool f() { return a < b || c; }\n"},
                         mutants_of("bool f() { return a < b || !c; }\n"))

    def test_conditions_numbers_and_extremes(self):
        made = mutants_of("void f() {\n  if (is_far(a)) {\n    g(std::max(a, 2));\n  }\n}\n")
        self.assertIn("void f() {\n  if (!(is_far(a))) {\n    g(std::max(a, 2));\n  }\n}\n", made)
        self.assertIn("void f() {\n  if (is_far(a)) {\n    g(std::min(a, 2));\n  }\n}\n", made)
        self.assertIn("void f() {\n  if (is_far(a)) {\n    g(std::max(a, 3));\n  }\n}\n", made)
        self.assertIn("void f() {\n  if (is_far(a)) {\n    ;\n  }\n}\n", made)
        self.assertEqual(4, len(made))

    def test_statements_are_dropped_declarations_and_returns_are_not(self):
        text = "int f() {\n  int a = b;\n  a_ = c;\n  ++d;\n  e.push(b);\n  return h();\n}\n"
        self.assertEqual({text.replace(each, ";") for each in ("a_ = c;", "++d;", "e.push(b);")}, mutants_of(text))

    def test_comments_strings_assertions_templates_and_reserves_are_left_alone(self):
        self.assertEqual(set(), mutants_of('#include <a>\n// a < b\ntemplate <class T = a < b>\n'
                                           'const char* k = "a < 1";\n'
                                           'void f() {\n  PLEXUS_DCHECK(a < b,\n                c + 1);\n'
                                           '  all.reserve(a + 2);\n}\n'))

    def test_types_and_declarators_are_no_operators(self):
        self.assertEqual(set(), mutants_of("void f(const std::vector<int*>& a, B&& b, C* c);\n"))

    def test_a_mutation_names_its_line_and_change(self):
        text = "int f() {\n  return a + b;\n}\n"
        (only,) = mutate.mutations(text)
        self.assertEqual(2, only.line)
        self.assertEqual("'+' -> '-' in: return a + b;", mutate.describe(text, only))


class CampaignTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "CMakeLists.txt").write_text(PROJECT)
        (self.root / "rules.cpp").write_text(RULES)
        self.build = self.root / "build"
        subprocess.run(["cmake", "-S", self.root, "-B", self.build], check=True, stdout=subprocess.DEVNULL)
        self.campaign = campaign.Campaign(self.root, self.build, {"rules.cpp": ["tiny"]})

    def run_one(self, old, new):
        return self.campaign.run(("rules.cpp", RULES, RULES.replace(old, new), f"{old} -> {new}"))

    def test_mutants_are_killed_survive_or_do_not_compile_and_the_file_is_restored(self):
        self.campaign.check_unchanged(["rules.cpp"])
        self.assertEqual("killed", self.run_one("a > 3", "a < 3"))
        self.assertEqual("SURVIVED", self.run_one("a > 3", "a >= 3"))
        self.assertEqual("does not compile", self.run_one("a > 3", "a >"))
        self.assertEqual((1, ["a > 3 -> a >= 3"], 1),
                         (self.campaign.killed, self.campaign.survivors, self.campaign.uncompiled))
        self.assertEqual(RULES, (self.root / "rules.cpp").read_text())

    def test_tests_that_fail_as_they_are_end_the_campaign(self):
        (self.root / "rules.cpp").write_text(RULES.replace("== 1", "== 2"))
        with self.assertRaises(SystemExit), contextlib.redirect_stdout(io.StringIO()):
            self.campaign.check_unchanged(["rules.cpp"])

    def test_a_seed_gives_the_same_choice_and_every_file_has_its_turn(self):
        (self.root / "more.cpp").write_text(RULES)
        chosen = campaign.choose(self.root, ["more.cpp", "rules.cpp"], 6, 1)
        self.assertEqual(chosen, campaign.choose(self.root, ["more.cpp", "rules.cpp"], 6, 1))
        self.assertNotEqual(chosen, campaign.choose(self.root, ["more.cpp", "rules.cpp"], 6, 2))
        self.assertEqual({"more.cpp": 3, "rules.cpp": 3},
                         {name: sum(each[0] == name for each in chosen) for name in ("more.cpp", "rules.cpp")})


class ListsTest(unittest.TestCase):
    def test_the_fixed_mutants_are_twenty_changes_of_the_present_sources(self):
        fixed = campaign.read_fixed(ROOT)
        self.assertEqual(20, len({changed for _, _, changed, _ in fixed}))
        self.assertTrue(all(text != changed for _, text, changed, _ in fixed))

    def test_files_exist_and_their_tests_are_built(self):
        lists = "".join(path.read_text() for path in (ROOT / "tests" / "unit").rglob("CMakeLists.txt"))
        names = set(re.findall(r"plexus_add_test\(NAME (\w+)", lists))
        for row in json.loads((campaign.HERE / "files.json").read_text()):
            self.assertLessEqual(set(row["tests"]), names)
            for file in row["files"]:
                self.assertTrue(mutate.mutations((ROOT / file).read_text()), file)

    def test_the_files_of_fixed_mutants_have_tests(self):
        files = {file for row in json.loads((campaign.HERE / "files.json").read_text()) for file in row["files"]}
        self.assertLessEqual({name for name, _, _, _ in campaign.read_fixed(ROOT)}, files)


if __name__ == "__main__":
    unittest.main()
