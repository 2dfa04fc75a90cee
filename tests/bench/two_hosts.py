# SPDX-License-Identifier: Apache-2.0
"""Two network namespaces, which stand for hosts."""
import contextlib
import os
import subprocess

ADDRESS = "10.78.0.1"  # of the first


@contextlib.contextmanager
def two_hosts(rate=None):
    """The prefixes of commands in two namespaces, which a veth pair joins; needs root. `rate`: of each direction, as of `tc`,
    from the first byte on: with a small bucket, and without a congestion control that looks for the rate (BBR)."""
    names = [f"plexus-bench-{os.getpid()}-{end}" for end in "ab"]

    def run(*words):
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    try:
        for name in names:
            run("ip", "netns", "add", name)
        run("ip", "-n", names[0], "link", "add", "fast0", "type", "veth", "peer", "name", "fast0", "netns", names[1])
        for end, name in enumerate(names, 1):
            run("ip", "-n", name, "addr", "add", f"10.78.0.{end}/30", "dev", "fast0")
            run("ip", "-n", name, "link", "set", "fast0", "up")
            run("ip", "-n", name, "link", "set", "lo", "up")
            if rate is not None:
                run("tc", "-n", name, "qdisc", "add", "dev", "fast0", "root", "tbf", "rate", rate, "burst", "4kb", "latency", "50ms")
                run("ip", "netns", "exec", name, "sh", "-c", "echo reno > /proc/sys/net/ipv4/tcp_congestion_control")
        yield [["ip", "netns", "exec", name, "env", f"NCCL_HOSTID={name}"] for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
