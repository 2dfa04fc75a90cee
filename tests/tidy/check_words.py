#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Words that do not belong here: goto, unfinished marks, paths of one machine, how the text came to be.

Usage: check_words.py ROOT
"""
import re
import sys

import tree

IN_CODE = [  # C and C++ without comments and strings
    (re.compile(r"\bgoto\b"), "goto: a destructor cleans up"),
    (re.compile(r"\bdev\b"), "bare `dev`: say `device` (where a rank computes) or `nic`"),
    (re.compile(r"\b(rand|srand|strtok|localtime|gmtime|ctime|asctime|gethostbyname|inet_ntoa|tmpnam)\s*\("),
     "not safe with threads: use the _r form or <random>"),
    (re.compile(r"\bsource_location\b"), "std::source_location: clang-tidy 14 rejects it, use __builtin_FILE()"),
]
EVERYWHERE = [
    (re.compile(r"\bTODO\b(?!\(#\d+\))"), "TODO without (#issue)"),
    (re.compile(r"\b(FIXME|XXX|HACK)\b"), "unfinished mark: use TODO(#issue) with the condition that ends it"),
    (re.compile(r"(?<![\w.])/(work|root|home/\w+)/"), "path of one machine"),
    (re.compile(r"\b(this|previous|last|next|another) session\b", re.I), "speaks of how the text came to be"),
    (re.compile(r"\b(AI|LLM|machine)[- ](generated|written|assisted)\b", re.I), "speaks of how the text came to be"),
    (re.compile(r"\b(language model|coding assistant|code assistant)s?\b", re.I), "speaks of how the text came to be"),
    (re.compile(r"^(<{7}|>{7}|={7})( |$)", re.M), "conflict mark"),
]
# NCCL's own tables keep NCCL's words; this check and its test contain the words that it looks for.
FOREIGN = re.compile(r"^plugin-api/nccl_\w+\.h$|^core/plugin/nccl_\w+$")
SELF = {"tests/tidy/check_words.py", "tests/tidy/words_test.py", "LICENSE"}
TEXT = tree.CODE | {".py", ".md", ".txt", ".cmake", ".json", ".in", ".map", ".sh", ""}


def findings(text, patterns):
    for pattern, why in patterns:
        for match in pattern.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, why


def check(root):
    problems = []
    for path, name in tree.files(root):
        if name in SELF or path.suffix not in TEXT:
            continue
        text = tree.text_of(path)
        found = list(findings(text, EVERYWHERE))
        if path.suffix in tree.CODE and not FOREIGN.match(name):
            found += findings(tree.blank(text), IN_CODE)
        problems += [f"{name}:{line}: {why}" for line, why in sorted(found)]
    return problems


if __name__ == "__main__":
    tree.finish(check(sys.argv[1]))
