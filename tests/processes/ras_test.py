#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The port of NCCL's RAS protocol: whichever process of a running job answers, it answers for all."""
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import tempfile
import time

import job
import leaving_test

# Rows are printed for minutes: after the first one the job runs.
LONG = ["-b", "1K", "-e", "64M", "-i", "1K", "-n", "20", "-w", "1", "--tsv", "-"]


class Ras(job.Test):
    read_seconds = 60  # for an answer

    def start_job(self, nranks=3, **environment):
        self.port = job.free_port()
        ranks = self.start_ranks(nranks, "all_reduce", *LONG, *job.limit(120),
                                 **{"NCCL_RAS_ADDR": f"localhost:{self.port}", "NCCL_RAS_TIMEOUT_FACTOR": "50", **environment})
        ranks[0].read_line()
        ranks[0].read_line()
        return ranks

    def connect(self):
        made = socket.create_connection(("127.0.0.1", self.port), timeout=job.bound(5))
        self.addCleanup(made.close)
        return made

    def read_all(self, client):
        received = b""
        while part := client.recv(65536):
            received += part
        return received.decode()

    def ask(self, lines):
        """All that comes until the server closes. A stopped process that shares the port may get the connection, so
        one that is not answered is made again, as NCCL's client does."""
        for _ in range(100):
            client = self.connect()
            client.settimeout(job.bound(self.read_seconds))
            try:
                client.sendall(lines.encode())
                return self.read_all(client)
            except (socket.timeout, ConnectionResetError):
                client.close()
        raise AssertionError("no process answers")

    def status(self):
        return json.loads(self.ask("SET FORMAT json\nSTATUS\n").partition("OK\n")[2])

    def comm(self):
        return self.status()["communicators"][0]

    def test_any_process_answers_for_all(self):
        ranks = self.start_job()
        for _ in range(10):  # the system chooses one of the three
            report = self.status()
            self.assertEqual(report["communicators_count"], 1)
            comm = report["communicators"][0]
            self.assertEqual([rank["rank"] for rank in comm["ranks"]], [0, 1, 2])
            self.assertEqual([rank["pid"] for rank in comm["ranks"]], [ranks[rank].pid for rank in range(3)])
            self.assertEqual(comm["missing_ranks"], [])
            self.assertGreater(min(rank["collective_counts"]["AllReduce"] for rank in comm["ranks"]), 20)
            self.assertEqual(sorted(rank["cuda_dev"] for rank in comm["ranks"]), [0, 1, 2])
        self.assertLess(abs(time.mktime(time.strptime(report["timestamp"], "%Y-%m-%d %H:%M:%S")) - time.time()), 60)

    def test_speaks_the_protocol(self):
        self.start_job()
        client = self.connect()
        for line, reply in (("client protocol 2\r\n", "SERVER PROTOCOL 2\n"), ("TIMEOUT 3\n", "OK\n"), ("NO\n", "ERROR: Unknown command NO\n"),
                            ("SET FORMAT yaml\n", "ERROR: Invalid format yaml\n"), ("TIMEOUT x\n", "ERROR: Invalid timeout value x\n"),
                            ("MONITOR nothing\n", "ERROR: Invalid event group 'nothing'\n")):
            for byte in line.encode():
                client.sendall(bytes([byte]))
            self.assertEqual(client.recv(4096).decode(), reply)
        client.sendall(b"VERBOSE STATUS\nSTATUS\n")
        text = self.read_all(client)
        self.assertEqual(text.count("Job summary\n===========\n"), 1, "the connection ends with the first report")
        self.assertIn("      1          3            1          3        3\n", text)
        self.assertIn("    0         1         1         3         3         3   RUNNING", text)
        self.assertIn(" NCCL DIAG RAS diagnostics completed in ", self.ask("DIAGNOSTICS\n"))
        self.assertEqual(self.ask("SET FORMAT json\nDIAGNOSTICS\n"), "OK\nERROR: diagnostics only supports text output\n")

    def test_names_a_stopped_rank_in_time(self):
        self.read_seconds = 2
        ranks = self.start_job(NCCL_RAS_TIMEOUT_FACTOR="1")
        os.kill(ranks[1].pid, signal.SIGSTOP)

        def is_found():  # on a machine under load others may be late as well, and answers too
            report = self.status()
            missing = {rank["pid"]: rank["status"] for rank in report["communicators"][0]["missing_ranks"]}
            verdicts = [(verdict["rank"], verdict["cause"], verdict["pid"]) for verdict in report["verdicts"]]
            return (missing == {ranks[1].pid: {"unresponsive": True, "considered_dead": False}} and
                    verdicts == [(1, "stopped", ranks[1].pid)] and report["ras"]["collection_time_sec"] < 0.5)

        self.wait_until(90, is_found, "the stopped rank is not named within half a second")
        self.wait_until(90, lambda: f"{ranks[1].pid}) does not answer" in self.ask("STATUS\n"), "the text does not name it")
        os.kill(ranks[1].pid, signal.SIGCONT)
        ranks[0].read_line()  # it goes on
        self.wait_until(60, lambda: len(self.comm()["ranks"]) == 3, "it is still missing")

    def links(self, pid):
        try:
            return [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            return []

    def test_bad_clients_cost_nobody_an_answer(self):
        ranks = self.start_job(2)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096), most))
        idle = [self.connect() for _ in range(1000)]
        long_line = self.connect()
        long_line.sendall(b"x" * 5000)
        half = self.connect()
        half.sendall(b"STAT")
        slow = [self.connect() for _ in range(20)]
        for client in slow:
            client.sendall(b"SET FORMAT json\n" * 2 + b"STATUS\n")  # and does not read
        garbage = self.connect()
        garbage.sendall(os.urandom(4096))
        self.assertEqual(len(self.comm()["ranks"]), 2)
        self.assertEqual(self.closes(long_line), b"")
        for rank in ranks.values():
            self.assertLess(len(self.links(rank.pid)), 200, "descriptors")
        self.assertEqual(self.closes(idle[0]), b"", "who was idle for longest is closed")
        ranks[0].read_line()

    def closes(self, client):
        client.settimeout(job.bound(10))
        try:
            return client.recv(1)
        except ConnectionResetError:
            return b""

    def test_a_taken_port_is_no_trouble(self):
        port = job.free_port()
        with socket.socket() as taken, socket.socket(socket.AF_INET6) as taken6:
            taken.bind(("127.0.0.1", port))
            taken.listen()
            try:
                taken6.bind(("::1", port))
                taken6.listen()
            except OSError:
                pass  # a host without IPv6: there is nothing to take
            report = self.run_perf("all_reduce", "--ranks", "2", "-b", "1K", "-e", "1K", NCCL_RAS_ADDR=f"localhost:{port}")
            self.assertTrue(report["rows"])

    def test_can_be_switched_off(self):
        self.start_job(NCCL_RAS_ENABLE="0")
        with self.assertRaises(ConnectionRefusedError):
            self.connect()

    def test_refuses_other_addresses(self):
        for address, reason in ((f"0.0.0.0:{job.free_port()}", "is refused: RAS has neither secret nor encryption"),
                                ("localhost", "write host:port"), ("localhost:0", "no port that clients could know")):
            ended = self.start(job.perf("all_reduce", "--ranks", "2", "-b", "8", "-e", "8", *job.limit(60)),
                               NCCL_RAS_ADDR=address, NCCL_DEBUG="WARN").end(60)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertIn(reason, ended.stdout + ended.stderr)

    def test_our_client_asks(self):
        ranks = self.start_job()
        address = f"localhost:{self.port}"
        self.assertIn("Communicators... (", self.doctor(address))
        report = json.loads(self.doctor(address, "--json"))
        self.assertEqual(len(report["communicators"][0]["ranks"]), 3)
        metrics = self.doctor(address, "--metrics")
        self.assertRegex(metrics, rf'(?m)^plexus_rank_up\{{comm="0x[0-9a-f]+",rank="2",host="[0-9.]+",pid="{ranks[2].pid}"\}} 1$')
        self.assertRegex(metrics, r'(?m)^plexus_collectives_total\{comm="0x[0-9a-f]+",rank="0",collective="AllReduce"\} [0-9]+$')
        def total(metric, labels):
            return float(re.search(rf'(?m)^{metric}\{{comm="0x[0-9a-f]+",rank="0",{labels}\}} ([0-9.e+]+)$', metrics)[1])

        calls, nbytes, bus = (total(f"plexus_{name}_total", 'collective="AllReduce"') for name in ("collectives", "collective_bytes", "bus_bytes"))
        self.assertGreaterEqual(nbytes, 4 * calls)
        self.assertAlmostEqual(bus / nbytes, 4 / 3, places=3)  # 2 (n - 1) / n of 3 ranks
        self.assertEqual(total("plexus_message_bytes_total", 'direction="sent"'), 0)
        top, = map(json.loads, self.top("--ras", address, "--once", "--json", "--every", 0.2).splitlines())
        comm, = top["communicators"]
        self.assertEqual((comm["size"], comm["missing"]), (3, 0))
        self.assertGreater(comm["calls"], 20)
        self.assertIn("COMM                RANKS MISSING", self.top("--ras", address, "--once", "--every", 0.2))
        self.assertEqual(metrics.count("# TYPE plexus_collectives_total counter\n"), 1)
        for rank in ranks.values():
            rank.stop()
        self.assertIn("cannot connect", self.doctor(address, code=1))
        self.assertIn("write host:port", self.doctor("localhost", code=1))

    def top(self, *arguments):
        return subprocess.run([job.PLEXUS, "top", *map(str, arguments)], capture_output=True, text=True, timeout=job.bound(60),
                              env=job.clean_environment(), check=True).stdout

    def doctor(self, address, *arguments, code=0):
        ended = subprocess.run([job.PLEXUS, "doctor", "--ras", address, *arguments], capture_output=True, text=True,
                               timeout=job.bound(60), env=job.clean_environment(), check=False)
        self.assertEqual(ended.returncode, code, ended.stderr)
        return ended.stderr if code else ended.stdout


class Monitored(leaving_test.ScriptedRanks):
    """Rank 0 has a port of its own, so that it is the one that answers."""

    def start_scripted(self):
        self.ports = [*getattr(self, "ports", []), job.free_port()]
        self.environment = {"NCCL_RAS_ADDR": f"127.0.0.1:{self.ports[-1]}", "NCCL_RAS_TIMEOUT_FACTOR": "50"}
        return super().start_scripted()

    def test_tells_monitors_of_a_death(self):
        ranks = self.start_world(3)
        with socket.create_connection(("127.0.0.1", self.ports[0]), timeout=job.bound(20)) as client, client.makefile("r") as lines:
            client.sendall(b"MONITOR lifecycle\n")
            self.assertEqual(lines.readline(), "OK\n")
            ranks[2].kill()
            self.assertRegex(lines.readline(), rf"^\[[0-9-]+ [0-9:]+\] PEER_DEAD: Process {ranks[2].process.pid} on node ")
            client.sendall(b"SET FORMAT json\nSTATUS\n")
            report = json.loads(lines.read().partition("OK\n")[2])
        missing, = report["communicators"][0]["missing_ranks"]
        self.assertEqual((missing["pid"], missing["status"]["considered_dead"]), (ranks[2].process.pid, True))
        self.assertEqual({verdict["cause"] for verdict in report["verdicts"]}, {"dead"})


class Late(leaving_test.ScriptedRanks):
    """A rank that comes late to each call."""

    def verdicts_of(self, late):
        """What is said of 3 ranks while they make steps, to each of which rank 1 comes `late` ms late."""
        port = job.free_port()
        self.environment = {"NCCL_RAS_ADDR": f"localhost:{port}"}
        ranks = self.start_world(3)
        for number, rank in enumerate(ranks):
            rank.tell("steps", "world", 40, late if number == 1 else 0)
        for rank in ranks:
            self.assertEqual(rank.answer().code, 0)
        ended = subprocess.run([job.PLEXUS, "doctor", "--ras", f"localhost:{port}", "--json"], capture_output=True, text=True,
                               timeout=job.bound(60), env=job.clean_environment(), check=True)
        return [verdict for verdict in json.loads(ended.stdout)["verdicts"] if verdict["cause"] == "late"]

    def test_is_named_after_some_calls(self):
        verdict, = self.verdicts_of(4)
        self.assertEqual(verdict["rank"], 1)
        self.assertGreater(verdict["late_us"], 1000)
        self.assertGreater(verdict["period_us"], verdict["late_us"])


class Links(leaving_test.ScriptedRanks):
    """Two datacenters of one rank each, between which net-chaos of rank 0 cuts connections: at byte 2000 those with messages,
    once in 170 calls, and those with acknowledgements never."""

    def start_scripted(self):
        self.environment["NCCL_HOSTID"] = f"host{len(self.started)}"
        self.environment["PLEXUS_CHAOS_SCRIPT"] = "" if self.started else self.script
        self.started.append(super().start_scripted())
        return self.started[-1]

    def metrics_after_a_stream(self, script):
        fabric = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "fabric"
        fabric.write_text("host host0 dc near\nhost host1 dc far\n")
        port = job.free_port()
        self.started, self.script = [], script
        self.environment = {"NCCL_RAS_ADDR": f"localhost:{port}", "NCCL_NET_PLUGIN": "chaos", "NCCL_MAX_CTAS": "1",
                            "PLEXUS_FABRIC_FILE": str(fabric), "PLEXUS_XDC_TIMEOUT_MSEC": str(int(job.bound(10_000)))}
        ranks = self.start_world(2)
        self.tell_all(ranks, "steps", "world", 170, 0)
        ended = subprocess.run([job.PLEXUS, "doctor", "--ras", f"localhost:{port}", "--metrics"], capture_output=True, text=True,
                               timeout=job.bound(60), env=job.clean_environment(), check=True)
        return {(metric, int(rank)): float(value) for metric, rank, value in
                re.findall(r'(?m)^plexus_(failovers|resent_messages)_total\{comm="0x[0-9a-f]+",rank="(\d)"\} ([0-9.e+]+)$', ended.stdout)}

    def test_a_cut_counts_once_at_the_rank_that_sent(self):
        for sender, script in enumerate(("send: cut=2000", "recv: cut=2000")):
            with self.subTest(script):
                counts = self.metrics_after_a_stream(script)
                self.assertEqual((counts["failovers", sender], counts["failovers", 1 - sender]), (1, 0))
                self.assertEqual(counts["resent_messages", 1 - sender], 0)
        self.assertGreaterEqual(counts["resent_messages", 1], 1)  # it was cut when the message had to arrive

    def test_nothing_is_counted_without_a_loss(self):
        self.assertEqual(set(self.metrics_after_a_stream("").values()), {0})


class BadInput(leaving_test.ScriptedRanks):
    """PLEXUS_CHECK_NAN=1."""

    def verdicts_of(self, calls, **environment):
        """Of 3 ranks, each call with what they give to it; and what the processes have said."""
        port = job.free_port()
        self.environment = {"NCCL_RAS_ADDR": f"localhost:{port}", "PLEXUS_CHECK_NAN": "1", **environment}
        self.stderr = self.enterContext(tempfile.TemporaryFile())
        ranks = self.start_world(3)
        for call in calls:
            for rank, value in zip(ranks, call):
                rank.tell("sum", "world", value)
            for rank in ranks:
                self.assertEqual(rank.answer().code, 0)
        ended = subprocess.run([job.PLEXUS, "doctor", "--ras", f"localhost:{port}", "--json"], capture_output=True, text=True,
                               timeout=job.bound(60), env=job.clean_environment(), check=True)
        self.stderr.seek(0)
        return [verdict for verdict in json.loads(ended.stdout)["verdicts"] if verdict["cause"] == "nan"], self.stderr.read().decode()

    def test_the_first_call_names_its_rank(self):
        verdict, = (verdicts := self.verdicts_of([(1, 2, 3), (1, 2, "nan"), ("nan", "nan", "nan")]))[0]
        self.assertEqual((verdict["rank"], verdict["ranks"]), (2, [2]))
        self.assertRegex(verdict["sentence"], r"rank 2 \(.*\) was the first to give a NaN to all_reduce\(count 1, float, sum.*\), "
                                              r"call number 1: element 0; 1 of its 1 elements are NaN or infinite$")
        self.assertEqual(verdicts[1].count("(PLEXUS_CHECK_NAN)"), 3, "each rank says it once")
        self.assertRegex(verdicts[1], r"plexus: comm 0x\w+: rank 2 of 3 gives a NaN to all_reduce\(.*\), call number 1: ")

    def test_the_lowest_of_several_ranks_in_one_call_comes_first(self):
        verdict, = self.verdicts_of([(1, "inf", "nan")])[0]
        self.assertEqual((verdict["rank"], verdict["ranks"]), (1, [1, 2]))
        self.assertIn("was the first to give an infinity to all_reduce", verdict["sentence"])

    def test_nothing_is_said_of_good_inputs_nor_where_it_is_off(self):
        self.assertEqual(self.verdicts_of([(1, 2, 3)] * 20), ([], ""))
        self.assertEqual(self.verdicts_of([(1, "nan", 3)], PLEXUS_CHECK_NAN="0"), ([], ""))


if __name__ == "__main__":
    job.main()
