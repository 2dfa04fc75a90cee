# SPDX-License-Identifier: Apache-2.0
"""A real Slurm on the nodes of nodes.py: munge and slurmctld on head, slurmd on each node."""
import os
import pathlib
import secrets
import subprocess

import job
import nodes

PROGRAMS = ["slurmctld", "slurmd", "srun", "sbatch", "munged"]
TOPOLOGY = "SwitchName=root Switches=east,west\nSwitchName=east Nodes={first}\nSwitchName=west Nodes={rest}\n"
# What a machine without systemd, with few cores and without a data base of accounts can do.
CONFIGURATION = """ClusterName=plexus
SlurmctldHost=head({head})
SlurmUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
TmpFS={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
TopologyPlugin=topology/tree
MpiDefault=none
ReturnToService=2
SlurmdTimeout=4
MessageTimeout=3
KillWait=2
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=10:00
"""


def sbin(program):
    """Debian has daemons where PATH of users does not lead."""
    return next((found for found in (pathlib.Path("/usr/sbin") / program, pathlib.Path("/sbin") / program) if found.exists()),
                program)


def version():
    """Of Slurm: 22, 24."""
    output = subprocess.run([sbin("slurmd"), "-V"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout
    return int(output.split()[1].split(".")[0])


class Test(nodes.Test):
    """A Slurm for all tests of a class."""
    NAMES = ["node1", "node2", "node3"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = cls.cluster.folder
        for name in ["state", *cls.NAMES]:
            (folder / name).mkdir()
        (folder / "slurm.conf").write_text(CONFIGURATION.format(
            head=cls.head.address, folder=folder,
            nodes="\n".join(f"NodeName={node.name} NodeAddr={node.address} CPUs=2 State=UNKNOWN" for node in cls.nodes.values())))
        if version() >= 24:  # which wants a cgroup file system, as a container need not have
            (folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        (folder / "topology.conf").write_text(TOPOLOGY.format(first=cls.NAMES[0], rest=",".join(cls.NAMES[1:])))
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        cls.environment = job.clean_environment(SLURM_CONF=str(folder / "slurm.conf"))
        munge = [f"--{what}-file={folder}/munge.{what}" for what in ("key", "pid", "log", "seed")]
        cls.start_daemon(cls.head, sbin("munged"), "--foreground", "--force", f"--socket={folder}/munge.socket", *munge)
        cls.wait_for(lambda: (folder / "munge.socket").exists(), lambda: "munged has no socket: " + cls.tail("munged.out"))
        cls.start_daemon(cls.head, sbin("slurmctld"), "-D")
        for node in cls.nodes.values():
            cls.start_daemon(node, sbin("slurmd"), "-D", "-N", node.name)
        cls.wait_for(lambda: cls.slurm("sinfo", "-h", "-o", "%T %D").split() == ["idle", str(len(cls.NAMES))],
                     lambda: "not all nodes became idle: " + cls.slurm("sinfo") + cls.tail("slurmctld.log") + cls.tail("slurmd.out"))

    @classmethod
    def start_daemon(cls, node, *words):
        with open(cls.cluster.folder / f"{pathlib.Path(words[0]).name}.out", "a") as log:
            daemon = subprocess.Popen([*nodes.DIES_WITH_TEST, *node.enter(*words)], env=cls.environment, stdin=subprocess.DEVNULL,
                                      stdout=log, stderr=subprocess.STDOUT)

        def stop():
            daemon.kill()
            daemon.wait()
        cls.addClassCleanup(stop)  # before the nodes are removed, and with them what a daemon started there

    @classmethod
    def tail(cls, log):
        path = cls.cluster.folder / log
        return "".join(path.read_text().splitlines(keepends=True)[-20:]) if path.exists() else f"no {log}"

    @classmethod
    def slurm(cls, *words, check=False):
        """What a command of Slurm prints, on head."""
        ended = subprocess.run(cls.head.enter(*words), env=cls.environment, stdin=subprocess.DEVNULL, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=job.bound(60))
        if check and ended.returncode != 0:
            raise AssertionError(f"{words} ended with {ended.returncode}: {ended.stdout}")
        return ended.stdout

    @classmethod
    def wait_for(cls, condition, what):
        try:
            cls().wait_until(30, condition, "in time")
        except AssertionError as error:
            raise AssertionError(what() if callable(what) else what) from error

    def srun(self, *words, **environment):
        """A command under way on head."""
        return self.start(words, [*nodes.DIES_WITH_TEST, *self.head.enter("srun")], **{
            "SLURM_CONF": self.environment["SLURM_CONF"], **environment})
