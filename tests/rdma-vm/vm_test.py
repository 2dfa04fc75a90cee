#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command in the VM with RDMA devices (README.md), of which the build folder keeps the image. Skipped,
with the reason, where the VM cannot be built.

Usage: vm_test.py BUILD_DIR SECONDS MEBIBYTES COMMAND...
"""
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
BUILD_SECONDS = 120
PASSED_ON = ["PLEXUS_RATES_FILE", "PLEXUS_TEST_BIN_DIR", "PLEXUS_TEST_EXAMPLE_DIR", "PLEXUS_TEST_LIB_DIR", "PLEXUS_TEST_MUTANT_OF",
             "PLEXUS_TEST_MUTANTS_EXCEPT",
             "PLEXUS_TEST_TIME_FACTOR", "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS"]


def skip(reason):
    print(f"SKIPPED: the VM with RDMA devices cannot be built here: {reason}")
    sys.exit(SKIPPED)


def main():
    build_dir, seconds, mebibytes, *command = sys.argv[1:]
    environment = {**os.environ, "RDMA_VM_CACHE": str(pathlib.Path(build_dir) / "rdma-vm"),
                   "RDMA_VM_NO_INSTALL": "1"}
    vm = str(HERE / "rdma-vm")
    try:
        built = subprocess.run([vm, "build"], env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS,
                               check=False)
    except subprocess.TimeoutExpired:
        skip(f"its build took more than {BUILD_SECONDS} s")
    if built.returncode != 0:
        skip((built.stderr or built.stdout).strip().splitlines()[-1])
    passed_on = [flag for name in PASSED_ON if name in os.environ for flag in ("--env", name)]
    sys.exit(subprocess.run([vm, "run", "--mem", mebibytes, "--timeout", seconds, "--dir", build_dir, *passed_on, "--",
                             *command], env=environment, check=False).returncode)


if __name__ == "__main__":
    main()
