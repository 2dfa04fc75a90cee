# SPDX-License-Identifier: Apache-2.0
"""Programs written for NCCL: compiled with -lnccl, loaded at run time, with a tool in between; and the
symbols that the libraries show."""
import os
import pathlib
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
LIB = pathlib.Path(os.environ["PLEXUS_TEST_LIB_DIR"])
INCLUDE = pathlib.Path(os.environ["PLEXUS_TEST_INCLUDE_DIR"])
COMPILER = os.environ["PLEXUS_TEST_C_COMPILER"].split()
WEAK, STRONG = "W", "T"


def run(*command, **environment):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "LD_LIBRARY_PATH": str(LIB), **environment}).stdout


def symbols(library):
    """name -> kind, of what the library defines."""
    rows = [line.split() for line in run("nm", "-D", "--defined-only", LIB / library).splitlines()]
    return {row[2]: row[1] for row in rows if row[1] != "A"}


class DropInTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    def build(self, source, *flags):
        out = self.folder / source.replace(".c", ".out")
        run(*COMPILER, "-std=c99", "-pedantic-errors", "-Wall", "-Werror", "-DPLEXUS_NO_CUDA_HEADERS", f"-I{INCLUDE}",
            HERE / source, "-o", out, *flags)
        return out

    def test_a_program_linked_with_lnccl_runs_and_asks_for_libnccl(self):
        program = self.build("program.c", f"-L{LIB}", "-lnccl")
        self.assertEqual(run(program), "3 3\n")
        needed = run("readelf", "-d", program)
        self.assertIn("[libnccl.so.2]", needed)
        self.assertNotIn("libplexus", needed)

    def test_a_program_linked_with_lplexus_runs(self):
        self.assertEqual(run(self.build("program.c", f"-L{LIB}", "-lplexus")), "3 3\n")

    def test_the_extensions_are_c99(self):
        self.assertEqual(run(self.build("events.c", f"-L{LIB}", "-lplexus")), "3 3\n")

    def test_a_program_built_with_the_header_of_2_32_runs(self):
        self.assertEqual(run(self.build("foreign.c", f"-L{LIB}", "-lnccl")), "23203 6 6 6 6 6 ")

    def test_both_names_are_one_library_in_a_process(self):
        self.assertEqual(run(self.build("loader.c", "-D_GNU_SOURCE", "-ldl")), "same 232\n")

    def test_a_preloaded_tool_comes_in_between(self):
        tool = self.build("interposer.c", "-shared", "-fPIC")
        for library in ("-lnccl", "-lplexus"):
            program = self.build("program.c", f"-L{LIB}", library)
            # AddressSanitizer requires to be loaded first unless this check is disabled.
            options = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
            self.assertEqual(run(program, LD_PRELOAD=str(tool), ASAN_OPTIONS=options), "seen 1\nseen 1\n3 3\n")

    def test_every_function_has_its_two_names_and_nothing_else_is_shown(self):
        shown = symbols("libplexus.so.0")
        golden = (HERE / "symbols.txt").read_text().split()
        expected = {}
        for name in golden:
            expected[name] = WEAK if name.startswith("nccl") else STRONG
            if name.startswith("nccl"):
                expected["p" + name] = STRONG
        self.assertEqual(shown, expected)

    def test_libnccl_shows_the_names_of_nccl(self):
        ours = {name for name in symbols("libplexus.so.0") if not name.startswith("plexus")}
        self.assertEqual(set(symbols("libnccl.so.2")), ours)


if __name__ == "__main__":
    unittest.main()
