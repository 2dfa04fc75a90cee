# SPDX-License-Identifier: Apache-2.0
"""The order of ranks follows the hosts that they are on: ranks dealt out to two hosts (NCCL_HOSTID) still
make rings that leave each host once, results are by rank all the same, and files of the topology are read
and written.
"""
import collections
import json
import pathlib
import re
import tempfile
import xml.etree.ElementTree

import job

# Of collectives: those of sends and receives have "(send/recv)" behind the channel.
CONNECTION = re.compile(r"comm 0x\w+ rank (\d+) channel (\d+) -> rank (\d+) via (\w+)")
INIT = re.compile(r"rank (\d+) nranks \d+ .* parts (\d+) orders (\d+) .*Init COMPLETE in ([\d.]+) ms with (\d+) "
                  r"messages of (\d+) bytes")
NETWORK = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,P2P,NET"}


class TopologyTest(job.Test):
    def run_on_hosts(self, hosts, *arguments, **environment):
        """One process per rank; `hosts`: the host of each. Returns what all of them logged."""
        rendezvous = f"127.0.0.1:{job.free_port()}"
        report = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "report.json"
        ranks = [self.start(job.perf(*arguments, "--rank", rank, "--nranks", len(hosts),
                                     "--rendezvous", rendezvous, *(["--json", report] if rank == 0 else [])),
                            NCCL_HOSTID=host, **{**NETWORK, **environment})
                 for rank, host in enumerate(hosts)]
        ended = [rank.end(120) for rank in ranks]
        for one in ended:
            self.assertEqual(one.returncode, 0, one.stdout + one.stderr)
        self.assertEqual(json.loads(report.read_text())["wrong_total"], 0)
        return "".join(one.stdout + one.stderr for one in ended)

    def check_rings(self, hosts, channels):
        log = self.run_on_hosts(hosts, "all_reduce", "-b", "1M", "-e", "1M", "-n", "2", NCCL_ALGO="ring",
                                NCCL_MIN_NCHANNELS=str(channels), NCCL_MAX_NCHANNELS=str(channels))
        rings = collections.defaultdict(list)
        for rank, channel, peer, transport in CONNECTION.findall(log):
            rings[int(channel)].append((int(rank), int(peer), transport))
        self.assertEqual(len(rings), channels, log)
        for edges in rings.values():
            following = {rank: peer for rank, peer, _ in edges}
            self.assertEqual(len(following), len(hosts))
            at, seen = 0, set()
            while at not in seen:
                seen.add(at)
                at = following[at]
            self.assertEqual(len(seen), len(hosts), "a ring that is not closed over all ranks")
            crossing = [edge for edge in edges if hosts[edge[0]] != hosts[edge[1]]]
            self.assertEqual(len(crossing), len(set(hosts)))
            for rank, peer, transport in edges:
                self.assertEqual(transport, "net" if hosts[rank] != hosts[peer] else "shm")
        init = INIT.findall(log)
        self.assertEqual(len(init), len(hosts), log)
        for _, parts, _, _, messages, size in init:
            self.assertEqual(int(parts), len(set(hosts)))
            # five gathers, each sent and received: what is a rank's own, what is common, networks, parts, and whether
            # processes of a host read each other's memory
            self.assertEqual(int(messages), 10)
            self.assertLess(int(size), 2000 * len(hosts))

    def test_rings_over_interleaved_hosts_cross_each_once(self):
        self.check_rings(["a", "b"] * 3, 1)
        self.check_rings(["a", "b", "a", "c", "b", "a"], 2)

    def test_every_collective_is_right_over_interleaved_hosts(self):
        for collective in job.COLLECTIVES:
            with self.subTest(collective):
                self.run_on_hosts(["a", "b", "b", "a", "b"], collective, "-b", "4", "-e", "64K", "-f", "16", "-n", "1",
                                  NCCL_DEBUG="WARN")
        for algorithm in ["tree", "doubling", "quadrupling", "halving", "nearhalving", "swing", "torus", "biring"]:
            with self.subTest(algorithm):
                self.run_on_hosts(["a", "b", "b", "a", "b"], "all_reduce", "-b", "4", "-e", "64K", "-f", "16", "-n", "1",
                                  NCCL_DEBUG="WARN", NCCL_ALGO=f"allreduce:{algorithm}", NCCL_MIN_NCHANNELS="2")

    def test_files_are_written_and_taken(self):
        with tempfile.TemporaryDirectory() as folder:
            topo, graph = pathlib.Path(folder) / "topo.xml", pathlib.Path(folder) / "graph.xml"
            arguments = ["all_reduce", "--mode", "single", "--ranks", "4", "-b", "4", "-e", "4"]
            self.run_perf(*arguments, NCCL_TOPO_DUMP_FILE=str(topo), NCCL_GRAPH_DUMP_FILE=str(graph))
            system = xml.etree.ElementTree.parse(topo).getroot()
            self.assertEqual(sorted(int(host.get("rank")) for host in system.iter("host")), [0, 1, 2, 3])
            channels = list(xml.etree.ElementTree.parse(graph).getroot().iter("channel"))
            self.assertEqual(sorted(int(gpu.get("rank")) for gpu in channels[0].iter("gpu")), [0, 1, 2, 3])
            self.run_perf(*arguments, NCCL_TOPO_FILE=str(topo), NCCL_GRAPH_FILE=str(graph))

    def test_file_with_a_nic_below_every_cpu_is_taken_by_the_tool_and_by_communicators(self):
        with tempfile.TemporaryDirectory() as folder:
            topo = pathlib.Path(folder) / "topo.xml"
            cpu = """<cpu numaid="{0}" arch="arm64"><nic><net name="lo" dev="0"/></nic><host rank="{0}"/></cpu>"""
            topo.write_text(f"""<system version="1">{cpu.format(0)}{cpu.format(1)}</system>""")
            ended = self.start([job.PLEXUS, "topo", "search", topo, "--nodes", 2]).end(20)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.run_on_hosts(["a", "b"], "all_reduce", "-b", "4", "-e", "4", "-n", "1", NCCL_TOPO_FILE=str(topo))

    def test_gpu_that_lost_its_nvlinks_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            topo = pathlib.Path(folder) / "topo.xml"
            link = """<nvlink target="ffff:ff:ff.0" count="12" tclass="0x068000"/>"""
            gpus = "".join(f"""<pci busid="0000:1{gpu}:00.0"><gpu dev="{gpu}" sm="80" rank="{gpu}" gdr="1">"""
                           f"""{link if gpu != 1 else ""}</gpu></pci>""" for gpu in range(3))
            topo.write_text(f"""<system version="1"><cpu numaid="0" arch="arm64">{gpus}</cpu></system>""")
            ended = self.start([job.PLEXUS, "topo", "search", topo]).end(20)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertIn("GPU 1 (0000:11:00.0, rank 1) has no NVLink while those of 2 other ranks", ended.stderr)

    def test_tree_over_a_star_of_datacenters_crosses_by_its_links(self):
        with tempfile.TemporaryDirectory() as folder:
            fabric = pathlib.Path(folder) / "fabric"
            hosts = ["a", "hub", "b", "hub", "c", "hub"]
            fabric.write_text("".join(f"host {name} dc {name}\n" for name in ["hub", "a", "b", "c"]) +
                              "".join(f"link hub {name}\n" for name in ["a", "b", "c"]))
            log = self.run_on_hosts(hosts, "all_reduce", "-b", "4", "-e", "64K", "-f", "16", "-n", "1",
                                    NCCL_ALGO="allreduce:tree", PLEXUS_FABRIC_FILE=str(fabric))
            crossing = {(hosts[int(rank)], hosts[int(peer)]) for rank, _, peer, _ in CONNECTION.findall(log)
                        if hosts[int(rank)] != hosts[int(peer)]}
            self.assertEqual(crossing, {pair for name in ["a", "b", "c"] for pair in [("hub", name), (name, "hub")]})

    def test_slurm_switches_at_the_top_become_datacenters(self):
        with tempfile.TemporaryDirectory() as folder:
            conf = pathlib.Path(folder) / "topology.conf"
            conf.write_text("SwitchName=leaf1 Nodes=a[1-2]\nSwitchName=berlin Switches=leaf1\nSwitchName=paris Nodes=b1\n")
            ended = self.start([job.PLEXUS, "topo", "slurm", conf]).end(20)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertRegex(ended.stdout, r"(?m)^host a\[1-2\] dc berlin$")
            self.assertRegex(ended.stdout, r"(?m)^host b1 dc paris$")
            conf.write_text("SwitchName=leaf1 Nodes=a[2-1]\n")
            ended = self.start([job.PLEXUS, "topo", "slurm", conf]).end(20)
            self.assertNotEqual(ended.returncode, 0)
            self.assertRegex(ended.stderr, "topology.conf: line 1")

    def test_what_cannot_be_read_is_an_error_that_names_it(self):
        with tempfile.TemporaryDirectory() as folder:
            bad = pathlib.Path(folder) / "bad.xml"
            bad.write_text("<system version=\"1\">\n<cpu/></system>")
            arguments = job.perf("all_reduce", "--mode", "single", "--ranks", "2", "-b", "4", "-e", "4")
            for setting, value, expected in [("NCCL_TOPO_FILE", str(bad), "line 2"),
                                             ("NCCL_TOPO_FILE", folder + "/none", "cannot be read"),
                                             ("NCCL_GRAPH_FILE", folder + "/none", "cannot be read"),
                                             ("NCCL_TOPO_DUMP_FILE", folder, "cannot be written"),
                                             ("NCCL_P2P_LEVEL", "FAR", "NCCL_P2P_LEVEL=FAR"),
                                             ("NCCL_CROSS_NIC", "three", "NCCL_CROSS_NIC")]:
                with self.subTest(setting + "=" + value):
                    ended = self.start(arguments, **{setting: value, "NCCL_DEBUG": "WARN"}).end(60)
                    self.assertNotEqual(ended.returncode, 0)
                    self.assertIn(expected, ended.stdout + ended.stderr)

    def test_an_error_of_a_file_says_where_it_was_set_and_what_there_is(self):
        with tempfile.TemporaryDirectory() as folder:
            conf, graph = pathlib.Path(folder) / "nccl.conf", pathlib.Path(folder) / "graph.xml"
            graph.write_text("""<graphs version="1">
<graph id="0" pattern="4" crossnic="0" nchannels="1" speedintra="12" speedinter="12" typeintra="SYS" typeinter="PIX" samechannels="0">
<channel><gpu dev="1"/></channel></graph></graphs>""")
            arguments = job.perf("all_reduce", "--mode", "single", "--ranks", "2", "-b", "4", "-e", "4")
            for setting, value, expected in [
                    ("NCCL_GRAPH_FILE", graph, "line 3: <gpu>: no rank here has dev 0x1 (here: rank 0 on the host, rank 1 on the host)"),
                    ("NCCL_TOPO_FILE", graph, "this is NCCL's XML of channels (<graphs>), for NCCL_GRAPH_FILE and --graph; NCCL_TOPO_FILE"),
                    ("PLEXUS_FABRIC_FILE", graph, "this is NCCL's XML of channels"),
                    ("PLEXUS_PROGRAM_PATH", f"{folder}/none", "cannot read the folder"),
                    ("PLEXUS_TUNE_FILE", graph, "cannot be read as JSON")]:
                for source, environment in (("the environment", {setting: str(value)}), (conf, {"NCCL_CONF_FILE": str(conf)})):
                    with self.subTest(setting, source=source):
                        conf.write_text(f"{setting}={value}\n")
                        ended = self.start(arguments, **environment).end(60)
                        self.assertNotEqual(ended.returncode, 0)
                        self.assertIn(f"{setting}={value} (from {source}): {expected}", ended.stderr)

    def test_machines_of_several_kinds_are_searched(self):
        with tempfile.TemporaryDirectory() as folder:
            pci = """<pci busid="0000:{0}0:00.0" class="0x0{1}" link_speed="32 GT/s" link_width="16"/>"""
            for name, gpus in (("a.xml", 2), ("b.xml", 4)):
                devices = "".join(pci.format(at, "30200") for at in range(1, gpus + 1)) + pci.format(7, "20700")
                (pathlib.Path(folder) / name).write_text(
                    f"""<system version="1"><cpu numaid="0" arch="x86_64" vendor="AuthenticAMD">{devices}</cpu></system>""")
            search = [job.PLEXUS, "topo", "search"]
            ended = self.start([*search, f"{folder}/a.xml:3", f"{folder}/b.xml", "--gpus", "90:18", "--nics", "400"]).end(60)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertRegex(ended.stdout, "(?s)^Machine 0\n.*\nMachine 1\n.*\n10 ranks, ")
            for arguments, expected in (([f"{folder}/a.xml"], "a.xml: the description has no ranks"),
                                        ([f"{folder}/a.xml:2", "--nodes", "3", "--gpus", "90"], "FILE:COUNT")):
                ended = self.start([*search, *arguments]).end(60)
                self.assertEqual((ended.returncode, ended.stderr.count("\n")), (2, 1), ended.stderr)
                self.assertIn(expected, ended.stderr)
            ended = self.start([job.PLEXUS, "topo", "times", f"{folder}/b.xml:2", "--gpus", "90:18", "--nics", "400", "-b", "1K", "-e", "4M", "-f", "4",
                                "--json", "-"]).end(60)
            rows = json.loads(ended.stdout)["rows"]
            self.assertEqual(len(rows), 5 * 7)
            for row in rows:
                chosen = row["time_us"][f"{row['algorithm']}/{row['protocol']}"]
                self.assertEqual(chosen, min(row["time_us"].values()))
            self.assertEqual({row["algorithm"] for row in rows if row["collective"] == "broadcast"}, {"ring"})

    def test_predict_holds_a_log_against_a_machine_of_a_line(self):
        predict = [job.PLEXUS, "topo", "predict", "--machine", "8xH100 8xib400", "--nodes", "2"]
        ended = self.start([*predict, "--calls", "all_gather,alltoall", "-b", "1M", "-e", "4M", "-f", "2", "--json", "-"]).end(60)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual([(row["collective"], row["bytes"]) for row in json.loads(ended.stdout)["rows"]],
                         [(call, size << 20) for call in ("all_gather", "alltoall") for size in (1, 2, 4)])
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/log", "w") as log:
                log.write("# Collective test starting: all_reduce_perf\n#  Rank  0 Group  0 Pid 1 on a device 0 [0] H100\n"
                          "#  Rank  1 Group  0 Pid 2 on a device 1 [1] H100\n"
                          "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
                          "67108864 16777216 float sum -1 466.1 143.9 269.9 0 466.3 143.9 269.8 0\n"
                          "268435456 67108864 float sum -1 3282.8 209.2 392.3 0 1276.0 210.3 394.4 0\n")
            ended = self.start([*predict, "--measured", f"{folder}/log", "--svg", f"{folder}/svg"]).end(60)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertIn("slower than this machine should be", ended.stdout)
            with open(f"{folder}/svg") as svg:
                self.assertIn(">measured</text>", svg.read())
            for arguments, expected in ((["--measured", "/nonexistent"], "/nonexistent"), ([f"{folder}/log"], "both say"),
                                        (["--machine", "8xfoo"], "'8xfoo'"), (["--machine", "8xH100"], "2 nodes need NICs")):
                ended = self.start([*predict, *arguments]).end(60)
                self.assertEqual((ended.returncode, ended.stderr.count("\n")), (2, 1), ended.stderr)
                self.assertIn(expected, ended.stderr)


if __name__ == "__main__":
    job.main()
