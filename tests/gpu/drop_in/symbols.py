#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does our libnccl.so.2 have every function of NCCL that a program asks for?

Usage: symbols.py LIBNCCL FILE...    FILEs are programs, libraries, or lists of names (*.txt, # comments).
A folder stands for all shared libraries below it that need libnccl.so.2; one that does not exist is passed over.
Prints what each asks for, and what is missing; the exit code is then 1.
"""
import ctypes
import pathlib
import re
import subprocess
import sys

NAME = re.compile(r"\b(p?nccl[A-Z]\w*)")


def dynamic(option, path):
    """Lines of readelf about a file; none when it is no ELF file."""
    done = subprocess.run(["readelf", "--wide", option, str(path)], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def asked_by(path):
    if path.suffix == ".txt":
        lines = path.read_text(encoding="utf-8").splitlines()
        return {name for line in lines for name in NAME.findall(line.split("#")[0])}
    return {found.group(1) for line in dynamic("--dyn-syms", path) if " UND " in line and (found := NAME.search(line))}


def files_of(argument):
    path = pathlib.Path(argument)
    if not path.is_dir():
        return [path] if path.exists() else []
    return [file for file in sorted(path.rglob("*.so*")) if file.is_file() and
            any("NEEDED" in line and "libnccl.so" in line for line in dynamic("--dynamic", file))]


def main():
    library = ctypes.CDLL(sys.argv[1])
    missing = 0
    for path in (file for argument in sys.argv[2:] for file in files_of(argument)):
        names = asked_by(path)
        absent = sorted(name for name in names if not hasattr(library, name))
        print(f"{path.name}: asks for {len(names)} functions" + (f", WITHOUT: {' '.join(absent)}" if absent else ", has all"))
        missing += len(absent)
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
