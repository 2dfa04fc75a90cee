#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plexus's plugins in NVIDIA's own NCCL: PyTorch with the NCCL of its wheel, two ranks on one GPU.

Usage: stock_nccl.py --plugins FOLDER [--only CASE,CASE...] [--keep FOLDER]
NCCL refuses two ranks on a GPU unless they are of different hosts: each rank has an NCCL_HOSTID of its own, so that all
data goes through the network. For each case (CASES): which lines NCCL must log, that the collectives are right, and what
the plugin must have done; --keep keeps the traces. The exit code is 0 when all of them are right.
"""
import argparse
import glob
import json
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time

import torch_collectives
from torch_collectives import dist, torch

CHECKS = ("all_reduce", "broadcast", "reduce_scatter", "all_gather", "all_to_all", "send_recv")
CASE_S = 40
# What measured times could say of two nodes: Simple is fastest for 40 KiB, where NCCL itself takes LL.
TIMES = {"about": "by hand", "nccl": [{
    "ranks": 2, "nodes": 2, "collective": "all_reduce", "bytes": [1024.0, 1048576.0],
    "time_us": {"ring/LL": [100.0, 100.0], "ring/LL128": [100.0, 100.0], "ring/Simple": [10.0, 10.0],
                "tree/LL": [200.0, 200.0], "tree/LL128": [200.0, 200.0], "tree/Simple": [110.0, 110.0]}}]}
DECIDED_SIMPLE = r"AllReduce: 40028 Bytes -> (Algo )?(RING|Ring|1) (proto )?(SIMPLE|Simple|2)"  # of 10,007 floats


def cases(plugins, folder):
    """name -> (settings, patterns of lines that must be logged, what must be there afterwards)"""
    times = os.path.join(folder, "times.json")
    with open(times, "w", encoding="utf-8") as file:
        json.dump(TIMES, file)

    def plugin(name):
        return os.path.join(plugins, f"libplexus-{name}.so")

    tuned = {"PLEXUS_TUNE_FILE": times}
    return {
        "alone": ({}, [r"Using network Socket"], None),
        "net-socket": ({"NCCL_NET_PLUGIN": plugin("net-socket")}, [r"Loaded net plugin Socket", r"Using network Socket"], None),
        "net-chaos": ({"NCCL_NET_PLUGIN": plugin("net-chaos"),
                       "PLEXUS_CHAOS_SCRIPT": "*: again=20% reorder=8 piece=4096; send: delay=200us jitter=100us"},
                      [r"Using network Chaos"], None),
        "net-ofi": ({"NCCL_NET_PLUGIN": plugin("net-ofi"), "FI_PROVIDER": "tcp"}, [r"Using network OFI"], None),
        "tuner-default": ({"NCCL_TUNER_PLUGIN": plugin("tuner-default"), **tuned},
                          [r"measured times of 2 ranks on 2 nodes decide", DECIDED_SIMPLE], None),
        "tuner-online": ({"NCCL_TUNER_PLUGIN": plugin("tuner-online"), **tuned},
                         [r"measured times of 2 ranks on 2 nodes decide", DECIDED_SIMPLE], None),
        "profiler-trace": ({"NCCL_PROFILER_PLUGIN": os.path.join(plugins, "libnccl-profiler-trace.so"),
                            "PLEXUS_TRACE": os.path.join(folder, "trace")}, [], traces_are_whole),
        "all": ({"NCCL_NET_PLUGIN": plugin("net-socket"), "NCCL_TUNER_PLUGIN": plugin("tuner-default"), **tuned,
                 "NCCL_PROFILER_PLUGIN": os.path.join(plugins, "libnccl-profiler-trace.so"),
                 "PLEXUS_TRACE": os.path.join(folder, "trace")}, [DECIDED_SIMPLE], traces_are_whole),
    }


def traces_are_whole(folder):
    found = []
    for name in glob.glob(os.path.join(folder, "trace*.json")):
        with open(name, encoding="utf-8") as file:
            events = json.load(file)
        events = events["traceEvents"] if isinstance(events, dict) else events
        found.append(f"{len(events)} events, {len({event.get('name') for event in events})} names")
    assert len(found) == 2, f"{len(found)} traces of 2 ranks: {found}"
    return "traces: " + "; ".join(found)


def run_rank(rank, port, settings, folder):
    os.environ.update(settings)
    os.environ.update({"NCCL_HOSTID": f"host-{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_DEBUG": "INFO",
                       "NCCL_DEBUG_SUBSYS": "INIT,NET,TUNING,ENV", "NCCL_DEBUG_FILE": os.path.join(folder, f"log.{rank}")})
    torch.cuda.set_device(0)
    device = torch.device("cuda", 0)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    failed = 0
    for check in torch_collectives.CHECKS:
        if check.__name__ in CHECKS:
            try:
                check(rank, 2, device)
            except Exception as reason:  # each check is reported
                failed += 1
                print(f"  rank {rank}, {check.__name__}: {type(reason).__name__}: {reason}", flush=True)
    data = torch.ones(2 << 20, device=device)
    dist.all_reduce(data)
    torch.cuda.synchronize()
    begin = time.monotonic()
    for _ in range(3):
        dist.all_reduce(data)
    torch.cuda.synchronize()
    if rank == 0:
        print(f"  all_reduce of 8 MiB: {(time.monotonic() - begin) / 3 * 1e3:.1f} ms; {torch_collectives.loaded_library()}", flush=True)
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(1 if failed else 0)


def run_case(name, case, port, folder):
    settings, patterns, afterwards = case
    make = multiprocessing.get_context("fork")
    ranks = [make.Process(target=run_rank, args=(rank, port, settings, folder)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    end = time.monotonic() + CASE_S
    for rank in ranks:
        rank.join(max(0.1, end - time.monotonic()))
    wrong = []
    for number, rank in enumerate(ranks):
        if rank.is_alive():
            wrong.append(f"rank {number} did not end within {CASE_S} s")
            rank.kill()
            rank.join()
        elif rank.exitcode != 0:
            wrong.append(f"rank {number} ended with {rank.exitcode}")
    log = ""
    for file in sorted(glob.glob(os.path.join(folder, "log.*"))):
        with open(file, encoding="utf-8", errors="replace") as lines:
            log += lines.read()
    wrong += [f"no line with {pattern}" for pattern in patterns if not re.search(pattern, log)]
    if afterwards is not None:
        try:
            print(f"  {afterwards(folder)}")
        except (AssertionError, OSError, ValueError, KeyError) as reason:
            wrong.append(str(reason))
    told = [line for line in log.splitlines()
            if re.search(r"plugin|Using network|plexus|WARN|Bytes -> ", line, re.IGNORECASE)]
    print(f"{name}: {'right' if not wrong else 'WRONG: ' + '; '.join(wrong)}")
    for line in dict.fromkeys(re.sub(r"^.*?NCCL ", "", line) for line in told[:400]):
        print(f"    {line[:220]}")
    sys.stdout.flush()
    return not wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plugins", required=True)
    parser.add_argument("--only", help="cases, separated by commas")
    parser.add_argument("--keep")
    parser.add_argument("--port", type=int, default=29_530)
    options = parser.parse_args()
    right = True
    with tempfile.TemporaryDirectory() as names:
        for number, name in enumerate(cases(options.plugins, names)):
            if options.only and name not in options.only.split(","):
                continue
            with tempfile.TemporaryDirectory() as folder:
                right &= run_case(name, cases(options.plugins, folder)[name], options.port + number, folder)
                for trace in glob.glob(os.path.join(folder, "trace*.json")) if options.keep else ():
                    shutil.copy(trace, options.keep)
    print("all right" if right else "not all right")
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
