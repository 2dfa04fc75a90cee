#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`plexus tune` writes a calibration that the tuner takes, and says where it is."""
import json
import os
import pathlib
import re
import signal
import tempfile

import job


class Tune(job.Test):
    def tune(self, *arguments, **environment):
        return self.start([job.PLEXUS, "tune", "--passes", "1", "--ranks", "2", "--colls", "reduce,alltoall", *arguments], **environment).end(200)

    def test_its_file_changes_what_explain_predicts(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = self.tune(XDG_CONFIG_HOME=folder)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            file = pathlib.Path(folder, "plexus", "tune.json")
            self.assertIn(f"export PLEXUS_TUNE_FILE={file}\n", ended.stdout)
            calibration = json.loads(file.read_text())
            self.assertEqual(set(calibration["links"]), {"process", "host"})
            for link in calibration["links"].values():
                self.assertEqual(set(link), {"latency_us", "message_us", "us_per_byte"})
                self.assertTrue(all(number > 0 for number in link.values()), link)
            rows = {(row["link"], row["ranks"], row["collective"]): row for row in calibration["measured"]}
            self.assertEqual(set(rows), {(link, 2, coll) for link in ("process", "host") for coll in ("reduce", "alltoall")})
            for row in rows.values():
                self.assertGreaterEqual(len(row["time_us"]), 2, row)
                for times in row["time_us"].values():
                    self.assertEqual(len(times), len(row["bytes"]))
            self.assertLessEqual({"reduce_us_per_byte", "spread"}, set(calibration["host"]))
            predicted = []
            for environment in ({}, {"PLEXUS_TUNE_FILE": str(file)}):
                explained = self.start([job.PLEXUS, "explain", "all_reduce", "1M", "--json", "-"],
                                       **environment).end(60)
                self.assertEqual(explained.returncode, 0, explained.stderr)
                predicted.append(json.loads(explained.stdout)["chosen"]["predicted_us"])
            self.assertNotEqual(predicted[0], predicted[1])

    def test_the_simulator_takes_what_messages_cost(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "messages.json")
            ended = self.start([job.PLEXUS, "tune", "--only-messages", "--passes", "1", "--output", str(file)]).end(200)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertIn(f"plexus sim --calibration {file}\n", ended.stdout)
            self.assertEqual(set(json.loads(file.read_text())), {"about", "messages"})
            simulated = self.start([job.PLEXUS, "sim", "all_reduce", "-r", "4", "-g", "4", "-b", "8", "-e", "1M", "-f", "64",
                                    "--calibration", str(file), "--json", "-"]).end(60)
            self.assertEqual(simulated.returncode, 0, simulated.stderr)
            rows = json.loads(simulated.stdout)["rows"]
            self.assertTrue(all(row["time_us"] > 0 for row in rows), rows)
            tuner = self.start([job.PLEXUS, "explain", "all_reduce", "1M"], NCCL_DEBUG="WARN", PLEXUS_TUNE_FILE=str(file)).end(60)
            self.assertIn("make it with `plexus tune`", tuner.stderr + tuner.stdout)

    def test_it_ends_in_time_and_says_what_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "messages.json")
            arguments = ("--only-messages", "--passes", "100", "--output", str(file))
            ended = self.start([job.PLEXUS, "tune", *arguments, "--seconds", "1"]).end(60)
            self.assertEqual(ended.returncode, 1, ended.stderr)
            self.assertRegex(ended.stderr.splitlines()[-1],
                             r"time was up when \d+ of \d+ kinds of messages had been measured, .* \(--seconds\)$")
            self.assertFalse(file.exists())
            for seconds in (20, 80, 320):  # on a busy machine the first pass may take long
                ended = self.start([job.PLEXUS, "tune", *arguments, "--seconds", str(seconds)]).end(seconds + 60)
                if ended.returncode == 0:
                    break
            missing = f"time was up after {seconds} s: messages in "
            self.assertRegex(ended.stderr, missing + r"\d+ of 100 passes; the file says so; --seconds gives more\n")
            self.assertRegex(json.loads(file.read_text())["about"], r"; time was up: messages in \d+ of 100 passes$")

    def test_a_signal_keeps_what_was_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "tune.json")
            # 2>&1: that measurements of the second part are done is said on stderr.
            started = self.start(["bash", "-c", 'exec "$@" 2>&1', "tune", job.PLEXUS, "tune", "--passes", "100", "--ranks", "2", "--colls",
                                  "reduce,alltoall", "--seconds", "100", "--output", str(file)])
            while not re.match(r"plexus tune: all algorithms: [1-9]", started.read_line()):
                pass
            os.kill(started.pid, signal.SIGINT)
            ended = started.end(120)
            self.assertEqual(ended.returncode, 0, ended.stdout)
            about = json.loads(file.read_text())["about"]
            self.assertRegex(about, r"; ended by a signal: the model's numbers in \d+ of 100 passes, all algorithms in \d+ of 100 passes, "
                             r"messages not at all$")
            self.assertIn("plexus tune: ended by a signal: ", ended.stdout)
            self.assertTrue(json.loads(file.read_text())["measured"])

    def test_a_place_that_cannot_be_written_is_one_sentence(self):
        ended = self.tune("--output", "/proc/nothing/tune.json")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("--output: cannot write to the file", ended.stderr.splitlines()[-1])

    def test_bad_usage_is_one_sentence(self):
        for arguments in (("--passes", "0"), ("--output", ""), ("--ranks", "2,1"), ("--colls", "reduce,"), ("now",)):
            with self.subTest(arguments):
                ended = self.start([job.PLEXUS, "tune", *arguments]).end(60)
                self.assertEqual((ended.returncode, ended.stdout, ended.stderr.count("\n")), (2, "", 1), ended.stderr)


if __name__ == "__main__":
    job.main()
