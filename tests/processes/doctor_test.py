#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`plexus doctor`: asks one process of a running job what all ranks do."""
import json
import os
import pathlib
import pickle
import signal
import subprocess
import tempfile

import job

# Rows are printed for minutes: after the first one the job runs.
LONG = ["-b", "1K", "-e", "64M", "-i", "1K", "-n", "20", "-w", "1", "--tsv", "-"]


class Doctor(job.Test):
    def doctor(self, *arguments, code=0):
        ended = subprocess.run([job.PLEXUS, "doctor", *map(str, arguments)], capture_output=True, text=True,
                               timeout=job.bound(60), env=job.clean_environment(), check=False)
        self.assertEqual(ended.returncode, code, ended.stderr)
        return ended.stderr if code else ended.stdout

    def start_job(self, **environment):
        ranks = self.start_ranks(3, "all_reduce", *LONG, *job.limit(120), **environment)
        ranks[0].read_line()
        ranks[0].read_line()
        return ranks

    def classes(self, pid):
        """activity -> ranks, of the job's communicator."""
        comm, = json.loads(self.doctor(pid, "--json"))["comms"]
        self.assertEqual(comm["nranks"], 3)
        found = {}
        for each in comm["classes"]:
            found.setdefault(each["examples"][0]["activity"], []).extend(
                example["rank"] for example in each["examples"])
        return found

    def test_shows_what_all_ranks_do(self):
        ranks = self.start_job()
        self.assertIn(str(ranks[1].pid), self.doctor().split())
        found = self.classes(ranks[1].pid)
        self.assertEqual(sorted(sum(found.values(), [])), [0, 1, 2])
        text = self.doctor(ranks[0].pid)
        self.assertIn("rank 0 of 3: ", text)
        self.assertIn("all_reduce(count ", text)
        self.assertIn("all 3 ranks of comm 0x", text)
        mine, = json.loads(self.doctor(ranks[2].pid, "--json", "--here"))["ranks"]
        self.assertEqual(mine["rank"], 2)
        self.assertGreater(mine["calls"], 20)
        self.assertLessEqual(len(mine["recent"]), 256)

    def test_names_a_stopped_rank(self):
        ranks = self.start_job()
        os.kill(ranks[1].pid, signal.SIGSTOP)
        self.wait_until(60, lambda: self.classes(ranks[0].pid).get("waiting"), "nobody waits")
        self.assertEqual(self.classes(ranks[2].pid)["silent"], [1])
        self.assertIn(f":{ranks[1].pid}) does not answer", self.doctor(ranks[2].pid))
        self.doctor(ranks[1].pid, code=1)
        os.kill(ranks[1].pid, signal.SIGCONT)
        ranks[0].read_line()  # it goes on

    def test_writes_records_that_pytorch_reads(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks = self.start_job()
            os.kill(ranks[1].pid, signal.SIGSTOP)
            self.wait_until(60, lambda: self.classes(ranks[0].pid).get("waiting"), "nobody waits")
            self.assertIn("2 records written", self.doctor(ranks[2].pid, "--flight-recorder", f"{folder}/job_"))
            os.kill(ranks[1].pid, signal.SIGCONT)
            self.assertEqual(sorted(os.listdir(folder)), ["job_0", "job_2"], "a stopped process cannot say what it did")
            for rank in (0, 2):
                record = pickle.loads(pathlib.Path(folder, f"job_{rank}").read_bytes())
                group, = record["pg_config"].values()
                self.assertEqual(group["ranks"], "[0, 1, 2]")
                names = {entry["profiling_name"] for entry in record["entries"]}
                self.assertIn("nccl:all_reduce", names)
                numbers = [entry["collective_seq_id"] for entry in record["entries"]]
                self.assertEqual(numbers, list(range(numbers[0], numbers[0] + len(numbers))))
                states = [entry["state"] for entry in record["entries"]]
                self.assertEqual(states, ["completed"] * (len(states) - 1) + ["started"])
        self.assertIn("PID", self.doctor("--flight-recorder", "x", code=2))

    def test_lists_programs_ranks_and_who_waits(self):
        ranks = self.start_job()
        os.kill(ranks[1].pid, signal.SIGSTOP)
        self.wait_until(60, lambda: self.classes(ranks[0].pid).get("waiting"), "nobody waits")
        rows = [line.split(maxsplit=1) for line in self.doctor().splitlines()]
        self.assertEqual(rows[0][0], "PID")
        found = {int(pid): text for pid, text in rows[1:]}
        for rank, command in ranks.items():
            self.assertIn("plexus perf all_reduce -b 1K", found[command.pid])
            self.assertIn("? " if rank == 1 else f" {rank} of 3 ", found[command.pid])
        self.assertIn("does not answer", found[ranks[1].pid])
        self.assertRegex(found[ranks[0].pid] + found[ranks[2].pid], r"rank [02]: waiting for rank [012], \d+ s, in all_")
        listed = {each["pid"]: each for each in json.loads(self.doctor("--json"))}
        self.assertEqual(listed[ranks[2].pid]["ranks"], "2 of 3")
        os.kill(ranks[1].pid, signal.SIGCONT)
        ranks[0].read_line()

    def test_lists_several_ranks_of_a_process(self):
        command = self.start(job.perf("all_reduce", "--ranks", "4", "--mode", "threads", *LONG, *job.limit(120)))
        command.read_line()
        command.read_line()
        row, = [line for line in self.doctor().splitlines() if line.split()[0] == str(command.pid)]
        self.assertIn(" 0-3 of 4 ", row)

    def test_says_why_not(self):
        ranks = self.start_job(PLEXUS_DOCTOR="0")
        self.assertIn("PLEXUS_DOCTOR=0", self.doctor(ranks[0].pid, code=1))
        self.assertIn("no communicator", self.doctor(os.getpid(), code=1))


if __name__ == "__main__":
    job.main()
