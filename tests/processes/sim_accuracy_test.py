#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/bench/sim_accuracy works: it measures, predicts, keeps times and predicts again. Not how well."""
import json
import pathlib
import sys
import tempfile

import job

SCRIPT = pathlib.Path(__file__).parents[1] / "bench/sim_accuracy"
ENDS = {f"{name}_us": [0.1, 100] for name in ("send", "recv", "combine", "combine_apart")}
CURVE = {"slot_bytes": 131072, "call_us": 0, "early_us": 0, "bytes": [8, 1 << 20], "copy_us": [0.1, 100], **ENDS, "one_way": {"call_us": 0, **ENDS}}


class SimAccuracy(job.Test):
    def judge(self, *arguments):
        ended = self.start([sys.executable, "-B", str(SCRIPT), "--plexus", job.PLEXUS, *map(str, arguments)]).end(100)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return [line.split(" | ") for line in ended.stdout.splitlines() if line.startswith("| ")]

    def test_it_measures_and_predicts(self):
        with tempfile.TemporaryDirectory() as folder:
            calibration, kept = pathlib.Path(folder, "calibration.json"), pathlib.Path(folder, "kept.json")
            calibration.write_text(json.dumps({"messages": {"cores": 2, "turn_us": 1, "links": {"host": CURVE}}}))
            rows = self.judge("--media", "shm", "--ranks", "2,3", "--colls", "reduce,all_gather", "--min", "1K", "--max", "4K", "--factor", 4,
                              "--budget-ms", 1, "--passes", 1, "--calibration", calibration, "--moved", 1e9, "--save", kept)
            names = [row[0].removeprefix("| ") for row in rows]
            self.assertLessEqual({"shm, 2 ranks", "shm, 3 ranks", "reduce", "all_gather", "all"}, set(names))
            # 3 algorithms and 5, 2 sizes, 2 numbers of ranks
            self.assertEqual(rows[names.index("all")][1], "32")
            self.assertEqual([row[:2] for row in self.judge("--moved", 1e9, "--load", kept)], [row[:2] for row in rows])


if __name__ == "__main__":
    job.main()
