#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts rely on: exit codes, one sentence for bad usage, stdout that holds the JSON and no more."""
import json
import pathlib
import shutil
import subprocess
import tempfile

import job

SMALL = ["-b", "1K", "-e", "4K", "-f", "4", "-n", "2", "-w", "0"]


class Usage(job.Test):
    def run_plexus(self, *arguments, **environment):
        return self.start([job.PLEXUS, *arguments], **environment).end(60)

    def test_bad_usage_is_exit_code_2_and_one_sentence(self):
        for arguments, named in [((), "subcommand"), (("perf",), "COLL"), (("perf", "xor"), "COLL"),
                                 (("nothing",), "nothing"), (("perf", "all_reduce", "--ranks", "none"), "--ranks"),
                                 (("perf", "all_reduce", "--what"), "--what"),
                                 (("perf", "all_reduce", "--json", "/nonexistent/f"), "--json"),
                                 (("perf", "reduce", "-r", "4"), "--root"),
                                 (("verify", "--max-nranks", "0"), "--max-nranks"),
                                 (("verify", "--ranks", "96,"), "--ranks"),
                                 (("verify", "--ranks", "1"), "--ranks"),
                                 (("topo", "slurm", "topology.conf", "--depth", "x"), "--depth"),
                                 (("topo", "search", "a.xml:0"), "0"), (("topo", "times", "-b", "0"), "-b"), (("topo", "times", "-f", "1"), "-f"), (("topo", "search", "--gpus", "a100"), "--gpus"),
                                 (("program", "export", "ring", "--ranks", "4"), "ALGO"),
                                 (("program", "export", "ring_all_reduce"), "--ranks"),
                                 (("run",), "PROGRAM"), (("run", "--devices", "99", "x"), "--devices"),
                                 (("run", "/nonexistent/program"), "/nonexistent/program"),
                                 (("program", "verify"), "FILE"),
                                 (("program", "run"), "FILE"),
                                 (("program", "run", "x.xml", "--mode", "many"), "--mode"),
                                 (("top", "--every", "0"), "--every"), (("doctor", "--metrics"), "--ras"),
                                 (("plugin", "info"), "LIB"), (("plugin", "certify"), "LIB"),
                                 (("plugin", "verify-certificate"), "FILE")]:
            with self.subTest(arguments):
                ended = self.run_plexus(*arguments)
                self.assertEqual(ended.returncode, 2)
                self.assertEqual(ended.stdout, "")
                self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)
                self.assertIn(named, ended.stderr)

    def test_the_manual_page_has_all_subcommands_and_no_mistake_of_roff(self):
        page = self.run_plexus("man")
        self.assertEqual((page.returncode, page.stderr), (0, ""))
        for name in ("perf", "doctor", "topo dot", "plugin check", "sim"):
            self.assertRegex(page.stdout, rf"(?m)^\.SS plexus {name}( |$)")
        if shutil.which("groff"):
            shown = subprocess.run(["groff", "-man", "-ww", "-Tascii"], input=page.stdout, capture_output=True, text=True,
                                   timeout=job.bound(60), check=True)
            self.assertEqual(shown.stderr, "")

    def test_bash_completes_words_of_the_command(self):
        script = pathlib.Path(__file__).resolve().parents[2] / "tools/cli/completion/plexus.bash"
        for words, wanted in ((["doc"], ["doctor"]), (["topo", "d"], ["dot", "dump"]), (["doctor", "--rec"], ["--recent"]),
                              (["perf", "all_reduce", "-b", ""], []), (["nothing", "--"], ["--help", "--version"])):
            with self.subTest(words):
                shown = subprocess.run(
                    ["bash", "-c", f'. "{script}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _plexus "$1"; '
                     'printf "%s\n" "${COMPREPLY[@]}"', "bash", job.PLEXUS, *words],
                    capture_output=True, text=True, timeout=job.bound(60), env=job.clean_environment(), check=True)
                self.assertEqual((shown.stdout.split(), shown.stderr), (wanted, ""))

    def test_help_is_exit_code_0(self):
        for arguments in [("--help",), ("perf", "--help"), ("--version",)]:
            ended = self.run_plexus(*arguments)
            self.assertEqual(ended.returncode, 0)
            self.assertIn("plexus", ended.stdout)

    def test_verify_proves_for_the_numbers_of_ranks_that_are_named(self):
        ended = self.run_plexus("verify", "--ranks", "128,96,127", "--json", "-")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        proofs = json.loads(ended.stdout)
        self.assertEqual(proofs["failed"], [])
        self.assertLessEqual({("ring_all_reduce", 96), ("ring_all_reduce", 127), ("ring_all_reduce", 128), ("send", 2)},
                             {(proof["algorithm"], proof["nranks"]) for proof in proofs["verified"]})
        self.assertEqual({proof["nranks"] for proof in proofs["verified"]}, {2, 96, 127, 128})
        ended = self.run_plexus("verify", "--max-nranks", "5", "--algorithm", "chain_reduce", "--json", "-")
        self.assertEqual([proof["nranks"] for proof in json.loads(ended.stdout)["verified"]], [2, 3, 4, 5])

    def test_json_has_the_keys_of_the_contract(self):
        report = self.run_perf("reduce", *SMALL, "--ranks", 2)
        self.assertEqual(list(report), ["version", "collective", "ranks", "mode", "rows", "wrong_total"])
        self.assertEqual((report["collective"], report["ranks"], report["mode"]), ("reduce", 2, "procs"))
        self.assertEqual(len(report["rows"]), 4)
        for row in report["rows"]:
            self.assertLessEqual({"bytes", "count", "type", "redop", "root", "in_place", "time_us", "algbw_gb_per_s",
                                  "busbw_gb_per_s", "wrong", "algorithm", "protocol", "channels"}, set(row))
            self.assertLessEqual(row["time_us"]["min"], row["time_us"]["median"])
            self.assertLessEqual(row["time_us"]["median"], row["time_us"]["p99"])
            self.assertTrue(row["algorithm"])
            self.assertGreaterEqual(row["channels"], 1)

    def test_table_files_and_quiet_stderr(self):
        with tempfile.TemporaryDirectory() as folder:
            json_file, tsv_file = pathlib.Path(folder, "rows.json"), pathlib.Path(folder, "rows.tsv")
            ended = self.run_plexus("perf", "all_reduce", *SMALL, "--ranks", "2", "--json", str(json_file),
                                    "--tsv", str(tsv_file))
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertEqual(ended.stderr, "")
            self.assertIn("out-of-place", ended.stdout)
            self.assertEqual(len([line for line in ended.stdout.splitlines() if line.startswith(" ")]), 2)
            self.assertEqual(len(json.loads(json_file.read_text())["rows"]), 4)
            self.assertEqual(len(tsv_file.read_text().splitlines()), 5)

    def test_our_own_columns_say_what_was_chosen(self):
        ended = self.run_plexus("perf", "sendrecv", *SMALL, "--ranks", "2", "--columns", "plexus")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertRegex(ended.stdout, r"(?m)^ +1024 .* N/A +N/A +N/A +N/A +[a-z0-9-]+/(Simple|LL|LL128)/\d+$")
        self.assertIn("# Wrong elements    : 0 OK", ended.stdout)

    def test_unchecked_rows_say_so(self):
        ended = self.run_plexus("perf", "all_reduce", *SMALL, "--ranks", "2", "-c", "0", "--json", "-")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertTrue(all(row["wrong"] is None for row in ended.json()["rows"]))

    def test_an_algorithm_that_the_collective_does_not_have_is_an_error(self):
        for collective, algorithm in (("alltoall", "ring"), ("broadcast", "pat"), ("all_gather", "doubling,tree")):
            ended = self.run_plexus("perf", collective, *SMALL, "--ranks", "2", "--algo", algorithm)
            self.assertEqual(ended.returncode, 1, ended.stdout)
            self.assertIn("exclude every algorithm for", ended.stderr)
        ended = self.run_plexus("perf", "alltoall", *SMALL, "--ranks", "2", "--algo", "^pairwise", "--columns", "plexus")
        self.assertRegex(ended.stdout, "(?m)^ +1024 .* bruck/", ended.stderr)

    def test_sends_and_receives_have_no_algorithm(self):
        for collective in ("sendrecv", "alltoallv", "hypercube", "gatherv", "put"):
            ended = self.run_plexus("perf", collective, *SMALL, "--ranks", "2", "--algo", "ring")
            self.assertEqual(ended.returncode, 2, ended.stdout)
            self.assertIn(f"{collective} is made of sends and receives, which have no algorithm", ended.stderr)

    def test_an_algorithm_that_does_not_exist_fails_the_job_and_is_named(self):
        ended = self.run_plexus("perf", "all_reduce", *SMALL, "--ranks", "2", "--algo", "bogus")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("bogus", ended.stderr)

    def test_verify_proves_every_algorithm(self):
        ended = self.run_plexus("verify", "--max-nranks", "8", "--json", "-")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        report = ended.json()
        self.assertEqual(report["failed"], [])
        self.assertIn({"ring_all_reduce"}, [{row["algorithm"]} for row in report["verified"]])
        self.assertLessEqual({"algorithm", "collective", "nranks", "steps", "lanes"}, set(report["verified"][0]))

    def test_plugin_list_finds_the_socket_plugin(self):
        ended = self.run_plexus("plugin", "list")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("net-socket", ended.stdout)

    def test_plugin_info_shows_devices(self):
        ended = self.run_plexus("plugin", "info", "net-socket", NCCL_SOCKET_IFNAME="lo")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("lo", ended.stdout)
        missing = self.run_plexus("plugin", "info", "no-such-plugin")
        self.assertEqual(missing.returncode, 1)
        self.assertIn("no-such-plugin", missing.stderr)


if __name__ == "__main__":
    job.main()
