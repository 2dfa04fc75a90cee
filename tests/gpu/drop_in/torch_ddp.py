#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small network trained with DistributedDataParallel, N ranks on one GPU, against one process with the whole batch.

Usage: torch_ddp.py [--ranks N] [--steps S] [--backend nccl] [--device cuda]
Both runs begin with the same weights and see the same data; losses and weights agree up to the order of sums.
"""
import argparse
import datetime
import os
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
except ImportError as reason:
    print(f"SKIPPED: no PyTorch here: {reason}")
    sys.exit(77)

BATCH = 64  # of all ranks together


def make_network(device):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(32, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 256), nn.GELU(),
                         nn.Linear(256, 8)).to(device)


def batch_of(step, device):
    generator = torch.Generator().manual_seed(100 + step)
    inputs = torch.randn(BATCH, 32, generator=generator)
    return inputs.to(device), inputs[:, :8].tanh().to(device)


def train(network, steps, device, part):
    """The mean loss of each step over `part` of each batch; returns them all."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    losses = []
    for step in range(steps):
        inputs, targets = (tensor[part] for tensor in batch_of(step, device))
        loss = nn.functional.mse_loss(network(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def run_rank(rank, size, options, file):
    device = torch.device(options.device, 0) if options.device == "cuda" else torch.device(options.device)
    if options.device == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(options.backend, init_method=f"tcp://127.0.0.1:{options.port}", rank=rank, world_size=size,
                            timeout=datetime.timedelta(seconds=60))
    network = make_network(device)
    wrapped = DistributedDataParallel(network, device_ids=[0] if options.device == "cuda" else None,
                                      bucket_cap_mb=1)
    share = BATCH // size
    losses = train(wrapped, options.steps, device, slice(rank * share, (rank + 1) * share))
    dist.all_reduce(losses)
    weights = torch.cat([p.detach().flatten() for p in network.parameters()])
    least, most = weights.clone(), weights.clone()
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    if rank == 0:
        torch.save({"losses": (losses / size).cpu(), "weights": weights.cpu(),
                    "spread": (most - least).abs().max().item()}, file)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--port", type=int, default=29_512)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("SKIPPED: PyTorch sees no GPU here")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "result")
        mp.spawn(run_rank, args=(options.ranks, options, file), nprocs=options.ranks, join=True)
        found = torch.load(file)
    alone = make_network(torch.device(options.device))
    losses = train(alone, options.steps, torch.device(options.device), slice(0, BATCH)).cpu()
    weights = torch.cat([p.detach().flatten() for p in alone.parameters()]).cpu()
    off_loss = (found["losses"] - losses).abs().max().item()
    off_weight = (found["weights"] - weights).abs().max().item()
    print(f"{options.ranks} ranks, {options.steps} steps: loss {losses[0]:.4f} to {losses[-1]:.4f}; against one process: losses"
          f" differ by {off_loss:.1e}, weights by {off_weight:.1e}; between ranks: weights by {found['spread']:.1e}")
    right = found["spread"] == 0 and off_loss < 1e-4 and off_weight < 5e-3 and losses[-1] < losses[0]
    print("right" if right else "WRONG")
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
