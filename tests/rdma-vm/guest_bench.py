#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs in the VM: net-ib beside perftest, both over one Soft-RoCE device, and beside net-socket, both between the
emulated hosts a and b. All in one boot and in turns, because emulation is noisy; medians count. At the end come
rows for the tables of docs/net-ib.md.

Usage: guest_bench.py [ROUNDS]
       guest_bench.py ROUNDS buffers: only net-ib, from registered memory beside plain memory
"""
import json
import os
import re
import statistics
import subprocess
import sys

PLEXUS = os.path.join(os.environ["PLEXUS_TEST_BIN_DIR"], "plexus")
PLUGIN = os.path.join(os.environ["PLEXUS_TEST_LIB_DIR"], "libplexus-net-ib.so")
PATIENCE = os.environ.get("PLEXUS_TEST_TIME_FACTOR", "1").split(".", maxsplit=1)[0]
HOST_A = ["ip", "netns", "exec", "a"]
HOST_B = ["ip", "netns", "exec", "b"]
ADDRESS_A = "10.77.1.1"
LATENCY_BYTES = 8
BANDWIDTH_BYTES = (65536, 1 << 20)
JOB_SIZES = (("8", "4K", "512"), ("64K", "1M", "16"))  # -b, -e and -f of plexus perf
BUFFER_SIZES = ("64K", "4M", "8")
BANDWIDTH_LEAST = 0.8
LATENCY_MOST = 1.5
SECONDS = 300  # of a command
# A row of perftest's tables: bytes, iterations, then numbers.
ROW = re.compile(r"^\s*\d+\s+\d+\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)", re.MULTILINE)


def finish(process, name):
    out, error = process.communicate(timeout=SECONDS)
    if process.returncode != 0:
        sys.exit(f"{name} failed with {process.returncode}:\n{out}\n{error}")
    return out


def start(command, **environment):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, **environment})


def perftest(program, size, count):
    """The numbers of its row; both ends use one device."""
    command = [*HOST_A, program, "-F", "-d", "rxe_a0", "-x", "1", "-s", str(size), "-n", str(count)]
    server = start(command)
    listening = [*HOST_A, "ss", "-Hltn", "sport = :18515"]
    while not subprocess.run(listening, capture_output=True, text=True, timeout=SECONDS, check=True).stdout:
        if server.poll() is not None:
            finish(server, program)
    out = finish(start([*command, ADDRESS_A]), program)
    finish(server, program)
    return [float(number) for number in ROW.search(out).groups()]


def plugin_bench():
    command = [*HOST_A, PLEXUS, "plugin", "bench", PLUGIN, "--json", "-", "--mebibytes", "16", "--patience", PATIENCE]
    rows = json.loads(finish(start(command, NCCL_IB_HCA="=rxe_a0"), "plexus plugin bench"))["rows"]
    return {row["bytes"]: row for row in rows}


def job_times(plugin, port, sizes, buffers="plain"):
    """us of an all_reduce between the two hosts, by bytes."""
    least, most, factor = sizes
    ranks = []
    for rank, host in enumerate((HOST_A, HOST_B)):
        command = [*host, PLEXUS, "perf", "all_reduce", "-b", least, "-e", most, "-f", factor, "-n", "10", "-w", "5", "-c", "0",
                   "--buffers", buffers, "--rank", str(rank), "--nranks", "2", "--rendezvous", f"{ADDRESS_A}:{port}", "--json", "-"]
        ranks.append(start(command, NCCL_NET_PLUGIN=plugin, NCCL_HOSTID=f"host-{rank}",
                           NCCL_IB_HCA=f"=rxe_{'ab'[rank]}0"))
    outputs = [finish(rank, f"plexus perf with {plugin}") for rank in ranks]
    rows = json.loads(outputs[0])["rows"]
    return {row["bytes"]: row["time_us"]["median"] for row in rows if not row["in_place"]}


def last(measured):
    return ", ".join(f"{name} {values[-1]:.1f}" for name, values in measured.items())


def cell(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def compare_buffers(rounds):
    times = {}
    port = 22000
    for _ in range(rounds):
        for buffers in ("registered", "plain"):
            port += 1
            for size, time_us in job_times("net-ib", port, BUFFER_SIZES, buffers).items():
                times.setdefault(size, {}).setdefault(buffers, []).append(time_us)
        print("; ".join(f"all_reduce of {size} bytes us {last(by_buffers)}" for size, by_buffers in times.items()), flush=True)
    for size, by_buffers in times.items():
        registered, plain = by_buffers["registered"], by_buffers["plain"]
        print(f"| {size} | {cell(registered)} | {cell(plain)} | "
              f"{statistics.median(registered) / statistics.median(plain):.2f} |")


def main():
    if sys.argv[2:] == ["buffers"]:
        compare_buffers(int(sys.argv[1]))
        return
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    times = {"perftest": [], "net-ib": []}
    rates = {size: {"perftest": [], "net-ib": []} for size in BANDWIDTH_BYTES}
    jobs = {}
    port = 21000
    for turn in range(rounds):
        times["perftest"].append(perftest("ib_write_lat", LATENCY_BYTES, 300)[2])
        rows = plugin_bench()
        times["net-ib"].append(rows[LATENCY_BYTES]["latency_us"]["median"])
        for size in BANDWIDTH_BYTES:
            rates[size]["perftest"].append(perftest("ib_write_bw", size, (32 << 20) // size)[1])
            rates[size]["net-ib"].append(rows[size]["bandwidth_gb_per_s"] * 1e9 / (1 << 20))
        for plugin in ("net-ib", "net-socket"):
            for sizes in JOB_SIZES:
                port += 1
                for size, time_us in job_times(plugin, port, sizes).items():
                    jobs.setdefault(size, {}).setdefault(plugin, []).append(time_us)
        # a run that ends early has shown these
        print(f"round {turn + 1}: latency us {last(times)}; " +
              "; ".join(f"{size} bytes MiB/s {last(rate)}" for size, rate in rates.items()) + "; " +
              "; ".join(f"all_reduce of {size} bytes us {last(by_plugin)}" for size, by_plugin in jobs.items()), flush=True)
    median = statistics.median
    latency = median(times["net-ib"]) / median(times["perftest"])
    print(f"| latency of {LATENCY_BYTES} bytes, us | {cell(times['net-ib'])} | {cell(times['perftest'])} | {latency:.2f} | at most "
          f"{LATENCY_MOST} |")
    ratios = []
    for size, rate in rates.items():
        ratios.append(median(rate["net-ib"]) / median(rate["perftest"]))
        print(f"| bandwidth of {size} bytes, MiB/s | {cell(rate['net-ib'])} | {cell(rate['perftest'])} | {ratios[-1]:.2f} | at least "
              f"{BANDWIDTH_LEAST} |")
    for size, by_plugin in jobs.items():
        ours, tcp = by_plugin["net-ib"], by_plugin["net-socket"]
        print(f"| {size} | {cell(ours)} | {cell(tcp)} | {median(ours) / median(tcp):.2f} |")
    if latency > LATENCY_MOST or min(ratios) < BANDWIDTH_LEAST:
        sys.exit("net-ib is slower than it should be")


if __name__ == "__main__":
    main()
