#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plexus-nvcc in two steps, as Makefiles do that give the C++ of a kernel to another compiler: -cuda.

Usage: nvcc_test.py PLEXUS_NVCC COMPILER
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

NVCC, COMPILER = sys.argv[1], sys.argv[2]
SECONDS = 60 * float(os.environ.get("PLEXUS_TEST_TIME_FACTOR", "1"))
KERNEL = """
__global__ void add(int n, int* data) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) data[i] += 1;
}
extern "C" void call_add(int n, int* data) { add<<<2, 32>>>(n, data); }
"""


class TwoSteps(unittest.TestCase):
    def run_in(self, folder, *words):
        ended = subprocess.run([str(word) for word in words], cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_cuda_gives_source_for_another_compiler(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "kernel.cu").write_text(KERNEL)
            self.run_in(folder, sys.executable, "-B", NVCC, "-cuda", "-maxrregcount", "32", "-ccbin", COMPILER, "--output-file", "kernel.cpp", "kernel.cu")
            self.assertNotIn("<<<", (folder / "kernel.cpp").read_text())
            self.run_in(folder, COMPILER, "-std=c++17", "-c", "kernel.cpp", "-o", "kernel.o")
            self.assertEqual(sorted(each.name for each in folder.iterdir()), ["kernel.cpp", "kernel.cu", "kernel.o"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
