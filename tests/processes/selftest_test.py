#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PLEXUS_SELFTEST=1: links are tried when a communicator is made, and what is bad is named, and nothing else. Hosts are made of
processes by NCCL_HOSTID, their faults by scripts of net-chaos.

`selftest_test.py --starts 1000` starts that many jobs of 4 hosts without faults, `--faults 20` each fault so often, and prints how
many were named rightly, wrongly and not at all; `--starts 100 --hosts 16` with more hosts.
"""
import collections
import json
import pathlib
import re
import sys
import tempfile

import job

HOSTS = int(sys.argv[4]) if sys.argv[3:4] == ["--hosts"] else 4
FLAGS = ["all_reduce", "-b", "8", "-e", "8", "-n", "1", "-w", "1", "--tsv", "-", *job.limit(120)]
# A rank sends to each other one in each of up to 5 tries: this is its connection to the first of them, whose number counts on.
ONE_LINK = "; ".join(f"send connection={number}: {{}}" for number in range(0, 5 * (HOSTS - 1), HOSTS - 1))
# name: (script of one host's net-chaos, that host, what is named, its fault)
FAULTS = {
    "slow sender": ("send: rate=100Mbit/s", 2, "device", "slow"),
    "late": ("send: delay=25ms", 1, "device", "late"),
    "corrupt receiver": ("recv: flip=90KiB", 3, "device", "corrupt"),
    "slow one way": (ONE_LINK.format(*["rate=100Mbit/s"] * 5), 2, "link", "slow"),
    "cut one way": (ONE_LINK.format(*["cut=64KiB"] * 5), 2, "link", "failed"),
    "cut off": ("send: cut=64KiB", 1, "device", "failed"),
}
# Those that only a machine that gives the ranks their cores can tell from its own delays: not here, but with --faults.
OF_TIME = ("slow sender", "late", "slow one way")
# By rounds.hpp rank 2 meets rank 3 first.
LINKS = {"slow one way": [2, 3], "cut one way": [2, 3]}


def settings(folder, rank, **extra):
    return {"NCCL_HOSTID": f"host{rank}", "NCCL_NET_PLUGIN": "chaos", "PLEXUS_SELFTEST": "1",
            "PLEXUS_SELFTEST_FILE": str(folder / "links"), **extra}


def run_job(folder, scripts=None, **extra):
    """What a job of HOSTS hosts with one rank each found, and what its ranks logged."""
    rendezvous = f"127.0.0.1:{job.free_port()}"
    ranks = [job.Command(job.perf(*FLAGS, "--rank", rank, "--nranks", HOSTS, "--rendezvous", rendezvous),
                         **settings(folder, rank, PLEXUS_CHAOS_SCRIPT=(scripts or {}).get(rank, ""), **extra))
             for rank in range(HOSTS)]
    try:
        ended = [rank.end(150) for rank in ranks]
    finally:
        for rank in ranks:
            rank.stop()
    return json.loads((folder / "links").read_text().splitlines()[-1]), ended


class SelfTest(job.Test):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_fault(self, name, **extra):
        """Where the ranks hardly get their cores, a try may end before the byte with the fault: then there is another."""
        script, host, what, fault = FAULTS[name]
        for _ in range(5):
            report, ended = run_job(self.folder, {host: script}, **extra)
            if report["findings"]:
                break
        found = [(each["what"], each["fault"], each["ranks"]) for each in report["findings"]]
        self.assertEqual(found, [(what, fault, LINKS.get(name, [host]))], report["findings"])
        said = "".join(rank.stderr for rank in ended)
        self.assertEqual(said.count("self-test"), 1, said)  # by one rank
        self.assertIn(report["findings"][0]["sentence"], said)
        return report

    def test_links_without_faults_are_fine_and_all_are_tried(self):
        report, ended = run_job(self.folder)
        self.assertEqual(report["findings"], [])
        pairs = {(link["source"], link["target"]) for link in report["links"]}
        self.assertEqual(pairs, {(a, b) for a in range(HOSTS) for b in range(HOSTS) if a != b})
        for link in report["links"]:
            self.assertGreater(link["gb_per_s"] + link["waited"], 0, link)
            self.assertGreater(link["latency_us"], 0, link)
            self.assertEqual((link["corrupt"], link["fault"], link["error"]), (0, "none", ""))
        for rank in ended:
            self.assertEqual((rank.returncode, rank.stderr), (0, ""))

    def test_each_fault_is_named_where_it_is(self):
        for name in (name for name in FAULTS if name not in OF_TIME):
            with self.subTest(name):
                (self.folder / "links").unlink(missing_ok=True)
                self.run_fault(name)

    def test_changed_bits_that_a_checksum_catches_are_a_failed_link(self):
        report, _ = run_job(self.folder, {3: "recv: flip=90KiB"}, PLEXUS_NET_CHECKSUM="1")
        self.assertEqual([(each["what"], each["fault"], each["ranks"]) for each in report["findings"]],
                         [("device", "failed", [3])], report["findings"])

    def test_memory_of_a_host_is_tried_too(self):
        ended = self.start(job.perf(*FLAGS, "--ranks", 3), **settings(self.folder, 0)).end(60)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        report = json.loads((self.folder / "links").read_text().splitlines()[-1])
        self.assertEqual({link["network"] for link in report["links"]}, {""})
        self.assertEqual(len(report["links"]), 6)

    def test_doctor_draws_a_map(self):
        self.run_fault("corrupt receiver")
        picture = self.folder / "map.svg"
        shown = self.start([job.PLEXUS, "doctor", "--start", self.folder / "links", "--svg", picture]).end(60)
        self.assertEqual((shown.returncode, shown.stderr), (1, ""))
        rows = re.findall(r"(?m)^ +(\d) (\S{4})$", shown.stdout)
        self.assertEqual([row for row, _ in rows], ["0", "1", "2", "3"], shown.stdout)
        self.assertEqual([cells[3] for _, cells in rows], ["C", "C", "C", "."], shown.stdout)
        self.assertIn("arrives changed", shown.stdout)
        self.assertIn(">bits</text>", picture.read_text())
        (self.folder / "links").write_text("{}\n[[[[")
        shown = self.start([job.PLEXUS, "doctor", "--start", self.folder / "links"]).end(60)
        self.assertEqual((shown.returncode, shown.stdout, shown.stderr.count("\n")), (3, "", 1))

    def test_what_is_set_wrongly_gets_a_sentence(self):
        ended = self.start(job.perf(*FLAGS, "--ranks", 2), **settings(self.folder, 0, PLEXUS_SELFTEST="yes")).end(60)
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("PLEXUS_SELFTEST=yes (from the environment) is invalid: expected 0 or 1", ended.stderr)
        ended = self.start(job.perf(*FLAGS, "--ranks", 2),
                           **settings(self.folder, 0, PLEXUS_SELFTEST_FILE="/nonexistent/f", NCCL_DEBUG="WARN")).end(60)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertRegex(ended.stdout + ended.stderr, r"PLEXUS_SELFTEST_FILE=/nonexistent/f cannot be written: ")

    def test_ranks_that_differ_in_the_setting_are_told(self):
        rendezvous = f"127.0.0.1:{job.free_port()}"
        ranks = [self.start(job.perf(*FLAGS, "--rank", rank, "--nranks", 2, "--rendezvous", rendezvous),
                            **settings(self.folder, 0, PLEXUS_SELFTEST=str(rank))) for rank in range(2)]
        for rank in ranks:
            ended = rank.end(60)
            self.assertNotEqual(ended.returncode, 0)
            self.assertIn("PLEXUS_SELFTEST is '0' on rank 0", ended.stderr)


def run_campaign(name, count):
    """How often what was named; for people."""
    script, host, what, fault = FAULTS.get(name, ("", 0, "", ""))
    counts = collections.Counter()
    tries = collections.Counter()
    wanted = [(what, fault, LINKS.get(name, [host]))] if script else []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(count):
            report, _ = run_job(pathlib.Path(folder), {host: script} if script else {})
            found = [(each["what"], each["fault"], each["ranks"]) for each in report["findings"]]
            outcome = "right" if found == wanted else "nothing" if not found else "wrong"
            counts[outcome] += 1
            tries[report["tries"]] += 1
            if outcome == "wrong":
                print(*(each["sentence"] for each in report["findings"]), sep="\n", flush=True)
    print(f"{name}: {count} starts, {counts['right']} right, {counts['wrong']} wrong, {counts['nothing']} named nothing; "
          f"tries {dict(sorted(tries.items()))}", flush=True)
    return counts["wrong"]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--starts"]:
        sys.exit(run_campaign("no fault", int(sys.argv[2])) > int(sys.argv[2]) // 1000)
    if sys.argv[1:2] == ["--faults"]:
        sys.exit(sum(run_campaign(name, int(sys.argv[2])) for name in FAULTS) > 0)
    job.main()
