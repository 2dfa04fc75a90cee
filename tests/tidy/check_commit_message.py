#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A commit's message: `area: what, imperative` in at most 72 columns, a blank line, and a body with why and how it was checked.

Usage: check_commit_message.py FILE    (git's hook commit-msg; ./dev hook)
"""
import pathlib
import re
import sys

COLUMNS_MAX = 72
SUBJECT = re.compile(r"[\w.{}*/-]+(, [\w.{}*/-]+)*: \S")
SCISSORS = re.compile(r"^# -+ >8 -+$", re.MULTILINE)  # of git commit --verbose: the diff follows
TRAILER = re.compile(r"[A-Z][\w-]+: \S")  # Signed-off-by: ...
FOR_REBASE = ("fixup! ", "squash! ", "amend! ")  # become part of another commit


def check(text):
    lines = [line.rstrip() for line in SCISSORS.split(text)[0].splitlines() if not line.startswith("#")]
    while lines and not lines[0]:
        del lines[0]
    if not lines:
        return []  # git refuses it itself
    subject, rest = lines[0], lines[1:]
    if subject.startswith(FOR_REBASE):
        return []
    problems = []
    if len(subject) > COLUMNS_MAX:
        problems.append(f"the subject has {len(subject)} columns of at most {COLUMNS_MAX}: {subject}")
    if not SUBJECT.match(subject):
        problems.append(f"the subject names no area (`core/engine: what changes`): {subject}")
    if rest and rest[0]:
        problems.append("the line after the subject is not blank")
    if not any(line and not TRAILER.match(line) for line in rest):
        problems.append("there is no body: say why, and how it was checked")
    return problems


if __name__ == "__main__":
    found = check(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    for problem in found:
        print(f"commit message: {problem}", file=sys.stderr)
    sys.exit(1 if found else 0)
