#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torchrun: training that is restarted once after a worker was killed, and programs of C that get their unique id from
its variables (plexusGetUniqueIdFromEnvironment)."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import world  # first: it skips the test where there is no PyTorch

import torch.distributed as dist

try:
    dist.TCPStore("127.0.0.1", 0, 1, True, wait_for_workers=False)
except RuntimeError as without_libuv:  # as Debian's 2.6, whose torchrun fails with any backend
    world.skip(f"torchrun of this PyTorch cannot start: {without_libuv}")

BIN = pathlib.Path(os.environ.get("PLEXUS_TEST_BIN_DIR", "build/dev/bin"))
LAUNCHED = pathlib.Path(os.environ.get("PLEXUS_TEST_EXAMPLE_DIR", "build/dev/test-bin")) / "launched"

TRAIN = """
import os, signal, torch, torch_plexus, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

checkpoint, restart = os.environ["CHECKPOINT"], int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("plexus")
rank = dist.get_rank()
model = DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = 0
if os.path.exists(checkpoint):
    saved = torch.load(checkpoint)
    step = saved["step"]
    model.load_state_dict(saved["model"])
print(f"restart {restart} rank {rank} begins at step {step}", flush=True)
while step < 10:
    if restart == 0 and rank == 1 and step == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    model(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    if rank == 0 and step == 4:
        torch.save({"step": step, "model": model.state_dict()}, checkpoint)
print(f"restart {restart} rank {rank} ends at step {step}", flush=True)
dist.destroy_process_group()
"""
# torchrun looks for a port and closes it again before a worker opens it; in a network of its own no other program of this
# machine takes it in between. Its workers look for each other by the host's name, which has to be known there.
ALONE = ["unshare", "--net", "--uts", "sh", "-c", 'hostname localhost && ip link set lo up && exec "$@"', "sh"]
# The second worker of the first try dies before it has met the other.
DIES_ONCE = '[ "$TORCHELASTIC_RESTART_COUNT $RANK" = "0 1" ] && kill -9 $$; exec "$@"'


def can_be_alone():
    try:
        return subprocess.run([*ALONE, "true"], capture_output=True, timeout=world.bound(20), check=False).returncode == 0
    except FileNotFoundError:  # no unshare
        return False


class Torchrun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.prefix = ALONE if can_be_alone() else []

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def torchrun(self, *words, **environment):
        """Returns what torchrun and the workers printed."""
        launched = subprocess.Popen(
            [*self.prefix, sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--max_restarts", "1", "--monitor_interval",
             "0.2", "--rdzv_backend", "c10d", "--rdzv_endpoint", "127.0.0.1:0", "-r", "1", "-t", "1", "--log_dir", self.folder / "log",
             *words],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)
        try:
            output, _ = launched.communicate(timeout=world.bound(150))
        except subprocess.TimeoutExpired:
            launched.terminate()  # which ends its workers too
            output, _ = launched.communicate(timeout=world.bound(30))
            self.fail(f"still running: {said}")
        self.assertEqual(launched.returncode, 0, output)
        return output

    def test_training_goes_on_after_a_killed_worker(self):
        script = self.folder / "train.py"
        script.write_text(TRAIN)
        output = self.torchrun(script, CHECKPOINT=str(self.folder / "checkpoint"))
        for rank in range(2):
            self.assertIn(f"restart 0 rank {rank} begins at step 0", output)
            self.assertIn(f"restart 1 rank {rank} begins at step 4", output)
            self.assertIn(f"restart 1 rank {rank} ends at step 10", output)

    def test_a_program_of_c_meets_again(self):
        output = self.torchrun("--no_python", "sh", "-c", DIES_ONCE, "sh", LAUNCHED)
        for rank in range(2):
            self.assertIn(f"rank {rank} of 2: sum 3", output)

    def test_perf(self):
        output = self.torchrun("--no_python", BIN / "plexus", "perf", "all_reduce", "-b", "8", "-e", "64K", "-f", "32", "-n", "3")
        self.assertIn("printed by rank 0 (torchrun job ", output)
        self.assertIn("# Out of bounds values : 0 OK", output)


if __name__ == "__main__":
    unittest.main()
