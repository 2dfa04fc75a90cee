# SPDX-License-Identifier: Apache-2.0
"""What the tests of this folder share: running the built `plexus`, ranks as processes of their own, and
a main() that makes a visible SKIP of a file whose tests were all skipped.

Every wait has a bound, stretched by PLEXUS_TEST_TIME_FACTOR in sanitizer builds. Processes are ended by
their own process id, by the test that started them.
"""
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import time
import unittest

PLEXUS = str(pathlib.Path(os.environ.get("PLEXUS_TEST_BIN_DIR", "build/dev/bin")) / "plexus")
TIME_FACTOR = float(os.environ.get("PLEXUS_TEST_TIME_FACTOR", "1"))
COLLECTIVES = ["all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "alltoall", "gather",
               "scatter", "sendrecv"]
SKIPPED = 77
# Variables that would change the meaning of a run's flags.
LAUNCHER_PREFIXES = ("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "MPI_", "NCCL_", "PLEXUS_BOOTSTRAP")
LAUNCHER_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def bound(seconds):
    return seconds * TIME_FACTOR


def limit(seconds):
    """The flag by which `plexus perf` ends a job of its own accord."""
    return ["-T", str(round(bound(seconds)))]


def clean_environment(**extra):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(LAUNCHER_PREFIXES) and name not in LAUNCHER_NAMES}
    return {**kept, **extra}


reserved_ports = {}  # until this process ends, or they are given back


def free_port():
    """A port that a rank opens later. It lies below those that the system gives to other sockets in between, and no other
    test gets it: an abstract socket has its name while this process lives."""
    lowest = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(100):
        port = random.randrange(min(10000, lowest // 2), lowest)
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0plexus-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:  # it is another test's, or in use
            reservation.close()
            continue
        reserved_ports[port] = reservation
        return port
    raise AssertionError("no free port was found in 100 tries")


def give_back_port(port):
    reserved_ports.pop(port).close()


class Ended(subprocess.CompletedProcess):
    """A finished command with its texts."""

    def json(self):
        return json.loads(self.stdout)


class Command:
    """A command under way. end() waits, stop() kills; both are safe to call again."""
    stdin = subprocess.DEVNULL

    def __init__(self, arguments, prefix=(), **environment):
        self.process = subprocess.Popen([*prefix, *map(str, arguments)], stdin=self.stdin,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=clean_environment(**environment))

    @property
    def pid(self):
        return self.process.pid

    def read_line(self):
        """The next line of stdout. The command itself must be bounded (-T)."""
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"ended too early: {self.process.args}\n{self.process.stderr.read()}")
        return line

    def end(self, seconds):
        try:
            out, error = self.process.communicate(timeout=bound(seconds))
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, error = self.process.communicate()
            raise AssertionError(f"still running after {bound(seconds)} s: {self.process.args}\n{out}\n{error}") from None
        return Ended(self.process.args, self.process.returncode, out, error)

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


def perf(*arguments):
    return [PLEXUS, "perf", *map(str, arguments)]


def children_of(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def is_running(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


class Test(unittest.TestCase):
    def start(self, arguments, prefix=(), **environment):
        command = Command(arguments, prefix, **environment)
        self.addCleanup(command.stop)
        return command

    def run_perf(self, *arguments, seconds=60, **environment):
        """Runs `plexus perf` with JSON on stdout; it must succeed with nothing wrong. Returns the object."""
        ended = self.start(perf(*arguments, "--json", "-"), **environment).end(seconds)
        return self.check_report(ended)

    def check_report(self, ended):
        self.assertEqual(ended.returncode, 0, ended.stderr)
        report = ended.json()
        self.assertEqual(report["wrong_total"], 0, ended.stderr)
        self.assertTrue(report["rows"])
        for row in report["rows"]:
            self.assertEqual(row["wrong"], 0, row)
        return report

    def start_ranks(self, nranks, *arguments, skip=(), rendezvous=None, **environment):
        """Ranks of one job as separate commands, by rank; rank 0 prints."""
        rendezvous = rendezvous or f"127.0.0.1:{free_port()}"
        return {rank: self.start(perf(*arguments, "--rank", rank, "--nranks", nranks, "--rendezvous", rendezvous),
                                 **environment)
                for rank in range(nranks) if rank not in skip}

    def wait_until(self, seconds, condition, what):
        deadline = time.monotonic() + bound(seconds)
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.02)  # polling interval; not a synchronisation


def main():
    result = unittest.main(module="__main__", exit=False, verbosity=1).result
    for _, reason in result.skipped:
        print(f"SKIPPED: {reason}")
    if result.wasSuccessful() and result.testsRun == len(result.skipped):
        sys.exit(SKIPPED)
    sys.exit(not result.wasSuccessful())
