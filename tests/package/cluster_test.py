#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/running-on-a-cluster.md as a new user follows it: the Debian packages in a fresh Debian of this machine's release with
Slurm, Open MPI, MPICH, ssh and PyTorch, on nodes that are namespaces (tests/processes/nodes.py) and share its files. Commands and
scripts are read from the page and run by a user who is not root.

Usage: cluster_test.py FOLDER_FOR_THE_SYSTEM PACKAGE.deb...
Ends with 77 and a sentence where there is no root, no debootstrap, no mirror or no namespaces. Takes 5 GB, kept for the next run.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

SOURCES = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCES / "tests" / "processes"))
os.environ["PLEXUS_TEST_SOURCE_DIR"] = str(SOURCES)

import debian  # noqa: E402
import debian_test  # noqa: E402
import job  # noqa: E402
import nodes  # noqa: E402
import page  # noqa: E402
import slurm  # noqa: E402

FOLDER = pathlib.Path(sys.argv[1]).resolve()
# What a cluster has before Plexus comes: launchers, ssh, a user. The first line answers apt-get's questions.
CLUSTER = """echo 'APT::Get::Assume-Yes "true";' > /etc/apt/apt.conf.d/90yes
apt-get update
apt-get install slurmctld slurmd slurm-client munge openmpi-bin mpich libopenmpi-dev libmpich-dev openssh-server iproute2
useradd --create-home --shell /bin/bash user
mkdir ~user/.ssh
ssh-keygen -q -t ed25519 -N '' -f ~user/.ssh/id_ed25519
cp ~user/.ssh/id_ed25519.pub ~user/.ssh/authorized_keys
echo 'StrictHostKeyChecking accept-new' > ~user/.ssh/config
chown -R user:user ~user/.ssh
"""
TRAINED = ". ~/trained/bin/activate; "


def make_base(folder, pytorch):
    """A Debian with the launchers and PyTorch, made once."""
    debian.make_base(FOLDER / "base", debian.release("own"), debian_test.BASE)
    if (folder / "ready").exists():
        return
    debian.say(f"installing Slurm, Open MPI, MPICH and PyTorch in {folder}")
    shutil.rmtree(folder, ignore_errors=True)
    debian.run(["cp", "-a", "--reflink=auto", FOLDER / "base", folder])
    debian.System(folder).run(f"{CLUSTER}{pytorch}\napt-get clean")
    (folder / "ready").touch()


# Two ranks by the package of the backend for PyTorch, which needs nothing but Debian's.
BY_PACKAGE = """
import os, torch, torch.distributed as dist, torch_plexus
child = os.fork()
rank = 1 if child == 0 else 0
dist.init_process_group("plexus", init_method="tcp://127.0.0.1:29777", rank=rank, world_size=2)
sum = torch.full([1000], rank + 1.0)
dist.all_reduce(sum)
assert sum.tolist() == [3.0] * 1000, sum
dist.destroy_process_group()
if child != 0:
    assert os.waitpid(child, 0)[1] == 0
    print("by", torch_plexus.__file__)
"""


def try_backend(system, package):
    debian.say(f"trying {package.name}")
    name = package.name.split("_")[0]
    (system.root / "root/by_package.py").write_text(BY_PACKAGE)
    printed = system.run(f"cd\napt-get install -y -q ./build/package/{package.name}\npython3 by_package.py\ndpkg --purge {name}")
    debian.expect("by /usr/lib/python3/dist-packages/torch_plexus" in printed, f"the package of the backend printed:\n{printed}")


def make_system(root, packages):
    """In a copy of it: Plexus, as the page says, the examples and the backend for PyTorch."""
    apt_get, *by_user = page.blocks("Install", "pytorch.md")[0].splitlines()
    make_base(FOLDER / "cluster-base", apt_get)
    shutil.rmtree(root, ignore_errors=True)
    debian.run(["cp", "-a", "--reflink=auto", FOLDER / "cluster-base", root])
    built = root / "root/build/package"
    built.mkdir(parents=True)
    for package in packages:
        shutil.copy(package, built)
    clone = root / "home/user/plexus"
    shutil.copytree(SOURCES / "integrations", clone / "integrations")
    debian.say("installing Plexus as the page says")
    system = debian.System(root)
    system.run("cd\n" + page.blocks("Install, on every node")[0])
    backends = list(filter(debian_test.is_optional, packages))
    if not backends:
        debian.say("there is no package of the backend for PyTorch to try: it is made where PyTorch is (PLEXUS_TORCH=1)")
    for backend in backends:
        try_backend(system, backend)
    debian.say("making the backend for PyTorch")
    system.run("chown -R user:user ~user; exec runuser -u user -- env HOME=/home/user bash -ec 'cd ~/plexus\n" + "\n".join(by_user).replace(
        "'", "'\\''") + "'")


class Page(slurm.Test):
    ROOT = str(FOLDER / "cluster")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        slurm_folder = pathlib.Path(cls.ROOT, "etc/slurm")
        slurm_folder.mkdir(exist_ok=True)
        for name in ("slurm.conf", "topology.conf"):
            shutil.copy(cls.cluster.folder / name, slurm_folder)
        for node in cls.nodes.values():
            node.run("mkdir", "-p", "/run/sshd")
            cls.start_daemon(node, "/usr/sbin/sshd", "-D")
            cls.wait_for(lambda name=node.name: cls.as_user(f"ssh {name} true").returncode == 0, f"no sshd on {node.name}")
        for name in ("table.sh", "train.sh", "train.py", "elastic.sh"):
            pathlib.Path(cls.ROOT, "home/user", name).write_text(page.block(name))

    @classmethod
    def command(cls, line, node):
        """`line` as the user types it after logging in to a node."""
        return node.enter("setpriv", "--reuid=user", "--regid=user", "--init-groups", "--reset-env", "bash", "-lc", f"cd; {line}")

    @classmethod
    def as_user(cls, line, node=None, seconds=120):
        return subprocess.run(cls.command(line, node or cls.head), stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=job.bound(seconds))

    def printed_by(self, line, **where):
        ended = self.as_user(line, **where)
        self.assertEqual(ended.returncode, 0, f"{line}\n{ended.stdout}")
        return ended.stdout

    def check_table(self, printed):
        self.assertIn("# Out of bounds values : 0 OK", printed)
        self.assertRegex(printed, r"printed by rank 0")

    def check_sums(self, printed, nranks=4, more=""):
        for rank in range(nranks):
            self.assertIn(f"rank {rank} of {nranks}: sum {nranks * (nranks + 1) // 2}{more}\n", printed)

    def lines(self, heading, words):
        """The only block of the section that has these words, by lines."""
        blocks = [block for block in page.blocks(heading) if words in block]
        self.assertEqual(len(blocks), 1, f"blocks of '{heading}' with '{words}'")
        return blocks[0].splitlines()

    def batch(self, script, prefix=""):
        """What a job of sbatch prints, in the user's file."""
        number = re.search(r"\d+", self.printed_by(f"{prefix}sbatch {script}"))[0]

        def state():
            return re.search(r"JobState=(\w+)", self.slurm("scontrol", "show", "job", number, check=True))[1]
        self.wait_until(180, lambda: state() not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"), f"{script} runs on")
        printed = pathlib.Path(self.ROOT, f"home/user/slurm-{number}.out").read_text()
        self.assertEqual(state(), "COMPLETED", printed)
        return printed

    def test_srun_and_a_program_of_your_own(self):
        line, = self.lines("Slurm", "srun -N2 -n4 plexus perf")
        self.check_table(self.printed_by(line))
        self.check_sums(self.printed_by("\n".join(self.lines("A program of your own", "cc launched.c"))))
        printed = self.batch("table.sh")
        self.check_table(printed)
        self.check_sums(printed)

    def test_srun_with_an_id_of_pmi(self):
        line, = self.lines("Slurm", "srun -N2 -n4 plexus perf")
        offered = self.printed_by("srun --mpi=list")
        for plugin in ("pmix", "pmi2"):
            if plugin not in offered:
                print(f"SKIPPED: this Slurm has no --mpi={plugin}: {offered}")
                continue
            self.check_table(self.printed_by(line.replace("srun", f"srun --mpi={plugin}")))

    def test_pytorch_in_jobs_of_slurm(self):
        self.assertRegex(self.batch("train.sh", TRAINED), r"2 ranks, step 200, loss \d")
        self.assertRegex(self.batch("elastic.sh", TRAINED), r"4 ranks, step 200, loss \d")

    def test_switches_become_datacenters(self):
        command, = re.findall(r"`(plexus topo slurm [^`]*)`", page.text())
        line, = re.findall(r"`(link east west [^`]*)`", page.text())
        self.printed_by(f"{command} && echo '{line}' >> fabric")
        # Slurm prefers nodes of one switch where it finds them.
        printed = self.printed_by("PLEXUS_FABRIC_FILE=$PWD/fabric NCCL_DEBUG=INFO srun -w node1,node2 -n4 plexus perf all_reduce -e 64K")
        self.assertEqual(len(re.findall("datacenters 2 ", printed)), 4, printed)

    def choose_mpi(self, of):
        """Debian's `mpirun` and `mpicc` are of either."""
        for name, program in (("mpirun", "mpirun"), ("mpi", "mpicc")):
            nodes.run("chroot", self.ROOT, "update-alternatives", "--set", name, f"/usr/bin/{program}.{of}")

    def check_mpirun(self, of, line, prefix):
        self.choose_mpi(of)
        self.check_table(self.printed_by(f"{prefix}{line}"))
        program = "\n".join(self.lines("mpirun", "mpicc"))
        self.check_sums(self.printed_by(prefix + program), more=", MPI's 10")

    def test_open_mpi(self):
        line, _ = self.lines("mpirun", "# MPICH")
        self.check_mpirun("openmpi", line, "")

    def test_mpich(self):
        _, line = self.lines("mpirun", "# MPICH")
        # UCX takes nodes of one kernel for one host, and would use shared memory between them.
        self.check_mpirun("mpich", line, f"export UCX_TLS=tcp,self UCX_NET_DEVICES={nodes.LINK}; ")

    def test_torchrun(self):
        train, perf = self.lines("torchrun", "--no_python")
        node = self.nodes["node1"]
        self.assertRegex(self.printed_by(TRAINED + train, node=node), r"2 ranks, step 200, loss \d")
        self.check_table(self.printed_by(TRAINED + perf, node=node))

    def test_by_hand(self):
        ranks = [self.start([], self.command(f"{line.partition('#')[0]} -e 1M", self.nodes[f"node{at + 1}"]))
                 for at, line in enumerate(self.lines("By hand", "RANK=0"))]
        first, second = (rank.end(60) for rank in ranks)
        self.assertEqual(second.returncode, 0, second.stderr)
        self.check_table(first.stdout)

    def test_what_it_says_when_it_does_not_start(self):
        rows = dict(re.findall(r"^\| `(.*?)` \| (.*) \|$", page.text(), re.M))
        for command, row in (
                ("srun -N2 -n2 env SLURM_STEP_NODELIST=node[7-8] plexus perf all_reduce", "cannot resolve"),
                ("RANK=1 WORLD_SIZE=2 MASTER_ADDR=node1 MASTER_PORT=29600 PLEXUS_BOOTSTRAP_TIMEOUT=3 plexus perf all_reduce", "no process listens"),
                ("python3 -m http.server 29700 > /dev/null & server=$!; until (: < /dev/tcp/localhost/29700) 2> /dev/null; do sleep 0.1; done; "
                 "RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29700 plexus perf all_reduce; code=$?; kill $server; exit $code", "Address already in use"),
                ("PMI_RANK=0 PMI_SIZE=2 PMI_FD=9 plexus perf all_reduce", "PMI_FD")):
            with self.subTest(row):
                output, = (output for output in rows if row in output)
                ended = self.as_user(command)
                self.assertNotEqual(ended.returncode, 0, ended.stdout)
                self.assertRegex(ended.stdout, ".*".join(map(re.escape, output.replace("node1", "node7").split("..."))))


def main():
    packages = [pathlib.Path(name).resolve() for name in sys.argv[2:]]
    needed = [package for package in packages if not debian_test.is_optional(package)]
    debian.expect(len(needed) == len(debian_test.PACKAGES), f"there must be {len(debian_test.PACKAGES)} packages, not {len(needed)}")
    debian.check_tools("ip", "nsenter", "setpriv")
    del sys.argv[1:]
    make_system(pathlib.Path(Page.ROOT), packages)
    job.main()


if __name__ == "__main__":
    main()
