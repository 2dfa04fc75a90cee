# SPDX-License-Identifier: Apache-2.0
"""`plexus` commands whose reports are read, and machines whose cores move."""
import json
import os
import subprocess
import sys
import time


def run_json(command, **environment):
    """What the command, with --json, prints; RuntimeError with its message when it fails."""
    ended = subprocess.run([*command, "--json", "-"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
                           env={**os.environ, **environment}, check=False)
    if ended.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit code {ended.returncode}: {ended.stderr.strip()}")
    return json.loads(ended.stdout)


class SteadyMachine:
    """Runs commands while the cores stay near each other, or far from each other.

    A host may move virtual cores apart and back, from second to second, which makes their exchanges several times as slow. So a probe,
    an all-gather of 256 KiB by 2 ranks, is timed before and after each run, and a run counts only if neither took more than `moved`
    times the least of all probes (far: if both did); else it is repeated.
    """
    MOVED = 1.5
    PATIENCE_S = 600

    def __init__(self, plexus, moved=MOVED, far=False):
        self.command = [plexus, "perf", "all_gather", "--ranks", "2", "--algo", "ring", "-b", "256K", "-e", "256K", "-c", "0",
                        "--budget-ms", "3"]
        self.moved = moved
        self.far = far
        self.least_us = min(self.probe() for _ in range(20))
        self.last_us = self.least_us

    def probe(self):
        return min(row["time_us"]["median"] for row in run_json(self.command)["rows"])

    def probe_again(self):
        self.last_us = self.probe()
        self.least_us = min(self.least_us, self.last_us)

    def is_right(self, probe_us):
        return (probe_us > self.moved * self.least_us) == self.far

    def run(self, measure):
        """What `measure` returns, and the longer one of the probes beside it."""
        end = time.monotonic() + self.PATIENCE_S
        while time.monotonic() < end:
            while not self.is_right(self.last_us) and time.monotonic() < end:
                self.probe_again()
            before_us = self.last_us
            report = measure()
            self.probe_again()
            if self.is_right(before_us) and self.is_right(self.last_us):
                return report, max(before_us, self.last_us)
        sys.exit(f"the cores of this machine have not been {'far from' if self.far else 'near'} each other for {self.PATIENCE_S} s")
