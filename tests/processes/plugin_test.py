#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plexus plugin check, checks, info and bench from outside: exit codes, the table, JSON, wrong flags."""
import os
import subprocess
import tempfile
import unittest

import job

LIB = os.environ["PLEXUS_TEST_LIB_DIR"]
EXAMPLES = os.environ["PLEXUS_TEST_EXAMPLE_DIR"]
SOCKET = os.path.join(LIB, "libplexus-net-socket.so")


def plexus(*arguments, **environment):
    ended = subprocess.run([job.PLEXUS, "plugin", *map(str, arguments)], capture_output=True, text=True, check=False,
                           timeout=job.bound(100), env=job.clean_environment(**environment))
    return job.Ended(ended.args, ended.returncode, ended.stdout, ended.stderr)


class Plugin(unittest.TestCase):
    def test_check_by_name_prints_a_table_and_writes_json(self):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            ended = plexus("check", "net-socket", "--only", "connect.pair,message.empty", "--json", file.name)
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
            self.assertIn("2 passed, 0 failed, 0 skipped", ended.stdout)
            self.assertIn('"id": "connect.pair"', file.read().decode())

    def test_json_to_stdout_is_alone_there(self):
        report = plexus("check", SOCKET, "--only", "device", "--json", "-").json()
        self.assertEqual((report["kind"], report["failed"]), ("net", 0))
        self.assertRegex(report["abi"], r"^plexus 1\.\d+$")
        self.assertEqual(report["library"], SOCKET)
        self.assertEqual({check["id"].split(".")[0] for check in report["checks"]}, {"device"})

    def test_one_of_several_abis(self):
        report = plexus("check", SOCKET, "--only", "connect", "--abi", "v8", "--json", "-").json()
        self.assertEqual((report["abi"], report["failed"]), ("ncclNetPlugin_v8", 0))

    def test_a_library_that_is_no_plugin_fails(self):
        for name in ("libnccl-net-odd-no-plugin.so", "libnccl-net-odd-unresolved.so"):
            ended = plexus("check", os.path.join(EXAMPLES, name))
            self.assertEqual(ended.returncode, 1, ended.stdout)
            self.assertIn("no plugin that can be used", ended.stdout)

    def test_a_failed_check_is_exit_code_1_with_its_rule(self):
        broken = os.path.join(EXAMPLES, "libplexus-net-broken-bad-properties.so")
        ended = plexus("check", broken, "--only", "init")
        self.assertEqual(ended.returncode, 1, ended.stdout)
        self.assertIn("rule: plexus_net.h", ended.stdout)

    def test_wrong_flags_are_exit_code_2(self):
        for arguments, sentence in ((("check", "net-nobody"), "'net-nobody'"),
                                    (("check", SOCKET, "--only", "nothing.of.it"), "'nothing.of.it'"),
                                    (("check", SOCKET, "--jobs", "0"), "--jobs"),
                                    (("check",), "LIB")):
            ended = plexus(*arguments)
            self.assertEqual(ended.returncode, 2, ended.stdout + ended.stderr)
            self.assertIn(sentence, ended.stderr)

    def test_checks_lists_all_with_their_rules(self):
        ended = plexus("checks")
        self.assertEqual(ended.returncode, 0)
        self.assertGreater(sum(line.startswith("net ") for line in ended.stdout.splitlines()), 120)

    def test_info_knows_tuners(self):
        self.assertIn("a tuner", plexus("info", "tuner-default").stdout)
        self.assertIn("ncclNetPlugin_v12", plexus("info", SOCKET).stdout)

    def test_info_knows_networks_that_reduce_and_tables_of_nccls(self):
        told = plexus("info", "collnet-aggregator").stdout
        self.assertIn("collnet device 0: hosted", told)
        self.assertRegex(told, r"reduces +sum +int8, .*float16, float32, float64, bfloat16\n")
        self.assertRegex(plexus("list").stdout, r"collnet-aggregator +Aggregator ")
        self.assertIn("a tuner", plexus("info", os.path.join(EXAMPLES, "libplexus-tuner-mutant-v3.so")).stdout)
        self.assertIn("a profiler", plexus("info", os.path.join(EXAMPLES, "libplexus-profiler-mutant-v4.so")).stdout)

    def test_check_takes_every_kind(self):
        for library, kind, abi in (("libplexus-tuner-mutant-v3.so", "tuner", "ncclTunerPlugin_v3"),
                                   ("libplexus-profiler-mutant-v4.so", "profiler", "ncclProfiler_v4"),
                                   ("libnccl-net-sum-v8.so", "collnet", "ncclCollNetPlugin_v8")):
            report = plexus("check", os.path.join(EXAMPLES, library), "--only", "file.load", "--json", "-").json()
            self.assertEqual((report["kind"], report["abi"], report["failed"]), (kind, abi, 0))

    def test_a_library_of_several_kinds_is_checked_as_the_one_that_is_asked_for(self):
        mixed = os.path.join(EXAMPLES, "libnccl-net-mixed.so")
        for kind in ("net", "tuner"):
            report = plexus("check", mixed, "--only", "file.load", "--kind", kind, "--json", "-").json()
            self.assertEqual(report["kind"], kind)
        ended = plexus("check", mixed, "--only", "file.load", "--kind", "profiler")
        self.assertEqual(ended.returncode, 1, ended.stdout)
        self.assertIn("it is no profiler plugin", ended.stdout)

    def test_bench_measures(self):
        report = plexus("bench", SOCKET, "--json", "-").json()
        self.assertEqual(report["rows"][0]["bytes"], 8)
        for row in report["rows"]:
            self.assertGreater(row["bandwidth_gb_per_s"], 0)
        self.assertGreater(report["rows"][0]["latency_us"]["median"], 0)


if __name__ == "__main__":
    job.main()
