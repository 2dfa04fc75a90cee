#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C++ on a page is, block by block, in the source that the page is about, which the tests build and run.

Usage: page_test.py PAGE SOURCE
"""
import pathlib
import re
import sys

page, source = (pathlib.Path(name).read_text(encoding="utf-8") for name in sys.argv[1:3])
blocks = re.findall(r"^```cpp\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
missing = [block for block in blocks if block not in source]
for block in missing:
    print(f"{sys.argv[1]}: not in {sys.argv[2]}:\n{block}", file=sys.stderr)
if not blocks:
    print(f"{sys.argv[1]}: no C++", file=sys.stderr)
sys.exit(1 if missing or not blocks else 0)
