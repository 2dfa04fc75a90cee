# SPDX-License-Identifier: Apache-2.0
"""A `plexus` command whose report is read."""
import json
import os
import subprocess


def run_json(command, **environment):
    """What the command, with --json, prints; RuntimeError with its message when it fails."""
    ended = subprocess.run([*command, "--json", "-"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
                           env={**os.environ, **environment}, check=False)
    if ended.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit code {ended.returncode}: {ended.stderr.strip()}")
    return json.loads(ended.stdout)
