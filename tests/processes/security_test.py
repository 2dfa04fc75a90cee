#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PLEXUS_NET_SECURITY from outside: whole jobs over TCP in every mode, ranks that differ, and secrets of a job."""
import os
import sys
import tempfile
import time

import job

HOSTS = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_NET": "Socket"}
MODES = ("off", "auth", "tls")


class Security(job.Test):
    def start_hosts(self, *arguments, modes, secrets=None, **environment):
        """Two ranks that are hosts of their own; rank 0 prints. `secrets`: the PLEXUS_SECRET_FILE of each."""
        rendezvous = f"127.0.0.1:{job.free_port()}"
        return [self.start(job.perf(*arguments, "--rank", rank, "--nranks", 2, "--rendezvous", rendezvous, "--json", "-"),
                           NCCL_HOSTID=f"host{rank}", PLEXUS_NET_SECURITY=mode,
                           **{**HOSTS, **environment, **({} if secrets is None else {"PLEXUS_SECRET_FILE": secrets[rank]})})
                for rank, mode in enumerate(modes)]

    def expect_success(self, ranks):
        ended = [rank.end(60) for rank in ranks]
        for each in ended:
            self.assertEqual(each.returncode, 0, each.stderr)
        self.check_report(ended[0])

    def test_jobs_over_tcp_in_every_mode(self):
        for mode in MODES:
            for sockets in ("1", "3"):
                with self.subTest(mode, sockets=sockets):
                    for collective in ("all_reduce", "alltoall", "sendrecv"):
                        self.expect_success(self.start_hosts(
                            collective, "-b", "4", "-e", "8M", "-f", "32", "-n", "2", "-w", "1", *job.limit(50),
                            modes=(mode, mode), NCCL_NSOCKS_PERTHREAD=sockets))

    def test_ranks_of_different_modes_end_at_once_with_both_names(self):
        for modes in (("auth", "tls"), ("off", "auth"), ("tls", "off")):
            with self.subTest(modes):
                began = time.monotonic()
                ended = [rank.end(40) for rank in self.start_hosts("all_reduce", "-e", "1K", modes=modes)]
                for each, mine, peers in zip(ended, modes, reversed(modes)):
                    self.assertNotEqual(each.returncode, 0)
                    # The introducer is in rank 0's process, and its sentence is what rank 0 gets.
                    self.assertRegex(each.stderr, f"PLEXUS_NET_SECURITY is {mine} here and {peers} at its end")
                self.assertLess(time.monotonic() - began, job.bound(20))

    def test_networks_that_know_nothing_of_it_are_refused_with_tls(self):
        folder = {"PLEXUS_PLUGIN_PATH": os.environ.get("PLEXUS_TEST_EXAMPLE_DIR", "build/dev/test-bin"), "NCCL_NET": ""}
        for settings, text in (({"NCCL_NET_PLUGIN": "tcp-v8"}, "does not take that setting, so that it may send in clear"),
                               ({"NCCL_NET_PLUGIN": "ofi"}, "net-ofi cannot encrypt")):
            for each in self.start_hosts("all_reduce", "-e", "1K", modes=("tls", "tls"), **folder, **settings):
                ended = each.end(30)
                self.assertNotEqual(ended.returncode, 0)
                self.assertIn(text, ended.stderr)

    def test_a_secret_of_the_job_is_proved_by_all_or_nobody_joins(self):
        with tempfile.TemporaryDirectory() as made:
            files = []
            for number, text in enumerate(("s" * 32, "t" * 40)):
                files.append(os.path.join(made, str(number)))
                with open(os.open(files[-1], os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
                    file.write(text + "\n")
            rows = ["all_reduce", "-b", "4", "-e", "1K", "-n", "2", "-w", "1"]
            for mode in MODES:
                with self.subTest(mode):
                    self.expect_success(self.start_hosts(*rows, modes=(mode, mode), PLEXUS_SECRET_FILE=files[0]))
            for both in ((files[0], files[1]), (files[0], ""), ("", files[1])):
                with self.subTest(both):
                    ranks = self.start_hosts(*rows, modes=("auth", "auth"), secrets=both, PLEXUS_BOOTSTRAP_TIMEOUT="8")
                    self.assertTrue(all(rank.end(60).returncode != 0 for rank in ranks))
            os.chmod(files[0], 0o640)
            for each in self.start_hosts(*rows, modes=("auth", "auth"), PLEXUS_SECRET_FILE=files[0]):
                ended = each.end(30)
                self.assertNotEqual(ended.returncode, 0)
                self.assertIn("is not for a secret, since others may use it (mode 640): chmod 600", ended.stderr)

    def start_encrypted(self, keys):
        """Two processes that call ncclSetEncryption with these keys, and then all-reduce."""
        program = """
import ctypes, sys
class Encryption(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("mode", ctypes.c_int),
                ("psk", ctypes.c_char_p)]
class Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]
library = ctypes.CDLL(sys.argv[1])
library.ncclGetLastError.restype = ctypes.c_char_p
rank, key = int(sys.argv[2]), sys.argv[3].encode()
def call(result):
    if result != 0:
        sys.exit(library.ncclGetLastError(None).decode())
call(library.ncclSetEncryption(ctypes.byref(Encryption(32, 0xcafebeef, 23203, 1, key))))
made, comm = Id(), ctypes.c_void_p()
call(library.ncclGetUniqueId(ctypes.byref(made)))
call(library.ncclCommInitRank(ctypes.byref(comm), 2, made, rank))
values = (ctypes.c_float * 4)(*[rank + 1.0] * 4)
call(library.ncclAllReduce(values, values, ctypes.c_size_t(4), 7, 0, comm, None))
call(library.ncclCommDestroy(comm))
getenv = ctypes.CDLL(None).getenv  # what plugins see, unlike os.environ
getenv.restype = ctypes.c_char_p
print(values[3], getenv(b"PLEXUS_NET_SECURITY").decode())
"""
        library = os.path.join(os.environ.get("PLEXUS_TEST_LIB_DIR", "build/dev/lib"), "libplexus.so")
        comm_id = f"127.0.0.1:{job.free_port()}"
        return [self.start([sys.executable, "-c", program, library, str(rank), key], NCCL_COMM_ID=comm_id,
                           NCCL_HOSTID=f"host{rank}", PLEXUS_BOOTSTRAP_TIMEOUT="8", **HOSTS) for rank, key in enumerate(keys)]

    def test_the_key_of_a_call_is_that_of_all_connections(self):
        for rank in self.start_encrypted(("k" * 32, "k" * 32)):
            ended = rank.end(60)
            self.assertEqual(ended.stdout, "3.0 tls\n", ended.stderr)
        self.assertTrue(all(rank.end(60).returncode != 0 for rank in self.start_encrypted(("k" * 32, "l" * 32))))
        for rank in self.start_encrypted(("k" * 31, "")):
            self.assertIn("ncclEncryptionConfig_t.psk is too short: it must have 32 characters or more", rank.end(60).stderr)

    def test_a_mode_that_is_none_is_named(self):
        for each in self.start_hosts("all_reduce", "-e", "1K", modes=("strong", "strong")):
            ended = each.end(30)
            self.assertNotEqual(ended.returncode, 0)
            self.assertIn("PLEXUS_NET_SECURITY=strong (from the environment) is invalid: expected off, auth or tls", ended.stderr)


if __name__ == "__main__":
    job.main()
