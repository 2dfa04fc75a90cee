#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many planted faults does the kit find, when nobody tells it where to look? Runs the whole kit on a right plugin with
one fault at a time, until the first check fails, and prints a table: faults by class, found, seconds to the first failure.

Usage: planted_test.py           a fault of each class of seeded_mutant.cpp, which were written without a look at the checks: a
                                 test; all of them with PLEXUS_TEST_PLANTED=all, which takes some minutes (`./dev nightly`)
       planted_test.py --all     also those of mutants_test.py, which each check brought along: prints only
"""
import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import time
import unittest

import mutants_test
from mutants_test import AGGREGATOR, BIN, EXAMPLES, FACTOR, INNER

SEEDED = {  # class -> faults
    "wrong bytes": "last_byte byte_of_page powers seldom odd_tail stale shared_buffer register_clears length_16bit length_24bit",
    "order": "twice wraps",
    "tags": "tag_8bit tag_16bit tag_unsigned group_tags",
    "limits": "four_in_flight receives_seven one_mebibyte no_empty connections_16 one_context limit_zero group_first",
    "sizes, counters": "size_of_room size_less size_32bit_late speed_wanders",
    "handles, names": "handle_half name_empty",
    "threads, time": "own_thread test_naps close_thread",
    "leaks": "finalize_leaks accept_leaks register_leaks send_leaks listen_lasts",
    "failures": "hides_failure test_null close_twice",
}
MUTANT = "libplexus-net-mutant.so"
OTHERS = {  # class -> (library, faults)
    "net, each for a check": (lambda _: MUTANT, INNER, mutants_test.NET),
    "short messages": (lambda _: MUTANT, INNER, mutants_test.SHORT),
    "dma-buf, flush": (lambda _: MUTANT, INNER, mutants_test.DMABUF),
    "gathering": (lambda _: MUTANT, os.path.join(EXAMPLES, "libplexus-net-gathering.so"), mutants_test.GATHERING),
    "NCCL's ABI": (lambda _: "libnccl-net-tcp-v9.so", INNER, mutants_test.VENDORS),
    "tuner": (lambda version: f"libplexus-tuner-mutant-v{version or 6}.so", INNER, mutants_test.TUNER),
    "profiler": (lambda version: f"libplexus-profiler-mutant-v{version or 5}.so", INNER, mutants_test.PROFILER),
    "collnet": (lambda _: "libplexus-collnet-mutant.so", INNER, mutants_test.COLLNET),
}
Found = collections.namedtuple("Found", "fault check seconds")  # check None: the whole kit passed


def find(library, fault, inner=INNER):
    """Runs the kit until the first failure of any grade."""
    name = fault.split()[0]
    environment = {**os.environ, "PLEXUS_MUTANT_OF": inner, "PLEXUS_MUTANT_OF_COLLNET": AGGREGATOR, "PLEXUS_MUTANT": name,
                   "TCP_FIXTURE_FAULT": name}
    begin = time.monotonic()
    with subprocess.Popen([os.path.join(BIN, "plexus"), "plugin", "check", os.path.join(EXAMPLES, library), "--jobs", "4",
                           "--patience", str(max(1, FACTOR))], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as kit:
        for line in kit.stdout:
            failed = re.match(r"(?:fail|weak|beyond) +(\S+)", line)
            if failed:
                kit.kill()
                if failed[1] == "file.elf":
                    raise FileNotFoundError(library)
                return Found(fault, failed[1], time.monotonic() - begin)
    return Found(fault, None, time.monotonic() - begin)


def find_all(runs, workers):
    """{class: [Found]} of [(class, library, fault, inner)]; also the seconds of all."""
    begin = time.monotonic()
    found = collections.defaultdict(list)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        pending = [(group, pool.submit(find, library, fault, inner)) for group, library, fault, inner in runs]
        for group, each in pending:
            found[group].append(each.result())
            print(f"{group:<24} {found[group][-1].fault:<24} {found[group][-1].check} after {found[group][-1].seconds:.1f} s",
                  flush=True)
    return found, time.monotonic() - begin


def table(found, seconds):
    lines = ["| faults | planted | found | median s to the first failure |", "| --- | --- | --- | --- |"]
    for group, each in found.items():
        times = sorted(one.seconds for one in each)
        lines.append(f"| {group} | {len(each)} | {sum(one.check is not None for one in each)} | {times[len(times) // 2]:.1f} |")
    all_of = [one for each in found.values() for one in each]
    lines.append(f"| all | {len(all_of)} | {sum(one.check is not None for one in all_of)} | {seconds:.0f} s for all |")
    return "\n".join(lines)


def seeded():
    return [(group, "libplexus-net-seeded.so", fault, INNER) for group, faults in SEEDED.items() for fault in faults.split()]


class Planted(unittest.TestCase):
    def test_the_kit_finds_nearly_all_and_alarms_nobody_falsely(self):
        runs = seeded()
        if os.environ.get("PLEXUS_TEST_PLANTED") != "all":
            runs = list({group: run for run in runs for group in run[:1]}.values())
        found, seconds = find_all(runs, 2)
        print(table(found, seconds))
        all_of = [one for each in found.values() for one in each]
        missed = [one.fault for one in all_of if one.check is None]
        self.assertGreaterEqual(len(seeded()), 40)
        self.assertEqual(set(found), set(SEEDED))
        self.assertLessEqual(len(missed), len(all_of) // 20, missed)
        self.assertIsNone(find("libplexus-net-seeded.so", "none").check)


if __name__ == "__main__":
    if sys.argv[1:] == ["--all"]:
        more = [(group, library(fault.partition(" ")[2]), fault, inner)
                for group, (library, inner, faults) in OTHERS.items() for fault in faults]
        print(table(*find_all(seeded() + more, 2)))
    else:
        unittest.main()
