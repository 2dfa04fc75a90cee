# SPDX-License-Identifier: Apache-2.0
import unittest

import check_layers
from case import TreeCase

TABLE = {
    "plugin-api": [],
    "plugins/net-socket": ["plugin-api"],
    "kernels/host": [],
    "core/base": [],
    "core/plugin": ["core/base", "plugin-api"],
    "core/comm": ["core/base", "core/plugin"],
}


class LayersTest(TreeCase):
    def setUp(self):
        super().setUp()
        for folder in TABLE:
            (self.root / folder).mkdir(parents=True)

    def problems_of(self, name, text):
        self.write(name, text)
        return check_layers.check(self.root, TABLE)

    def test_downward_include_is_clean(self):
        self.assertEqual([], self.problems_of(
            "core/comm/a.cpp", '#include "core/comm/a.hpp"\n#include <vector>\n#include "core/base/b.hpp"\n'))

    def test_upward_include_names_file_line_and_both_folders(self):
        self.assertEqual(["core/base/a.cpp:2: core/base may not include core/comm"],
                         self.problems_of("core/base/a.cpp", '\n#include "core/comm/c.hpp"\n'))

    def test_plugin_may_not_see_the_core(self):
        self.assertEqual(["plugins/net-socket/p.cpp:1: plugins/net-socket may not include core/base"],
                         self.problems_of("plugins/net-socket/p.cpp", '#include "core/base/result.hpp"\n'))

    def test_include_by_parent_folder_is_refused(self):
        self.assertEqual(["core/base/a.cpp:1: include from the repository root, not '../os/x.hpp'"],
                         self.problems_of("core/base/a.cpp", '#include "../os/x.hpp"\n'))

    def test_include_must_be_a_path_from_the_root(self):
        self.assertEqual(["core/base/a.cpp:1: 'b.hpp' is not a path from the repository root"],
                         self.problems_of("core/base/a.cpp", '#include "b.hpp"\n'))

    def test_plugin_api_headers_may_name_each_other_alone(self):
        self.write("plugin-api/plexus_plugin.h", "")
        self.assertEqual([], self.problems_of("plugin-api/plexus_net.h", '#include "plexus_plugin.h"\n'))

    def test_third_party_header_has_one_owner(self):
        self.assertEqual([], self.problems_of("core/plugin/a.cpp", "#include <boost/dll/import.hpp>\n"))
        self.assertEqual(["core/base/b.cpp:1: <boost/dll/import.hpp> belongs to core/plugin only"],
                         self.problems_of("core/base/b.cpp", "#include <boost/dll/import.hpp>\n"))

    def test_new_folder_needs_a_row(self):
        self.assertEqual(["core/topo/a.cpp: its folder is not in the table; give it a layer"],
                         self.problems_of("core/topo/a.cpp", ""))

    def test_row_without_folder_is_stale(self):
        (self.root / "kernels/host").rmdir()
        self.assertEqual(["kernels/host: in the table of check_layers.py, but there is no such folder"],
                         check_layers.check(self.root, TABLE))

    def test_tests_may_include_everything_but_not_by_parent_folder(self):
        self.assertEqual([], self.problems_of("tests/unit/a_test.cpp", '#include "core/comm/c.hpp"\n'))
        self.assertEqual(1, len(self.problems_of("tests/unit/b_test.cpp", '#include "../x.hpp"\n')))

    def test_only_the_api_fetches_the_process(self):
        self.assertEqual([], self.problems_of("tests/unit/a_test.cpp", "Process::instance().memory\n"))
        self.assertEqual(["core/comm/a.cpp:1: only core/api may say Process::instance("],
                         self.problems_of("core/comm/a.cpp", "Process::instance().memory\n"))

    def test_product_may_not_include_tests(self):
        self.assertEqual(["core/base/a.cpp:1: core/base may not include tests"],
                         self.problems_of("core/base/a.cpp", '#include "tests/support/ranks.hpp"\n'))

    def test_target_may_link_only_what_the_folder_may_include(self):
        self.assertEqual(["core/base/CMakeLists.txt: core/base may not link plexus::core_comm"],
                         self.problems_of("core/base/CMakeLists.txt",
                                          "plexus_add_library(NAME core_base DEPS plexus::core_comm)\n"))

    def test_comment_and_shared_library_are_no_link_of_the_folder(self):
        self.assertEqual([], self.problems_of(
            "core/base/CMakeLists.txt", "# plexus::core_comm\nplexus_add_shared(NAME x DEPS plexus::core_comm)\n"))

    def test_cycle_in_the_table_is_refused(self):
        with self.assertRaisesRegex(ValueError, "cycle"):
            check_layers.check(self.root, {"core/base": ["core/comm"], "core/comm": ["core/base"]})

    def test_the_real_table_has_no_cycle_and_names_only_its_rows(self):
        check_layers.assert_acyclic(check_layers.ALLOWED)


if __name__ == "__main__":
    unittest.main()
