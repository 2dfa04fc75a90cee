#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JAX through Plexus: the collectives of shard_map, processes with one device each, all on one GPU.

Usage: jax_collectives.py [--ranks N] [--platform cuda] [--port N]
(cpu tries the script itself.) XLA opens libnccl.so.2 by name: LD_PRELOAD or LD_LIBRARY_PATH say which. One line for each
check; the exit code is 0 when all of them are right.
"""
import argparse
import multiprocessing
import os
import sys

COUNT = 10_008


def checks(jax, jnp, lax, ranks, rank, mine, everyone):
    """name -> (what a rank computes of its block, what must come out of it), by NumPy."""
    from jax.sharding import PartitionSpec
    block = COUNT // ranks
    rows = [one.reshape(ranks, block) for one in everyone]
    next_rank = [(i, (i + 1) % ranks) for i in range(ranks)]
    return PartitionSpec("ranks"), {
        "psum": (lambda x: lax.psum(x, "ranks"), sum(everyone)),
        "pmax": (lambda x: lax.pmax(x, "ranks"), jnp.stack(everyone).max(0)),
        "psum of bfloat16": (lambda x: lax.psum(x.astype(jax.numpy.bfloat16), "ranks").astype(jax.numpy.float32), sum(everyone)),
        "psum of int32": (lambda x: lax.psum(x.astype(jax.numpy.int32), "ranks").astype(jax.numpy.float32), sum(everyone)),
        "all_gather": (lambda x: lax.all_gather(x, "ranks", tiled=True), jnp.concatenate(everyone)),
        "psum_scatter": (lambda x: lax.psum_scatter(x, "ranks", tiled=True), sum(everyone).reshape(ranks, block)[rank]),
        "all_to_all": (lambda x: lax.all_to_all(x.reshape(ranks, block), "ranks", 0, 0).reshape(-1),
                       jnp.concatenate([other[rank] for other in rows])),
        "ppermute": (lambda x: lax.ppermute(x, "ranks", next_rank), everyone[(rank - 1) % ranks]),
        "twenty in a loop": (lambda x: lax.fori_loop(0, 20, lambda _, y: lax.pcast(lax.pmean(y, "ranks"), ("ranks",), to="varying"), x), sum(everyone) / ranks),
    }


def run_rank(rank, options):
    import jax
    import numpy
    from jax import lax
    from jax.sharding import Mesh, NamedSharding
    jax.distributed.initialize(f"127.0.0.1:{options.port}", options.ranks, rank, local_device_ids=[0])
    everyone = [((numpy.arange(COUNT) * 7 + other * 3) % 11 + 1).astype(numpy.float32) for other in range(options.ranks)]
    spec, todo = checks(jax, numpy, lax, options.ranks, rank, everyone[rank], everyone)
    mesh = Mesh(numpy.array(jax.devices()), ("ranks",))
    data = jax.make_array_from_process_local_data(NamedSharding(mesh, spec), everyone[rank])
    failed = 0
    for name, (compute, wanted) in todo.items():
        try:
            result = jax.jit(jax.shard_map(compute, mesh=mesh, in_specs=spec, out_specs=spec))(data)
            got = numpy.asarray(result.addressable_shards[0].data)
            verdict = "ok" if numpy.allclose(got, wanted) else f"WRONG: {got[:4]} for {wanted[:4]}"
        except Exception as reason:  # each check is reported
            verdict = f"FAILED: {type(reason).__name__}: {str(reason).splitlines()[0] if str(reason) else ''}"
        failed += verdict != "ok"
        if rank == 0 or verdict != "ok":
            print(f"{name} rank {rank} of {options.ranks}: {verdict}", flush=True)
    if rank == 0 and options.platform == "cuda":
        with open(f"/proc/{os.getpid()}/maps", encoding="utf-8") as maps:
            print("loaded:", ", ".join(sorted({line.split()[-1] for line in maps if "libnccl" in line or "libplexus.so" in line})))
    jax.distributed.shutdown()
    sys.exit(1 if failed else 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--platform", default="cuda")
    parser.add_argument("--port", type=int, default=29_521)
    options = parser.parse_args()
    try:
        import jax  # noqa: F401
    except ImportError as reason:
        print(f"SKIPPED: no JAX here: {reason}")
        sys.exit(77)
    os.environ.update({"JAX_PLATFORMS": options.platform, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"})
    make = multiprocessing.get_context("spawn")
    ranks = [make.Process(target=run_rank, args=(rank, options)) for rank in range(options.ranks)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    right = all(rank.exitcode == 0 for rank in ranks)
    print(f"all right with {options.ranks} ranks" if right else f"exit codes {[rank.exitcode for rank in ranks]}")
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
