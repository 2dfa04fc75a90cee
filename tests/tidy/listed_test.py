# SPDX-License-Identifier: Apache-2.0
import unittest

import check_listed
from case import TreeCase


class ListedTest(TreeCase):
    def problems(self):
        return check_listed.check(self.root)

    def test_source_named_by_its_own_folder_is_listed(self):
        self.write("core/base/log.cpp", "")
        self.write("core/base/CMakeLists.txt", "plexus_add_library(NAME core_base SRCS log.cpp)\n")
        self.assertEqual([], self.problems())

    def test_source_named_from_a_folder_above_is_listed(self):
        self.write("plugin-api/example/a.c", "")
        self.write("plugin-api/CMakeLists.txt", "SRCS example/a.c\n")
        self.assertEqual([], self.problems())

    def test_source_that_nobody_names_is_dead(self):
        self.write("core/base/log.cpp", "")
        self.write("core/base/CMakeLists.txt", "SRCS catalog.cpp\n")
        self.assertEqual(["core/base/log.cpp: no CMakeLists.txt names it"], self.problems())

    def test_a_name_in_a_comment_does_not_count(self):
        self.write("core/base/log.cpp", "")
        self.write("core/base/CMakeLists.txt", "# log.cpp\n")
        self.assertEqual(1, len(self.problems()))

    def test_the_same_name_in_another_folder_does_not_count(self):
        self.write("core/base/log.cpp", "")
        self.write("core/os/CMakeLists.txt", "SRCS log.cpp\n")
        self.assertEqual(1, len(self.problems()))

    def test_header_that_nobody_includes_is_dead(self):
        self.write("core/base/units.hpp", "")
        self.assertEqual(["core/base/units.hpp: nobody includes it"], self.problems())
        self.write("core/base/CMakeLists.txt", "SRCS a.cpp\n")
        self.write("core/base/a.cpp", '#include "core/base/units.hpp"\n')
        self.assertEqual([], self.problems())

    def test_bench_may_be_built_by_its_script(self):
        self.write("tests/bench/peer_mpi.c", "")
        self.write("tests/bench/run", "mpicc peer_mpi.c -o x\n")
        self.assertEqual([], self.problems())


if __name__ == "__main__":
    unittest.main()
