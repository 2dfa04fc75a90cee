#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the built libraries show to others: the libraries exactly exports.map, a plugin exactly its entries.

Usage: check_exports.py library FILE EXPORTS.MAP | check_exports.py plugin FILE
"""
import re
import subprocess
import sys

import tree

PLUGIN_ENTRY = re.compile(r"^(plexus_plugin_query|plexus_collnet_query|nccl[A-Z]\w*Plugin_v\d+|ncclProfiler_v\d+)$")
# Defined in every shared object by some linkers and sanitizers; not part of an interface.
LINKER = re.compile(r"^(_init|_fini|_edata|_end|__bss_start|__(asan|ubsan|tsan|odr_asan)\w*)")


def names_of_map(text):
    """The global names of a version script, which holds one node and no wildcard."""
    text = re.sub(r"/\*.*?\*/|#[^\n]*|//[^\n]*", "", text, flags=re.DOTALL)
    match = re.search(r"global\s*:(.*?)(local\s*:|\})", text, re.DOTALL)
    if not match:
        raise ValueError("the version script has no `global:` part")
    names = set(re.findall(r"[^\s;{}]+", match[1]))
    wild = sorted(name for name in names if "*" in name)
    if wild:
        raise ValueError(f"the version script has a wildcard: {', '.join(wild)}")
    return names


def exported(nm_output):
    """The defined dynamic symbols in the output of `nm -D --defined-only`, without version nodes."""
    names = set()
    for line in nm_output.splitlines():
        words = line.split()
        if len(words) >= 2 and words[-2] != "A":  # A: the name of a version node
            names.add(words[-1].split("@")[0])
    return {name for name in names if not LINKER.match(name)}


def needed(readelf_output):
    return re.findall(r"\(NEEDED\).*\[(.+)\]", readelf_output)


def check_library(symbols, listed):
    return ([f"exported, but not in exports.map: {name}" for name in sorted(symbols - listed)] +
            [f"in exports.map, but not exported: {name}" for name in sorted(listed - symbols)])


def check_plugin(symbols, libraries):
    problems = [f"a plugin shows only its entries, not {name}"
                for name in sorted(symbols) if not PLUGIN_ENTRY.match(name)]
    if not any(PLUGIN_ENTRY.match(name) for name in symbols):
        problems.append("no plugin entry is visible (plexus_plugin_query or ncclNetPlugin_vN)")
    problems += [f"a plugin does not need the library, but this one needs {name}"
                 for name in libraries if re.match(r"lib(plexus|nccl)\.so", name)]
    return problems


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main(kind, path, exports=None):
    symbols = exported(output_of("nm", "-D", "--defined-only", path))
    if kind == "plugin":
        problems = check_plugin(symbols, needed(output_of("readelf", "-dW", path)))
    else:
        with open(exports, encoding="utf-8") as script:
            problems = check_library(symbols, names_of_map(script.read()))
    return [f"{path}: {problem}" for problem in problems]


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("library", "plugin"):
        sys.exit(__doc__)
    tree.finish(main(*sys.argv[1:]))
