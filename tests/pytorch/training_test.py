#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training as users do it: DistributedDataParallel with its hooks, optimizers and join, against Gloo."""
import unittest

import world  # first: it skips the test where there is no PyTorch

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def mlp():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)), (64,)


def cnn():
    """25 million parameters in several buckets."""
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(16 * 7 * 7, 8192), nn.ReLU(), nn.Linear(8192, 2200), nn.ReLU(),
                         nn.Linear(2200, 10)), (3, 16, 16)


def plain(model):
    return DistributedDataParallel(model), torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def in_small_buckets(model):
    return (DistributedDataParallel(model, bucket_cap_mb=0.01, gradient_as_bucket_view=True),
            torch.optim.SGD(model.parameters(), lr=0.05))


def compressed(model):
    trained = DistributedDataParallel(model)
    trained.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return trained, torch.optim.SGD(model.parameters(), lr=0.05)


def of_low_rank(model):
    """PowerSGD: a hook in Python with several collectives, each from a callback of the one before."""
    trained = DistributedDataParallel(model)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    trained.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return trained, torch.optim.SGD(model.parameters(), lr=0.05)


def sharded(model):
    return (DistributedDataParallel(model),
            ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.001))


def train(make, wrap, steps):
    """Losses of this rank, and a sum over the trained parameters' bits."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    model, shape = make()
    trained, optimizer = wrap(model)
    torch.manual_seed(100 + dist.get_rank())
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        data, target = torch.randn(4, *shape), torch.randint(10, (4,))
        loss = nn.functional.cross_entropy(trained(data), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    bits = torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).view(torch.int32)
    return losses, int(bits.long().sum()), int((bits.long() * torch.arange(1, bits.numel() + 1)).sum())


def train_uneven():
    """Ranks with more and fewer inputs: those that are done shadow the others' collectives."""
    torch.manual_seed(7)
    model, shape = mlp()
    trained, optimizer = sharded(model)
    torch.manual_seed(dist.get_rank())
    steps = 0
    with Join([trained, optimizer]):
        for _ in range(3 + 2 * dist.get_rank()):
            optimizer.zero_grad()
            trained(torch.randn(4, *shape)).sum().backward()
            optimizer.step()
            steps += 1
    return steps, float(sum(parameter.detach().double().sum() for parameter in model.parameters()))


def train_words():
    """An embedding whose gradients are sparse."""
    torch.manual_seed(7)
    model = nn.Sequential(nn.Embedding(1000, 16, sparse=True), nn.Flatten(), nn.Linear(16 * 8, 4))
    trained, optimizer = DistributedDataParallel(model), torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(100 + dist.get_rank())
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(trained(torch.randint(1000, (16, 8))), torch.randint(4, (16,)))
        loss.backward()
        assert model[0].weight.grad.is_sparse
        optimizer.step()
        losses.append(loss.item())
    return losses, [float(parameter.detach().double().sum()) for parameter in model.parameters()]


def close(first, second, relative):
    return all(abs(a - b) <= relative * max(1, abs(a)) for a, b in zip(first, second))


class TrainingTest(unittest.TestCase):
    def compare(self, make, wrap, size, steps, relative):
        """Losses equal Gloo's to rounding; all ranks end with the same parameters, bit for bit."""
        ours = world.run(train, size, make, wrap, steps, seconds=300)
        gloo = world.run(train, size, make, wrap, steps, backend="gloo", seconds=300)
        for rank in range(size):
            self.assertTrue(close(ours[rank][0], gloo[rank][0], relative), (ours[rank], gloo[rank]))
        self.assertEqual(len({result[1:] for result in ours}), 1, ours)
        return ours

    def test_mlp_on_2_and_4_processes(self):
        for size in (2, 4):
            self.compare(mlp, plain, size, 20, 1e-4)

    def test_cnn_of_25_million_parameters_on_2_and_4_processes(self):
        self.assertGreater(sum(parameter.numel() for parameter in cnn()[0].parameters()), 24_000_000)
        for size, steps in ((2, 4), (4, 3)):
            self.compare(cnn, plain, size, steps, 1e-3)

    def test_many_buckets(self):
        self.compare(mlp, in_small_buckets, 2, 10, 1e-4)

    def test_comm_hooks(self):
        self.compare(mlp, compressed, 2, 10, 1e-2)
        self.compare(mlp, of_low_rank, 2, 10, 1e-3)

    def test_sparse_gradients(self):
        ours, gloo = world.run(train_words, 3), world.run(train_words, 3, backend="gloo")
        self.assertEqual(len({tuple(totals) for _, totals in ours}), 1, ours)
        for (losses, totals), (wanted, wanted_totals) in zip(ours, gloo):
            self.assertTrue(close(losses, wanted, 1e-5) and close(totals, wanted_totals, 1e-4), (ours, gloo))

    def test_sharded_optimizer(self):
        self.compare(mlp, sharded, 4, 8, 1e-3)

    def test_uneven_inputs(self):
        results = world.run(train_uneven, 3)
        self.assertEqual([steps for steps, _ in results], [3, 5, 7])
        self.assertEqual(len({total for _, total in results}), 1, results)

    def test_deterministic_runs_are_equal_bit_for_bit(self):
        runs = [world.run(train, 4, cnn, plain, 3, PLEXUS_DETERMINISTIC=1, seconds=300) for _ in range(2)]
        self.assertEqual(runs[0], runs[1])


if __name__ == "__main__":
    world.main(globals())
