# SPDX-License-Identifier: Apache-2.0
"""ctags, run in the source folder, finds the definition of every function of nccl.h that the library exports.

Ends with 77 and a sentence where there is no Universal Ctags.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def find_tags():
    """Name of a function -> its file and line."""
    files = [str(each.relative_to(SOURCE)) for each in sorted((SOURCE / "core/api").glob("*.cpp"))]
    made = subprocess.run(["ctags", "-f", "-", *files], cwd=SOURCE, capture_output=True, text=True, check=True)
    rows = (line.split("\t") for line in made.stdout.splitlines())
    return {name: (file, int(line.rstrip(';"'))) for name, file, line, kind, *_ in rows if kind == "f"}


class CtagsTest(unittest.TestCase):
    def test_finds_every_entry_point(self):
        exports = (SOURCE / "core/api/exports.map").read_text(encoding="utf-8")
        names = set(re.findall(r"\bnccl[A-Z]\w+", exports))
        self.assertIn("ncclAllReduce", names)
        self.assertEqual(set(), names - set(find_tags()))

    def test_the_line_is_that_of_the_definition(self):
        tags = find_tags()
        for name in ("ncclAllReduce", "ncclSend", "ncclGetUniqueId", "ncclCommInitRank"):
            file, line = tags[name]
            text = "\n".join((SOURCE / file).read_text(encoding="utf-8").splitlines()[:line])
            self.assertRegex(text, rf"PLEXUS_PUBLIC\(ncclResult_t,\s*{name},[^{{]*\{{?$", name)


if __name__ == "__main__":
    version = ["ctags", "--version"]
    if not shutil.which("ctags") or "Universal" not in subprocess.run(version, capture_output=True, text=True).stdout:
        print("skipped: Universal Ctags not found; apt-get install universal-ctags")
        sys.exit(77)
    unittest.main(argv=["ctags_test.py", "-q"])
