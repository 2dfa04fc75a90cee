#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks started by the launchers of Open MPI and MPICH, by the variables of torchrun and Slurm, by flags."""
import os
import pathlib
import re
import shutil
import unittest

import job

SIZES = ["-b", "8", "-e", "64K", "-f", "32", "-n", "3", "-w", "1", "-r", "all", *job.limit(50)]
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"{program} is not installed")


class Launchers(job.Test):
    LAUNCHED = pathlib.Path(os.environ.get("PLEXUS_TEST_EXAMPLE_DIR", "build/dev/test-bin")) / "launched"

    def run_collectives(self, prefix, nranks, **environment):
        for collective in job.COLLECTIVES:
            with self.subTest(collective):
                command = self.start(job.perf(collective, *SIZES, "--json", "-"), prefix, **environment)
                report = self.check_report(command.end(60))
                self.assertEqual((report["ranks"], report["mode"]), (nranks, "joined"))

    @needs("mpirun.openmpi")
    def test_open_mpi(self):
        self.run_collectives(["mpirun.openmpi", "--oversubscribe", "-np", "3"], 3, **AS_ROOT)

    @needs("mpirun.mpich")
    def test_split_into_jobs_that_run_at_once(self):
        for split, group in (("MOD 2", 2), ("DIV 3", 3), ("OR 0xff", 4)):
            ended = self.start(job.perf("all_reduce", *SIZES), ["mpirun.mpich", "-np", "4"], NCCL_TESTS_SPLIT=split).end(60)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertEqual(len(re.findall(r"^#  Rank +\d+ Group ", ended.stdout, re.MULTILINE)), group, ended.stdout)
            self.assertIn(f"the table is of the {group} of 4 processes", ended.stderr)
        ended = self.start(job.perf("all_reduce", *SIZES), ["mpirun.mpich", "-np", "2"], NCCL_TESTS_SPLIT="MOD 0").end(60)
        self.assertIn("NCCL_TESTS_SPLIT: expects", ended.stderr)
        self.assertNotEqual(ended.returncode, 0)

    @needs("mpirun.mpich")
    def test_mpich(self):
        self.run_collectives(["mpirun.mpich", "-np", "3"], 3)

    @needs("mpirun.mpich")
    def test_processes_with_several_threads_and_ranks_of_each(self):
        command = self.start(job.perf("reduce_scatter", *SIZES, "-t", 2, "-g", 3, "--json", "-"), ["mpirun.mpich", "-np", "2"])
        self.assertEqual(self.check_report(command.end(60))["ranks"], 12)
        command = self.start(job.perf("broadcast", *SIZES, "-g", 2), ["mpirun.mpich", "-np", "2"])
        ended = command.end(60)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(re.findall(r"#  Rank +(\d+) .* device +(\d+)", ended.stdout),
                         [("0", "0"), ("1", "1"), ("2", "0"), ("3", "1")])

    @needs("mpirun.mpich")
    def test_a_given_rendezvous_is_used(self):
        command = self.start(job.perf("all_reduce", *SIZES, "--json", "-", "--rendezvous", f"127.0.0.1:{job.free_port()}"),
                             ["mpirun.mpich", "-np", "2"])
        self.check_report(command.end(60))

    def run_with_variables(self, variables_of_rank):
        ranks = [self.start(job.perf("all_reduce", *SIZES, "--json", "-"), **variables_of_rank(rank)) for rank in range(2)]
        for rank in (1, 0):
            ended = ranks[rank].end(60)
            self.assertEqual(ended.returncode, 0, ended.stderr)
        self.check_report(ended)

    def test_variables_of_torchrun(self):
        port = str(job.free_port())
        self.run_with_variables(lambda rank: {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                              "MASTER_PORT": port})

    def test_variables_of_slurm(self):
        step = str(job.free_port())  # a number that no other test uses at the moment
        self.run_with_variables(lambda rank: {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": "2",
                                              "SLURM_STEP_NUM_NODES": "1", "SLURM_JOB_ID": "plexus-test",
                                              "SLURM_STEP_ID": step})

    def test_a_forced_choice_is_for_the_measured_collective_alone(self):
        for collective, forced, algorithm in [("all_reduce", "tree", "tree"), ("all_gather", "bruck", "bruck"),
                                              ("alltoall", "bruck", "bruck")]:
            with self.subTest(collective):
                ranks = self.start_ranks(2, collective, *SIZES, "--algo", forced, "--json", "-")
                report = self.check_report(ranks[0].end(60))
                self.assertEqual({row["algorithm"] for row in report["rows"] if row["count"] > 0}, {algorithm})
                self.assertEqual(ranks[1].end(60).returncode, 0)

    def test_several_hosts_without_an_address_is_a_usage_error(self):
        ended = self.start(job.perf("all_reduce"), PMI_RANK="0", PMI_SIZE="4", MPI_LOCALNRANKS="2").end(60)
        self.assertEqual(ended.returncode, 2)
        self.assertIn("PMI does not say where rank 0 is", ended.stderr)

    @needs("mpirun.openmpi")
    def test_without_pmix_ranks_of_one_host_meet_on_loopback(self):
        ended = self.start([self.LAUNCHED], ["mpirun.openmpi", "--oversubscribe", "-np", "3", "env", "-u", "PMIX_RANK"],
                           NCCL_DEBUG="INFO", **AS_ROOT).end(60)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(ended.stdout.count(": 3 ranks meet at 127.0.0.1:"), 3, ended.stdout)
        self.assertEqual(ended.stdout.count("of 3: sum 6\n"), 3, ended.stdout)

    def run_launched(self, **environment):
        return self.start([self.LAUNCHED], **environment).end(60)

    def test_a_program_that_no_launcher_started_is_told_what_to_do(self):
        ended = self.run_launched()
        self.assertEqual(ended.returncode, 1)
        self.assertIn("no launcher has started this process", ended.stderr)
        self.assertIn("MASTER_ADDR", ended.stderr)

    def test_a_job_of_one_rank(self):
        ended = self.run_launched(SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="1", SLURM_STEP_ID="0", SLURM_JOB_ID="1")
        self.assertEqual((ended.returncode, ended.stdout), (0, "rank 0 of 1: sum 1\n"), ended.stderr)

    def test_a_wrong_variable_is_named(self):
        ended = self.run_launched(SLURM_PROCID="two", SLURM_STEP_NUM_TASKS="4", SLURM_STEP_ID="0")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("SLURM_PROCID='two'", ended.stderr)

    def test_ranks_started_here_in_spite_of_a_launcher(self):
        report = self.run_perf("all_reduce", *SIZES, "--ranks", 2, SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="8",
                               SLURM_STEP_ID="0")
        self.assertEqual((report["ranks"], report["mode"]), (2, "procs"))


if __name__ == "__main__":
    job.main()
