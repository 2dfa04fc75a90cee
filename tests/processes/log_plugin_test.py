#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Log plugins: the fixture (tests/abi/nccl_profiler/log.c) gets each line of the log, and warnings at any NCCL_DEBUG."""
import os
import pathlib
import re
import tempfile

import job

FOLDER = os.environ.get("PLEXUS_TEST_EXAMPLE_DIR", "build/dev/test-bin")
ONE_SIZE = ["-b", "64", "-e", "64", "-n", "1", "-w", "0", *job.limit(50), "--ranks", 2, "--mode", "procs"]
RECORD = r"(?m)^(\d) (0x[0-9a-f]+) (\d+) (\S*):(\d+) (\d+) (\d+) \S+ -1 (.*)$"


class LogPlugin(job.Test):
    def run_with(self, plugin, **environment):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "records"
            ended = self.start(job.perf("all_reduce", *ONE_SIZE), NCCL_LOG_PLUGIN=plugin, PLEXUS_PLUGIN_PATH=FOLDER,
                               LOG_FIXTURE_FILE=str(path), **environment).end(60)
            return ended, re.findall(RECORD, path.read_text()) if path.exists() else []

    def test_gets_what_is_logged(self):
        ended, records = self.run_with("fixture", NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,ENV")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        inits = [record for record in records if "Init COMPLETE" in record[-1]]
        self.assertEqual(len(inits), 2)
        for level, subsystems, code, file, line, pid, tid, message in inits:
            self.assertEqual((level, subsystems, code), ("3", "0x1", "0"))
            self.assertTrue(file.endswith("communicator.cpp"), file)
            self.assertIn(f":{pid}:{tid} [host] NCCL INFO {message}", ended.stdout + ended.stderr)

    def test_gets_warnings_with_their_code_at_any_level(self):
        ended, records = self.run_with("fixture", NCCL_ALGO="nonsense")
        self.assertNotEqual(ended.returncode, 0)
        warnings = [record for record in records if record[0] == "2" and "nonsense" in record[-1]]
        self.assertTrue(warnings, records)
        self.assertEqual(warnings[0][2], "4")  # ncclInvalidArgument
        self.assertFalse([record for record in records if record[0] == "3"], "NCCL_DEBUG is not INFO")

    def test_none_and_failures_are_never_errors(self):
        for plugin, fault, says in (("none", {}, ""), ("absent", {}, "log plugin 'absent' was not found"),
                                    ("fixture", {"LOG_FIXTURE_FAULT": "1"}, "did not start (code 3)"),
                                    (f"{FOLDER}/libnccl-net-tcp-v8.so", {}, "has no ncclLogPlugin_v1")):
            with self.subTest(plugin):
                ended, records = self.run_with(plugin, NCCL_DEBUG="WARN", **fault)
                self.assertEqual(ended.returncode, 0, ended.stderr)
                self.assertEqual(records, [])
                self.assertIn(says, ended.stdout + ended.stderr)


if __name__ == "__main__":
    job.main()
