#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests of back ends, torch.testing._internal.distributed.distributed_test, with this one.

Debian's package has the file, but not the module expecttest, of which those tests use the base class only.
Tests of other back ends, of GPUs and of recv from any rank skip themselves. Runs the whole file, or the tests
that are named.
"""
import os
import sys
import tempfile
import types
import unittest

import world  # first: it skips the test where there is no PyTorch

folder = tempfile.TemporaryDirectory()
os.environ.update(BACKEND="plexus", WORLD_SIZE=os.environ.get("WORLD_SIZE", "3"), TEMP_DIR=folder.name,
                  INIT_METHOD=f"file://{folder.name}/shared", OMP_NUM_THREADS="1")
os.environ.pop("CI", None)  # with it, PyTorch's tests want a module for XML reports
if "expecttest" not in sys.modules:
    sys.modules["expecttest"] = types.ModuleType("expecttest")
    sys.modules["expecttest"].TestCase = unittest.TestCase
    sys.modules["expecttest"].ACCEPT = False

import torch  # noqa: E402

try:
    from torch.testing._internal import common_distributed
except ImportError as missing:
    world.skip(f"{missing}: this PyTorch has no tests of its own")

features = common_distributed.DistTestCases
for feature in ("plugin", "ddp"):
    features.backend_feature[feature].add("plexus")
features.skip_collective["sendrecv anysource"].add("plexus")

from torch.testing._internal.common_utils import run_tests  # noqa: E402
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402


# PyTorch 1.13 on Python 3.11 cannot import a module of its own that these tests use, whatever the backend.
NEED_SHARD = ["test_DistributedDataParallelCPU", "test_DistributedDataParallelCPU_grad_is_view", "test_ddp_create_graph",
              "test_ddp_logging_data_cpu", "test_static_graph_api_cpu"]


class SuiteTest(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


try:
    import torch.distributed._shard.sharded_tensor  # noqa: F401
except (ImportError, ValueError) as broken:
    for name in NEED_SHARD:
        setattr(SuiteTest, name, unittest.skip(f"PyTorch's own torch.distributed._shard fails: {broken}")(
            getattr(SuiteTest, name)))

if world.TORCH >= 2:
    SuiteTest.test_ddp_logging_data_cpu = unittest.skip("PyTorch 2 calls every group of a plugin's 'custom' there")(
        SuiteTest.test_ddp_logging_data_cpu)

if __name__ == "__main__":
    run_tests()
