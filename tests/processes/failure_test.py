#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that die, do not come or take too long: the others end in bounded time and say why."""
import os
import signal

import job

# Rows are printed for minutes: after the first one the job runs.
LONG = ["-b", "1K", "-e", "64M", "-i", "1K", "-n", "20", "-w", "1"]
OVER_TCP = {"NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "1"}
DEATH_SECONDS = 5
REMOTE_ERROR = "(6)"


class Failure(job.Test):
    def start_long_job(self, **environment):
        ranks = self.start_ranks(3, "all_reduce", *LONG, "--tsv", "-", *job.limit(120), **environment)
        self.read_first_row(ranks[0])
        return ranks

    def read_first_row(self, command):
        self.assertTrue(command.read_line().startswith("bytes"))
        command.read_line()

    def check_survivors(self, ranks, dead):
        os.kill(ranks[dead].pid, signal.SIGKILL)
        for rank, command in ranks.items():
            if rank != dead:
                ended = command.end(DEATH_SECONDS)
                self.assertEqual(ended.returncode, 1, ended.stderr)
                self.assertIn(REMOTE_ERROR, ended.stderr)
                self.assertIn(f"rank {dead}", ended.stderr)

    def test_killed_rank_is_named_by_the_others(self):
        for dead in (1, 0):
            with self.subTest(dead=dead):
                self.check_survivors(self.start_long_job(), dead)

    def test_killed_rank_is_named_over_tcp(self):
        self.check_survivors(self.start_long_job(**OVER_TCP), 2)

    def test_killed_child_ends_the_job_and_is_named(self):
        command = self.start(job.perf("all_reduce", *LONG, "--ranks", 3, "--tsv", "-", *job.limit(120)))
        self.read_first_row(command)
        children = job.children_of(command.pid)
        self.assertEqual(len(children), 3)
        os.kill(children[1], signal.SIGKILL)
        ended = command.end(DEATH_SECONDS)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("rank 1 was killed by signal 9", ended.stderr)
        self.assertFalse([child for child in children if job.is_running(child)])

    def test_ranks_do_not_outlive_their_parent(self):
        command = self.start(job.perf("all_reduce", *LONG, "--ranks", 3, "--tsv", "-", *job.limit(120)))
        self.read_first_row(command)
        children = job.children_of(command.pid)
        self.assertEqual(len(children), 3)
        os.kill(command.pid, signal.SIGKILL)
        self.wait_until(DEATH_SECONDS, lambda: not any(map(job.is_running, children)), "orphans are left")

    def test_a_rank_that_never_comes(self):
        ranks = self.start_ranks(3, "all_reduce", "-e", "1K", skip=(2,), PLEXUS_BOOTSTRAP_TIMEOUT="2")
        texts = []
        for command in ranks.values():
            ended = command.end(30)
            self.assertEqual(ended.returncode, 1, ended.stdout)
            texts.append(ended.stderr)
        self.assertIn("2", texts[0])  # the missing rank, or the number of ranks that joined

    def test_settings_that_differ_are_named(self):
        for variable, value in (("PLEXUS_DETERMINISTIC", "1"), ("NCCL_ALGO", "bogus"), ("NCCL_PROTO", "LL")):
            with self.subTest(variable):
                rendezvous = f"127.0.0.1:{job.free_port()}"
                ranks = self.start_ranks(3, "all_reduce", "-e", "1K", skip=(2,), rendezvous=rendezvous)
                ranks |= self.start_ranks(3, "all_reduce", "-e", "1K", skip=(0, 1), rendezvous=rendezvous,
                                          **{variable: value})
                for command in ranks.values():
                    ended = command.end(30)
                    self.assertEqual(ended.returncode, 1, ended.stdout)
                    self.assertIn(f"{variable} is ", ended.stderr)
                    self.assertIn(f"'{value}' on rank 2", ended.stderr)

    def test_nobody_listens(self):
        ranks = self.start_ranks(2, "all_reduce", "-e", "1K", skip=(0,), PLEXUS_BOOTSTRAP_TIMEOUT="2")
        ended = ranks[1].end(30)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("127.0.0.1", ended.stderr)

    def test_the_time_limit_of_a_row(self):
        row = ["-b", "64M", "-e", "64M", "-n", "1000000", "-w", "0"]
        for mode in ("procs", "threads"):
            with self.subTest(mode):
                ended = self.start(job.perf("all_reduce", *row, "--ranks", 2, "--mode", mode, "-T", 1)).end(20)
                self.assertEqual(ended.returncode, 1)
                self.assertIn("no row was finished within 1 s (--timeout)", ended.stderr)


if __name__ == "__main__":
    job.main()
