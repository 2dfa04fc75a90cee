#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measured figures of README.md are those of the page that has the commands. A marker says whose they are:

    <!-- figures of docs/performance.md, all_reduce, 2 ranks: shm / MPI | tcp / MPI -->
    | bytes | shared memory | TCP |      the columns of that section's tables, in this order
    | 8 Ki | 0.31 | 0.79 |

    <!-- figures of docs/performance.md: near cores (2.3x and 2.9x | far ones (1.95x -->
    2.3 times as fast, 1.95 on far ones  the page has these words, and each decimal of the paragraph is in them

Usage: check_figures.py ROOT [--write]      --write: puts the page's figures into the tables of README.md
"""
import pathlib
import re
import sys

import tree

MARKER = re.compile(r"<!-- figures of (\S+\.md)(?:, ([^:]+))?: (.+?) -->\n(.*?)(?=\n\s*\n|\Z)", re.DOTALL)
DECIMAL = re.compile(r"\d+\.\d+")
UNITS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def section_of(page, title):
    """The text below the heading `title`, up to the next heading of its level or above; None: there is none."""
    heading = re.search(rf"^(#+) {re.escape(title)}$", page, re.MULTILINE)
    if heading is None:
        return None
    end = re.search(rf"^#{{1,{len(heading[1])}}} ", page[heading.end():], re.MULTILINE)
    return page[heading.end():heading.end() + end.start() if end else len(page)]


def figures_of(section, column):
    """bytes -> figure, of the first table with such a column; None: there is none."""
    for table in re.findall(r"(?:^\|.*\n?)+", section, re.MULTILINE):
        head, *rows = table.splitlines()
        if column in cells(head):
            at = cells(head).index(column)
            return {int(cells(row)[0].replace(",", "")): cells(row)[at] for row in rows
                    if re.fullmatch(r"[\d,]+", cells(row)[0])}
    return None


def size_of(text):
    match = re.fullmatch(r"([\d,]+) ?([KMG]i)?", text)
    return int(match[1].replace(",", "")) * UNITS[match[2] or ""] if match else None


def table_from(page, title, columns, table):
    """(the table with the page's figures, problems)."""
    section = section_of(page, title)
    if section is None:
        return table, [f"there is no section '{title}'"]
    sources = [figures_of(section, column) for column in columns]
    problems = [f"'{title}' has no column '{column}'" for column, source in zip(columns, sources) if source is None]
    if problems:
        return table, problems
    lines = table.splitlines()
    for number, line in enumerate(lines):
        size = size_of(cells(line)[0])
        if size is None:
            continue
        if missing := [column for column, source in zip(columns, sources) if size not in source]:
            problems.append(f"'{title}' has no {size} bytes in '{missing[0]}'")
        else:
            lines[number] = f"| {cells(line)[0]} | " + " | ".join(source[size] for source in sources) + " |"
    return "\n".join(lines), problems


def check_words(page, words, paragraph):
    problems = [f"the page does not say '{each}'" for each in words if each not in page]
    reported = {figure for each in words for figure in DECIMAL.findall(each)}
    stated = set(DECIMAL.findall(paragraph))
    return problems + [f"{figure} is in no words of the marker" for figure in sorted(stated - reported)]


def read(root):
    """(README.md with the figures of the pages, problems)."""
    root = pathlib.Path(root)
    readme = tree.text_of(root / "README.md")
    problems = [] if MARKER.search(readme) else ["README.md: no figures are marked"]

    def replace(match):
        page_name, title, what, body = match.groups()
        if not (root / page_name).is_file():
            problems.append(f"README.md: {page_name} does not exist")
            return match[0]
        page, words = tree.text_of(root / page_name), [each.strip() for each in what.split("|")]
        text, found = (body, check_words(page, words, body)) if title is None else table_from(page, title, words, body)
        problems.extend(f"README.md, {page_name}: {each}" for each in found)
        return match[0].replace(body, text)

    return MARKER.sub(replace, readme), problems


def check(root):
    written, problems = read(root)
    now = tree.text_of(pathlib.Path(root) / "README.md")
    return problems + [f"README.md: '{old}' is '{new}' on the page; check_figures.py ROOT --write copies it"
                       for old, new in zip(now.splitlines(), written.splitlines()) if old != new]


if __name__ == "__main__":
    if "--write" in sys.argv[2:]:
        (pathlib.Path(sys.argv[1]) / "README.md").write_text(read(sys.argv[1])[0], encoding="utf-8")
    tree.finish(check(sys.argv[1]))
