#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may use an aggregator: members that know its secret, in every mode of PLEXUS_NET_SECURITY, and nobody else. Pending peers
cost it little and keep nobody out."""
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time

import job
import knock
import netns

COLLNET = {"NCCL_COLLNET_ENABLE": "1", "PLEXUS_COLLNET_PLUGIN": "aggregator", "NCCL_SOCKET_IFNAME": "lo",
           "NCCL_ALGO": "allreduce:collnetchain"}
SIZES = ["-b", "4", "-e", "1M", "-f", "64", "-n", "2", "-w", "1", "-T", "50"]
SECRET = "correct horse battery staple"
KEY = knock.text_key("aggregator secret", SECRET)
OPEN_KEY = knock.text_key("no aggregator secret", "")


class Aggregator(job.Test):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def secret_file(self, text=SECRET, mode=0o600, name="secret"):
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    def start_server(self, *arguments, prefix=(), address="127.0.0.1:0", **environment):
        server = self.start([job.PLEXUS, "aggregator", "--listen", address, *arguments], prefix, **environment)
        return server, re.search(r"listening at (\S+)", server.read_line()).group(1)

    def start_job(self, servers, *arguments, prefix=(), **environment):
        rendezvous = f"127.0.0.1:{job.free_port()}"
        settings = {**COLLNET, "PLEXUS_AGGREGATOR": servers, **environment}
        return [self.start(job.perf("all_reduce", *(arguments or SIZES), "--rank", rank, "--nranks", 2, "--rendezvous",
                                    rendezvous, "--json", "-"), prefix, NCCL_HOSTID=f"host{rank}", **settings)
                for rank in range(2)]

    def expect_success(self, ranks):
        ended = [rank.end(60) for rank in ranks]
        for each in ended:
            self.assertEqual(each.returncode, 0, each.stderr)
        report = self.check_report(ended[0])
        self.assertEqual({row["algorithm"] for row in report["rows"]}, {"collnetchain"})

    def expect_failure(self, ranks, text, seconds=40):
        ended = [rank.end(seconds) for rank in ranks]
        for each in ended:
            self.assertNotEqual(each.returncode, 0)
        self.assertIn(text, "".join(each.stderr for each in ended))


class Members(Aggregator):
    def test_with_the_secret_in_every_mode(self):
        for mode in knock.MODES:
            with self.subTest(mode):
                settings = {"PLEXUS_NET_SECURITY": mode}
                file = self.secret_file()
                _, address = self.start_server("--secret-file", file, **settings)
                self.expect_success(self.start_job(address, PLEXUS_AGGREGATOR_SECRET_FILE=file, **settings))

    def test_hosted_by_the_first_member_in_every_mode(self):
        for mode in knock.MODES:
            with self.subTest(mode):
                self.expect_success(self.start_job("", PLEXUS_NET_SECURITY=mode))

    def test_without_a_secret_on_loopback(self):
        _, address = self.start_server()
        self.expect_success(self.start_job(address))

    def test_that_lack_the_secret_or_have_another(self):
        _, address = self.start_server("--secret-file", self.secret_file())
        other = self.secret_file("another secret of 16+", name="other")
        for settings in ({}, {"PLEXUS_AGGREGATOR_SECRET_FILE": other}):
            with self.subTest(**settings):
                self.expect_failure(self.start_job(address, **settings), "it knows another secret; the server and all "
                                    "members need the same PLEXUS_NET_SECURITY and PLEXUS_AGGREGATOR_SECRET_FILE")

    def test_with_another_mode_than_the_server(self):
        file = self.secret_file()
        server, address = self.start_server("--secret-file", file, PLEXUS_NET_SECURITY="tls")
        self.expect_failure(self.start_job(address, PLEXUS_AGGREGATOR_SECRET_FILE=file),
                            "PLEXUS_NET_SECURITY is auth here and tls at its end")
        server.process.terminate()
        self.assertIn("PLEXUS_NET_SECURITY is tls here and auth at its end", server.end(10).stderr)

    def test_wait_for_a_server_that_never_proves_itself_for_a_bounded_time_in_all(self):
        """It takes every connection and says a byte now and then, so that no single step lasts long."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        is_over = threading.Event()

        def drip():
            guests = []
            listener.settimeout(0.2)
            while not is_over.wait(0.5):
                try:
                    guests.append(listener.accept()[0])
                except TimeoutError:
                    pass
                for guest in guests:
                    try:
                        guest.send(b"P")
                    except OSError:
                        pass
            for guest in guests:
                guest.close()
        thread = threading.Thread(target=drip)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(is_over.set)
        began = time.monotonic()
        self.expect_failure(self.start_job(f"127.0.0.1:{listener.getsockname()[1]}"), "did not prove itself in time")
        self.assertLess(time.monotonic() - began, job.bound(35))


class Stopped(Aggregator, netns.Test):
    SILENCE = 20  # seconds after which a host that is cut off is taken for dead
    BUFFER = 65536  # bytes that a socket receives unread; members have more than that in flight

    def test_a_server_that_is_stopped_with_a_closed_window_is_alive(self):
        inside = ("ip", "netns", "exec", self.make_hosts(["one"])["one"])

        def run(*command):
            return subprocess.run([*inside, *command], check=True, capture_output=True, text=True, timeout=job.bound(20)).stdout
        # The kernel's own limit lets a window grow until it takes all that members have in flight.
        run("sh", "-c", f"echo 4096 {self.BUFFER} {self.BUFFER} > /proc/sys/net/ipv4/tcp_rmem")
        server, address = self.start_server(prefix=inside)
        ranks = self.start_job(address, "-b", "64M", "-e", "64M", "-n", "10", prefix=inside)
        port = f":{int(address.rsplit(':', 1)[1]):04X}"

        def is_probed():  # 4: the timer of window probes
            fields = [line.split() for line in run("cat", "/proc/net/tcp").splitlines()[1:]]
            return any(each[2].endswith(port) and each[5].startswith("04:") for each in fields)

        def window_closes():
            """The server is stopped, or runs again if it is not data that it was stopped in."""
            server.process.send_signal(signal.SIGSTOP)
            deadline = time.monotonic() + 1
            while time.monotonic() < deadline:
                if is_probed():
                    return True
                time.sleep(0.02)  # polling interval; not a synchronisation
            server.process.send_signal(signal.SIGCONT)
            return False
        try:
            self.wait_until(40, window_closes, "the window did not close")
            time.sleep(self.SILENCE + 5)  # the time that must not count
        finally:
            server.process.send_signal(signal.SIGCONT)
        self.expect_success(ranks)


class SecretFiles(Aggregator):
    def refused(self, *arguments, **environment):
        ended = self.start([job.PLEXUS, "aggregator", *arguments], **environment).end(20)
        self.assertEqual(ended.returncode, 2, ended.stderr)
        return ended.stderr

    def test_an_address_that_others_reach_needs_a_secret_or_a_word(self):
        reported = self.refused("--listen", "0.0.0.0:0")
        self.assertIn("--secret-file", reported)
        self.assertIn("--without-secret", reported)
        self.start_server("--without-secret", address="0.0.0.0:0")
        self.start_server("--secret-file", self.secret_file(), address="0.0.0.0:0")
        self.start_server(address="0.0.0.0:0", PLEXUS_AGGREGATOR_SECRET_FILE=self.secret_file())

    def test_files_that_will_not_do(self):
        for file, text in ((self.secret_file(mode=0o644, name="read"), "chmod 600"),
                           (self.secret_file(mode=0o620, name="written"), "chmod 600"),
                           (self.secret_file("short\n", name="short"), "does not have 16 to 4096 bytes"),
                           (self.secret_file("x" * 4097, name="long"), "does not have 16 to 4096 bytes"),
                           (str(self.folder), "not for a secret"), (str(self.folder / "nosuch"), "No such file")):
            with self.subTest(file):
                self.assertIn(text, self.refused("--listen", "127.0.0.1:0", "--secret-file", file))

    def test_members_read_it_as_strictly(self):
        _, address = self.start_server("--secret-file", self.secret_file())
        self.expect_failure(self.start_job(address, PLEXUS_AGGREGATOR_SECRET_FILE=self.secret_file(mode=0o640, name="seen")),
                            "PLEXUS_AGGREGATOR_SECRET_FILE: the file")

    def test_a_mode_that_is_none(self):
        self.assertIn("PLEXUS_NET_SECURITY=strong is not understood: it takes off, auth or tls",
                      self.refused("--listen", "127.0.0.1:0", PLEXUS_NET_SECURITY="strong"))


class PendingPeers(Aggregator):
    def setUp(self):
        super().setUp()
        self.file = self.secret_file()
        self.server, self.address = self.start_server("--secret-file", self.file)

    def call(self, key=KEY, mode="auth"):
        caller = knock.Caller(self.address, key, mode)
        self.addCleanup(caller.close)
        return caller

    def expect_service(self):
        self.expect_success(self.start_job(self.address, PLEXUS_AGGREGATOR_SECRET_FILE=self.file))

    def test_one_who_knows_the_secret_is_welcome(self):
        caller = self.call()
        caller.hello()
        self.assertEqual(caller.answer(), "welcome")
        caller.proof()
        caller.send(b"PLG2" + bytes(20))
        self.assertIn(b"it sent an invalid frame", caller.receive(24 + 40))

    def test_a_wrong_secret_a_wrong_mode_and_garbage_are_cut_off(self):
        wrong = self.call(OPEN_KEY)
        wrong.hello()
        self.assertEqual(wrong.answer(), "other secret")
        other = self.call(mode="tls")
        other.hello()
        self.assertEqual(other.answer(), "other mode")
        half = self.call()
        half.hello()
        self.assertEqual(half.answer(), "welcome")
        half.send(bytes(32))
        garbage = self.call()
        garbage.send(os.urandom(300))
        for each in (wrong, other, half, garbage):
            self.assertTrue(each.is_cut_off())
        self.expect_service()

    def test_a_recorded_connection_cannot_be_replayed(self):
        caller = self.call()
        caller.hello()
        self.assertEqual(caller.answer(), "welcome")
        caller.proof()
        replay = self.call()
        replay.send(caller.sent)
        self.assertTrue(replay.is_cut_off())
        self.expect_service()

    def test_a_crowd_that_says_nothing_is_bounded_and_keeps_nobody_out(self):
        crowd = [self.call() for _ in range(300)]
        self.expect_service()
        for each in crowd:
            self.assertTrue(each.is_cut_off())

    def test_one_who_proves_itself_and_says_nothing_is_dropped(self):
        caller = self.call()
        caller.hello()
        self.assertEqual(caller.answer(), "welcome")
        caller.proof()
        began = time.monotonic()
        self.assertTrue(caller.is_cut_off())
        self.assertLess(time.monotonic() - began, job.bound(15))


class Descriptors(Aggregator):
    LIMIT = 32

    def test_without_descriptors_it_says_so_and_does_not_spin(self):
        server, address = self.start_server(prefix=["prlimit", f"--nofile={self.LIMIT}"])
        waiting = []
        for _ in range(self.LIMIT):
            caller = knock.Caller(address, OPEN_KEY)
            self.addCleanup(caller.close)
            waiting.append(caller)
        refused = knock.Caller(address, OPEN_KEY)
        self.addCleanup(refused.close)
        self.assertEqual(refused.answer(), "no descriptor")
        self.assertEqual(int.from_bytes(refused.answered[12:16], "little"), self.LIMIT)
        before = self.cpu_seconds(server.pid)
        began = time.monotonic()
        while time.monotonic() - began < 1:  # connections keep coming, of which none can be kept
            knock.Caller(address, OPEN_KEY).close()
            time.sleep(0.05)  # their rate; not a synchronisation
        self.assertLess(self.cpu_seconds(server.pid) - before, 0.3)
        for caller in waiting:
            caller.close()
        self.expect_success(self.start_job(address))

    def cpu_seconds(self, pid):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    # The crowd's sockets.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else 4096, hard))
    job.main()
