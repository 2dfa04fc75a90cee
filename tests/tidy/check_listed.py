#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No dead file: every source is named in the build, every C++ header is included by somebody.

A source is named in the CMakeLists.txt of its folder or of one above it, by its name from there or from the
root; tests/bench, which also builds against other libraries, may name it in its script `run`.

Usage: check_listed.py ROOT
"""
import pathlib
import re
import sys

import tree

SOURCES = {".c", ".cpp", ".cu"}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def build_texts(root, path):
    """The build files that may name `path`, nearest first: (folder, words)."""
    for folder in path.parents:
        for build_file in (folder / "CMakeLists.txt", folder / "run"):
            if build_file.is_file():
                text = re.sub(r"#[^\n]*", "", tree.text_of(build_file))
                yield folder, set(re.findall(r"[\w./+-]+", text))
        if folder == root:
            return


def is_listed(root, path):
    from_root = path.relative_to(root).as_posix()
    return any(path.relative_to(folder).as_posix() in words or from_root in words
               for folder, words in build_texts(root, path))


def check(root):
    root = pathlib.Path(root)
    code = list(tree.files(root, tree.CODE))
    included = {target for path, _ in code for target in INCLUDE.findall(tree.text_of(path))}
    problems = []
    for path, name in code:
        if path.suffix in SOURCES and not is_listed(root, path):
            problems.append(f"{name}: no CMakeLists.txt names it")
        if path.suffix == ".hpp" and name not in included:
            problems.append(f"{name}: nobody includes it")
    return problems


if __name__ == "__main__":
    tree.finish(check(sys.argv[1]))
