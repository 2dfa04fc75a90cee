#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of two ranks over a network in the jail (isolate=1) whose plugin ends its helper process in one of its functions.
The job must go on with the right result, or end with an error that names plugin and function; it never crashes or hangs.

Usage: jail_test.py           a function of each kind of crash, and a crash in each function: a test; all of them, each in one
                              and in both ranks, with PLEXUS_TEST_PLANTED=all (`./dev nightly`)
       jail_test.py cost      latency and bandwidth of net-socket with and without the jail: prints only
"""
import collections
import concurrent.futures
import json
import os
import pathlib
import statistics
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "processes"))
import job  # noqa: E402

EXAMPLES = os.environ.get("PLEXUS_TEST_EXAMPLE_DIR", "build/dev/test-bin")
PLUGIN = os.path.join(EXAMPLES, "libplexus-net-crashing.so")
VENDORS = [os.path.join(EXAMPLES, f"libnccl-net-tcp-{version}.so") for version in ("v8", "v12")]  # of NCCL's ABI
ENTRIES = """init device_count properties listen connect accept register_send register_recv deregister isend irecv test
             close_send close_recv close_listen net_path finalize""".split()
KINDS = {  # kind -> what its error says of it
    "segv": r"was ended by signal 11 \(SIGSEGV\)",
    "abort": r"was ended by signal 6 \(SIGABRT\)",
    "exit": "ended the process with exit code 0",
    "kill": r"was ended by signal 9 \(SIGKILL\)",
    "hang": "did not return within",
    "overwrite": "was ended by signal",
}
NOT_CALLED = {"net_path"}  # by a job of one datacenter
Ended = collections.namedtuple("Ended", "codes text reached")


def run(entry, kind, ranks, number=1, plugin=PLUGIN):
    """How a job ends in which the plugin crashes in that call of `entry`, in these ranks."""
    rendezvous = f"127.0.0.1:{job.free_port()}"
    with tempfile.TemporaryDirectory(prefix="plexus-jail-") as folder:
        mark = os.path.join(folder, "reached")
        commands = []
        for rank in range(2):
            crash = {"PLEXUS_TEST_CRASH": f"{entry}:{kind}:{number}", "PLEXUS_TEST_CRASH_MARK": mark} if rank in ranks else {}
            commands.append(job.Command(
                job.perf("all_reduce", "-b", "8", "-e", "1M", "-f", "128", "-n", "1", "-w", "0", *job.limit(40), "--rank", rank,
                         "--nranks", 2, "--rendezvous", rendezvous), NCCL_HOSTID=f"host{rank}", NCCL_SOCKET_IFNAME="lo",
                NCCL_NET_PLUGIN=f"{plugin}?isolate=1,net-socket", NCCL_ALLNET_ENABLE="1", NCCL_DEBUG="WARN",
                PLEXUS_JAIL_TIMEOUT_MS=str(round(job.bound(1000))), **crash))
        try:
            ended = [command.end(60) for command in commands]
        finally:
            for command in commands:
                command.stop()
        return Ended([each.returncode for each in ended], "".join(each.stdout + each.stderr for each in ended),
                     os.path.exists(mark))


def points():
    everywhere = [(entry, kind, ranks) for entry in ENTRIES if entry not in NOT_CALLED for kind in KINDS for ranks in ((1,), (0, 1))]
    overruns = [(entry, "overrun", ranks) for entry in ("isend", "irecv") for ranks in ((1,), (0, 1))]
    later = [(entry, kind, (1,)) for entry in ("isend", "irecv", "test") for kind in KINDS]  # in their 20th call
    return [(*point, 1) for point in everywhere + overruns] + [(*point, 20) for point in later]


class Jail(unittest.TestCase):
    def check(self, entry, kind, ranks, number):
        ended = run(entry, kind, ranks, number)
        self.assertTrue(ended.reached, "the crash did not happen")
        for code in ended.codes:
            self.assertIn(code, (0, 1), ended.text)
        why = "wrote past the end of the memory that it was given" if kind == "overrun" else KINDS[kind]
        self.assertRegex(ended.text, rf"net plugin \S*crashing\S* {why}.* in {entry};")
        return "went on" if not any(ended.codes) else "error"

    def test_a_crash_becomes_an_error_that_names_plugin_and_function_or_the_next_network_takes_over(self):
        chosen = points()
        if os.environ.get("PLEXUS_TEST_PLANTED") != "all":
            few = [next(point for point in chosen if point[1] == kind and point[0] == "isend") for kind in (*KINDS, "overrun")]
            chosen = few + [(entry, "segv", (0, 1), 1) for entry in ENTRIES if entry not in NOT_CALLED]
        else:
            self.assertGreaterEqual(len(chosen), 200)
        outcomes = collections.defaultdict(collections.Counter)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for point, pending in [(point, pool.submit(self.check, *point)) for point in chosen]:
                with self.subTest(entry=point[0], kind=point[1], ranks=point[2], number=point[3]):
                    outcomes[point[0]][pending.result()] += 1
        print("| function | crashes | job went on | error names plugin and function |\n| --- | --- | --- | --- |")
        for entry, each in outcomes.items():
            print(f"| {entry} | {sum(each.values())} | {each['went on']} | {each['error']} |")

    def test_a_plugin_that_does_not_crash_does_its_job(self):
        for plugin in (PLUGIN, *VENDORS):
            with self.subTest(plugin):
                ended = run("none", "segv", (), plugin=plugin)
                self.assertEqual(ended.codes, [0, 0], ended.text)
                self.assertNotIn("WARN", ended.text)


def measure_cost():
    """Of rounds that take turns: the best time of a message, and the median of the bandwidths."""
    measured = collections.defaultdict(lambda: collections.defaultdict(list))
    for _ in range(7):
        for plugin in ("net-socket", "net-jail"):
            ended = job.Command([job.PLEXUS, "plugin", "bench", plugin, "--json", "-"], NCCL_SOCKET_IFNAME="lo").end(100)
            for row in json.loads(ended.stdout[ended.stdout.index("{"):])["rows"]:
                measured[row["bytes"]][plugin].append(row)
    for size, rows in measured.items():
        for name, value in (("us, best", lambda each: min(row["latency_us"]["min"] for row in each)),
                            ("us, median", lambda each: statistics.median(row["latency_us"]["median"] for row in each)),
                            ("GB/s, median", lambda each: statistics.median(row["bandwidth_gb_per_s"] for row in each))):
            try:
                plain, jailed = value(rows["net-socket"]), value(rows["net-jail"])
            except (KeyError, TypeError):
                continue  # long messages have no time
            print(f"{size:>10} bytes: {plain:10.2f} {name}, in the jail {jailed:10.2f}, ratio {jailed / plain:.2f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["cost"]:
        measure_cost()
    else:
        unittest.main()
