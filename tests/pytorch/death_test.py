#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that die in training: the others raise within 5 s and name them, and go on without them."""
import os
import signal
import time
import unittest

import world  # first: it skips the test where there is no PyTorch

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_plexus

STEPS = 12
DEATH = 5  # the step in which victims die
RAISE_SECONDS = 5


def make_trained():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(32, 600), nn.ReLU(), nn.Linear(600, 1000), nn.ReLU(), nn.Linear(1000, 4))
    return model, DistributedDataParallel(model)


def step(trained, optimizer):
    optimizer.zero_grad()
    trained(torch.randn(8, 32)).square().mean().backward()
    optimizer.step()


def die_after_a_barrier(victims):
    """When all have left it: a death ends calls that others are still in.

    The store dies with rank 0. A victim that still waits at it then has its answer: rank 0 dies when all have left.
    """
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    store.set(f"left by {dist.get_rank()}", "")
    if dist.get_rank() in victims:
        try:
            store.wait([f"left by {rank}" for rank in range(dist.get_world_size())])
        except RuntimeError:
            assert 0 in victims
        os.kill(os.getpid(), signal.SIGKILL)


def train_with_deaths(victims):
    """Returns the seconds from the deaths to the error, its text, the new size and the sum of all parameters."""
    rank, size = dist.get_rank(), dist.get_world_size()
    model, trained = make_trained()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(DEATH):
        step(trained, optimizer)
    die_after_a_barrier(victims)
    begin = time.monotonic()
    text = ""
    try:
        for _ in range(STEPS):
            step(trained, optimizer)
    except RuntimeError as error:
        text, seconds = str(error), time.monotonic() - begin
        gone = torch_plexus.shrink()
    else:
        raise AssertionError("no error after the deaths")
    assert gone == victims, (gone, victims)
    assert dist.get_world_size() == size - len(victims)
    for parameter in model.parameters():  # a step may have ended on some ranks only
        dist.broadcast(parameter.data, 0)
    trained = DistributedDataParallel(model)
    for _ in range(STEPS - DEATH):
        step(trained, optimizer)
    half = dist.new_group([0, 1])
    if dist.get_rank() < 2:
        pair = torch.ones(1)
        dist.all_reduce(pair, group=half)
        assert pair.item() == 2
    box = torch.full((2,), float(dist.get_rank()))
    if dist.get_rank() == 0:
        dist.send(box, 1)
    elif dist.get_rank() == 1:
        dist.recv(box, 0)
        assert box[0] == 0
    total = float(sum(parameter.detach().double().sum() for parameter in model.parameters()))
    return seconds, text, dist.get_world_size(), total


def receive_from_the_dead():
    """The error of a message names the rank by its number in the group."""
    dist.barrier()
    if dist.get_rank() == 0:
        dist.recv(torch.empty(1), 1)  # the store is here, so this rank stays to the end
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 2:
        dist.send(torch.ones(1), 1)
        store.wait(["received"])
        os.kill(os.getpid(), signal.SIGKILL)
    if dist.get_rank() == 1:
        dist.recv(torch.empty(1), 2)
        store.set("received", "")
        begin = time.monotonic()
        try:
            dist.recv(torch.empty(1), 2)
        except RuntimeError as error:
            assert "rank 2 (" in str(error), error
            seconds = time.monotonic() - begin
            dist.send(torch.ones(1), 0)
            return seconds
        raise AssertionError("a message came from the dead")
    return 0


def shrink_where_all_live():
    try:
        torch_plexus.shrink()
    except ValueError as refusal:
        assert "no rank is known to have died" in str(refusal), refusal
    else:
        raise AssertionError("shrink() without a rank that is gone")
    dist.barrier()


def leave_out(ranks):
    """Ranks that live, but are to stay out."""
    if dist.get_rank() in ranks:
        return None
    torch_plexus.shrink(ranks=ranks)
    data = torch.ones(1)
    dist.all_reduce(data)
    return data.item()


class DeathTest(unittest.TestCase):
    def check_deaths(self, size, victims):
        results = world.run(train_with_deaths, size, victims, may_die=victims, store_on_rank_0=True)
        left = [result for rank, result in enumerate(results) if rank not in victims]
        for seconds, text, new_size, _ in left:
            self.assertLess(seconds, world.bound(RAISE_SECONDS))
            self.assertTrue(any(f"rank {victim} (" in text for victim in victims), text)
            self.assertEqual(new_size, size - len(victims))
        self.assertEqual(len({total for _, _, _, total in left}), 1, left)
        print(f"raised after {min(each[0] for each in left):.3f} to {max(each[0] for each in left):.3f} s")

    def test_a_rank_dies(self):
        self.check_deaths(3, [1])

    def test_the_rank_with_the_store_dies(self):
        self.check_deaths(3, [0])

    def test_two_ranks_die_at_once(self):
        self.check_deaths(4, [1, 3])

    def test_ranks_die_that_nobody_is_connected_to(self):
        """Rank 2's only neighbour in the control plane is rank 0; shrinking finds out."""
        self.check_deaths(4, [0, 2])

    def test_a_message_from_a_rank_that_died(self):
        results = world.run(receive_from_the_dead, 3, may_die=[2])
        self.assertLess(results[1], world.bound(RAISE_SECONDS))

    def test_shrink_where_all_live(self):
        world.run(shrink_where_all_live, 2)

    def test_ranks_that_are_left_out(self):
        self.assertEqual(world.run(leave_out, 3, [2]), [2.0, 2.0, None])


if __name__ == "__main__":
    world.main(globals())
