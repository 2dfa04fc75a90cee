#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `cmake --install` installs: each file has one component, each component what its package promises,
and nothing of the tests leaves the build.

Usage: manifest_test.py CMAKE BUILD_FOLDER
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

CMAKE, BUILD = sys.argv[1], pathlib.Path(sys.argv[2])
COMPONENTS = ("runtime", "development", "plugins", "tools")
# By path below the prefix, the folder of libraries written as `lib`.
EXPECTED = {
    "runtime": (r"lib/libplexus\.so\.0", r"lib/libnccl\.so\.2"),
    "development": (r"include/(nccl|nccl_device|plexus)\.h", r"include/plexus/plexus_\w+\.h", r"lib/lib(plexus|nccl)\.so",
                    r"lib/cmake/Plexus/Plexus\w+(-\w+)?\.cmake", r"lib/cmake/Plexus/PluginExports\.map",
                    r"lib/cmake/NCCL/NCCLConfig(Version)?\.cmake", r"lib/pkgconfig/(plexus|nccl)\.pc",
                    r"share/plexus/template-net/\w+\.(c|txt)",
                    r"share/plexus/template-tuner/\w+\.(cpp|csv|txt)", r"share/plexus/examples/\w+\.(c|json)",
                    r"share/doc/plexus/docs/[\w-]+\.(md|svg)", r"share/doc/plexus/plugin-api/(ABI|README)\.md"),
    "plugins": (r"lib/plexus/libplexus-(net|tuner|collnet)-\w+\.so", r"lib/plexus/libnccl-profiler-trace\.so",
                r"lib/plexus/plexus-jail"),
    "tools": (r"bin/plexus(-cluster|-nvcc)?", r"share/man/man1/plexus\.1", r"share/bash-completion/completions/plexus",
              r"lib/plexus/libplexus-cuda(rt)?-stub(-[\d.]+)?\.so", r"lib/plexus/cudart/libcudart\.so",
              r"lib/plexus/cudart/libcudart\.so\.12", r"lib/plexus/cudart/libcudart\.so\.13", r"lib/plexus/cudart/libcuda\.so(\.1)?",
              r"include/plexus/cudart/((plexus|nvtx3)/)?\w+\.h", r"lib/plexus/cudart/bin/nvcc"),
}


def install(prefix, *component):
    ended = subprocess.run([CMAKE, "--install", BUILD, "--prefix", prefix, *component], capture_output=True,
                           text=True, timeout=100, check=False)
    if ended.returncode != 0:
        raise AssertionError(ended.stdout + ended.stderr)
    found = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    return {re.sub(r"^lib/\w+-linux-gnu/", "lib/", path) for path in found}


class Manifest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="plexus-manifest-")
        cls.addClassCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        cls.all = install(root / "all")
        cls.parts = {name: install(root / name, "--component", name) for name in COMPONENTS}

    def test_every_file_has_exactly_one_component(self):
        self.assertEqual(sorted(path for part in self.parts.values() for path in part), sorted(self.all))

    def test_every_component_has_what_its_package_promises(self):
        for name, part in self.parts.items():
            for pattern in EXPECTED[name]:
                self.assertTrue(any(re.fullmatch(pattern, path) for path in part), f"{name}: no {pattern}")
            for path in part:
                self.assertTrue(any(re.fullmatch(pattern, path) for pattern in EXPECTED[name]),
                                f"{path} is not a file of {name}; correct its install rule, or EXPECTED here")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
