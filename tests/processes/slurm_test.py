#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of a real Slurm: munge, slurmctld and three slurmd on nodes that are namespaces (slurm.py), with the programs
and scripts of docs/running-on-a-cluster.md."""
import os
import pathlib
import re
import subprocess
import unittest

import job
import nodes
import page
import slurm

SIZES = ["-b", "8", "-e", "64K", "-f", "32", "-n", "3", "-w", "1", *job.limit(50)]
ENDLESS = ["-b", "1M", "-e", "1M", "-n", "1000000", "-c", "0", *job.limit(100)]
LAUNCHED = str(pathlib.Path(os.environ.get("PLEXUS_TEST_EXAMPLE_DIR", "build/dev/test-bin")) / "launched")
INFO = {"NCCL_DEBUG": "INFO"}
PYTHON = os.environ.get("PLEXUS_TEST_TORCH_PYTHON")


def torchrun_starts():
    store = "import torch.distributed as dist; dist.TCPStore('127.0.0.1', 0, 1, True, wait_for_workers=False)"
    return subprocess.run([PYTHON, "-c", store], stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0


@nodes.needs(*slurm.PROGRAMS)
class Slurm(slurm.Test):
    def srun_perf(self, *options, **environment):
        ended = self.srun("-w", "node1,node2", "-n", "4", *options, *job.perf("all_reduce", *SIZES, "--json", "-"),
                          **environment).end(60)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        return ended

    def check_sums(self, text, nranks):
        self.assertEqual(sorted(line for line in text.splitlines() if line.startswith("rank ")),
                         [f"rank {rank} of {nranks}: sum {nranks * (nranks + 1) // 2}" for rank in range(nranks)], text)

    def test_srun_needs_no_address(self):
        report = self.check_report(self.srun_perf())
        self.assertEqual((report["ranks"], report["mode"]), (4, "joined"))

    def test_ranks_meet_on_the_first_node_and_say_their_job(self):
        output = self.srun_perf(**INFO).stdout
        for rank, node in enumerate(["node1", "node1", "node2", "node2"]):
            self.assertRegex(output, fr"rank {rank} of Slurm job \d+ step 0, {node}: 4 ranks meet at "
                                   fr"{self.nodes['node1'].address}:(2\d|3[01])\d\d\d\n")

    def test_pmi2_and_pmix_pass_on_an_id_with_a_secret(self):
        for plugin, name in (("pmi2", "PMI"), ("pmix", "PMIx job slurm.pmix")):
            with self.subTest(plugin):
                if f"\t{plugin}\n" not in self.slurm("srun", "--mpi=list", check=True):
                    self.skipTest(f"this Slurm has no plugin {plugin}")
                output = self.srun_perf(f"--mpi={plugin}", **INFO).stdout
                self.assertRegex(output, fr"rank 3 of {name}.*Slurm job \d+ step 0, node2: 4 ranks meet at")
                self.assertIn("bootstrap: listening at", output)  # rank 0 has made the id

    def test_a_program_without_mpi(self):
        for options in (["-n4"], ["-N1", "-n2"], ["-n1", "-N1"], ["-n4", "--mpi=pmix"], ["-n4", "-m", "cyclic"]):
            with self.subTest(options):
                nranks = next(int(option[2:]) for option in options if option.startswith("-n"))
                ended = self.srun("-w", "node1" if "-N1" in options else "node1,node2", *options, LAUNCHED).end(60)
                self.assertEqual(ended.returncode, 0, ended.stderr)
                self.check_sums(ended.stdout, nranks)

    def test_a_name_that_does_not_resolve_is_named_by_every_rank(self):
        ended = self.srun("-w", "node1,node2", "-n2", "env", "SLURM_STEP_NODELIST=gone[07-08]", *job.perf("all_reduce")).end(60)
        self.assertNotEqual(ended.returncode, 0)
        for rank, node in enumerate(["node1", "node2"]):
            self.assertRegex(ended.stderr, fr"rank {rank} of Slurm job \d+ step 0, {node}: rank 0 is on 'gone07' by "
                                           "SLURM_STEP_NODELIST: .*: cannot resolve 'gone07'")

    def test_rank_0_elsewhere_than_on_the_first_node_says_the_remedy(self):
        hosts = self.cluster.folder / "arbitrary"
        hosts.write_text("node2\nnode1\n")
        arguments = ["-m", "arbitrary", "-n2", *job.perf("all_reduce", *SIZES)]
        ended = self.srun(*arguments, SLURM_HOSTFILE=str(hosts), PLEXUS_BOOTSTRAP_TIMEOUT="5").end(60)
        self.assertNotEqual(ended.returncode, 0)
        for rank, node, cause in ((0, "node2", "rank 0 is on 'node2'"), (1, "node1", "the first rank there is 1")):
            self.assertRegex(ended.stderr, fr"rank {rank} of Slurm job \d+ step 0, {node}: the ranks look for rank 0 on 'node1', the "
                                           fr"first node of SLURM_STEP_NODELIST, but {cause} .*--mpi=pmi2")
        ended = self.srun("--mpi=pmi2", *arguments, SLURM_HOSTFILE=str(hosts)).end(60)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)

    def batch(self, script, **environment):
        """Submits a script of the page and returns what it printed."""
        path, out = self.cluster.folder / script, self.cluster.folder / f"{script}.out"
        path.write_text(page.block(script))
        folders = [*([pathlib.Path(PYTHON).parent] if PYTHON else []), pathlib.Path(job.PLEXUS).resolve().parent]
        search = ":".join(map(str, [*folders, os.environ["PATH"]]))
        ended = self.start(["--parsable", "-w", "node1,node2", "-o", out, f"--chdir={self.cluster.folder}", path], self.head.enter("sbatch"),
                           SLURM_CONF=self.environment["SLURM_CONF"], PATH=search, **environment).end(30)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        number = ended.stdout.strip()
        self.wait_until(120, lambda: self.state(number) not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"), f"{script} runs on")
        printed = out.read_text() if out.exists() else ""
        self.assertEqual(self.state(number), "COMPLETED", printed + self.tail("slurmctld.log"))
        return printed

    def state(self, number):
        return re.search(r"JobState=(\w+)", self.slurm("scontrol", "show", "job", number, check=True))[1]

    def test_the_batch_job_of_the_page(self):
        (self.cluster.folder / "launched").symlink_to(pathlib.Path(LAUNCHED).resolve())
        printed = self.batch("table.sh")
        self.assertRegex(printed, r"printed by rank 0 \(Slurm job \d+ step 0, node1\)")
        self.assertIn("# Out of bounds values : 0 OK", printed)
        self.check_sums(printed, 4)

    @unittest.skipUnless(PYTHON, "torch_plexus was not built (PLEXUS_TORCH=1 ./dev test installs PyTorch)")
    def test_pytorch_trains(self):
        (self.cluster.folder / "train.py").write_text(page.block("train.py"))
        for script, nranks in (("train.sh", 2), ("elastic.sh", 4)):
            with self.subTest(script):
                if script == "elastic.sh" and not torchrun_starts():
                    self.skipTest("torchrun of this PyTorch cannot start: it is built without libuv")
                printed = self.batch(script, OMP_NUM_THREADS="1")
                self.assertRegex(printed, fr"{nranks} ranks, step \d+, loss \d")

    def start_endless(self, where):
        """The command, once all four ranks have met, and the number of its job."""
        command = self.srun("-w", where, "-n4", *job.perf("all_reduce", *ENDLESS), **INFO)
        complete, number = 0, None
        while complete < 4:
            line = command.read_line()
            complete += "Init COMPLETE" in line
            number = number or (re.search(r"Slurm job (\d+)", line) or [None, None])[1]
        return command, number

    def wait_until_gone(self, *names):
        for name in names:
            self.wait_until(20, lambda name=name: not self.nodes[name].has_process("plexus"), f"ranks are left on {name}")

    def test_scancel_leaves_nothing(self):
        command, number = self.start_endless("node1,node2")
        self.slurm("scancel", number, check=True)
        ended = command.end(30)
        self.assertNotEqual(ended.returncode, 0)
        self.wait_until_gone("node1", "node2")
        self.wait_until(20, lambda: self.state(number) == "CANCELLED", "not cancelled")

    def test_a_killed_node_is_named_and_the_job_ends(self):
        command, number = self.start_endless("node1,node3")
        self.nodes["node3"].kill()
        ended = command.end(60)
        self.assertNotEqual(ended.returncode, 0)
        self.assertRegex(ended.stderr, fr"rank [01] \(Slurm job {number} step 0, node1\): .*rank [23] \(node3:\d+\) died or lost "
                                       "its connection")
        self.wait_until_gone("node1")
        self.wait_until(40, lambda: not self.slurm("squeue", "-h", "-j", number, "-t", "running,pending").strip(), "the job runs on")
        self.check_report(self.srun_perf())

    def test_switches_become_datacenters(self):
        fabric = self.cluster.folder / "fabric"
        switches = subprocess.run([job.PLEXUS, "topo", "slurm", "--depth", "1", self.cluster.folder / "topology.conf"], check=True,
                                  capture_output=True, text=True, timeout=job.bound(20)).stdout
        fabric.write_text(switches + "link east west gbit 1 ms 1\n")
        output = self.srun_perf(PLEXUS_FABRIC_FILE=str(fabric), **INFO).stdout
        self.assertEqual(len(re.findall("datacenters 2 ", output)), 4, output)


if __name__ == "__main__":
    job.main()
