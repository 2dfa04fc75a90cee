#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The backend's calls one by one, as torch.distributed documents them, on 2 to 4 processes."""
import datetime
import os
import threading
import time
import unittest

import world  # first: it skips the test where there is no PyTorch

import torch
import torch.distributed as dist
from torch_plexus._shrink import backend_of


NUMBERS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int16, torch.int32,
           torch.int64]
TYPES = NUMBERS + [torch.bool, torch.complex64, torch.complex128]


def expect(found, wanted, what=""):
    wanted = torch.as_tensor(wanted)
    if not torch.equal(found, wanted.to(found.dtype).expand_as(found)):
        raise AssertionError(f"{what}: {found} is not {wanted}")


def expect_raises(call, *texts):
    try:
        call()
    except (RuntimeError, ValueError) as error:
        for text in texts:
            if text not in str(error):
                raise AssertionError(f"no {text!r} in: {error}") from error
        return str(error)
    raise AssertionError(f"no error with {texts}")


def values(dtype, number, count=5):
    return torch.full((count,), number).to(dtype)


def every_type():
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in TYPES:
        mine = values(dtype, rank + 1)
        parts = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(parts, mine)
        for other, part in enumerate(parts):
            expect(part, values(dtype, other + 1), f"all_gather {dtype}")
        data = values(dtype, rank + 1)
        dist.broadcast(data, size - 1)
        expect(data, values(dtype, size), f"broadcast {dtype}")
        data = values(dtype, rank + 1)
        dist.all_reduce(data)
        expect(data, values(dtype, size * (size + 1) // 2), f"all_reduce {dtype}")
        received = torch.zeros_like(mine)
        sending = dist.isend(mine, (rank + 1) % size)
        dist.recv(received, (rank - 1) % size)
        sending.wait()
        expect(received, values(dtype, (rank - 1) % size + 1), f"recv {dtype}")


def every_operation():
    rank, size = dist.get_rank(), dist.get_world_size()
    numbers = torch.arange(1, size + 1)
    wanted = {dist.ReduceOp.SUM: numbers.sum(), dist.ReduceOp.PRODUCT: numbers.prod(), dist.ReduceOp.MIN: 1,
              dist.ReduceOp.MAX: size}
    for dtype in NUMBERS:
        for op, result in wanted.items():
            data = values(dtype, rank + 1)
            dist.all_reduce(data, op)
            expect(data, result, f"{dtype} {op}")
    data = values(torch.float32, rank + 1)
    dist.all_reduce(data, dist.ReduceOp.AVG)
    expect(data, (size + 1) / 2, "AVG")
    bits = {dist.ReduceOp.BAND: 0, dist.ReduceOp.BOR: 2 ** size - 1, dist.ReduceOp.BXOR: 2 ** size - 1}
    for dtype in (torch.uint8, torch.int32, torch.int64):
        for op, result in bits.items():
            data = values(dtype, 2 ** rank)
            dist.all_reduce(data, op)
            expect(data, result, f"{dtype} {op}")
            data = values(dtype, 2 ** rank)
            dist.reduce(data, 1, op)
            expect(data, result if rank == 1 else 2 ** rank, f"reduce {dtype} {op}")
    truth = torch.tensor([rank == 0, True, False])
    dist.all_reduce(truth, dist.ReduceOp.MIN)
    expect(truth, torch.tensor([False, True, False]), "bool MIN")
    expect_raises(lambda: dist.all_reduce(torch.ones(1), dist.ReduceOp.BAND), "integers")


def roots():
    rank, size = dist.get_rank(), dist.get_world_size()
    for root in range(size):
        data = torch.full((1000,), float(rank))
        dist.reduce(data, root)
        expect(data, sum(range(size)) if rank == root else rank, "reduce")
        parts = [torch.empty(3) for _ in range(size)] if rank == root else None
        dist.gather(torch.full((3,), float(rank)), parts, root)
        for other, part in enumerate(parts or []):
            expect(part, other, "gather")
        part = torch.empty(3)
        dist.scatter(part, [torch.full((3,), float(other)) for other in range(size)] if rank == root else None, root)
        expect(part, rank, "scatter")


def all_to_all():
    rank, size = dist.get_rank(), dist.get_world_size()
    received = torch.empty(size * 2)
    dist.all_to_all_single(received, torch.arange(size * 2.0) + 100 * rank)
    expect(received, torch.cat([torch.tensor([2.0 * rank, 2.0 * rank + 1]) + 100 * other for other in range(size)]))
    # rank i sends j + 1 rows to rank j
    sent = torch.cat([torch.full((other + 1, 3), float(rank)) for other in range(size)])
    received = torch.empty(size * (rank + 1), 3)
    dist.all_to_all_single(received, sent, [rank + 1] * size, [other + 1 for other in range(size)])
    expect(received, torch.arange(float(size)).repeat_interleave(rank + 1)[:, None])
    outputs = [torch.empty(other + 1) for other in range(size)]
    dist.all_to_all(outputs, [torch.full((rank + 1,), float(10 * rank + other)) for other in range(size)])
    for other, output in enumerate(outputs):
        expect(output, 10 * other + rank)


def reduce_scatter():
    rank, size = dist.get_rank(), dist.get_world_size()
    part = torch.empty(4)
    dist.reduce_scatter(part, [torch.full((4,), float(rank + 10 * other)) for other in range(size)])
    expect(part, sum(range(size)) + 10 * rank * size)
    dist.reduce_scatter_tensor(part, torch.full((4 * size,), 2.0))
    expect(part, 2 * size)
    whole = torch.empty(4 * size)
    dist.all_gather_into_tensor(whole, torch.full((4,), float(rank)))
    expect(whole, torch.arange(float(size)).repeat_interleave(4))
    narrow = torch.empty(2, dtype=torch.int16)
    dist.reduce_scatter_tensor(narrow, torch.full((2 * size,), 3, dtype=torch.int16))
    expect(narrow, 3 * size)


def coalesced():
    rank, size = dist.get_rank(), dist.get_world_size()
    tensors = [torch.full((n,), float(rank)) for n in (1, 100, 10000)]
    dist.all_reduce_coalesced(tensors)
    for tensor in tensors:
        expect(tensor, sum(range(size)))
    inputs = [torch.full((2,), float(rank)), torch.full((3, 2), float(rank))]
    outputs = [[torch.empty(2), torch.empty(3, 2)] for _ in range(size)]
    dist.all_gather_coalesced(outputs, inputs)
    for other, (first, second) in enumerate(outputs):
        expect(first, other)
        expect(second, other)


def shapes():
    """Tensors that are not in one piece, or have no elements."""
    rank, size = dist.get_rank(), dist.get_world_size()
    whole = torch.full((6, 4), float(rank))
    column = whole[:, 1]
    dist.all_reduce(column)
    expect(whole[:, 1], sum(range(size)))
    expect(whole[:, 0], rank)
    dist.broadcast(whole.t(), 0)
    expect(whole[:, 0], 0)
    parts = list(torch.empty(size, 3).unbind())  # follow each other in memory
    dist.all_gather(parts, torch.full((3,), float(rank)))
    for other, part in enumerate(parts):
        expect(part, other)
    empty = torch.empty(0)
    dist.all_reduce(empty)
    dist.all_gather([torch.empty(0) for _ in range(size)], empty)
    dist.broadcast(empty, 0)
    scalar = torch.tensor(float(rank))
    dist.all_reduce(scalar)
    expect(scalar, sum(range(size)))
    weight = torch.nn.Parameter(torch.ones(2))  # requires a gradient
    dist.all_reduce(weight)
    expect(weight.detach(), size)


def copies(tensors):
    return [copies(each) if isinstance(each, list) else each.clone() for each in tensors]


def flat(tensors):
    return [part for each in tensors for part in (flat(each) if isinstance(each, list) else [each])]


def shared_memory(count):
    """Lists whose tensors share memory: as if each call had copies, and results were copied back in the lists' order."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def compare(call, views):
        """views(parts) -> outputs, inputs: views of a buffer, given as its `size + 1` parts."""
        found, wanted = ((torch.arange(count * (size + 1.0)) % 1000) * (rank + 1) for _ in range(2))
        call(*views(list(found.view(-1, count).unbind())))
        outputs, inputs = views(list(wanted.view(-1, count).unbind()))
        apart = copies(outputs), copies(inputs)
        call(*apart)
        for target, result in zip(flat(outputs), flat(apart[0])):
            target.copy_(result)
        expect(found, wanted, f"{call.__name__} of {count}")

    def sum_all(tensors, _):
        dist.all_reduce_coalesced(tensors)

    def gather_all(outputs, inputs):
        dist.all_gather(outputs, inputs[0])

    def gather_lists(outputs, inputs):
        dist.all_gather_coalesced(outputs, inputs)

    def gather_whole(outputs, inputs):
        dist.all_gather_into_tensor(outputs[0], inputs[0])

    def gather(outputs, inputs):
        dist.gather(inputs[0], outputs if rank == 1 else None, 1)

    def scatter(outputs, inputs):
        dist.scatter(outputs[0], inputs if rank == 1 else None, 1)

    def scatter_sums(outputs, inputs):
        dist.reduce_scatter(outputs[0], inputs)

    def scatter_whole(outputs, inputs):
        dist.reduce_scatter_tensor(outputs[0], inputs[0])

    def swap(outputs, inputs):
        dist.all_to_all(outputs, inputs)

    def swap_whole(outputs, inputs):
        dist.all_to_all_single(outputs[0], inputs[0])

    def whole(parts):
        return parts[0].as_strided((size * count,), (1,))

    def between(parts):
        """Over the end of the first part and the begin of the second."""
        return parts[0].as_strided((count,), (1,), parts[0].storage_offset() + count // 2)

    compare(sum_all, lambda parts: ([parts[0], parts[0]], []))
    compare(sum_all, lambda parts: ([parts[0], between(parts), parts[2]], []))
    compare(sum_all, lambda parts: ([between(parts), parts[0].flip(0), parts[1]] if rank == 0 else parts[:3], []))
    compare(sum_all, lambda parts: ([whole(parts)[::2], whole(parts)], []))
    for place in [*range(size), between]:  # where the one tensor is, in place or not, beside the list
        part = place if callable(place) else lambda parts, place=place: parts[place]
        compare(gather_all, lambda parts: (parts[:size], [part(parts)]))
        compare(gather_whole, lambda parts: ([whole(parts)], [part(parts)]))
        compare(gather, lambda parts: (parts[:size], [part(parts)]))
        compare(scatter, lambda parts: ([part(parts)], parts[:size]))
        compare(scatter_sums, lambda parts: ([part(parts)], parts[:size]))
        compare(scatter_whole, lambda parts: ([part(parts)], [whole(parts)]))
    compare(gather_all, lambda parts: ([parts[0]] * size, [parts[0]]))
    compare(gather_lists, lambda parts: ([[parts[0], parts[1]]] * size, [parts[1], parts[0]]))
    compare(gather_lists, lambda parts: ([[parts[i], between(parts)] for i in range(size)], [parts[0], parts[size]]))
    compare(swap, lambda parts: (parts[:size], parts[1:size + 1]))
    compare(swap, lambda parts: ([between(parts)] * size, parts[:size]))
    compare(swap_whole, lambda parts: ([whole(parts)], [whole(parts)]))
    compare(swap_whole, lambda parts: ([whole(parts)], [whole(parts[1:])]))


def plain(value):
    """A future's value, to be compared between processes."""
    return value.tolist() if torch.is_tensor(value) else [plain(each) for each in value]


def future_values():
    """What futures have, of every call that Gloo has too."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def mine(number=1):
        return torch.full((2,), float(number + rank))

    def row():
        return [torch.zeros(2) for _ in range(size)]

    works = [dist.all_reduce(mine(), async_op=True), dist.broadcast(mine(), 1, async_op=True),
             dist.all_reduce_coalesced([mine(), mine(5)], async_op=True), dist.all_reduce_coalesced([mine()], async_op=True),
             dist.all_gather(row(), mine(), async_op=True),
             dist.all_gather_coalesced([row()[:2] for _ in range(size)], [mine(), mine(7)], async_op=True),
             dist.gather(mine(), row() if rank == 0 else None, 0, async_op=True),
             dist.scatter(mine(), [mine(i) for i in range(size)] if rank == 0 else None, 0, async_op=True),
             dist.all_to_all_single(torch.zeros(2 * size), torch.arange(2.0 * size) + rank, async_op=True),
             dist.barrier(async_op=True)]
    return [plain((work.get_future() if hasattr(work, "get_future") else work).wait()) for work in works]


def sparse(kinds, count):
    """Sums of sparse tensors, with Gloo or with Plexus: many calls under way at once, other calls in between."""
    rank, size = dist.get_rank(), dist.get_world_size()
    places = torch.arange(count) * (rank + 1) % 500  # some of them twice
    tensors = {"floats": torch.sparse_coo_tensor(places[None], torch.arange(float(count)) % 1000, (500,)),
               "integers": torch.sparse_coo_tensor(places[None], torch.arange(count), (500,)),
               "rows": torch.sparse_coo_tensor(places[None], torch.ones(count, 3) * (rank + 1), (500, 3)),
               "matrix": torch.sparse_coo_tensor(torch.stack([places, places % 7]), torch.ones(count), (500, 7)),
               "of one rank": torch.sparse_coo_tensor((500, 2)) if rank != 1 else torch.eye(500, 2).to_sparse(),
               "nothing": torch.sparse_coo_tensor((3, 4))}
    works, dense = [], []
    for name in kinds:
        works.append(dist.all_reduce(tensors[name], async_op=True))
        dense.append(torch.full((1000,), float(rank)))
        works.append(dist.all_reduce(dense[-1], async_op=True))
    for work in works:
        work.wait()
    for data in dense:
        expect(data, sum(range(size)))
    future = dist.all_reduce(tensors[kinds[0]], async_op=True).get_future().wait()
    dist.all_reduce(tensors[kinds[-1]])
    assert all(tensors[name].is_coalesced() for name in kinds)
    return [tensors[name].to_dense().tolist() for name in kinds] + [future[0].to_dense().tolist()]


def sparse_refusals():
    rank, size = dist.get_rank(), dist.get_world_size()
    of_rank = torch.eye(3 + (rank == size - 1)).to_sparse()
    texts = ("rank",) if rank == size - 1 else (f"rank {size - 1} has another type, other sizes", "[3, 3]")
    expect_raises(lambda: dist.all_reduce(of_rank), *texts)
    expect_raises(lambda: dist.all_reduce(torch.eye(3).to_sparse().to(torch.double if rank == 0 else torch.float)), "another type")
    works = [dist.all_reduce(of_rank, async_op=True), dist.all_reduce(torch.ones(3), async_op=True)]
    expect_raises(works[0].wait, "other sizes")
    works[1].wait()
    expect_raises(lambda: dist.all_reduce(torch.eye(3).to_sparse(), dist.ReduceOp.MAX), "SUM only", "to_dense")
    # PyTorch 2 refuses before it asks a backend.
    has_asked = world.TORCH < 2
    expect_raises(lambda: dist.broadcast(torch.eye(3).to_sparse(), 0),
                  *(("sparse", "only all_reduce") if has_asked else ("SparseCPU",)))
    expect_raises(lambda: dist.all_reduce(torch.eye(3).to_sparse_csr()),
                  *(("COO", "to_dense") if has_asked else ("SparseCsrCPU",)))
    data = torch.ones(3)
    dist.all_reduce(data)  # all is well after refused calls
    expect(data, size)


def scaled_sums():
    """Each rank multiplies by a factor of its own before the sum."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def scaled(factor):
        return dist._make_nccl_premul_sum(factor)

    def in_tensor(factor):
        tensor = torch.tensor([factor], dtype=torch.float64)
        return scaled(tensor if world.TORCH >= 2 else [tensor])

    wanted = sum(2 ** each * (each + 1) for each in range(size))
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64):
        for op in (scaled(2.0 ** rank), in_tensor(2.0 ** rank)):
            data = values(dtype, rank + 1)
            dist.all_reduce(data, op)
            expect(data, wanted, f"{dtype}")
    for count in (10, 2_000_000):
        work = dist.all_reduce(values(torch.float32, rank + 1, count), scaled(0.5), async_op=True)
        expect(work.get_future().wait()[0], size * (size + 1) / 4)
    tensors = [values(torch.float32, rank + 1), values(torch.float32, rank + 1, 3000)]
    dist.all_reduce_coalesced(tensors, scaled(2.0 ** rank))
    for data in tensors:
        expect(data, wanted)
    data = values(torch.float32, rank + 1)
    dist.reduce(data, 1, scaled(2.0 ** rank))
    expect(data, wanted if rank == 1 else rank + 1)
    part = torch.empty(3)
    dist.reduce_scatter_tensor(part, torch.full((3 * size,), rank + 1.0), scaled(2.0 ** rank))
    expect(part, wanted)
    expect_raises(lambda: dist.all_reduce(torch.ones(1, dtype=torch.int32), scaled(0.5)), "premul sums for floats")


def messages():
    """In both directions at once, many at a time, larger than any buffer, beside a collective."""
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    for count in (1, 100, 3_000_000):
        received = torch.empty(count)
        sending = dist.isend(torch.full((count,), float(rank)), right)
        dist.recv(received, left)
        sending.wait()
        expect(received, left, f"{count} elements")
    sent = [dist.isend(torch.full((1000,), float(i)), right) for i in range(20)]
    boxes = [torch.empty(1000) for _ in range(20)]
    taken = [dist.irecv(box, left) for box in boxes]
    dist.barrier()
    for work in sent + taken:
        work.wait()
    for i, box in enumerate(boxes):
        expect(box, i)
    # A message that is taken after a barrier that comes later: the barrier does not wait for it.
    if rank == 0:
        sending = dist.isend(torch.full((3_000_000,), 5.0), 1)
    dist.barrier()
    if rank == 0:
        sending.wait()
    elif rank == 1:
        box = torch.empty(3_000_000)
        dist.recv(box, 0)
        expect(box, 5)
    operations = []
    boxes = {other: torch.empty(500_000) for other in range(size) if other != rank}
    for other, box in boxes.items():
        operations += [dist.P2POp(dist.isend, torch.full((500_000,), float(rank)), other),
                       dist.P2POp(dist.irecv, box, other)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for other, box in boxes.items():
        expect(box, other)


def refusals():
    rank, size = dist.get_rank(), dist.get_world_size()
    expect_raises(lambda: dist.recv(torch.empty(1)), "from a rank that is named", "src")
    # PyTorch 2 refuses some calls itself.
    expect_raises(lambda: dist.send(torch.empty(1), rank), "itself" if world.TORCH < 2 else "should not be the same")
    if world.TORCH < 2:
        expect_raises(lambda: dist.group.WORLD.allreduce([torch.ones(1), torch.ones(1)]), "got 2 tensors", "gives one")
    expect_raises(lambda: dist.all_gather([torch.empty(2)] * size, torch.empty(3)), "number of elements")
    expect_raises(lambda: dist.all_gather([torch.empty(2)] * (size + 1), torch.empty(2)), "one per rank")
    expect_raises(lambda: dist.all_reduce(torch.quantize_per_tensor(torch.ones(2), 1, 0, torch.qint8)),
                  "cannot be reduced" if world.TORCH < 2 else "QuantizedCPU")
    expect_raises(lambda: dist.all_to_all_single(torch.empty(size + 1), torch.empty(size + 1)), "equal parts")
    expect_raises(lambda: dist.broadcast(torch.empty(1), size), "rank")
    dist.barrier()  # all is well after refused calls


def futures():
    rank, size = dist.get_rank(), dist.get_world_size()
    for count in (3, 2_000_000):
        data = torch.full((count,), float(rank))
        future = dist.all_reduce(data, async_op=True).get_future()
        doubled = future.then(lambda done: done.value()[0] * 2)
        expect(doubled.wait(), 2 * sum(range(size)))
        work = dist.all_reduce(torch.ones(count), async_op=True)
        work.wait()
        assert work.is_completed() and work.is_success()
        expect(work.get_future().wait()[0], size)  # after the end
        expect(work.result()[0], size)
    # Callbacks that make another call of the group, and wait for its future.
    def call_again(done):
        value = done.value()
        return dist.all_reduce(value if torch.is_tensor(value) else value[0], async_op=True).get_future().wait()[0]
    future = dist.all_reduce(torch.ones(10), async_op=True).get_future()
    expect(future.then(call_again).then(call_again).wait(), size ** 3)


def overlap():
    """An asynchronous call goes on without its caller: no rank waits, and all of them end."""
    data = torch.ones(1_000_000)
    small = torch.ones(3)
    works = [dist.all_reduce(data, async_op=True), dist.all_reduce(small, async_op=True)]
    until = time.monotonic() + world.bound(30)
    while not all(work.is_completed() for work in works):
        if time.monotonic() > until:
            raise AssertionError("the calls do not end without wait()")
        time.sleep(0.001)
    expect(data, dist.get_world_size())
    expect(small, dist.get_world_size())
    for _ in range(100):  # whose work and tensor nobody keeps
        dist.all_reduce(torch.ones(1000), async_op=True)
    dist.barrier()
    work = dist.all_reduce(small, async_op=True)
    assert work.wait(datetime.timedelta(seconds=world.bound(20)))


def groups():
    rank, size = dist.get_rank(), dist.get_world_size()
    even = dist.new_group(list(range(0, size, 2)))
    odd = dist.new_group(list(range(1, size, 2)))
    mine = even if rank % 2 == 0 else odd
    data = torch.full((10,), float(rank))
    dist.all_reduce(data, group=mine)
    expect(data, sum(range(rank % 2, size, 2)))
    assert dist.get_world_size(mine) == len(range(rank % 2, size, 2))
    reverse = dist.new_group(list(range(size))[::-1])
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * (100 * rank)}, group=reverse)
    assert sorted(each["rank"] for each in objects) == list(range(size)), objects
    boxes = [{"from": rank}, "second"] if rank == 1 else [None, None]
    dist.broadcast_object_list(boxes, 1)
    assert boxes == [{"from": 1}, "second"], boxes
    received = [None]
    dist.scatter_object_list(received, [f"for {other}" for other in range(size)] if rank == 0 else None, 0)
    assert received == [f"for {rank}"], received
    gathered = [None] * size if rank == 0 else None
    dist.gather_object(("tuple", rank), gathered, 0)
    assert rank != 0 or gathered == [("tuple", other) for other in range(size)], gathered
    gloo = dist.new_group(backend="gloo")
    dist.all_reduce(data, group=gloo)  # two backends side by side
    dist.destroy_process_group(mine)
    dist.barrier()


def timeouts():
    """A rank that stays away: whoever waits is told, and so are futures that nobody waits for."""
    rank = dist.get_rank()
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    patient = dist.new_group()
    if rank != 0:
        begin = time.monotonic()
        work = dist.all_reduce(torch.ones(2_000_000), group=group, async_op=True)
        expect_raises(lambda: work.wait(datetime.timedelta(seconds=0.2)), "200 ms", "may be waited for again")
        text = expect_raises(lambda: work.get_future().wait(), "2000 ms", "shrink")
        assert "all_reduce" in text, text
        assert time.monotonic() - begin < world.bound(8), time.monotonic() - begin
        expect_raises(lambda: dist.all_reduce(torch.ones(1), group=group), "2000 ms")  # also later calls
    dist.barrier(patient)
    halves = dist.new_group(timeout=datetime.timedelta(seconds=2))
    if rank != 0:  # the second waits for the first one's second part
        works = [dist.all_reduce(torch.eye(3).to_sparse(), group=halves, async_op=True),
                 dist.all_reduce(torch.ones(1), group=halves, async_op=True)]
        for work in works:
            expect_raises(work.wait, "2000 ms")
    dist.barrier(patient)
    inline = dist.new_group(timeout=datetime.timedelta(seconds=2))
    if rank != 0:
        expect_raises(lambda: dist.all_reduce(torch.ones(1), group=inline), "2000 ms")
    dist.barrier(patient)


def aborts():
    import torch_plexus
    rank = dist.get_rank()
    group = dist.new_group()
    patient = dist.new_group()
    dist.barrier(group)
    dist.barrier(patient)  # all have left the barrier before: an abort may end it for those that are still in it
    if rank == 0:
        torch_plexus.abort("the user pressed stop", group)
        expect_raises(lambda: dist.barrier(group), "the user pressed stop")
    else:
        expect_raises(lambda: dist.barrier(group), "rank 0")
    dist.barrier(patient)


def barriers(absent):
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=20))
    if rank not in absent:
        text = expect_raises(lambda: dist.monitored_barrier(timeout=datetime.timedelta(seconds=1), wait_all_ranks=True),
                             "did not come to monitored_barrier")
        assert ", ".join(map(str, absent)) in text, text
    dist.barrier()
    assert backend_of(dist.group.WORLD)._get_sequence_number_for_group() > 0
    assert size == 4


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        try:
            dist.all_reduce(torch.ones(1))
            text = "nothing"
        except RuntimeError as error:
            text = str(error)
        assert "forked" in text, text
        return torch.tensor([float(index * index)])


def loaders():
    """Workers of a DataLoader are forked while a collective is under way, and end beside the group."""
    for _ in range(2):
        work = dist.all_reduce(torch.ones(3_000_000), async_op=True)
        loader = torch.utils.data.DataLoader(Squares(), batch_size=4, num_workers=2, multiprocessing_context="fork")
        total = sum(batch.sum() for batch in loader)
        work.wait()
        dist.all_reduce(total)
        expect(total, dist.get_world_size() * sum(i * i for i in range(40)))


def lifetimes():
    """Groups that are made and destroyed again, and a destroyed default group that is made again."""
    for _ in range(5):
        group = dist.new_group()
        dist.all_reduce(torch.ones(10), group=group, async_op=True)  # still under way at the end
        dist.destroy_process_group(group)
    dist.barrier()
    threads = count_threads()
    for _ in range(10):
        dist.destroy_process_group(dist.new_group())
    until = time.monotonic() + world.bound(20)
    while count_threads() > threads + 1:  # the library's own end a little later
        if time.monotonic() > until:
            raise AssertionError(f"{count_threads()} threads after 10 groups, {threads} before")
        time.sleep(0.01)


def last_reference():
    """A callback has the last reference to a group, and is still running when Python ends."""
    group = dist.new_group()
    is_running = threading.Event()

    def hold(done, group=group):
        is_running.set()
        time.sleep(0.3)  # Python ends meanwhile
    future = dist.all_reduce(torch.ones(10), group=group, async_op=True).get_future()
    ended = future.then(hold)
    del hold, future, ended
    dist.destroy_process_group(group)
    del group
    assert is_running.wait(world.bound(30))


def count_threads():
    return len(os.listdir("/proc/self/task"))


class BackendTest(unittest.TestCase):
    def test_every_type_is_moved_and_summed(self):
        world.run(every_type, 3)

    def test_every_operation_of_every_type(self):
        world.run(every_operation, 4)

    def test_roots(self):
        world.run(roots, 3)

    def test_all_to_all_in_equal_and_other_parts(self):
        world.run(all_to_all, 3)

    def test_reduce_scatter_and_all_gather_of_one_tensor(self):
        world.run(reduce_scatter, 4)

    def test_coalesced_calls(self):
        world.run(coalesced, 2)

    def test_tensors_of_any_shape(self):
        world.run(shapes, 2)

    def test_lists_whose_tensors_share_memory(self):
        for count in (6, 300_000):
            world.run(shared_memory, 3, count)

    def test_futures_have_what_those_of_gloo_have(self):
        self.assertEqual(world.run(future_values, 3), world.run(future_values, 3, backend="gloo"))

    def test_sums_of_sparse_tensors_are_those_of_gloo(self):
        kinds = ("floats", "integers", "rows", "matrix", "of one rank", "nothing")
        for count in (40, 100_000):
            self.assertEqual(world.run(sparse, 3, kinds, count), world.run(sparse, 3, kinds, count, backend="gloo"))

    def test_refused_sparse_sums_leave_the_group_usable(self):
        world.run(sparse_refusals, 3)

    def test_sums_of_scaled_tensors(self):
        world.run(scaled_sums, 3)

    def test_messages_overtake_collectives_and_each_other(self):
        world.run(messages, 3)

    def test_refused_calls_say_what_to_do(self):
        world.run(refusals, 2)

    def test_futures_and_their_callbacks(self):
        world.run(futures, 2)

    def test_calls_go_on_without_their_caller(self):
        world.run(overlap, 2)

    def test_groups_and_objects(self):
        world.run(groups, 4)

    def test_timeouts(self):
        world.run(timeouts, 2)

    def test_abort_tells_all(self):
        world.run(aborts, 3)

    def test_monitored_barrier_names_who_is_absent(self):
        world.run(barriers, 4, [1, 3])

    def test_forked_loaders_of_data(self):
        world.run(loaders, 2)

    def test_groups_end_cleanly(self):
        world.run(lifetimes, 2)

    def test_callback_with_the_last_reference_to_a_group(self):
        world.run(last_reference, 2)


if __name__ == "__main__":
    world.main(globals())
