#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutates files of pure logic, one small change at a time, and lists the changes that no unit test notices.

    campaign.py --tree DIR --build DIR [--count 200] [--seed 1] [--file core/stall/verdict.cpp]
    campaign.py --tree DIR --build DIR --fixed         the changes of fixed.json

A file's tests are in files.json; they are built in --build, a CMake build of --tree, whose sources are changed and
restored: use a copy of the repository. Exit code 1: fewer than --least percent of the mutants were killed, or,
with --fixed, one survived. The default of --least may only be raised.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import time

import mutate

HERE = pathlib.Path(__file__).resolve().parent
TEST_SECONDS = 120
LEAST_PERCENT = 80


def choose(tree, files, count, seed):
    """`count` mutations, in turn from each file, of (file, text, mutated text, description)."""
    shuffled = random.Random(seed)
    lists = []
    for name in files:
        text = (tree / name).read_text(encoding="utf-8")
        found = mutate.mutations(text)
        shuffled.shuffle(found)
        lists.append([(name, text, mutate.apply(text, each), f"{name}:{each.line}: {mutate.describe(text, each)}")
                      for each in found])
    shuffled.shuffle(lists)
    chosen = []
    while len(chosen) < count and any(lists):
        chosen += [left.pop() for left in lists if left]
    return chosen[:count]


def read_fixed(tree):
    """The mutants of fixed.json; ValueError names one whose text is not in its file exactly once."""
    chosen = []
    for row in json.loads((HERE / "fixed.json").read_text(encoding="utf-8")):
        text = (tree / row["file"]).read_text(encoding="utf-8")
        if text.count(row["old"]) != 1:
            raise ValueError(f"{row['file']}: '{row['old']}' is there {text.count(row['old'])} times, not once: "
                             f"'{row['what']}' of fixed.json needs the present text")
        chosen.append((row["file"], text, text.replace(row["old"], row["new"]), f"{row['file']}: {row['what']}"))
    return chosen


class Campaign:
    def __init__(self, tree, build, tests):
        self.tree, self.build, self.tests = tree, build, tests
        self.survivors, self.killed, self.uncompiled = [], 0, 0

    def compiles(self, name):
        targets = [f"{test}_test" for test in self.tests[name]]
        return subprocess.run(["cmake", "--build", str(self.build), "--target", *targets], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)

    def passes(self, name):
        """True when all tests of the file pass."""
        for test in self.tests[name]:
            try:
                ended = subprocess.run([self.build / "test-bin" / f"{test}_test", "--gtest_brief=1"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=TEST_SECONDS,
                                       check=False)
            except subprocess.TimeoutExpired:
                return False
            if ended.returncode != 0:
                return False
        return True

    def check_unchanged(self, names):
        """The tests pass before anything is changed; else a mutant's death would mean nothing."""
        for name in names:
            built = self.compiles(name)
            if built.returncode != 0 or not self.passes(name):
                sys.exit(f"{name}: its tests {', '.join(self.tests[name])} do not build or pass as it is\n"
                         + built.stdout.decode(errors="replace")[-2000:])

    def run(self, mutant):
        name, text, changed, what = mutant
        path = self.tree / name
        path.write_text(changed, encoding="utf-8")
        try:
            if self.compiles(name).returncode != 0:
                self.uncompiled += 1
                return "does not compile"
            if self.passes(name):
                self.survivors.append(what)
                return "SURVIVED"
            self.killed += 1
            return "killed"
        finally:
            path.write_text(text, encoding="utf-8")


def main(arguments):
    tree = arguments.tree.resolve()
    rows = json.loads((HERE / "files.json").read_text(encoding="utf-8"))
    files = {name: tests for tests_of in rows for name in tests_of["files"] for tests in [tests_of["tests"]]}
    if arguments.fixed:
        mutants = read_fixed(tree)
    else:
        names = [arguments.file] if arguments.file else sorted(files)
        mutants = choose(tree, names, arguments.count, arguments.seed)
    campaign = Campaign(tree, arguments.build.resolve(), files)
    campaign.check_unchanged(sorted({mutant[0] for mutant in mutants}))
    mutants.sort(key=lambda mutant: mutant[0])  # a restored file is built once, not after each of its mutants
    begun = time.monotonic()
    for number, mutant in enumerate(mutants, 1):
        print(f"{number}/{len(mutants)} {campaign.run(mutant)}: {mutant[3]}", flush=True)
    compiled = campaign.killed + len(campaign.survivors)
    percent = 100 * campaign.killed / max(compiled, 1)
    print(f"\n{campaign.killed} of {compiled} killed ({percent:.0f} %), {campaign.uncompiled} did not compile, "
          f"{(time.monotonic() - begun) / max(len(mutants), 1):.0f} s each; seed {arguments.seed}")
    for survivor in campaign.survivors:
        print(f"survived: {survivor}")
    return 1 if (campaign.survivors if arguments.fixed else percent < arguments.least) else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--file")
    parser.add_argument("--least", type=float, default=LEAST_PERCENT)
    parser.add_argument("--fixed", action="store_true")
    sys.exit(main(parser.parse_args()))
