#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Size limits as a ratchet: files of 800 lines, functions of 70, a README of 40 lines in every folder; classes
of the product have 400 lines of bodies and 30 methods, over all files of their folder.

What is over a limit today stands in size_exceptions.txt (`name size`, a function as file:function, a class as
folder:class.lines and folder:class.methods): it may shrink, never grow, and leaves the list when it is within
the limit.

Usage: check_sizes.py ROOT
"""
import collections
import pathlib
import re
import sys

import tree

FILE_LINES = 800
FUNCTION_LINES = 70
README_LINES = 40
CLASS_LINES = 400
CLASS_METHODS = 30
PRODUCT = ("core/", "guest/", "kernels/", "plugins/", "security/", "tools/")
EXCEPTIONS = pathlib.Path(__file__).with_name("size_exceptions.txt")

CONTROL = re.compile(r"\b(if|for|while|switch|catch|do|else|try|return)\b")
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern|concept)\b")
INITIALISER = "initialiser"
NAME = re.compile(r"([~\w:]+|operator\s*\S+?)\s*\(")
CLASS = re.compile(r"\b(?:class|struct|union)\s+(?:\[\[\w+\]\]\s*)?(?:PLEXUS_\w+\s+)?([\w:]+)[^;()]*$")


def functions(text):
    """(name, first line, number of lines) of each function body outside other functions."""
    for _, name, line, size in bodies(text):
        yield name, line, size


def bodies(text):
    """(class, name, first line, number of lines) of each; class: "" of a free function, "Outer::Inner" if nested."""
    code = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", lambda m: re.sub(r"[^\n]", " ", m[0]),
                  tree.blank(text), flags=re.MULTILINE)
    stack = []  # one entry per open brace: (name, start) of a function, the name of a class, INITIALISER, or None
    head_start, inside, parens = 0, 0, 0
    for at, character in enumerate(code):
        outside = not inside and not parens
        if character in "()":
            parens += 1 if character == "(" else -1
        elif character == "{":
            opened = brace_after(code[head_start:at], code, head_start) if outside else None
            stack.append(opened)
            inside += isinstance(opened, tuple)
            if outside and opened is not INITIALISER:
                head_start = at + 1
        elif character == "}" and stack:
            closed = stack.pop()
            if isinstance(closed, tuple):
                inside -= 1
                name, start = closed
                yield class_of(stack, name), name, start, code.count("\n", 0, at) + 2 - start
            if not inside and not parens and closed is not INITIALISER:
                head_start = at + 1
        elif character == ";" and outside:
            head_start = at + 1


def class_of(stack, name):
    scopes = [scope.removeprefix("class ") for scope in stack if isinstance(scope, str) and scope != INITIALISER]
    return "::".join(scopes + name.split("::")[:-1])


def brace_after(head, code, head_start):
    """What the brace after `head` opens: INITIALISER for `: member_{`, "class NAME", else as function_of."""
    if re.search(r"\)[^;]*:\s[^;]*[\w>]$", head):
        return INITIALISER
    function = function_of(head, code, head_start)
    plain = re.sub(r"\btemplate\s*<[^{}]*?>(?=\s*\w)", " ", head)
    if function is None and (named := CLASS.search(plain)) and not re.search(r"\benum\b", plain):
        return f"class {named[1]}"
    return function


def function_of(head, code, head_start):
    """(name, first line) when `head` (the text before a brace) begins a function, else None."""
    plain = re.sub(r"\b(template|requires|concept)\b\s*<[^{}]*?>(?=\s*[\w:\[])", " ", head)
    name = NAME.search(plain)
    if not name or CONTROL.match(plain.strip()):
        return None
    before = plain[:name.start()]
    if SCOPE.search(before) and not re.search(r"\)\s*(const|noexcept|override|final|->.*|:.*|\s)*$", plain):
        return None
    if re.search(r"=\s*$", plain) or "=" in before:
        return None  # a table or a variable with an initialiser
    shown = name[1]
    if shown in ("TEST", "TEST_F", "TEST_P"):
        shown = ".".join(re.findall(r"\w+", plain[name.end():])[:2])
    skipped = re.match(r"\s*((public|private|protected)\s*:\s*)*", head).end()
    return shown, code.count("\n", 0, head_start + skipped) + 1


def measure(root):
    """name -> (size, limit, what) of everything that is over its limit."""
    over = {}
    for path, name in tree.files(root):
        if path.suffix not in tree.CODE | {".py", ".cmake"} and path.name != "CMakeLists.txt":
            continue
        text = tree.text_of(path)
        nlines = len(text.splitlines())
        if nlines > FILE_LINES:
            over[name] = (nlines, FILE_LINES, "lines")
        if path.suffix in tree.CODE:
            for function, line, size in functions(text):
                if size > FUNCTION_LINES:
                    over[f"{name}:{function}"] = (size, FUNCTION_LINES, f"lines (from line {line})")
    return over


def measure_classes(root):
    """As measure(), of the classes of the product: a class is the one of its name in its folder."""
    lines, methods = collections.Counter(), collections.Counter()
    for path, name in tree.files(root, tree.CODE):
        if name.startswith(PRODUCT):
            for owner, _, _, size in bodies(tree.text_of(path)):
                if owner:
                    lines[f"{pathlib.Path(name).parent.as_posix()}:{owner}"] += size
                    methods[f"{pathlib.Path(name).parent.as_posix()}:{owner}"] += 1
    over = {f"{name}.lines": (size, CLASS_LINES, "lines of bodies")
            for name, size in lines.items() if size > CLASS_LINES}
    over.update({f"{name}.methods": (size, CLASS_METHODS, "methods")
                 for name, size in methods.items() if size > CLASS_METHODS})
    return over


def check_readmes(root):
    for top in ("core", "kernels", "plugins", "security", "tools", "tests"):
        for folder in sorted((pathlib.Path(root) / top).iterdir() if (pathlib.Path(root) / top).is_dir() else []):
            if not folder.is_dir() or not any(folder.iterdir()) or folder.name == "__pycache__":
                continue
            name = folder.relative_to(root).as_posix()
            readme = folder / "README.md"
            if not readme.exists():
                yield f"{name}: no README.md (purpose, entry file, invariants, who may include it)"
            elif len(tree.text_of(readme).splitlines()) > README_LINES:
                yield f"{name}/README.md: more than {README_LINES} lines"


def check(root, exceptions):
    """`exceptions`: name -> size that is tolerated."""
    over = {**measure(root), **measure_classes(root)}
    problems = list(check_readmes(root))
    for name, (size, limit, what) in over.items():
        if name not in exceptions:
            problems.append(f"{name}: {size} {what}, the limit is {limit}")
        elif size > exceptions[name]:
            problems.append(f"{name}: {size} {what}, was {exceptions[name]}: it may shrink, not grow")
    for name in exceptions:
        if name not in over:
            problems.append(f"{name}: within the limit now; remove it from size_exceptions.txt")
        elif over[name][0] < exceptions[name]:
            problems.append(f"{name}: shrank to {over[name][0]}; write that into size_exceptions.txt")
    return problems


def read_exceptions(path):
    lines = [line.split("#")[0].split() for line in path.read_text().splitlines()]
    return {words[0]: int(words[1]) for words in lines if words}


if __name__ == "__main__":
    tree.finish(check(sys.argv[1], read_exceptions(EXCEPTIONS)))
