#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Layers: every #include, and every DEPS of a CMakeLists.txt, goes from a folder to one it may use.

Usage: check_layers.py ROOT    Prints one line per violation and exits 1; prints nothing when clean.
"""
import pathlib
import re
import sys

import tree

ALLOWED = {  # folder -> folders it may include (itself always); one row for every folder that exists
    "plugin-api": [],
    "guest": [],
    "security": [],
    "plugins/support": ["plugin-api", "security"],
    "plugins/net-socket": ["plugin-api", "plugins/support", "security"],
    "plugins/net-ib": ["plugin-api", "plugins/support", "security"],
    "plugins/net-ofi": ["plugin-api", "plugins/support", "security"],
    "plugins/tuner-default": ["plugin-api", "plugins/support"],
    "plugins/tuner-online": ["plugin-api", "plugins/support", "plugins/tuner-default"],
    "plugins/profiler-trace": ["plugin-api"],
    "plugins/net-chaos": ["plugin-api", "plugins/support"],
    # For plugins that wrap others, so that they need not know NCCL's interface.
    "plugins/net-nccl": ["plugin-api", "plugins/support", "core/base", "core/plugin"],
    # Its helper process loads any net plugin, as the core does.
    "plugins/net-jail": ["plugin-api", "plugins/support", "core/base", "core/plugin"],
    "plugins/collnet-aggregator": ["plugin-api", "plugins/support", "security"],
    "kernels/layout": ["plugin-api"],
    "kernels/algorithms": ["kernels/layout"],
    "kernels/program": ["kernels/layout", "kernels/algorithms"],
    "kernels/cuda": ["kernels/layout", "kernels/algorithms", "kernels/program"],
    "kernels/host": ["kernels/layout", "kernels/algorithms", "kernels/program"],
    "core/base": [],
    "core/os": ["core/base"],
    "core/datacenter": ["core/base"],
    "core/topo": ["core/base", "core/os", "kernels/layout", "kernels/algorithms"],
    "core/device": ["core/base", "kernels/cuda"],
    "core/programs": ["core/base", "kernels/layout", "kernels/algorithms", "kernels/program"],
    "core/plugin": ["core/base", "plugin-api"],
    "core/control": ["core/base", "core/os", "security"],
    "core/join": ["core/base", "core/os", "core/control", "security"],
    "core/peers": ["core/base"],
    "core/tuning": ["core/base", "core/os", "core/plugin", "kernels/layout", "kernels/algorithms", "kernels/program"],
    # Transports make the executor's connections and therefore include that interface of
    # kernels/host.
    "core/transport": ["core/base", "core/os", "core/device", "core/plugin", "core/peers", "core/control", "kernels/layout", "kernels/host"],
    "core/selftest": ["core/base", "core/control", "core/peers", "core/plugin", "core/transport", "kernels/layout", "kernels/host"],
    "core/engine": ["core/base", "core/os", "core/device", "core/plugin", "core/transport",
                    "kernels/layout", "kernels/program", "kernels/host"],
    "core/schedule": ["core/base", "core/tuning", "core/device", "core/plugin", "core/transport", "core/engine",
                      "kernels/layout", "kernels/algorithms", "kernels/program", "kernels/host", "kernels/cuda"],
    "core/setup": ["core/base", "core/os", "core/device", "core/plugin", "core/peers", "core/control", "core/transport", "core/tuning", "core/schedule",
                   "core/topo", "core/datacenter", "core/programs", "plugin-api", "kernels/layout"],
    "core/launch": ["core/base", "core/device", "core/plugin", "core/peers", "core/transport", "core/engine", "core/tuning", "core/schedule",
                    "kernels/layout", "kernels/cuda"],
    "core/stall": ["core/base", "core/os", "core/plugin", "core/control", "core/engine", "core/schedule", "kernels/layout"],
    "core/ras": ["core/base", "core/os", "core/stall"],
    "core/comm": ["core/base", "core/os", "core/ras", "core/device", "core/plugin", "core/control", "core/join", "core/peers", "core/transport", "core/engine",
                  "core/tuning", "core/schedule", "core/selftest", "core/setup", "core/launch", "core/stall", "kernels/layout", "kernels/host"],
    "core/api": ["core/base", "core/os", "core/control", "core/join", "core/device", "core/tuning", "core/schedule", "core/setup", "core/comm", "kernels/layout"],
    "tools/conformance": ["core/base", "core/plugin", "plugin-api", "security"],
    "tools/fabric": ["core/base"],
    "tools/slurm": ["core/base", "core/datacenter"],
    "tools/sim": ["plugins/net-chaos", "core/base", "core/tuning", "kernels/layout", "kernels/algorithms", "kernels/program", "tools/fabric"],
    "tools/workload": ["core/base", "kernels/layout"],
    "tools/cli": ["plugins/collnet-aggregator", "security", "core/base", "core/os", "core/join", "core/tuning", "core/datacenter", "tools/fabric", "tools/sim", "tools/slurm", "tools/workload", "core/topo", "core/plugin", "core/programs", "core/schedule",
                  "core/api", "plugin-api", "kernels/layout", "kernels/algorithms", "kernels/program", "tools/conformance"],
}
EXCLUSIVE = {  # third-party header -> the only folders that may name it
    r"boost/dll": ["core/plugin"],
    r"cuda|nvml": ["core/api", "core/device", "kernels/layout", "kernels/cuda"],
    r"isa-l": ["core/transport"],
    r"hwy/": ["kernels/host"],
    r"hwloc": ["core/topo"],
    r"pugixml": ["core/topo", "core/programs", "tools/conformance"],
    r"sodium": ["core/control", "security"],
    r"openssl/": ["security"],
    r"pmix": ["core/join"],
    r"rdma/": ["plugins/net-ofi"],
    r"infiniband/": ["plugins/net-ib"],
    r"yaml\.h": ["tools/slurm"],
    r"CLI/": ["tools/cli"],
    r"nlohmann/": ["core/base", "core/programs", "core/ras", "core/selftest", "core/stall", "tools/cli", "tools/conformance", "tools/workload", "plugins/tuner-default"],
}
FETCHED = {  # code -> the only folders of the library that may have it; others are handed what they need
    r"\bProcess::instance\(": ["core/api"],
    # Threads of the library block all signals; those of the tools are their own.
    r"\bstd::(thread|jthread|async)\(|\bpthread_create\(": ["guest", "tools/cli", "tools/conformance"],
}
FOR_ALL = {"guest"}  # folders that every other one may include
LAYERED = {"core", "guest", "kernels", "plugins", "plugin-api", "security", "tools"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
TARGET = re.compile(r"\bplexus::(\w+)")


def layer(path, allowed):
    return max((name for name in allowed if path == name or path.startswith(name + "/")),
               key=len, default=None)


def assert_acyclic(allowed):
    state = {}

    def visit(name):
        if state.get(name) == "open":
            raise ValueError(f"the table has a cycle through {name}")
        if name not in state:
            state[name] = "open"
            for below in allowed[name]:
                visit(below)
            state[name] = "done"

    for name in allowed:
        visit(name)


def check_include(root, name, quote, target, allowed):
    """Problems of one include line of file `name`."""
    here, there = layer(name, allowed), layer(target, allowed)
    if ".." in target.split("/"):
        yield f"include from the repository root, not '{target}'"
        return
    if quote == '"' and not there and not target.startswith("tests/"):
        # plugin-api is copied as a whole into other trees, so its headers may only include each
        # other.
        if not (here == "plugin-api" and (root / here / target).exists()):
            yield f"'{target}' is not a path from the repository root"
    if here is None:
        return  # tests may use everything
    if there and there != here and there not in allowed[here] and there not in FOR_ALL:
        yield f"{here} may not include {there}"
    if target.startswith("tests/"):
        yield f"{here} may not include tests"
    for pattern, owners in EXCLUSIVE.items():
        if quote == "<" and re.match(pattern, target) and here not in owners:
            yield f"<{target}> belongs to {', '.join(owners)} only"


def check_code(root, allowed):
    for path, name in tree.files(root, tree.CODE):
        top = name.split("/")[0]
        if top not in LAYERED and top != "tests":
            continue
        if top in LAYERED and not layer(name, allowed):
            yield f"{name}: its folder is not in the table; give it a layer"
            continue
        for number, line in enumerate(tree.text_of(path).splitlines(), 1):
            for pattern, owners in FETCHED.items():
                if top in LAYERED and re.search(pattern, line) and layer(name, allowed) not in owners:
                    yield f"{name}:{number}: only {', '.join(owners)} may say {re.search(pattern, line)[0]}"
            match = INCLUDE.match(line)
            if match:
                for problem in check_include(root, name, match[1], match[2], allowed):
                    yield f"{name}:{number}: {problem}"


def check_targets(root, allowed):
    """A folder's target links only what the folder may include (the shared library joins all of them)."""
    of_target = {name.replace("/", "_").replace("-", "_"): name for name in allowed}
    for folder in allowed:
        path = root / folder / "CMakeLists.txt"
        if not path.exists():
            continue
        text = re.sub(r"#[^\n]*", "", tree.text_of(path))
        text = re.sub(r"plexus_add_shared\s*\([^)]*\)", "", text)
        for target in TARGET.findall(text):
            there = of_target.get(target)
            if there and there != folder and there not in allowed[folder]:
                yield f"{folder}/CMakeLists.txt: {folder} may not link plexus::{target}"


def check(root, allowed=None):
    root = pathlib.Path(root)
    allowed = ALLOWED if allowed is None else allowed
    assert_acyclic(allowed)
    problems = [f"{name}: in the table of check_layers.py, but there is no such folder"
                for name in allowed if not (root / name).is_dir()]
    return problems + list(check_code(root, allowed)) + list(check_targets(root, allowed))


if __name__ == "__main__":
    tree.finish(check(sys.argv[1]))
