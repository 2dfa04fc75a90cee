#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the port of NCCL's RAS protocol says of a job in which something has gone wrong: which rank, why, and how soon.

`ras_faults_test.py --faults 50` has 50 jobs of each fault, with 2 to 6 ranks on one host, in shared memory or over TCP, the guilty
rank and the moment drawn by --seed; `--clean 1000` as many jobs without a fault, of which nothing may be said. --jobs N at once.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import signal
import statistics
import sys
import tempfile
import time
import unittest

import job
import leaving_test
import ras_test

OVER_TCP = leaving_test.OVER_TCP
# fault: causes that explain it, and whether it is one of a network
FAULTS = {
    "killed": ({"dead"}, False),  # a process
    "left": ({"dead"}, False),  # by _exit, in the middle of the job
    "stopped": ({"stopped"}, False),
    "late": ({"not_called"}, False),  # a rank does something else
    "mismatched": ({"failed"}, False),  # a rank makes another call
    "aborted": ({"failed"}, False),
    "in plugin": ({"in_plugin"}, True),  # isend does not return
    "link lost": ({"link"}, True),  # what a rank sends does not arrive
}
SECONDS = 60  # for the right verdict
PAUSE_S = 0.02

Found = collections.namedtuple("Found", ["seconds", "first", "verdict"])


class FaultyJob(leaving_test.ScriptedRanks):
    """Each rank has a port of its own, so that one that is stopped is not asked."""

    def start_scripted(self):
        number = len(self.ports)
        self.ports.append(job.free_port())
        self.addCleanup(job.give_back_port, self.ports[-1])
        self.environment = {"NCCL_RAS_ADDR": f"127.0.0.1:{self.ports[-1]}", "NCCL_DEBUG": "NONE", **self.settings,
                            **(self.odd if number == self.guilty else {})}
        return super().start_scripted()

    def start_job(self, nranks, guilty, settings, odd):
        self.ports, self.guilty, self.settings, self.odd = [], guilty, settings, odd
        return self.start_world(nranks)

    def verdicts(self, asked):
        """None: the process that is asked does not answer, as one that has just failed."""
        asker = ras_test.Ras()
        asker.port, asker.read_seconds = self.ports[asked], 5
        try:
            return asker.status()["verdicts"]
        except (OSError, ValueError):
            return None
        finally:
            asker.doCleanups()

    def watch(self, asked, guilty, causes, struck):
        """Asks until the guilty rank is named with the cause. The first that was said of any rank comes back, too."""
        first = None
        while time.monotonic() < struck + job.bound(SECONDS):
            for verdict in self.verdicts(asked) or []:
                first = first or verdict
                if verdict["cause"] in causes and names(verdict, guilty):
                    return Found(time.monotonic() - struck, first, verdict)
            time.sleep(PAUSE_S)  # between questions
        return Found(None, first, None)

    def suffer(self, fault, nranks, guilty, asked, moment_s, over_tcp):
        """The job's fault, and what was said of it."""
        causes, is_of_network = FAULTS[fault]
        with tempfile.TemporaryDirectory() as folder:
            block = pathlib.Path(folder) / "block"
            settings = OVER_TCP if over_tcp or is_of_network else {}
            settings |= {"NCCL_NET_PLUGIN": "chaos"} if is_of_network else {}
            odd = {"in plugin": {"PLEXUS_CHAOS_BLOCK": f"isend@{block}"},
                   "link lost": {"PLEXUS_CHAOS_SCRIPT": f"send: stall={2 + int(100 * moment_s)}KiB/60s"}}.get(fault, {})
            ranks = self.start_job(nranks, guilty, settings, odd)
            others = [rank for number, rank in enumerate(ranks) if number != guilty]
            steps = 10 + int(100 * moment_s)
            if fault in ("late", "mismatched", "aborted", "left"):
                for rank in ranks:
                    rank.tell("steps", "world", steps, 0)
                for rank in ranks:
                    self.assertEqual(rank.answer().code, 0)
                struck = time.monotonic()
                if fault != "late":
                    ranks[guilty].tell(*{"mismatched": ("broadcast", "world", guilty), "aborted": ("abort", "world"), "left": ("exit",)}[fault])
                for rank in others:
                    rank.tell("sum_until_error" if fault != "mismatched" else "sum", "world")
            else:
                for rank in ranks:
                    rank.tell("sum_until_error", "world")
                if fault == "link lost":  # by the bytes that it has sent
                    self.wait_until(30, lambda: self.stands_still(asked), "the link is not lost")
                else:
                    time.sleep(moment_s)  # the moment of the fault
                struck = time.monotonic()
                if fault == "in plugin":
                    block.touch()
                elif fault != "link lost":
                    os.kill(ranks[guilty].process.pid, signal.SIGKILL if fault == "killed" else signal.SIGSTOP)
            try:
                return self.watch(asked, guilty, causes, struck)
            finally:
                block.unlink(missing_ok=True)
                self.doCleanups()

    def stands_still(self, asked):
        """Two answers with the same number of calls; the first after the fault."""
        asker = ras_test.Ras()
        asker.port = self.ports[asked]
        counts = [[rank["collective_counts"] for rank in asker.comm()["ranks"]] for _ in range(2)]
        asker.doCleanups()
        return counts[0] == counts[1]

    def runTest(self):
        """For campaigns."""


def names(verdict, guilty):
    return guilty in (verdict["rank"], *verdict["ranks"]) or f"rank {guilty} " in verdict["sentence"]


class RasFaults(FaultyJob):
    def test_each_fault_is_named_with_its_rank(self):
        for number, fault in enumerate(FAULTS):
            with self.subTest(fault):
                found = self.suffer(fault, 3, guilty=number % 3, asked=(number + 1) % 3, moment_s=0.1, over_tcp=False)
                self.assertIsNotNone(found.verdict, f"first said: {found.first}")

    def test_nothing_is_said_of_a_sound_job(self):
        self.assertEqual(self.say_of_sound_job(3, {}), [])

    def say_of_sound_job(self, nranks, settings):
        ranks = self.start_job(nranks, None, settings, {})
        for rank in ranks:
            rank.tell("steps", "world", 100, 0)
        said = [verdict for asked in range(nranks) for verdict in self.verdicts(asked) or []]
        for rank in ranks:
            self.assertEqual(rank.answer().code, 0)
        self.doCleanups()
        return said


def draw(fault, number, seed):
    dice = random.Random(f"{fault} {number} {seed}")
    nranks = dice.randint(2, 6)
    guilty, asked = dice.sample(range(nranks), 2)
    return {"fault": fault, "nranks": nranks, "guilty": guilty, "asked": asked, "moment_s": dice.random() / 2, "over_tcp": dice.random() < 0.5}


def report(fault, drawn, found):
    right = [each.seconds for each in found if each.verdict]
    other_rank = [(each, where) for each, where in zip(found, drawn) if each.first and not names(each.first, where["guilty"])]
    other_cause = [(each, where) for each, where in zip(found, drawn)
                   if each.first and names(each.first, where["guilty"]) and each.first["cause"] not in FAULTS[fault][0]]
    times = f"{statistics.median(right):.2f}, {sorted(right)[int(0.99 * (len(right) - 1))]:.2f}, {max(right):.2f}" if right else ""
    print(f"| {fault} | {len(found)} | {len(right)} | {len(other_rank)} | {len(other_cause)} | {times} |", flush=True)
    for each, where in other_rank + other_cause:
        print(f"  {where}: first said {each.first['cause']}: {each.first['sentence']}", flush=True)
    for each, where in zip(found, drawn):
        if not each.verdict:
            print(f"  {where}: not named", flush=True)
    return len(found) - len(right)


def run_campaign(options):
    missed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        if options.faults:
            print("| fault | jobs | named with the cause | another rank first | another cause first | seconds: median, p99, most |\n| --- | --- | --- | --- | --- | --- |")
        for fault in FAULTS if options.faults else ():
            drawn = [draw(fault, number, options.seed) for number in range(options.faults)]
            missed += report(fault, drawn, list(pool.map(lambda each: FaultyJob().suffer(**each), drawn)))
        sound = [draw("none", number, options.seed) for number in range(options.clean)]
        said = list(pool.map(lambda each: RasFaults().say_of_sound_job(each["nranks"], OVER_TCP if each["over_tcp"] else {}), sound))
        if sound:
            print(f"no fault: of {sum(map(bool, said))} of {len(sound)} jobs something is said")
            for each, where in zip(said, sound):
                for verdict in each:
                    print(f"  {where}: {verdict['cause']}: {verdict['sentence']}")
    return missed > 0 or any(said)


if __name__ == "__main__":
    if sys.argv[1:2] in (["--faults"], ["--clean"]):
        parser = argparse.ArgumentParser()
        for flag, otherwise in (("--faults", 0), ("--clean", 0), ("--seed", 1), ("--jobs", 1)):
            parser.add_argument(flag, type=int, default=otherwise)
        sys.exit(run_campaign(parser.parse_args()))
    job.main()
