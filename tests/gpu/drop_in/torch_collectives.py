#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.distributed through Plexus: every collective of the nccl backend, several ranks on one GPU.

Usage: torch_collectives.py [--ranks N] [--eager] [--only CHECK,CHECK...] [--backend nccl] [--device cuda]
(gloo and cpu try the script itself.) The library is found as PyTorch finds NCCL: LD_LIBRARY_PATH, or LD_PRELOAD
where the wheel names its own. One line for each collective; the exit code is 0 when all of them are right.
"""
import argparse
import datetime
import os
import sys

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
except ImportError as reason:
    print(f"SKIPPED: no PyTorch here: {reason}")
    sys.exit(77)

COUNT = 10_007


def values(rank, device, count=COUNT, dtype=torch.float32):
    """Whole numbers, different for every rank and place, so that sums are exact."""
    return ((torch.arange(count, device=device) * 7 + rank * 3) % 11 + 1).to(dtype)


def total(size, device, dtype=torch.float32, count=COUNT):
    return sum(values(rank, device, count, dtype) for rank in range(size))


def all_reduce(rank, size, device):
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8):
        data = values(rank, device, dtype=dtype)
        dist.all_reduce(data)
        assert torch.equal(data, total(size, device, dtype)), dtype
    data = values(rank, device)
    dist.all_reduce(data, op=dist.ReduceOp.MAX)
    assert torch.equal(data, torch.stack([values(r, device) for r in range(size)]).amax(0))


def all_reduce_async(rank, size, device):
    many = [values(rank, device) * (i + 1) for i in range(20)]
    for work in [dist.all_reduce(data, async_op=True) for data in many]:
        work.wait()
    for i, data in enumerate(many):
        assert torch.equal(data, total(size, device) * (i + 1))


def average(rank, size, device):
    if dist.get_backend() != "nccl":
        return
    data = values(rank, device) * size
    dist.all_reduce(data, op=dist.ReduceOp.AVG)
    torch.testing.assert_close(data, total(size, device))


def broadcast(rank, size, device):
    data = values(rank, device)
    dist.broadcast(data, src=1 % size)
    assert torch.equal(data, values(1 % size, device))


def reduce(rank, size, device):
    data = values(rank, device)
    dist.reduce(data, dst=0)
    if rank == 0:
        assert torch.equal(data, total(size, device))


def all_gather(rank, size, device):
    parts = [torch.empty(COUNT, device=device) for _ in range(size)]
    dist.all_gather(parts, values(rank, device))
    for other, part in enumerate(parts):
        assert torch.equal(part, values(other, device))
    whole = torch.empty(COUNT * size, device=device)
    dist.all_gather_into_tensor(whole, values(rank, device))
    assert torch.equal(whole, torch.cat(parts))


def reduce_scatter(rank, size, device):
    out = torch.empty(COUNT, device=device)
    dist.reduce_scatter_tensor(out, values(rank, device, COUNT * size))
    assert torch.equal(out, total(size, device, count=COUNT * size)[rank * COUNT:(rank + 1) * COUNT])


def all_to_all(rank, size, device):
    out = torch.empty(COUNT * size, device=device)
    dist.all_to_all_single(out, values(rank, device, COUNT * size))
    wanted = [values(other, device, COUNT * size)[rank * COUNT:(rank + 1) * COUNT] for other in range(size)]
    assert torch.equal(out, torch.cat(wanted))
    # Individual counts: rank r sends i + 1 elements to rank i.
    mine = torch.cat([torch.full((i + 1,), float(rank), device=device) for i in range(size)])
    got = torch.empty((rank + 1) * size, device=device)
    dist.all_to_all_single(got, mine, [rank + 1] * size, [i + 1 for i in range(size)])
    assert torch.equal(got, torch.arange(size, device=device).repeat_interleave(rank + 1).float())


def gather_scatter(rank, size, device):
    parts = [torch.empty(COUNT, device=device) for _ in range(size)] if rank == 0 else None
    dist.gather(values(rank, device), parts, dst=0)
    if rank == 0:
        for other, part in enumerate(parts):
            assert torch.equal(part, values(other, device))
    out = torch.empty(COUNT, device=device)
    dist.scatter(out, [values(i, device) for i in range(size)] if rank == 0 else None, src=0)
    assert torch.equal(out, values(rank, device))


def send_recv(rank, size, device):
    got = torch.empty(COUNT, device=device)
    work = dist.batch_isend_irecv([dist.P2POp(dist.isend, values(rank, device), (rank + 1) % size),
                                   dist.P2POp(dist.irecv, got, (rank - 1) % size)])
    for item in work:
        item.wait()
    assert torch.equal(got, values((rank - 1) % size, device))
    if rank < 2 <= size:
        data = values(rank, device)
        dist.send(data, 1) if rank == 0 else dist.recv(data, 0)
        assert torch.equal(data, values(0, device))


def barrier(_rank, _size, _device):
    dist.barrier()


def groups(rank, size, device):
    halves = [dist.new_group(list(range(part, size, 2))) for part in range(min(2, size))]
    mine = halves[rank % len(halves)]
    data = values(rank, device)
    dist.all_reduce(data, group=mine)
    assert torch.equal(data, sum(values(r, device) for r in range(rank % 2, size, 2)))


def streams(rank, size, device):
    if device.type != "cuda":
        return
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        data = values(rank, device)
        dist.all_reduce(data)
        data *= 2
    side.synchronize()
    assert torch.equal(data, total(size, device) * 2)


def graph(rank, size, device):
    if device.type != "cuda":
        return
    data = values(rank, device)
    dist.all_reduce(data)  # connects
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        dist.all_reduce(data)
    data.copy_(values(rank, device))
    for _ in range(2):
        captured.replay()
    torch.cuda.synchronize()
    assert torch.equal(data, total(size, device) * size)


CHECKS = (all_reduce, all_reduce_async, average, broadcast, reduce, all_gather, reduce_scatter, all_to_all, gather_scatter,
          send_recv, barrier, groups, streams, graph)


def run_rank(rank, size, options):
    device = torch.device(options.device, 0) if options.device == "cuda" else torch.device(options.device)
    if options.device == "cuda":
        torch.cuda.set_device(device)
    eager = {"device_id": device} if options.eager else {}
    dist.init_process_group(options.backend, init_method=f"tcp://127.0.0.1:{options.port}", rank=rank, world_size=size,
                            timeout=datetime.timedelta(seconds=60), **eager)
    failed = 0
    for check in CHECKS:
        if options.only and check.__name__ not in options.only.split(","):
            continue
        try:
            check(rank, size, device)
            verdict = "ok"
        # a collective that a library refuses is reported and does not end the test
        except Exception as reason:
            verdict = f"FAILED: {type(reason).__name__}: {str(reason).splitlines()[0] if str(reason) else ''}"
            failed += 1
        if rank == 0 or verdict != "ok":
            print(f"{check.__name__} rank {rank} of {size}: {verdict}", flush=True)
    dist.destroy_process_group()
    sys.exit(1 if failed else 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--eager", action="store_true", help="communicators are made at once, groups are split off")
    parser.add_argument("--port", type=int, default=29_511)
    parser.add_argument("--only", help="checks, separated by commas")
    options = parser.parse_args()
    if options.device == "cuda":
        if not torch.cuda.is_available():
            print("SKIPPED: PyTorch sees no GPU here")
            sys.exit(77)
        print(f"torch {torch.__version__} on {torch.cuda.get_device_name(0)}, NCCL version as it sees it:"
              f" {'.'.join(map(str, torch.cuda.nccl.version()))}, library: {loaded_library()}", flush=True)
    mp.spawn(run_rank, args=(options.ranks, options), nprocs=options.ranks, join=True)
    print(f"all right with {options.ranks} ranks")


def loaded_library():
    """Which libnccl.so.2 this process has."""
    with open(f"/proc/{os.getpid()}/maps", encoding="utf-8") as maps:
        files = {line.split()[-1] for line in maps if "libnccl" in line or "libplexus.so" in line}
    return ", ".join(sorted(files)) or "none"


if __name__ == "__main__":
    main()
