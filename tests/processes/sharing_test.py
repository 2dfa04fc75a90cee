#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks of one host that cannot open each other's memory in /proc: in user or pid namespaces, not dumpable. They ask each other
for it. Those that cannot make it (neither memfd nor /dev/shm, a limit of the size of files) use the network, and one line
says why."""
import ctypes
import os
import pathlib
import resource
import shutil
import struct
import subprocess
import sys
import tempfile

import job
import leaving_test

NOBODY = 65534
INNER = "PLEXUS_TEST_INNER"
FILE_BYTES = 64 * 1024
SYS_MEMFD_CREATE = 319  # x86-64
EPERM = 1
LIBRARY = str(pathlib.Path(job.PLEXUS).parents[1] / "lib/libnccl.so.2")
INIT_ALL = """
import ctypes, sys
nccl = ctypes.CDLL(sys.argv[1])
comms, values, float32, total = (ctypes.c_void_p * 2)(), (ctypes.c_float * 2)(1, 2), 7, 0
assert nccl.ncclCommInitAll(comms, 2, None) == 0
assert nccl.ncclGroupStart() == 0
for rank in range(2):
    at = ctypes.byref(values, 4 * rank)
    assert nccl.ncclAllReduce(at, at, ctypes.c_size_t(1), float32, total, ctypes.c_void_p(comms[rank]), None) == 0
assert nccl.ncclGroupEnd() == 0
assert list(values) == [3, 3]
"""


def forbid(system_call):
    """A seccomp filter of this process, as containers have."""
    load, jump_if_equal, give_back = 0x20, 0x15, 0x06
    allow, refuse = 0x7FFF0000, 0x00050000 | EPERM
    program = b"".join(struct.pack("HBBI", *each) for each in (
        (load, 0, 0, 0), (jump_if_equal, 0, 1, system_call), (give_back, 0, 0, refuse), (give_back, 0, 0, allow)))
    code = ctypes.create_string_buffer(program)
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    if libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(header)), 0, 0) != 0:  # PR_SET_SECCOMP
        raise OSError(ctypes.get_errno(), "seccomp")


def can_run(*command):
    return shutil.which(command[0]) is not None and \
        subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0


class Sharing(leaving_test.ScriptedRanks):
    def expect_calls(self, why, nranks=3):
        """All kinds of calls work, and the log has `why`; "": the ranks share memory."""
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o777)
            self.environment = {**self.environment, "NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": f"{folder}/log.%p"}
            ranks = self.start_world(nranks)
            self.expect_sum(ranks, "world")
            self.split(ranks, "world", "child", 0)
            self.assertEqual(self.tell_all(ranks, "broadcast", "child", 1), [2] * nranks)
            ranks[0].tell("send", "child", 1, 3)
            self.assertEqual(self.tell_all(ranks[1:2], "recv", "child", 0), [3])
            self.assertEqual(ranks[0].answer().code, 0)
            for name in ("child", "world"):
                self.tell_all(ranks, "destroy", name)
            lines = [line for file in pathlib.Path(folder).iterdir() for line in file.read_text().splitlines()]
            output = [line for line in lines if "use the network instead of shared memory" in line]
            self.assertEqual(len(output), 2 if why else 0, lines)  # of each communicator
            self.assertTrue(not why or why in output[0], output)

    def test_user_namespaces(self):
        self.prefix = ("unshare", "-Ur")
        if not can_run(*self.prefix):
            self.skipTest("no user namespaces here")
        self.expect_calls("")

    def test_not_dumpable(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become another user")
        self.environment = {"PLEXUS_TEST_USER": str(NOBODY), "HOME": "/nowhere"}
        self.expect_calls("")

    def test_a_pid_namespace_with_the_proc_of_another(self):
        if INNER in os.environ:
            self.expect_calls("")
            return
        if not can_run("unshare", "-pf"):
            self.skipTest("no pid namespaces here")
        ended = subprocess.run(["unshare", "-pf", "--kill-child", sys.executable, "-B", __file__, self.id().split(".", 1)[1]],
                               env={**os.environ, INNER: "1"}, capture_output=True, text=True, check=False,
                               timeout=job.bound(leaving_test.SECONDS))
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_each_in_a_pid_namespace(self):
        self.prefix = ("unshare", "-pf", "--mount-proc", "--kill-child")
        if not can_run(*self.prefix):
            self.skipTest("no pid namespaces here")
        self.expect_calls("")

    def test_memfd_is_refused(self):
        self.prepare = lambda: forbid(SYS_MEMFD_CREATE)
        self.expect_calls("")

    def test_memfd_is_refused_and_dev_shm_is_not_there(self):
        if not can_run("unshare", "-m"):
            self.skipTest("no mount namespaces here")
        self.prefix = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o ro none /dev/shm && exec "$@"', "sh")
        self.prepare = lambda: forbid(SYS_MEMFD_CREATE)
        self.expect_calls("memfd_create")

    def test_a_limit_of_the_size_of_files(self):
        self.prepare = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
        self.expect_calls("ulimit -f")

    def test_a_limit_of_the_size_of_files_in_one_process(self):
        """Its ranks share memory as processes do where they may not use addresses."""
        limit = ["prlimit", f"--fsize={FILE_BYTES}"]
        for command in (job.perf("all_reduce", "--ranks", "2", "-b", "8", "-e", "64K", "-n", "1"),
                        [sys.executable, "-c", INIT_ALL, LIBRARY]):
            with self.subTest(command[0]):
                ended = self.start(command, prefix=limit, NCCL_P2P_DISABLE="1", NCCL_DEBUG="WARN").end(60)
                self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
                self.assertIn("ulimit -f", ended.stdout + ended.stderr)


if __name__ == "__main__":
    job.main()
