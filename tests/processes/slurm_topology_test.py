#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`plexus topo slurm` takes the topology.conf that slurmctld takes, and no other: each file below goes to it, and, where Slurm is
installed, to a real slurmctld."""
import getpass
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import unittest

import job
import slurm

LEAVES = "SwitchName=s0 Nodes=tux[0-3]\nSwitchName=s1 Nodes=tux[4-7]\n"
ROOT = LEAVES + "SwitchName=root Switches=s[0-1]\n"


def chain(nparents):
    """A tree that is written from its root down."""
    return "".join(f"SwitchName=s{at} Switches=s{at + 1}\n" for at in range(nparents)) + f"SwitchName=s{nparents} Nodes=tux[0-3]\n"


RIGHT = {
    "two switches": LEAVES,
    "a root": ROOT,
    "the root first": "SwitchName=root Switches=s0,s1\n" + LEAVES,
    "spaces around =": "SwitchName = s0 Nodes = tux[0-3]\nSwitchName\t=s1 Nodes=\ttux4\n",
    "quotes": 'SwitchName="s0" Nodes="tux[0-3]" LinkSpeed="900"\n',
    "a name with a space": 'SwitchName="rack one" Nodes=tux1\n',
    "spaces in a list": 'SwitchName=s0 Nodes="tux1 tux2,tux3"\n',
    "one line on three": "SwitchName=s0 \\\n  Nodes=tux[0-3],\\\ntux[8-11]\n",
    "a comment after a backslash": "SwitchName=s0 Nodes=tux1,\\ # more\ntux2\n",
    "a continued last line": "SwitchName=s0 Nodes=tux1 \\",
    "comments": "# SwitchName=s0\n  # indented\n" + LEAVES + "SwitchName=s2 Nodes=tux8 # LinkSpeed=x\n",
    "a comment with a backslash": "# one \\\n" + LEAVES,
    "an escaped #": "SwitchName=s\\#0 Nodes=tux1\n",
    "upper and lower case": "SWITCHNAME=s0 nodes=tux1 linkspeed=5\n",
    "carriage returns": LEAVES.replace("\n", "\r\n"),
    "no end of line": "SwitchName=s0 Nodes=tux1",
    "operators": "SwitchName+=s0 Nodes*=tux1\n",
    "Nodes twice": "SwitchName=s0 Nodes=tux0 Nodes=tux[1-2]\n",
    "speeds": "".join(f"SwitchName=s{at} Nodes=tux{at} LinkSpeed={speed}\n"
                      for at, speed in enumerate(["4294967295", "0x10", "4k", "UNLIMITED", "infinite", "010"])),
    "hosts that are not configured": "SwitchName=s0 Nodes=tux1,gone[1-9]\n",
    "a host below two switches": "SwitchName=s0 Nodes=tux[0-3]\nSwitchName=s1 Nodes=tux[3-4]\n",
    "a switch below two": LEAVES + "SwitchName=r0 Switches=s0\nSwitchName=r1 Switches=s[0-1]\n",
    "two lists of numbers": "SwitchName=s0 Nodes=tux1,r[1-2]n[01-16]\n",
    "an open range": "SwitchName=s0 Nodes=tux[1-]\n",
    "empty entries": "SwitchName=s0 Nodes=,tux1,,tux2,\n",
    "a comment within quotes": LEAVES + 'SwitchName=s2 Nodes="tux8 # tux9"\n',
    "an entry that no host has": "SwitchName=s0 Nodes=tux*\n",
    "a bracket that is not closed": "SwitchName=s0 Nodes=tux1,a[0-3\n",
    "a name in brackets is no list": "SwitchName=s[0-1] Nodes=tux[0-3]\n",
    "the largest range": "SwitchName=s0 Nodes=tux1,a[0-65535]\n",
    "a deep tree": chain(21),
    "a deeper one from its leaf": "\n".join(reversed(chain(40).splitlines())) + "\n",
    "an included file": ("Include more.conf\n" + LEAVES, {"more.conf": "SwitchName=s2 Nodes=tux8\n"}),
    "a file included by one": ("include d/a.conf \n", {"d/a.conf": "INCLUDE b.conf\n", "d/b.conf": LEAVES, "b.conf": LEAVES}),
    "an included file that is empty": ("Include more.conf\n" + LEAVES, {"more.conf": ""}),
}
WRONG = {
    "a child that is missing": LEAVES + "SwitchName=root Switches=s[0-2]\n",
    "a child that is itself": LEAVES + "SwitchName=root Switches=s0,root\n",
    "a circle": "SwitchName=a Switches=b\nSwitchName=b Switches=a\n" + LEAVES,
    "too deep from its root": chain(22),
    "a list of switches has a name": "SwitchName=s[0-1] Nodes=tux[0-3]\nSwitchName=root Switches=s[0-1]\n",
    "a switch twice": LEAVES + "SwitchName=s1 Nodes=tux8\n",
    "Nodes and Switches": LEAVES + "SwitchName=s2 Nodes=tux8 Switches=s0\n",
    "neither Nodes nor Switches": LEAVES + "SwitchName=s2\n",
    "an unknown key": LEAVES + "SwitchName=s2 Nodes=tux8 Colour=red\n",
    "an unknown first key": "Switch=s0 Nodes=tux1\n",
    "Nodes first": "Nodes=tux1 SwitchName=s0\n",
    "no value": "SwitchName=s0 Nodes=\n",
    "no key": LEAVES + "s2 tux8\n",
    "words after": "SwitchName=s0 Nodes=tux1 tux2\n",
    "a space in a name": "SwitchName=s 0 Nodes=tux1\n",
    "a quote attached": 'SwitchName="s0"x Nodes="tux1 tux2"x\n',
    "a speed below zero": "SwitchName=s0 Nodes=tux1 LinkSpeed=-1\n",
    "a speed in words": "SwitchName=s0 Nodes=tux1 LinkSpeed=fast\n",
    "a speed that is too large": "SwitchName=s0 Nodes=tux1 LinkSpeed=4294967296\n",
    "no numbers": "SwitchName=s0 Nodes=tux[]\n",
    "a range from high to low": "SwitchName=s0 Nodes=tux[3-1]\n",
    "letters in a range": "SwitchName=s0 Nodes=tux[a-c]\n",
    "text after the last bracket": "SwitchName=s0 Nodes=tux[1-3]-ib\n",
    "a range that is too large": "SwitchName=s0 Nodes=tux1,a[0-65536]\n",
    "a comma before the bracket": "SwitchName=s0 Nodes=tux[1,]\n",
    "a bad list of switches": LEAVES + "SwitchName=root Switches=s[0-x]\n",
    "a list of switches that is not closed": LEAVES + "SwitchName=root Switches=s[0-1\n",
    "switches and blocks": LEAVES + "BlockName=b0 Nodes=tux[0-3]\n",
    "an included file that is wrong": ("Include more.conf\n" + LEAVES, {"more.conf": "SwitchName=s1\n"}),
    "an indented Include": (" Include more.conf\n" + LEAVES, {"more.conf": "SwitchName=s2 Nodes=tux8\n"}),
    "words after Include": ("Include more.conf x\n" + LEAVES, {"more.conf": "SwitchName=s2 Nodes=tux8\n"}),
    "Include with a pattern of names": ("Include %c.conf\n" + LEAVES, {"plexus.conf": "SwitchName=s2 Nodes=tux8\n"}),
}
CONFIGURATION = """ClusterName=plexus
SlurmctldHost=localhost
SlurmctldPort={port}
SlurmUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
ProctrackType=proctrack/linuxproc
SelectType=select/linear
TopologyPlugin=topology/tree
MpiDefault=none
NodeName=tux[0-11] NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES
"""


class SlurmTopology(unittest.TestCase):
    def write(self, file):
        """The folder of a topology.conf and of what it includes."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        text, more = file if isinstance(file, tuple) else (file, {})
        for name, included in {"topology.conf": text, **more}.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(included.encode())
        return folder

    def convert(self, folder):
        return subprocess.run([job.PLEXUS, "topo", "slurm", folder / "topology.conf"], capture_output=True, text=True,
                              timeout=job.bound(20))

    def ask_slurmctld(self, folder):
        """None: it starts. Else what it says before it ends."""
        (folder / "state").mkdir()
        configuration = folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(port=job.free_port(), user=getpass.getuser(), folder=folder))
        daemon = subprocess.Popen([slurm.sbin("slurmctld"), "-D", "-i", "-f", configuration], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=job.clean_environment())
        ended = threading.Timer(job.bound(30), daemon.kill)
        ended.start()
        output = ""
        try:
            for line in daemon.stderr:
                output += line
                if "fatal:" in line or "backup_controller not specified" in line:
                    return None if "fatal:" not in line else output
            self.fail("slurmctld neither starts nor ends: " + output)
        finally:
            ended.cancel()
            daemon.kill()
            daemon.wait()
            daemon.stderr.close()

    def test_each_file_is_taken_or_refused(self):
        for files, code in ((RIGHT, 0), (WRONG, 2)):
            for name, file in files.items():
                with self.subTest(name):
                    folder = self.write(file)
                    ended = self.convert(folder)
                    self.assertEqual(ended.returncode, code, ended.stdout + ended.stderr)
                    for line in ended.stderr.splitlines():
                        self.assertRegex(line, f"^plexus: {re.escape(str(folder))}/topology.conf: line [0-9]+: ")
                        self.assertTrue(code or line.endswith(" names no host, and is left out"), line)
                    self.assertTrue(not code or ended.stderr.count("\n") == 1, ended.stderr)

    @unittest.skipUnless(shutil.which(slurm.sbin("slurmctld")), "slurmctld: not installed (PLEXUS_LAUNCHERS=1 ./dev test does)")
    def test_slurmctld_agrees(self):
        cause = self.ask_slurmctld(self.write(ROOT))
        if cause:
            self.skipTest("slurmctld does not start here: " + cause)
        for files, right in ((RIGHT, True), (WRONG, False)):
            for name, file in files.items():
                with self.subTest(name):
                    cause = self.ask_slurmctld(self.write(file))
                    self.assertEqual(cause is None, right, cause)
                    if cause:
                        self.assertRegex(cause, "(?i)switch|topology.conf|node name")


if __name__ == "__main__":
    job.main()
