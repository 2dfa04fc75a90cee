#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plexus plugin check, checks, list, info and bench from outside: exit codes, grades, reports, wrong flags."""
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import job

LIB = os.environ["PLEXUS_TEST_LIB_DIR"]
EXAMPLES = os.environ["PLEXUS_TEST_EXAMPLE_DIR"]
SOCKET = os.path.join(LIB, "libplexus-net-socket.so")
LETTER = os.path.join(EXAMPLES, "libnccl-net-letter.so")  # does only what NCCL's contract requires


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
            self.assertIn("not a usable plugin", ended.stdout)

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
        reported = plexus("info", "collnet-aggregator").stdout
        self.assertIn("collnet device 0: hosted", reported)
        self.assertRegex(reported, r"reduces +sum +int8, .*float16, float32, float64, bfloat16\n")
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
        self.assertIn("it is not a plugin of kind profiler", ended.stdout)

    # ---- grades of failures ----

    def test_what_nccls_contract_does_not_ask_breaks_no_job(self):
        groups = "file.entry_kinds,init.process,order,request,message.empty_null"
        ended = plexus("check", LETTER, "--only", groups)
        self.assertEqual(ended.returncode, 0, ended.stdout)
        self.assertRegex(ended.stdout, r"(?m)^weak   init\.process ")
        for check in ("order.tags_reversed", "request.full", "request.any_order", "message.empty_null",
                      "request.newest_first"):
            self.assertRegex(ended.stdout, rf"(?m)^beyond {check} ".replace(".", r"\."))
        for check in ("order.sizes", "request.limit", "request.recycled", "file.entry_kinds"):
            self.assertRegex(ended.stdout, rf"(?m)^pass   {check} ".replace(".", r"\."))
        self.assertIn("it set the environment variable LETTER_WAS_HERE to '1'", ended.stdout)
        self.assertEqual(plexus("check", LETTER, "--only", groups, "--strict").returncode, 1)
        report = plexus("check", LETTER, "--only", "init.process,order.tags_reversed", "--json", "-").json()
        self.assertEqual((report["failed"], report["weak"], report["beyond"]), (0, 1, 1))
        self.assertEqual([check["grade"] for check in report["checks"]], ["weak under faults", "beyond NCCL's contract"])

    def test_failures_of_one_reason_are_told_once(self):
        ended = plexus("check", os.path.join(EXAMPLES, "libplexus-net-mutant.so"), "--only", "message",
                       PLEXUS_MUTANT="register_again", PLEXUS_MUTANT_OF=SOCKET)
        self.assertEqual(ended.returncode, 1, ended.stdout)
        self.assertRegex(ended.stdout, r"\n  1\d checks, one cause: ")
        self.assertEqual(ended.stdout.count("register_send returned PLEXUS_AGAIN"), 1, ended.stdout)

    def test_reports_for_people_and_machines(self):
        with tempfile.TemporaryDirectory() as folder:
            junit, page = os.path.join(folder, "junit.xml"), os.path.join(folder, "page.md")
            ended = plexus("check", LETTER, "--only", "connect,init.process", "--junit", junit, "--summary", page)
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
            suite = xml.etree.ElementTree.parse(junit).getroot().find("testsuite")
            self.assertEqual(suite.get("failures"), "0")
            self.assertEqual(int(suite.get("tests")), len(suite.findall("testcase")))
            self.assertTrue(all(float(case.get("time")) >= 0 for case in suite.findall("testcase")))
            with open(page, encoding="utf-8") as file:
                text = file.read()
            self.assertIn("# libnccl-net-letter.so: net plugin Letter (ncclNetPlugin_v8)", text)
            self.assertIn("| weak | it set the environment variable LETTER_WAS_HERE to '1' | init.process |", text)
        self.assertRegex(ended.stdout, r"(?m)^pass   connect\.pair +\d+\.\d\d s  ")

    def test_progress_is_told_where_there_is_no_terminal_too(self):
        """The table has each verdict as it comes; of other formats standard error tells how far it is."""
        ended = plexus("check", LETTER, "--only", "device,vendor,listen", "--json", "-")
        self.assertRegex(ended.stderr, r"(?m)^25 of \d+ checks, ")

    def test_no_verdict_depends_on_what_else_runs(self):
        only = "time,close.time,connect.no_wait,order.fifo,message.to_64k,fault.stopped"
        command = ("check", SOCKET, "--only", only, "--json", "-")
        alone = plexus(*command).json()
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(10)]
        try:
            beside = plexus(*command).json()
        finally:
            for process in busy:
                process.kill()
                process.wait()
        for report in (alone, beside):
            self.assertEqual([check["id"] for check in report["checks"] if check["verdict"] != "pass"], [])

    # ---- libraries that cannot be checked ----

    def expect_unchecked(self, library, sentence, *flags, **environment):
        ended = plexus("check", os.path.join(EXAMPLES, library), *flags, **environment)
        self.assertEqual(ended.returncode, 3, ended.stdout + ended.stderr)
        first, _, rest = ended.stdout.partition("\n")
        self.assertIn("not checked: ", first)
        self.assertIn(sentence, first)
        return rest

    def test_a_library_without_a_device_is_one_line_and_its_own(self):
        rest = self.expect_unchecked("libnccl-net-letter.so", "it finds no device here", LETTER_NO_DEVICE="1")
        self.assertEqual(rest, "its log lines:\n  letter: no card found below /sys\n")
        ended = plexus("check", LETTER, "--json", "-", LETTER_NO_DEVICE="1")
        self.assertEqual((ended.returncode, ended.json()["problem"]), (3, "it finds no device here"))

    def test_kinds_that_the_kit_does_not_check_are_named(self):
        self.expect_unchecked("libnccl-env-fixture-v2.so", "it is an env plugin (ncclEnvPlugin_v2)")
        self.expect_unchecked("libnccl-net-odd-gin.so", "it is a GIN plugin")
        self.assertIn("an env plugin", plexus("info", os.path.join(EXAMPLES, "libnccl-env-fixture-v2.so")).stdout)

    def test_a_missing_cuda_runtime_is_named_and_can_be_replaced(self):
        self.expect_unchecked("libnccl-net-letter-cuda.so", "it needs cudaEventQuery, a symbol of CUDA's runtime")
        ended = plexus("check", os.path.join(EXAMPLES, "libnccl-net-letter-cuda.so"), "--with-cudart-stub", "--only",
                       "file.load,connect.pair")
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertIn("2 passed", ended.stdout)

    def test_cudas_driver_can_be_replaced_too(self):
        driver = os.path.join(EXAMPLES, "libnccl-net-letter-driver.so")
        without = plexus("check", driver, "--only", "connect.pair")
        self.assertIn("libcudart.so or libcuda.so.1 is missing", without.stdout + without.stderr)
        ended = plexus("check", driver, "--with-cudart-stub", "--with-cuda-stub", "--only", "file.load,connect.pair")
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertIn("2 passed", ended.stdout)

    def test_a_job_of_cpu_ranks_runs_with_stand_ins_for_cuda(self):
        stubs = ":".join(os.path.join(LIB, "plexus", f"libplexus-{name}-stub.so") for name in ("cudart", "cuda"))
        ended = subprocess.run(job.perf("all_reduce", "-b", "64", "-e", "64K", "-f", "32", "-n", "2", "--ranks", "2", "--mode",
                                        "procs", *job.limit(50)), capture_output=True, text=True, timeout=job.bound(60),
                               check=False, env=job.clean_environment(
                                   NCCL_SHM_DISABLE="1", NCCL_P2P_DISABLE="1", NCCL_NET_PLUGIN="letter-driver",
                                   PLEXUS_PLUGIN_PATH=EXAMPLES, LD_PRELOAD=stubs))
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)

    # ---- listing ----

    def test_list_shows_vendors_libraries_and_their_tables(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("libnccl-net-letter.so", "libnccl-net-odd-no-plugin.so", "libnccl-env-fixture-v2.so"):
                os.symlink(os.path.join(EXAMPLES, name), os.path.join(folder, name))
            for variable in ("PLEXUS_PLUGIN_PATH", "LD_LIBRARY_PATH"):
                reported = plexus("list", **{variable: folder}).stdout
                self.assertRegex(reported, r"(?m)^libnccl-net-letter\.so +ncclNetPlugin_v8, /")
                self.assertRegex(reported, r"(?m)^libnccl-net-odd-no-plugin\.so +has no plugin table")
                self.assertRegex(reported, r"(?m)^libnccl-env-fixture-v2\.so +ncclEnvPlugin_v2, /")

    def test_info_looks_through_the_abi_that_is_asked_for(self):
        self.assertIn("chosen   ncclNetPlugin_v9\n", plexus("info", SOCKET, "--abi", "v9").stdout)
        ended = plexus("info", LETTER, "--abi", "v6")
        self.assertEqual(ended.returncode, 1, ended.stdout)
        self.assertIn("ncclNetPlugin_v6", ended.stderr)
        tuner = os.path.join(EXAMPLES, "libplexus-tuner-mutant-v3.so")
        self.assertIn("chosen   ncclTunerPlugin_v3\n", plexus("info", tuner, "--abi", "v3").stdout)
        self.assertIn("it has no ncclTunerPlugin_v5", plexus("info", tuner, "--abi", "v5").stderr)

    # ---- a network that confuses connections ----

    def test_a_job_over_a_network_that_mixes_connections_up_ends_and_says_so(self):
        ended = subprocess.run(job.perf("all_reduce", "-b", "64", "-e", "64", "-n", "20", "-w", "0", "--ranks", "3",
                                        "--mode", "threads", "--channels", "2", *job.limit(50)), capture_output=True,
                               text=True, timeout=job.bound(60), check=False, env=job.clean_environment(
                                   NCCL_SHM_DISABLE="1", NCCL_P2P_DISABLE="1", NCCL_NET_PLUGIN="mutant",
                                   PLEXUS_PLUGIN_PATH=EXAMPLES, PLEXUS_MUTANT="isend_mixes", PLEXUS_MUTANT_OF=SOCKET))
        self.assertEqual(ended.returncode, 1, ended.stdout + ended.stderr)
        self.assertRegex(ended.stdout + ended.stderr,
                         "message of another connection|loses or reorders messages")

    def test_bench_measures(self):
        report = plexus("bench", SOCKET, "--json", "-").json()
        self.assertEqual(report["rows"][0]["bytes"], 8)
        for row in report["rows"]:
            self.assertGreater(row["bandwidth_gb_per_s"], 0)
        self.assertGreater(report["rows"][0]["latency_us"]["median"], 0)


if __name__ == "__main__":
    job.main()
