# SPDX-License-Identifier: Apache-2.0
"""The repository as the checks see it: which files are ours, and C++ text without comments and strings."""
import pathlib
import re
import sys

FOLDERS = ("core", "guest", "kernels", "plugins", "plugin-api", "security", "tools", "tests", "cmake", "docs", ".ci")
CODE = {".h", ".hpp", ".c", ".cpp", ".cu", ".cuh"}

_TOKEN = re.compile(
    r"""//[^\n]*                             # line comment
      | /\*.*?\*/                            # block comment
      | R"(?P<mark>[^(\s]{0,16})\(.*?\)(?P=mark)"   # raw string
      | "(?:\\.|[^"\\\n])*"                  # string
      | (?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+' # character, not a digit separator
    """,
    re.VERBOSE | re.DOTALL)


def files(root, suffixes=None):
    """Every file of ours below `root` (and directly in it), sorted, as (path, name from the root)."""
    root = pathlib.Path(root)
    found = [path for path in root.iterdir() if path.is_file() and path.name != ".git"]  # a file in a worktree
    for folder in FOLDERS:
        found += [path for path in (root / folder).rglob("*") if path.is_file()]
    for path in sorted(found):
        name = path.relative_to(root).as_posix()
        if "__pycache__" not in name and (suffixes is None or path.suffix in suffixes):
            yield path, name


def text_of(path):
    return path.read_text(encoding="utf-8", errors="replace")


def blank(text, keep_comments=False):
    """`text` with strings (and comments) replaced by blanks; line numbers and columns stay."""
    def replace(match):
        if keep_comments and match[0].startswith(("//", "/*")):
            return match[0]
        return re.sub(r"[^\n]", " ", match[0])
    return _TOKEN.sub(replace, text)


def finish(problems):
    """Prints one line per problem and ends the program: 0 when there is none."""
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)
