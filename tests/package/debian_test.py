#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Debian packages in a fresh Debian of the release for which they were built: install, run, build against, remove.

Usage: debian_test.py own|other FOLDER_FOR_THE_SYSTEM PACKAGE.deb...    whose release: this machine's, or the other one
Ends with 77 and a sentence where there is no root, no debootstrap or no mirror.
"""
import pathlib
import re
import shutil
import sys

import debian
from debian import expect, run, say

PACKAGES = ("libplexus0", "libplexus-dev", "plexus-plugins", "plexus-tools")
BASE = ("gcc", "libc6-dev", "cmake", "make", "pkgconf")  # what users have who build against them
SUMS = "".join(f"rank {rank}: 10\n" for rank in range(4))  # what README's first program prints
CMAKE_PROJECT = """cmake_minimum_required(VERSION 3.24)
project(First C)
find_package(Plexus REQUIRED)
add_executable(first first.c)
target_link_libraries(first Plexus::plexus)
message(STATUS "command: ${Plexus_COMMAND}")
"""


def check_no_run_path(system):
    libraries = system.run("dpkg -L " + " ".join(PACKAGES) + " | sort -u").split()
    for path in libraries:
        file = system.root / path.lstrip("/")
        if file.is_file() and file.read_bytes()[:4] == b"\x7fELF":
            expect("PATH" not in run(["readelf", "-d", file]).replace("plexus", ""), f"{path} has a run path")
    caches = system.run("ldconfig -p")
    expect("libcudart" not in caches, "ldconfig offers a stand-in as CUDA's runtime")


def check_command(system):
    say(system.run("plexus --version").strip())
    table = system.run("plexus perf all_reduce --ranks 4 -b 8 -e 2M -f 8 -c 1")
    expect(re.search(r"# Out of bounds values : 0 OK", table), f"plexus perf found wrong results:\n{table}")
    listed = system.run("plexus plugin list")
    expect("net-socket" in listed, f"plexus plugin list does not know net-socket:\n{listed}")
    system.run("plexus plugin check net-socket --only connect")


def check_programs(system, readme):
    source = re.search(r"```c\n(.*?)```", readme.read_text(), re.DOTALL)
    expect(source, "README.md has no program in C")
    folder = system.root / "srv/first"
    folder.mkdir(parents=True)
    (folder / "first.c").write_text(source.group(1))
    (folder / "CMakeLists.txt").write_text(CMAKE_PROJECT)
    say("README's first program by pkg-config")
    printed = system.run("cd /srv/first && cc first.c $(pkg-config --cflags --libs plexus) -o by-pkg-config && ./by-pkg-config")
    expect(printed == SUMS, f"the program by pkg-config printed:\n{printed}")
    system.run("cd /srv/first && cc first.c $(pkg-config --cflags --libs nccl) -o by-name && ./by-name")
    say("README's first program by CMake")
    configured = system.run("cd /srv/first && cmake -B build && cmake --build build")
    expect("command: /usr/bin/plexus" in configured, f"find_package did not give the command:\n{configured}")
    printed = system.run("/srv/first/build/first")
    expect(printed == SUMS, f"the program by CMake printed:\n{printed}")


def is_optional(package):
    """The backend for PyTorch, made where PyTorch is, which takes 0.9 GB: tried by cluster_test.py."""
    return package.name.startswith("python3-torch-plexus_")


def main():
    release, folder = debian.release(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    packages = [package for package in map(pathlib.Path.resolve, map(pathlib.Path, sys.argv[3:])) if not is_optional(package)]
    expect(len(packages) == len(PACKAGES), f"there must be {len(PACKAGES)} packages, not {len(packages)}")
    debian.check_tools("readelf")
    base, copy = folder / "base", folder / "copy"
    debian.make_base(base, release, BASE)
    shutil.rmtree(copy, ignore_errors=True)
    run(["cp", "-a", "--reflink=auto", base, copy])
    system = debian.System(copy)
    for package in packages:
        shutil.copy(package, copy / "tmp")
    say("installing the packages")
    # What they need first, so that only theirs differs between before and after.
    install = "apt-get install -y -q --no-install-recommends"
    system.run(f"apt-get update -q && {install} /tmp/*.deb && dpkg --purge {' '.join(PACKAGES)}")
    before = system.files()
    system.run(f"dpkg -i /tmp/*.deb && dpkg --audit")
    check_no_run_path(system)
    check_command(system)
    check_programs(system, pathlib.Path(__file__).resolve().parents[2] / "README.md")
    say("the libraries without tools and plugins")
    system.run("dpkg --purge plexus-tools plexus-plugins && /srv/first/build/first && cd /srv/first && cmake --fresh -B build")
    say("removing the packages")
    system.run("dpkg --purge libplexus-dev libplexus0")
    left = system.files() - before
    expect(not left, "left when the packages are removed: " + ", ".join(sorted(left)))
    shutil.rmtree(copy)
    say("all is well")


if __name__ == "__main__":
    main()
