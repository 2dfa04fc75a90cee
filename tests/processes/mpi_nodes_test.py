#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mpirun of Open MPI and of MPICH over two nodes (nodes.py; its `enter` takes the place of ssh): `plexus perf` and a program
without MPI, which get their unique id by PMIx and PMI, and docs/examples/mpi_bootstrap.c, which sends it by MPI_Bcast."""
import os
import pathlib
import shutil
import subprocess

import job
import nodes

SIZES = ["-b", "8", "-e", "64K", "-f", "32", "-n", "3", "-w", "1", *job.limit(50)]
BUILT = pathlib.Path(os.environ.get("PLEXUS_TEST_BIN_DIR", "build/dev/bin")).resolve().parent
EXAMPLES = pathlib.Path(os.environ.get("PLEXUS_TEST_SOURCE_DIR", ".")) / "docs" / "examples"
LAUNCHED = str(pathlib.Path(os.environ.get("PLEXUS_TEST_EXAMPLE_DIR", "build/dev/test-bin")) / "launched")


class OverNodes(nodes.Test):
    def over_nodes(self, *words):
        raise NotImplementedError

    def end(self, words, **environment):
        # UCX (MPICH) takes nodes of one kernel for one host, and would use shared memory between them.
        command = self.start(words, [*nodes.DIES_WITH_TEST, *self.head.enter()], OMPI_ALLOW_RUN_AS_ROOT="1",
                             OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", UCX_TLS="tcp,self", UCX_NET_DEVICES=nodes.LINK, **environment)
        ended = command.end(60)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        return ended

    def check_perf(self, launcher):
        report = self.check_report(self.end(self.over_nodes(*job.perf("all_reduce", *SIZES, "--json", "-"))))
        self.assertEqual((report["ranks"], report["mode"]), (4, "joined"))
        output = self.end(self.over_nodes(*job.perf("all_reduce", *SIZES), NCCL_DEBUG="INFO")).stdout
        for rank, node in enumerate(["node1", "node1", "node2", "node2"]):
            self.assertRegex(output, fr"rank {rank} of {launcher}.*, {node}: 4 ranks meet at {self.nodes['node1'].address}:")

    def check_example(self):
        output = self.end(self.over_nodes(LAUNCHED)).stdout
        for rank in range(4):
            self.assertIn(f"rank {rank} of 4: sum 10\n", output)

    def check_bootstrap_by_mpi(self, compiler):
        if not shutil.which(compiler):
            self.skipTest(f"{compiler} is not installed")
        # Debian 13 has the compilers in packages without the header.
        if subprocess.run([compiler, "-fsyntax-only", "-x", "c", "-"], input=b"#include <mpi.h>\n", capture_output=True, timeout=job.bound(60),
                          check=False).returncode != 0:
            self.skipTest(f"{compiler} has no mpi.h")
        program = self.cluster.folder / f"mpi_bootstrap.{compiler}"
        subprocess.run([compiler, EXAMPLES / "mpi_bootstrap.c", f"-I{BUILT / 'include'}", f"-L{BUILT / 'lib'}", "-lplexus",
                        f"-Wl,-rpath,{BUILT / 'lib'}", "-o", program], check=True, timeout=job.bound(60))
        output = self.end(self.over_nodes(program)).stdout
        for rank in range(4):
            self.assertIn(f"rank {rank} of 4: sum 10, MPI's 10\n", output)


@nodes.needs("mpirun.openmpi")
class OpenMpi(OverNodes):
    def over_nodes(self, *words, **environment):
        exported = [word for name, value in environment.items() for word in ("-x", f"{name}={value}")]
        return ["mpirun.openmpi", "--mca", "plm_rsh_agent", self.cluster.folder / "enter", "--mca", "oob_tcp_if_include", nodes.LINK,
                "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", nodes.LINK, "--host", "node1:2,node2:2", "-np", "4",
                *exported, *words]

    def test_perf(self):
        self.check_perf("Open MPI job")

    def test_a_program_without_mpi(self):
        self.check_example()

    def test_the_id_by_mpi(self):
        self.check_bootstrap_by_mpi("mpicc.openmpi")

    def test_pmix_alone(self):
        unset = [word for name in ("RANK", "SIZE", "LOCAL_SIZE") for word in ("-u", f"OMPI_COMM_WORLD_{name}")]
        output = self.end(self.over_nodes("env", *unset, LAUNCHED, NCCL_DEBUG="INFO")).stdout
        for rank in range(4):
            self.assertRegex(output, fr"rank {rank} of PMIx job .*: 4 ranks meet at")
            self.assertIn(f"rank {rank} of 4: sum 10\n", output)


@nodes.needs("mpirun.mpich")
class Mpich(OverNodes):
    def over_nodes(self, *words, **environment):
        exported = [word for name, value in environment.items() for word in ("-genv", name, value)]
        return ["mpirun.mpich", "-launcher", "ssh", "-launcher-exec", self.cluster.folder / "enter", "-hosts", "node1:2,node2:2",
                "-iface", nodes.LINK, "-np", "4", *exported, *words]

    def test_perf(self):
        self.check_perf("PMI")

    def test_a_program_without_mpi(self):
        self.check_example()

    def test_the_id_by_mpi(self):
        self.check_bootstrap_by_mpi("mpicc.mpich")


class ByHand(nodes.Test):
    def test_variables_alone(self):
        ranks = [self.start(job.perf("all_reduce", *SIZES, "--json", "-"), self.nodes[f"node{rank + 1}"].enter(), RANK=str(rank),
                            WORLD_SIZE="2", MASTER_ADDR="node1", MASTER_PORT="29500") for rank in range(2)]
        self.assertEqual(ranks[1].end(60).returncode, 0)
        self.assertEqual(self.check_report(ranks[0].end(60))["ranks"], 2)


if __name__ == "__main__":
    job.main()
