# SPDX-License-Identifier: Apache-2.0
"""Builds torch_plexus against an installed libplexus and the PyTorch of this Python.

    pip install --no-build-isolation .

pkg-config has to find plexus: where it is not installed in /usr, set PKG_CONFIG_PATH to its folder lib/pkgconfig.
"""
import subprocess
import sys

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

SOURCES = ["communicator", "element_types", "message_lane", "module", "process_group", "sparse", "staging", "work"]


def ask_pkg_config(flag, prefix):
    """The values of a library's flags that begin with `prefix`, without it."""
    try:
        flags = subprocess.run(["pkg-config", flag, "plexus"], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        sys.exit("torch_plexus: pkg-config does not find plexus; install libplexus-dev, or set PKG_CONFIG_PATH to the "
                 "folder lib/pkgconfig of where it is installed")
    return [each[len(prefix):] for each in flags.split() if each.startswith(prefix)]


folders = ask_pkg_config("--libs-only-L", "-L")
setup(
    name="torch_plexus",
    version="0.1.0",
    description="Plexus as a backend of torch.distributed",
    license="Apache-2.0",
    packages=["torch_plexus"],
    ext_modules=[CppExtension(
        "torch_plexus._C",
        [f"csrc/{name}.cpp" for name in SOURCES],
        include_dirs=ask_pkg_config("--cflags-only-I", "-I"),
        library_dirs=folders,
        runtime_library_dirs=folders,
        libraries=["plexus"],
        extra_compile_args=["-std=c++20", "-O2", "-g0", "-fvisibility=hidden"])],
    cmdclass={"build_ext": BuildExtension},
)
