# SPDX-License-Identifier: Apache-2.0
"""Nodes of a small cluster: each has its own network, host name, processes and /etc/hosts, and the files of this host, or those
of another system below a folder. `head` has the bridge that joins them, and sees the processes of all. Nothing of this is visible outside, and
all of it ends with the processes that hold it, which end with the test."""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

import job

NETWORK = "10.94.0"
LINK = "plexus0"
PREFIX = "plexus-nodes."
DIES_WITH_TEST = ["setpriv", "--pdeathsig", "KILL"]
# NAME FOLDER ROOT STAY. ROOT: of another system, which sees FOLDER too; else empty. Of /sys only what it says of the network is the
# node's: slurmd wants the cgroups that are there.
MAKE_NODE = """hostname "$1" && folder=$2 root=$3 sys=$2/sys.$1 &&
if [ "$root" ]; then
  mount -t proc proc "$root/proc" && mount --rbind /sys "$root/sys" && mount --rbind /dev "$root/dev" &&
  mount -t tmpfs tmpfs "$root/dev/shm" && mount -t tmpfs tmpfs "$root/run" && mkdir -p "$root$folder" && mount --bind "$folder" "$root$folder"
fi && mount --bind "$folder/hosts" "$root/etc/hosts" && mount -t sysfs sysfs "$sys" &&
for part in class/net devices/virtual/net; do mount --bind "$sys/$part" "$root/sys/$part" || exit; done && umount "$sys" &&
ip link set lo up && exec chroot "${root:-/}" bash -c "echo up; $4" """


def needs(*programs):
    """Skips where one of the programs is missing."""
    missing = [program for program in programs if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
    return unittest.skipIf(missing, f"{', '.join(missing)}: not installed (PLEXUS_LAUNCHERS=1 ./dev test does)")


def remove_leftovers():
    """Folders of tests that were killed; their nodes ended with them."""
    for folder in pathlib.Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if not job.is_running(int(folder.name.split(".")[1])):
            shutil.rmtree(folder, ignore_errors=True)


def run(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=job.bound(30), **options).stdout


class Node:
    """`holder`: the process whose end is the end of the node."""

    def __init__(self, name, address, folder, own_processes, root):
        self.name, self.address = name, address
        # --root, --wd: in a chroot a mount namespace alone leads out of it.
        self.namespaces = ["--root", "--wd", "--net", "--uts", "--mount", *(["--pid"] if own_processes else [])]
        processes = ["--pid", "--fork", "--kill-child", "--mount-proc"] if own_processes else []
        (folder / f"sys.{name}").mkdir()
        # As the first process of a node, bash also buries its orphans.
        stay = "{ sleep infinity & wait; }" if own_processes else "exec sleep infinity"
        self.holder = subprocess.Popen(
            [*DIES_WITH_TEST, "unshare", "--net", "--uts", "--mount", *processes, "bash", "-c", MAKE_NODE, "node", name, folder, root, stay],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.pid = self.holder.pid
        if self.holder.stdout.readline() != "up\n":
            raise unittest.SkipTest(f"namespaces cannot be made here: {self.holder.stderr.read().strip()}")
        if own_processes:
            self.pid = job.children_of(self.pid)[0]
        (folder / f"{name}.pid").write_text(str(self.pid))

    def enter(self, *words):
        """The command that runs `words` on this node."""
        return ["nsenter", "--target", str(self.pid), *self.namespaces, *map(str, words)]

    def run(self, *words, **options):
        return run(*self.enter(*words), **options)

    def has_process(self, name):
        names = self.run("sh", "-c", "cat /proc/[0-9]*/comm 2> /dev/null || true").split()
        assert "bash" in names, names  # the node's first process
        return name in names

    def kill(self):
        """As when its power is cut, but that its peers are told so at once (its kernel lives)."""
        self.holder.kill()
        if self.pid != self.holder.pid and job.is_running(self.pid):
            os.kill(self.pid, signal.SIGKILL)
        self.holder.wait()
        self.holder.stdout.close()
        self.holder.stderr.close()


class Cluster:
    """Nodes node1, node2, ..., and head. `folder` has `enter`, which takes the place of ssh: enter NODE COMMAND.
    `root`: the folder of another system, whose files all nodes then share; else empty."""

    def __init__(self, names, root=""):
        if os.geteuid() != 0:
            raise unittest.SkipTest("making namespaces needs root")
        remove_leftovers()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}."))
        self.folder.chmod(0o755)
        self.nodes, self.head, self.root = {}, None, root
        try:
            self.make(names)
        except BaseException:
            self.remove()
            raise

    def make(self, names):
        addresses = {"head": f"{NETWORK}.1", **{name: f"{NETWORK}.{at + 2}" for at, name in enumerate(names)}}
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(
            f"{address} {name}\n" for name, address in addresses.items()))
        self.head = Node("head", addresses["head"], self.folder, own_processes=False, root=self.root)
        self.head.run("ip", "link", "add", LINK, "type", "bridge")
        self.head.run("ip", "addr", "add", f"{self.head.address}/24", "dev", LINK)
        self.head.run("ip", "link", "set", LINK, "up")
        for name in names:
            self.nodes[name] = node = Node(name, addresses[name], self.folder, own_processes=True, root=self.root)
            self.head.run("ip", "link", "add", name, "type", "veth", "peer", "name", LINK, "netns", node.pid)
            self.head.run("ip", "link", "set", name, "master", LINK, "up")
            node.run("ip", "addr", "add", f"{node.address}/24", "dev", LINK)
            node.run("ip", "link", "set", LINK, "up")
        enter = self.folder / "enter"
        enter.write_text("#!/bin/sh\n# enter [-OPTION]... NODE COMMAND\n"
                         "while [ \"${1#-}\" != \"$1\" ]; do shift; done\nnode=$1\nshift\n"
                         f"exec nsenter --target \"$(cat {self.folder}/$node.pid)\" --root --wd --net --uts --mount --pid sh -c \"$*\"\n")
        enter.chmod(0o755)

    def remove(self):
        for node in [*self.nodes.values(), *([self.head] if self.head else [])]:
            if node.holder.poll() is None:
                node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Test(job.Test):
    """One cluster for all tests of a class."""
    NAMES = ["node1", "node2"]
    ROOT = ""

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(cls.NAMES, cls.ROOT)
        cls.addClassCleanup(cls.cluster.remove)
        cls.head, cls.nodes = cls.cluster.head, cls.cluster.nodes
