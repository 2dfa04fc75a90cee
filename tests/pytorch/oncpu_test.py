#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch_plexus.oncpu: training scripts as they are written for GPUs, unchanged, started each way."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import world  # first: it skips the test where there is no PyTorch

# What a launcher starts: the calls of torch.cuda around training, device numbers, pinned memory, a snapshot on a device.
TRAIN = """
import os, sys
import torch
import torch.nn.functional as F
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

assert torch.cuda.is_available() and torch.cuda.device_count() >= 2, "needs two GPUs"
gpu = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(gpu)
torch.cuda.manual_seed_all(1)
torch.manual_seed(1)
init_process_group(backend="nccl")
device = torch.device("cuda", torch.cuda.current_device())
assert device.index == gpu, device
data = TensorDataset(torch.randn(64, 20), torch.rand(64, 1))
loader = DataLoader(data, batch_size=8, pin_memory=True, shuffle=False, sampler=DistributedSampler(data))
model = DDP(torch.nn.Linear(20, 1).to(gpu), device_ids=[gpu], output_device=gpu)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.cuda.amp.GradScaler()
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
for epoch in range(3):
    loader.sampler.set_epoch(epoch)
    total = torch.zeros(1, device=f"cuda:{gpu}")
    for source, targets in loader:
        source, targets = source.to(gpu, non_blocking=True), targets.cuda(non_blocking=True)
        loss = F.mse_loss(model(source), targets)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        total += loss.detach()
    torch.distributed.all_reduce(total)
    if gpu == 0 and epoch == 0:
        torch.save(model.module.state_dict(), sys.argv[1])
end.record()
torch.cuda.synchronize()
assert start.elapsed_time(end) > 0
torch.distributed.barrier()
saved = torch.load(sys.argv[1], map_location=f"cuda:{gpu}")
model.module.load_state_dict(saved)
weight = torch.full((1,), float(model.module.weight.sum()), device=device)
every = [torch.empty_like(weight) for _ in range(torch.distributed.get_world_size())]
torch.distributed.all_gather(every, weight)
assert all(torch.equal(each, weight) for each in every)
print(f"rank {gpu}: epoch loss {total.item():.6f}, {torch.cuda.get_device_name(gpu)}", flush=True)
destroy_process_group()
"""
# What starts its own ranks, one for each device.
SPAWNS = """
import os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.ReLU(), torch.nn.Linear(10, 5))
    def forward(self, x):
        return self.layers(x)

def train(rank, size, folder):
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    torch.cuda.set_device(rank)
    model = DDP(Net().cuda(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    loss = torch.nn.functional.mse_loss(model(torch.randn(20, 10).to(rank)), torch.randn(20, 5).to(rank))
    loss.backward()
    optimizer.step()
    print(f"trained on {rank} of {size}", flush=True)
    dist.destroy_process_group()

if __name__ == "__main__":
    size = torch.cuda.device_count()
    mp.spawn(train, args=(size, sys.argv[1]), nprocs=size, join=True)
"""


class OnCpu(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.script = self.folder / "script.py"

    def start(self, *words, **environment):
        return subprocess.Popen([sys.executable, "-B", "-m", "torch_plexus.oncpu", *map(str, words)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env={**os.environ, "OMP_NUM_THREADS": "1", **environment})

    def end(self, process):
        try:
            output, _ = process.communicate(timeout=world.bound(120))
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail(f"still running: {process.communicate()[0]}")
        return output

    def test_a_script_for_a_launcher(self):
        self.script.write_text(TRAIN)
        with world.free_port() as port:
            ranks = [self.start(self.script, self.folder / "snapshot", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2",
                                LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)) for rank in range(2)]
            output = [self.end(rank) for rank in ranks]
        for rank in range(2):
            self.assertRegex(output[rank], rf"rank {rank}: epoch loss \d+\.\d+, Plexus virtual device")
        losses = {line.split("loss ")[1] for text in output for line in text.splitlines() if "epoch loss" in line}
        self.assertEqual(len(losses), 1, output)  # the sum over the ranks

    def test_a_script_that_spawns_its_ranks(self):
        self.script.write_text(SPAWNS)
        output = self.end(self.start(self.script, self.folder, PLEXUS_CUDART_DEVICES="3"))
        for rank in range(3):
            self.assertIn(f"trained on {rank} of 3", output)

    def test_wrong_command_lines_are_sentences(self):
        self.assertIn("usage: python3 -m torch_plexus.oncpu SCRIPT", self.end(self.start()))
        self.assertIn("there is no script", self.end(self.start(self.folder / "none.py")))


if __name__ == "__main__":
    unittest.main()
