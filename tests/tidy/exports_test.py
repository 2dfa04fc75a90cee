# SPDX-License-Identifier: Apache-2.0
import shutil
import subprocess
import unittest

import check_exports
from case import TreeCase


class ParseTest(unittest.TestCase):
    def test_reads_the_global_names_of_a_version_script(self):
        text = "/* ours */\n{\n global:\n  ncclA; # first\n  pncclA;\n local: *;\n};\n"
        self.assertEqual({"ncclA", "pncclA"}, check_exports.names_of_map(text))

    def test_wildcard_in_global_is_refused(self):
        with self.assertRaisesRegex(ValueError, "wildcard"):
            check_exports.names_of_map("{ global: nccl*; local: *; };")

    def test_reads_the_symbols_of_nm_without_version_nodes(self):
        text = "0000 T ncclA\n0000 W ncclB@@V1\n0000 A V1\n                 w __gmon_start__\n0000 T _init\n"
        self.assertEqual({"ncclA", "ncclB", "__gmon_start__"}, check_exports.exported(text))

    def test_library_reports_both_directions(self):
        self.assertEqual(["exported, but not in exports.map: extra", "in exports.map, but not exported: lost"],
                         check_exports.check_library({"both", "extra"}, {"both", "lost"}))

    def test_plugin_shows_its_entries_alone(self):
        good = {"plexus_plugin_query", "ncclNetPlugin_v11"}
        self.assertEqual([], check_exports.check_plugin(good, ["libc.so.6"]))
        self.assertEqual(["a plugin shows only its entries, not helper"],
                         check_exports.check_plugin(good | {"helper"}, []))
        self.assertEqual(1, len(check_exports.check_plugin(set(), [])))

    def test_plugin_needs_no_library_of_ours(self):
        problems = check_exports.check_plugin({"plexus_plugin_query"}, ["libplexus.so.0", "libc.so.6"])
        self.assertEqual(1, len(problems))
        self.assertIn("libplexus.so.0", problems[0])


@unittest.skipUnless(shutil.which("cc"), "no C compiler in PATH")
class RealLibraryTest(TreeCase):
    def build(self, text, *flags):
        source = self.write("a.c", text)
        library = self.root / "liba.so"
        subprocess.run(["cc", "-shared", "-fPIC", *flags, source, "-o", library], check=True)
        return str(library)

    def test_plugin_with_a_visible_helper_fails(self):
        text = "int helper(void) { return 1; }\nint plexus_plugin_query(void) { return helper(); }\n"
        self.assertEqual(1, len(check_exports.main("plugin", self.build(text))))
        self.assertEqual([], check_exports.main("plugin", self.build("static " + text)))

    def test_library_with_its_version_script_is_clean(self):
        script = self.write("exports.map", "{ global: ncclA; local: *; };\n")
        library = self.build("int b(void) { return 1; }\nint ncclA(void) { return b(); }\n",
                             f"-Wl,--version-script={script}")
        self.assertEqual([], check_exports.main("library", library, str(script)))


if __name__ == "__main__":
    unittest.main()
