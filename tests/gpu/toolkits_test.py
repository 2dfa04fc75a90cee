# SPDX-License-Identifier: Apache-2.0
"""Configuring with CUDA toolkits of several versions, played by the one that is here: each refuses what its version does.

Usage: toolkits_test.py CMAKE NVCC CUDA.CMAKE
"""
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

CMAKE, NVCC, MODULE = sys.argv[1:4]
del sys.argv[1:]
TOOLKITS = {  # version -> the architectures that it knows, of those that the one here knows too
    "11.8": [75, 80, 86, 89, 90],
    "12.0": [75, 80, 86, 89, 90],
    "12.6": [75, 80, 86, 89, 90],
    "12.8": [75, 80, 86, 89, 90, 100, 120],
}
NVCC_OF = textwrap.dedent("""\
    #!{python}
    import re, os, sys
    KNOWN = {known}
    words = " ".join(sys.argv[1:])
    if "--version" in sys.argv:
        print("Cuda compilation tools, release {version}, V{version}.99")
        sys.exit(0)
    if "--list-gpu-arch" in sys.argv:
        print("\\n".join(f"compute_{{number}}" for number in KNOWN))
        sys.exit(0)
    unknown = {{int(number) for number in re.findall(r"(?:compute|sm)_(\\d+)", words)}} - set(KNOWN)
    if unknown:
        sys.exit(f"nvcc fatal : Unsupported gpu architecture 'compute_{{unknown.pop()}}'")
    os.execv("{nvcc}", ["{nvcc}", *sys.argv[1:]])
    """)
PROJECT = textwrap.dedent("""\
    cmake_minimum_required(VERSION 3.25)
    project(Toolkits CXX)
    include("{module}")
    message(STATUS "enabled=${{PLEXUS_CUDA_ENABLED}} ${{PLEXUS_CUDA_SUMMARY}}")
    """)


class Toolkits(unittest.TestCase):
    def configure(self, version, cuda="AUTO"):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            nvcc = folder / "nvcc"
            nvcc.write_text(NVCC_OF.format(python=sys.executable, known=TOOLKITS[version], version=version, nvcc=NVCC), encoding="utf-8")
            nvcc.chmod(0o755)
            (folder / "CMakeLists.txt").write_text(PROJECT.format(module=MODULE), encoding="utf-8")
            done = subprocess.run([CMAKE, "-S", folder, "-B", folder / "build", f"-DPLEXUS_NVCC={nvcc}", f"-DPLEXUS_CUDA={cuda}"],
                                  capture_output=True, text=True, check=False)
            return done.returncode, done.stdout + done.stderr

    def test_an_older_one_turns_cuda_off(self):
        code, said = self.configure("11.8")
        self.assertEqual(code, 0, said)
        self.assertIn("enabled=OFF", said)
        self.assertRegex(said, r"nvcc is of CUDA 11\.8, and 12\.0 is the oldest")
        code, said = self.configure("11.8", "ON")
        self.assertNotEqual(code, 0)
        self.assertIn("is of CUDA 11.8", " ".join(said.split()))

    def test_one_that_does_not_know_the_newest_gpus_compiles_for_those_it_knows(self):
        for version, wanted in (("12.0", "75-real;80-real;90-real;90-virtual"), ("12.6", "75-real;80-real;90-real;90-virtual"),
                                ("12.8", "75-real;80-real;90-real;100-real;120-real;120-virtual")):
            with self.subTest(version=version):
                code, said = self.configure(version)
                self.assertEqual(code, 0, said)
                self.assertIn(f"enabled=ON nvcc {version}, device kernels for {wanted}\n", said)


if __name__ == "__main__":
    unittest.main()
