# SPDX-License-Identifier: Apache-2.0
"""Network namespaces, which stand for hosts: made by a test, removed with it."""
import os
import re
import subprocess

import job


def ip(*arguments):
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=job.bound(20)).stdout


def remove_leftovers():
    """Namespaces of tests that were killed before they could remove them."""
    for line in ip("netns", "list").splitlines():
        match = re.match(r"plexus-(\d+)-\w+\b", line)
        if match and not job.is_running(int(match[1])):
            subprocess.run(["ip", "netns", "del", line.split()[0]], capture_output=True, check=False)


class Test(job.Test):
    def make_hosts(self, names):
        """Namespaces with loopback up, by name. Skips the test where that is not possible."""
        if os.geteuid() != 0:
            self.skipTest("making network namespaces needs root")
        hosts = {name: f"plexus-{os.getpid()}-{name}" for name in names}
        try:
            remove_leftovers()
            for host in hosts.values():
                ip("netns", "add", host)
                self.addCleanup(subprocess.run, ["ip", "netns", "del", host], capture_output=True, check=False)
                ip("-n", host, "link", "set", "lo", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest(f"network namespaces cannot be made here: {getattr(error, 'stderr', None) or error}")
        return hosts

    def join(self, first, first_link, second, second_link):
        """A cable between two hosts, up at both ends."""
        ip("-n", first, "link", "add", first_link, "type", "veth", "peer", "name", second_link, "netns", second)
        for host, link in ((first, first_link), (second, second_link)):
            ip("-n", host, "link", "set", link, "up")

    def wait_for_link(self, host, link):
        self.wait_until(20, lambda: "LOWER_UP" in ip("-n", host, "link", "show", link), f"{link} of {host} is down")

    def bytes_sent(self, host, link):
        text = subprocess.run(["ip", "netns", "exec", host, "cat", f"/sys/class/net/{link}/statistics/tx_bytes"],
                              check=True, capture_output=True, text=True, timeout=job.bound(20)).stdout
        return int(text)
