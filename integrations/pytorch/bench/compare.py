#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plexus against Gloo in PyTorch: raw collectives and steps of DistributedDataParallel, in one run.

Both backends are groups of the same processes and take turns, so that the load of a shared machine
disturbs both. Prints for each row the median and the least time of both, the ratios plexus / gloo, and the
processor seconds that all processes used in it.

usage: compare.py [--ranks N] [--seconds S] [--only raw|ddp]
"""
import argparse
import os
import resource
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_plexus  # noqa: F401

TURNS_MIN = 8  # of fewer the median is not one of a machine that others use too
BACKENDS = ("plexus", "gloo")
SIZES = [1 << 10, 32 << 10, 1 << 20, 25 << 20, 100 << 20]
OPERATIONS = ("all_reduce", "all_gather", "broadcast")


def mlp():
    """0.4 million parameters. Small batches: Debian's BLAS is slow, and the step is to be about communication."""
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return model, torch.randn(8, 256), 5


def cnn():
    """25 million parameters, most of them in its last layers, as in older networks for images."""
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4),
                          nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Flatten(), nn.Linear(64 * 4 * 4, 8192), nn.ReLU(), nn.Linear(8192, 2048),
                          nn.ReLU(), nn.Linear(2048, 10))
    return model, torch.randn(2, 3, 32, 32), 1


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Meter:
    """Times and processor seconds of a thing done with each backend in turn."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.times = {name: [] for name in BACKENDS}
        self.cpu = dict.fromkeys(BACKENDS, 0.0)

    def run(self, things, warm=2):
        """things: backend -> function. All ranks do the same number of turns, which rank 0 decides."""
        more = torch.ones(1)
        until = time.perf_counter() + self.seconds
        turn = 0
        while more.item():
            for name in BACKENDS:
                dist.barrier()
                cpu, start = processor_seconds(), time.perf_counter()
                rounds = things[name]()
                if turn >= warm:
                    self.times[name].append((time.perf_counter() - start) / rounds)
                    self.cpu[name] += (processor_seconds() - cpu) / rounds
            turn += 1
            more[0] = float(time.perf_counter() < until or turn < warm + TURNS_MIN)
            dist.broadcast(more, 0)

    def report(self, what):
        cpu = torch.tensor([self.cpu[name] / len(self.times[name]) for name in BACKENDS])
        dist.all_reduce(cpu)
        if dist.get_rank() != 0:
            return
        median = [statistics.median(self.times[name]) for name in BACKENDS]
        least = [min(self.times[name]) for name in BACKENDS]
        print(f"| {what} | {len(self.times['plexus'])} | " +
              " | ".join(f"{text(p)} | {text(g)} | {p / g:.2f}" for p, g in (median, least, cpu.tolist())) + " |",
              flush=True)


def text(seconds):
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def header():
    if dist.get_rank() == 0:
        print("| what | turns | plexus, median | gloo | ratio | plexus, least | gloo | ratio | "
              "plexus, processor time | gloo | ratio |\n|" + " --- |" * 11, flush=True)


def call_of(operation, size, group):
    data = torch.ones(size // 4)
    if operation == "all_reduce":
        return lambda: dist.all_reduce(data, group=group)
    if operation == "broadcast":
        return lambda: dist.broadcast(data, 0, group=group)
    parts = list(torch.empty(dist.get_world_size(), size // 4).unbind())
    return lambda: dist.all_gather(parts, data, group=group)


def repeat(call, rounds):
    def run():
        for _ in range(rounds):
            call()
        return rounds
    return run


def measure_raw(groups, seconds):
    header()
    for operation in OPERATIONS:
        for size in SIZES:
            rounds = max(3, min(300, (64 << 20) // size))
            meter = Meter(seconds)
            meter.run({name: repeat(call_of(operation, size, groups[name]), rounds) for name in BACKENDS})
            meter.report(f"{operation}, {size // 1024} KiB")


def step_of(make, group):
    torch.manual_seed(1)
    model, data, rounds = make()
    model = DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
    return repeat(step, rounds)


def measure_ddp(groups, seconds):
    header()
    for make in (mlp, cnn):
        meter = Meter(5 * seconds)
        meter.run({name: step_of(make, groups[name]) for name in BACKENDS})
        meter.report(f"DDP step, {make.__name__}")


def run(rank, options, path):
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=options.ranks)
    groups = {name: dist.new_group(backend=name) for name in BACKENDS}
    if rank == 0:
        print(f"{options.ranks} processes of {options.threads} threads on {os.cpu_count()} cores, load "
              f"{os.getloadavg()[0]:.1f}, torch {torch.__version__}", flush=True)
    if options.only in (None, "raw"):
        measure_raw(groups, options.seconds)
    if options.only in (None, "ddp"):
        measure_ddp(groups, options.seconds)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch, per process")
    parser.add_argument("--seconds", type=float, default=2.0, help="per row; five times as long for DDP")
    parser.add_argument("--only", choices=["raw", "ddp"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, args=(options, f"{folder}/store"), nprocs=options.ranks)


if __name__ == "__main__":
    main()
