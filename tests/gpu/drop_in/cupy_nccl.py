#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cupy.cuda.nccl through Plexus: ranks of one process on one GPU, then a rank in each of two processes.

Usage: cupy_nccl.py        The exit code is 77 where there is no CuPy, no NCCL in it, or no GPU.
"""
import multiprocessing
import sys


def load():
    try:
        import cupy
        from cupy.cuda import nccl
    except ImportError as reason:
        print(f"SKIPPED: no cupy.cuda.nccl here: {reason}")
        sys.exit(77)
    if not getattr(nccl, "available", False):
        print("SKIPPED: this CuPy is without NCCL, or found no libnccl.so.2")
        sys.exit(77)
    try:
        if cupy.cuda.runtime.getDeviceCount() == 0:
            raise RuntimeError("no device")
    except Exception as reason:
        print(f"SKIPPED: CuPy sees no GPU here: {reason}")
        sys.exit(77)
    return cupy, nccl


def ranks_of_one_process(ranks):
    cupy, nccl = load()
    comms = nccl.NcclCommunicator.initAll([0] * ranks)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(ranks)]
    data = [cupy.full(10_007, rank + 1, dtype=cupy.float32) for rank in range(ranks)]
    gathered = [cupy.zeros(10_007 * ranks, dtype=cupy.float32) for _ in range(ranks)]
    cupy.cuda.Device().synchronize()
    nccl.groupStart()
    for rank, comm in enumerate(comms):
        comm.allReduce(data[rank].data.ptr, data[rank].data.ptr, data[rank].size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM,
                       streams[rank].ptr)
    nccl.groupEnd()
    nccl.groupStart()
    for rank, comm in enumerate(comms):
        comm.allGather(data[rank].data.ptr, gathered[rank].data.ptr, data[rank].size, nccl.NCCL_FLOAT32,
                       streams[rank].ptr)
    nccl.groupEnd()
    nccl.groupStart()
    for rank, comm in enumerate(comms):
        comm.send(gathered[rank].data.ptr, 100, nccl.NCCL_FLOAT32, (rank + 1) % ranks, streams[rank].ptr)
        comm.recv(data[rank].data.ptr, 100, nccl.NCCL_FLOAT32, (rank - 1) % ranks, streams[rank].ptr)
    nccl.groupEnd()
    for stream in streams:
        stream.synchronize()
    wanted = ranks * (ranks + 1) / 2
    for rank, comm in enumerate(comms):
        assert (comm.device_id(), comm.rank_id(), comm.size()) == (0, rank, ranks)
        assert (gathered[rank] == wanted).all() and (data[rank] == wanted).all(), f"rank {rank}"
    for comm in comms:
        comm.destroy()
    print(f"{ranks} ranks of one process: ok (NCCL version as CuPy sees it: {nccl.get_version()})", flush=True)


def one_rank(rank, ranks, unique_id):
    cupy, nccl = load()
    comm = nccl.NcclCommunicator(ranks, unique_id, rank)
    data = cupy.full(10_007, rank + 1, dtype=cupy.float64)
    comm.allReduce(data.data.ptr, data.data.ptr, data.size, nccl.NCCL_FLOAT64, nccl.NCCL_SUM,
                   cupy.cuda.Stream.null.ptr)
    cupy.cuda.Stream.null.synchronize()
    assert (data == ranks * (ranks + 1) / 2).all(), f"rank {rank}"


def ranks_of_processes(ranks):
    _, nccl = load()
    unique_id = nccl.get_unique_id()
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=one_rank, args=(rank, ranks, unique_id)) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        if process.is_alive():
            process.kill()
        assert process.exitcode == 0, f"a rank ended with {process.exitcode}"
    print(f"{ranks} ranks of as many processes: ok")


if __name__ == "__main__":
    for count in (1, 2, 8):
        ranks_of_one_process(count)
    ranks_of_processes(2)
