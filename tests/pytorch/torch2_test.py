#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch has from 2 on and builds on process groups: coalesced calls, functional collectives, DTensor, FSDP2."""
import unittest

import world  # first: it skips the test where there is no PyTorch

import torch
import torch.distributed as dist

if world.TORCH < 2:
    world.skip(f"PyTorch {torch.__version__} has none of what is tested here")

import torch.distributed._functional_collectives as functional  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor  # noqa: E402
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module  # noqa: E402

from backend_test import expect, expect_raises  # noqa: E402


def coalesced():
    rank, size = dist.get_rank(), dist.get_world_size()
    sums = [torch.full((n,), float(rank)) for n in (1, 1000, 100_000)]
    with dist._coalescing_manager():
        for tensor in sums:
            dist.all_reduce(tensor)
    for tensor in sums:
        expect(tensor, sum(range(size)))
    wholes = [torch.empty(size * n, dtype=dtype) for n, dtype in ((3, torch.float32), (1000, torch.int64))]
    with dist._coalescing_manager(async_ops=True) as manager:
        for whole in wholes:
            dist.all_gather_into_tensor(whole, torch.full((len(whole) // size,), rank, dtype=whole.dtype))
    manager.wait()
    for whole in wholes:
        expect(whole, torch.arange(size).repeat_interleave(len(whole) // size))
    parts = [torch.empty(n) for n in (2, 700)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for part in parts:
            dist.reduce_scatter_tensor(part, torch.arange(float(size)).repeat_interleave(len(part)))
    manager.wait()
    for part in parts:
        expect(part, rank * size)
    expect_raises(lambda: dist.group.WORLD.allgather_into_tensor_coalesced([torch.empty(2 * size)], []), "0 inputs")


def functions():
    rank, size = dist.get_rank(), dist.get_world_size()
    group = dist.group.WORLD
    expect(functional.all_reduce(torch.full((5,), rank + 1.0), "sum", group), size * (size + 1) / 2)
    expect(functional.all_reduce(torch.full((5,), rank + 1.0), "avg", group), (size + 1) / 2)
    rows = functional.all_gather_tensor(torch.full((2, 3), float(rank)), 0, group)
    expect(rows, torch.arange(float(size)).repeat_interleave(2)[:, None])
    part = functional.reduce_scatter_tensor(torch.arange(float(size)).repeat_interleave(4), "sum", 0, group)
    expect(part, rank * size)
    expect(functional.broadcast(torch.full((3,), float(rank)), 1, group), 1)
    swapped = functional.all_to_all_single(torch.arange(float(size)), [1] * size, [1] * size, group)
    expect(swapped, rank)
    for result, number in zip(functional.all_reduce_coalesced([torch.ones(3), torch.full((2,), 2.0)], "sum", group), (1, 2)):
        expect(result, number * size)
    for result in functional.all_gather_into_tensor_coalesced([torch.full((1,), float(rank)), torch.full((1,), float(rank))], group):
        expect(result, torch.arange(float(size)))
    scattered = functional.reduce_scatter_tensor_coalesced([torch.ones(size), torch.ones(2 * size)], "sum", [0, 0], group)
    for result in scattered:
        expect(result, size)


def tensors():
    """DTensor: placements and the collectives that change them, and a product of sharded matrices."""
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(0)
    whole = torch.randn(4 * size, 6)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    assert rows.to_local().shape == (4, 6)
    expect(rows.full_tensor(), whole)
    expect(rows.redistribute(placements=[Shard(1)]).full_tensor(), whole)  # all_to_all
    other = torch.randn(6, 5)
    product = rows @ distribute_tensor(other, mesh, [Replicate()])
    torch.testing.assert_close(product.full_tensor(), whole @ other)
    summed = DTensor.from_local(torch.ones(size, 3), mesh, [Partial()])
    expect(summed.redistribute(placements=[Shard(0)]).to_local(), size)  # reduce_scatter
    expect(summed.full_tensor(), size)


def make_net():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def parallel_net():
    """Tensor parallel: each rank has columns of the first layer and rows of the second."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    net = parallelize_module(make_net(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    alone = make_net()
    data = torch.arange(24.0).view(3, 8) / 24
    torch.testing.assert_close(net(data), alone(data))
    net(data).square().mean().backward()
    alone(data).square().mean().backward()
    torch.testing.assert_close(net[0].weight.grad.full_tensor(), alone[0].weight.grad)


def complete_streams():
    """FSDP2 calls two methods that PyTorch 2.6's streams of CPUs lack, whatever the backend."""
    if not hasattr(torch.cpu.Stream, "record_event"):
        torch.cpu.Stream.record_event = lambda stream, event=None: torch.cpu.Event()
        torch.cpu.Stream.wait_event = lambda stream, event: None


def sharded_net():
    """FSDP2: parameters are gathered for each layer, gradients scattered: as one process with all data trains."""
    complete_streams()
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    net, alone = make_net(), make_net()
    # Gathering again before the backward pass fails in PyTorch 2.6 on CPUs, with gloo as well.
    for layer in (net[0], net[2], net):
        fully_shard(layer, mesh=mesh, reshard_after_forward=False)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (net, alone)]
    for step in range(5):
        data = torch.randn(2 * size, 8, generator=torch.Generator().manual_seed(step))
        for model, optimizer, mine in zip((net, alone), optimizers, (data[2 * rank:2 * rank + 2], data)):
            optimizer.zero_grad()
            model(mine).square().mean().backward()
            optimizer.step()
    for sharded, whole in zip(net.parameters(), alone.parameters()):
        assert sharded.to_local().numel() < whole.numel()
        torch.testing.assert_close(sharded.full_tensor(), whole)


class Torch2Test(unittest.TestCase):
    def test_coalescing_manager(self):
        world.run(coalesced, 2)

    def test_functional_collectives(self):
        world.run(functions, 2)

    def test_tensors_over_a_mesh(self):
        world.run(tensors, 2)

    def test_tensor_parallel_layers(self):
        world.run(parallel_net, 2)

    def test_fsdp2_trains_as_one_process(self):
        world.run(sharded_net, 2)


if __name__ == "__main__":
    world.main(globals())
