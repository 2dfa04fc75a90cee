#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Profiler plugins, v4 to v7: the tree of events that the fixture (tests/abi/nccl_profiler) records, faults, several at
once; and the example of docs/profiling.md."""
import json
import os
import pathlib
import re
import sys
import tempfile

import job

LIBRARY = str(pathlib.Path(os.environ.get("PLEXUS_TEST_LIB_DIR", "build/dev/lib")) / "libplexus.so")
FOLDER = os.environ.get("PLEXUS_TEST_EXAMPLE_DIR", "build/dev/test-bin")
GROUP, COLL, P2P, OP, STEP, KERNEL_CHANNEL, GROUP_API, COLL_API, P2P_API = 1, 2, 4, 8, 16, 64, 256, 512, 1024
SIZES = ["-b", "1M", "-e", "1M", "-n", "2", "-w", "1", *job.limit(50)]
OVER_NET = {"NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "1"}
START = re.compile(r"start (\d+) type (\d+) parent (\d+) group (\d+) context (\S+) rank (\d+) ?(.*)")


PROGRAM = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
def make():
    comm = ctypes.c_void_p()
    assert library.ncclCommInitAll(ctypes.byref(comm), 1, None) == 0
    return comm
def call(comm, count):
    values = (ctypes.c_float * count)()
    assert library.ncclAllReduce(values, values, ctypes.c_size_t(count), 7, 0, comm, None) == 0
def destroy(comm):
    assert library.ncclCommDestroy(comm) == 0
"""

TAGGED = """
class Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("ext", ctypes.c_void_p),
                ("ctas", ctypes.c_int * 4), ("selection", ctypes.c_char_p), ("force", ctypes.c_int), ("policy", ctypes.c_int),
                ("tag", ctypes.c_uint64), ("event", ctypes.c_void_p)]
UNDEFINED = -2 ** 31
comm = make()
for tag in (0, 4711, 2 ** 63 - 1):
    config = Config(72, 0xcafebeef, 23203, None, (UNDEFINED,) * 4, None, 1, UNDEFINED, tag, None)
    values = (ctypes.c_float * 8)()
    assert library.ncclAllReduceConfig(values, values, ctypes.c_size_t(8), 7, 0, comm, None, ctypes.byref(config)) == 0
call(comm, 8)
destroy(comm)
"""


class Event:
    def __init__(self, match):
        self.type, self.parent, self.group, self.rank = (int(match[i]) for i in (2, 3, 4, 6))
        self.about = match[7]
        self.states, self.sizes, self.stops, self.children = [], [], 0, []
        self.stopped_at = None  # line of the file


class Profiler(job.Test):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)

    def run_profiled(self, profilers, collective="all_reduce", mode="procs", sizes=SIZES, **environment):
        return self.run_perf(collective, *sizes, "--ranks", 2, "--mode", mode, NCCL_PROFILER_PLUGIN=profilers,
                             PLEXUS_PLUGIN_PATH=FOLDER, PROFILER_FIXTURE_FILE=str(self.folder / "events"),
                             **environment)

    def read(self, path):
        """Events by id; checks that calls come in an order that makes sense."""
        events, contexts = {}, set()
        for number, line in enumerate(path.read_text().splitlines()):
            word, *rest = line.split()
            if word == "init":
                contexts.add(rest[0])
            elif word == "finalize":
                contexts.remove(rest[0])
                self.assertGreater(int(rest[2]), 0)
                self.assertEqual(int(rest[4]), 0, "names that it was told have changed")
            elif word == "start":
                match = START.match(line)
                event = events[int(match[1])] = Event(match)
                self.assertIn(match[5], contexts)
                for parent in {event.parent, event.group} - {0}:
                    self.assertEqual(events[parent].stops, 0, "a parent is over before its child begins")
                    events[parent].children.append(event)
            else:
                event = events[int(rest[0])]
                self.assertEqual(event.stops, 0, line)
                if word == "stop":
                    event.stops += 1
                    event.stopped_at = number
                else:
                    event.states.append(int(rest[1]))
                    event.sizes.append(int(rest[3]))
        self.assertEqual(contexts, set(), "each init has its finalize")
        for event in events.values():
            self.assertEqual(event.stops, 1, event.about)
        return events

    def files(self, count):
        found = sorted(self.folder.glob("events.*"))
        self.assertEqual(len(found), count)
        return found

    def check_steps(self, events):
        """Every proxy op has as many steps as it said, each with its states in order."""
        seen = {"send": 0, "recv": 0}
        for op in (event for event in events.values() if event.type == OP):
            self.assertIn(events[op.parent].type, (COLL, P2P))
            way, steps = op.about.split()[0], [child for child in op.children if child.type == STEP]
            self.assertEqual(len(steps), int(op.about.split()[-1]), op.about)
            self.assertEqual([int(step.about.split()[1]) for step in steps], list(range(len(steps))))
            self.assertEqual(op.states, [19])
            for step in steps:
                states = [state for at, state in enumerate(step.states) if at == 0 or step.states[at - 1] != state]
                self.assertEqual(states, [8, 20, 9] if way == "send" else [10, 11, 12])
                self.assertGreater(step.sizes[-1], 0)
                seen[way] += 1
        self.assertGreater(min(seen.values()), 0)

    def check_kernel_channels(self, events):
        """Every call has as many as it said, numbered from 0, each with the times at which it began and ended; the call
        stops before the last of them, as NVIDIA's inspector wants it."""
        calls = [event for event in events.values() if event.type in (COLL, P2P)]
        self.assertTrue(calls)
        for call in calls:
            channels = [child for child in call.children if child.type == KERNEL_CHANNEL]
            output = re.search(r"channels (\d+)", call.about)
            self.assertEqual(len(channels), int(output[1]), call.about)
            numbers = [int(channel.about.split()[1]) for channel in channels]
            self.assertGreater(len(channels), 0, call.about)
            self.assertEqual(sorted(numbers), list(range(len(numbers))), call.about)
            self.assertLess(call.stopped_at, max(channel.stopped_at for channel in channels))
            for channel in channels:
                self.assertEqual(channel.states, [22])
                self.assertGreaterEqual(channel.sizes[0], int(channel.about.split()[3]))

    def test_tree_of_an_all_reduce_over_the_network(self):
        for version in (4, 5, 6):
            with self.subTest(version):
                for old in self.folder.glob("events.*"):
                    old.unlink()
                report = self.run_profiled(f"recorder-v{version}", **OVER_NET)
                for path in self.files(2):
                    events = self.read(path)
                    self.assertIn(" nnodes 1 nranks 2 ", path.read_text())
                    colls = [event for event in events.values() if event.type == COLL and "count 262144 ncclFloat32"
                             in event.about and event.about.startswith("AllReduce")]
                    self.assertGreaterEqual(len(colls), 3 * len(report["rows"]))  # warm-up and two iterations at least
                    sequences = [int(re.search(r"sequence (\d+)", event.about)[1]) for event in colls]
                    self.assertEqual(sequences, sorted(set(sequences)))
                    for coll in colls:
                        self.assertEqual(events[coll.group].type, GROUP)
                        if version > 4:
                            self.assertEqual(events[coll.parent].type, COLL_API)
                            self.assertEqual(events[events[coll.parent].parent].type, GROUP_API)
                            self.assertEqual(events[events[coll.parent].parent].states, [23, 24])
                        self.assertTrue(any(child.type == OP for child in coll.children))
                        self.assertRegex(coll.about, r"channels [1-9]\d* [A-Z_]+ SIMPLE")
                    self.check_steps(events)

    def test_a_users_tag_reaches_a_profiler_of_v7(self):
        for version, reported in ((6, [0, 0, 0, 0]), (7, [0, 4711, 2 ** 63 - 1, 0])):
            with self.subTest(version):
                for old in self.folder.glob("events.*"):
                    old.unlink()
                events = self.run_program(TAGGED, f"recorder-v{version}")
                self.assertEqual([int(event.about.split()[-1]) for event in events.values() if event.type == COLL], reported)

    def test_a_users_tag_is_in_the_trace(self):
        self.run_process(TAGGED, "trace", PLEXUS_TRACE=str(self.folder / "trace"))
        path, = self.folder.glob("trace.*.json")
        self.assertEqual([event["args"].get("tag") for event in json.loads(path.read_text()) if "collective" in event["args"]],
                         [None, 4711, 2 ** 63 - 1, None])

    def test_tree_of_grouped_send_and_receive(self):
        for version in (4, 5):
            with self.subTest(version):
                for old in self.folder.glob("events.*"):
                    old.unlink()
                self.run_profiled(f"recorder-v{version}", "sendrecv", **OVER_NET)
                for path in self.files(2):
                    events = self.read(path)
                    groups = [event for event in events.values() if event.type == GROUP
                              and any(child.type == P2P for child in event.children)]
                    self.assertGreaterEqual(len(groups), 3)
                    for group in groups:
                        self.assertEqual(sorted(child.about.split()[0] for child in group.children), ["Recv", "Send"])
                        for child in group.children:
                            self.assertEqual(sum(op.type == OP for op in child.children), 1)
                            if version > 4:
                                self.assertEqual(events[child.parent].type, P2P_API)
                    self.check_steps(events)

    def test_channels_share_a_long_message(self):
        for size in (8 << 20, 320 << 10, 128 << 10):
            with self.subTest(size):
                for old in self.folder.glob("events.*"):
                    old.unlink()
                self.run_profiled("recorder-v6", "sendrecv", sizes=["-b", size, "-e", size, "-n", "2", "-w", "0", *job.limit(50)],
                                  NCCL_NCHANNELS_PER_NET_PEER="2", **OVER_NET)
                for path in self.files(2):
                    events = self.read(path)
                    messages = [event for event in events.values() if event.type == P2P and f" {size // 4} " in f" {event.about} "]
                    self.assertGreaterEqual(len(messages), 4)
                    for message in messages:
                        parts = [sum(step.sizes[-1] for step in op.children) for op in message.children if op.type == OP]
                        self.assertEqual(parts, [size // 2] * 2 if size > 128 << 10 else [size], message.about)
                    self.check_steps(events)
                    self.check_kernel_channels(events)

    def test_ranks_that_are_threads_have_contexts_of_their_own(self):
        for environment in ({}, OVER_NET):
            self.run_profiled("recorder-v5", mode="threads", **environment)
            for path in self.files(1):
                events = self.read(path)
                ranks = [event.rank for event in events.values() if event.type == COLL]
                self.assertEqual(ranks.count(0), ranks.count(1))
                for event in events.values():
                    if event.parent:
                        self.assertEqual(events[event.parent].rank, event.rank)
                path.unlink()

    def test_channels_of_calls_over_the_network_and_over_memory(self):
        for version, environment in ((4, {}), (5, OVER_NET), (6, {"NCCL_MIN_CTAS": "3"})):
            for collective in ("all_reduce", "sendrecv", "broadcast"):
                with self.subTest(version=version, collective=collective):
                    for old in self.folder.glob("events.*"):
                        old.unlink()
                    self.run_profiled(f"recorder-v{version}", collective, **environment)
                    for path in self.files(2):
                        self.check_kernel_channels(self.read(path))

    def run_process(self, text, profiler, **environment):
        ended = self.start([sys.executable, "-c", PROGRAM + text, LIBRARY], NCCL_PROFILER_PLUGIN=profiler, **environment).end(60)
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def run_program(self, text, profiler="recorder-v5"):
        self.run_process(text, profiler, PLEXUS_PLUGIN_PATH=FOLDER, PROFILER_FIXTURE_FILE=str(self.folder / "events"))
        return self.read(self.files(1)[0])

    def counts(self, events):
        return [int(re.search(r"count (\d+)", event.about)[1]) for event in events.values() if event.type == COLL]

    def test_every_communicator_is_seen_with_the_mask_of_the_first(self):
        self.assertEqual(self.counts(self.run_program("""
first, second = make(), make()
call(first, 3), call(second, 5)
destroy(first)
call(second, 7)
destroy(second)  # here the recorder writes the mask, whose address it keeps
third = make()
call(third, 9)
destroy(third)
""")), [3, 5, 7, 9])

    def test_communicators_of_a_child_are_seen_with_the_mask_of_its_parent(self):
        self.assertEqual(self.counts(self.run_program("""
import os
first = make()
call(first, 3)
destroy(first)
child = os.fork()
if child == 0:
    second = make()
    call(second, 5)
    destroy(second)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
""")), [3, 5])

    def test_a_message_to_itself_is_a_send_and_a_receive(self):
        events = self.run_program("""
comm = make()
values, received = (ctypes.c_float * 8)(*range(8)), (ctypes.c_float * 8)()
library.ncclGroupStart()
library.ncclSend(values, ctypes.c_size_t(8), 7, 0, comm, None)
library.ncclRecv(received, ctypes.c_size_t(8), 7, 0, comm, None)
assert library.ncclGroupEnd() == 0 and list(received) == list(values)
destroy(comm)
""")
        self.assertEqual(sorted(event.about.split()[0] for event in events.values() if event.type == P2P), ["Recv", "Send"])
        self.check_kernel_channels(events)

    def test_one_that_is_off_has_no_context_to_finalize(self):
        for version in (4, 5):
            self.run_profiled(f"recorder-v{version}", PROFILER_FIXTURE_FAULT="off")
            for path in self.folder.glob("events.*"):
                self.assertEqual(path.read_text(), "")

    def test_streams(self):
        self.run_profiled("recorder-v6", "all_reduce", "procs", [*SIZES, "--stream", "async"], **OVER_NET)
        for path in self.files(2):
            self.check_steps(self.read(path))

    def test_mask_leaves_out_what_nobody_wants(self):
        self.run_profiled("recorder-v5", PROFILER_FIXTURE_MASK=str(GROUP_API), **OVER_NET)
        for path in self.files(2):
            self.assertEqual({event.type for event in self.read(path).values()}, {GROUP_API})

    def test_several_at_once(self):
        self.run_profiled("recorder-v4,trace,recorder-v6", sizes=["-b", "64K", "-e", "64K", "-n", "1", "-w", "0"],
                          PROFILER_FIXTURE_MASK=str(COLL), PLEXUS_TRACE=str(self.folder / "trace"))
        self.assertEqual(len(list(self.folder.glob("trace.*.json"))), 2)

    def test_one_that_fails_is_told_once_and_switched_off(self):
        for fault, says in (("init", "did not start (code 3)"), ("start", "startEvent failed with code 3")):
            with self.subTest(fault):
                ended = self.start(job.perf("all_reduce", *SIZES, "--ranks", 2, "--mode", "procs"),
                                   NCCL_PROFILER_PLUGIN="recorder-v5", PLEXUS_PLUGIN_PATH=FOLDER, NCCL_DEBUG="WARN",
                                   PROFILER_FIXTURE_FILE=str(self.folder / "events"), PROFILER_FIXTURE_FAULT=fault).end(60)
                self.assertEqual(ended.returncode, 0, ended.stderr)
                self.assertEqual((ended.stdout + ended.stderr).count(says), 2)  # one for each rank

    def test_one_that_cannot_be_loaded_is_the_users_error(self):
        for name, says in (("absent", "looked for libnccl-profiler-absent.so, librccl-profiler-absent.so, absent in"),
                           (f"{FOLDER}/libnccl-net-tcp-v8.so", "has none of ncclProfiler_v4 to v7"),
                           ("STATIC_PLUGIN", "STATIC_PLUGIN has none of ncclProfiler_v4 to v7")):
            with self.subTest(name):
                ended = self.start(job.perf("all_reduce", *SIZES, "--ranks", 2), NCCL_PROFILER_PLUGIN=name).end(60)
                self.assertNotEqual(ended.returncode, 0)
                self.assertIn(says, ended.stderr)

    def trace(self, collective="all_reduce", sizes=SIZES, ranks=2, **environment):
        """The files of a traced run, that of rank 0 first."""
        for old in self.folder.glob("trace.*.json"):
            old.unlink()
        self.run_perf(collective, *sizes, "--ranks", ranks, "--mode", "procs", PLEXUS_TRACE=str(self.folder / "trace"), **environment)
        traces = {json.loads(path.read_text())[0]["pid"]: path for path in self.folder.glob("trace.*.json")}
        self.assertEqual(sorted(traces), list(range(ranks)))
        return [traces[rank] for rank in range(ranks)]

    def test_a_run_is_traced(self):
        for path in self.trace(**OVER_NET):
            events = json.loads(path.read_text())
            names = [event["name"] for event in events]
            self.assertIn("AllReduce 262144", names)
            self.assertIn("message 0", names)
            for event in events:
                self.assertEqual(event["ph"], "X")
                self.assertGreaterEqual(event["dur"], 0)

    def test_a_trace_beside_that_of_the_simulator_has_the_same_ranks(self):
        real = [json.loads(path.read_text()) for path in self.trace()]
        ended = self.start([job.PLEXUS, "sim", "all_reduce", "--ranks", "2", "-b", "1M", "--algo", "ring", "--trace", "-"]).end(60)
        simulated = [event for event in json.loads(ended.stdout)["traceEvents"] if event["ph"] == "X"]
        self.assertEqual({event["pid"] for event in simulated}, {event["pid"] for events in real for event in events})
        self.assertTrue(all({"name", "ts", "dur", "tid", "args"} <= set(event) for event in [*simulated, *real[0]]))

    def test_a_trace_goes_on_with_the_next_communicator(self):
        program = """
import ctypes, os
library = ctypes.CDLL(os.environ["PLEXUS_TEST_LIBRARY"])
comm, values = ctypes.c_void_p(), (ctypes.c_float * 8)()
for count in (3, 5, 7):
    assert library.ncclCommInitAll(ctypes.byref(comm), 1, None) == 0
    assert library.ncclAllReduce(values, values, ctypes.c_size_t(count), 7, 0, comm, None) == 0
    assert library.ncclCommDestroy(comm) == 0
"""
        ended = self.start([sys.executable, "-c", program], PLEXUS_TRACE=str(self.folder / "trace"), NCCL_DEBUG="WARN",
                           PLEXUS_TEST_LIBRARY=LIBRARY).end(60)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        trace, = self.folder.glob("trace.*.json")
        calls = [event["args"]["count"] for event in json.loads(trace.read_text()) if "collective" in event["args"]]
        self.assertEqual(calls, [3, 5, 7])

    def test_a_trace_that_cannot_be_written_is_told(self):
        ended = self.start(job.perf("all_reduce", *SIZES, "--ranks", 2, "--mode", "procs"), PLEXUS_TRACE=str(self.folder / "absent/trace"),
                           NCCL_DEBUG="WARN").end(60)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("absent/trace", ended.stdout + ended.stderr)
        self.assertIn("set PLEXUS_TRACE", ended.stdout + ended.stderr)

    def totals(self, *workloads):
        """What the simulator says of each."""
        totals = []
        for workload in workloads:
            ended = self.start([job.PLEXUS, "sim", "--workload", str(workload), "--ranks", "16", "--tuner", "none", "--json", "-"]).end(60)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            totals.append(json.loads(ended.stdout)["best_us"])
            self.assertGreater(totals[-1], 0)
        return totals

    def test_recorded_sends_and_receives_are_a_workload_of_the_simulator(self):
        trace = self.trace("sendrecv", ["-b", "64K", "-e", "64K", "-n", "2", "-w", "0", *job.limit(50)])[0]
        recorded = [event["args"] for event in json.loads(trace.read_text())]
        groups = {}
        for about in recorded:
            if "p2p" in about:
                groups.setdefault(about["group"], []).append((about["p2p"], about["peer"], about["count"], about["datatype"]))
        exchanges = [sorted(group) for group in groups.values() if len(group) == 2 and group[0][2] == 16384]
        self.assertGreaterEqual(len(exchanges), 2)
        for group in exchanges:
            self.assertEqual(group, [("Recv", 1, 16384, "ncclFloat32"), ("Send", 1, 16384, "ncclFloat32")])
        only = self.folder / "only.json"
        events = [event for event in json.loads(trace.read_text())
                  if event["args"].get("count") == 16384 and "p2p" in event["args"]]
        only.write_text(json.dumps(events))
        by_hand = self.folder / "calls.json"
        by_hand.write_text(json.dumps({"calls": [{"exchange": [{"distance": 1, "bytes": 65536, "wraps": True}], "times": len(exchanges)}]}))
        of_trace, expected = self.totals(only, by_hand)
        self.assertAlmostEqual(of_trace, expected, places=6)

    def test_a_recorded_run_is_a_workload_of_the_simulator(self):
        trace = self.trace("all_gather", ["-b", "64K", "-e", "64K", "-n", "2", "-w", "0", *job.limit(50)])[0]
        recorded = [event["args"] for event in json.loads(trace.read_text()) if "collective" in event["args"]]
        gathers = [about for about in recorded if about["collective"] == "AllGather"]
        self.assertEqual({(about["count"], about["nranks"], about["datatype"]) for about in gathers}, {(8192, 2, "ncclFloat32")})
        by_hand = self.folder / "calls.json"
        sizes = {"ncclFloat32": 4, "ncclUint8": 1, "ncclInt32": 4, "ncclInt64": 8, "ncclUint64": 8, "ncclFloat64": 8, "ncclInt8": 1}
        names = {"AllReduce": ("all_reduce", 1), "AllGather": ("all_gather", 2), "Broadcast": ("broadcast", 1)}
        by_hand.write_text(json.dumps({"calls": [
            {"collective": names[about["collective"]][0],
             "bytes": about["count"] * sizes[about["datatype"]] * names[about["collective"]][1]} for about in recorded]}))
        of_trace, expected = self.totals(trace, by_hand)
        self.assertAlmostEqual(of_trace, expected, places=6)


if __name__ == "__main__":
    job.main()
