#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kit kills mutants: a plugin with one fault each (*mutant.cpp) fails the check that is there for it.

Reports the kill rate. Without a fault the wrapper passes the same checks: it is the fault that is seen.
"""
import concurrent.futures
import json
import os
import subprocess
import sys
import unittest

BIN = os.environ["PLEXUS_TEST_BIN_DIR"]
EXAMPLES = os.environ["PLEXUS_TEST_EXAMPLE_DIR"]
# The network plugin that the mutants of networks wrap.
INNER = os.path.join(os.environ["PLEXUS_TEST_LIB_DIR"], os.environ.get("PLEXUS_TEST_MUTANT_OF", "libplexus-net-socket.so"))
AGGREGATOR = os.path.join(os.environ["PLEXUS_TEST_LIB_DIR"], "libplexus-collnet-aggregator.so")
FACTOR = int(float(os.environ.get("PLEXUS_TEST_TIME_FACTOR", "1")))

NET = {  # mutant -> the check that must fail
    "init_handler": "init.process",
    "init_environment": "init.process",
    "init_prints": "log.voice",
    "init_leaks_descriptor": "init.leaves",
    "init_leaks_thread": "init.leaves",
    "init_leaks_memory": "init.memory",
    "init_warns": "log.calm",
    "init_newline": "log.lines",
    "init_shared": "init.two",
    "count_changes": "device.count",
    "speed_zero": "device.speed",
    "reserved_written": "device.reserved",
    "name_endless": "device.name",
    "requests_too_many": "request.limit",
    "recvs_too_many": "device.recvs",
    "handle_too_long": "listen.handle_size",
    "connect_blocks": "connect.no_wait",
    "connect_lies": "connect.nobody",
    "accept_blocks": "accept.no_wait",
    "register_again": "register.ends",
    "register_writes": "register.content",
    "register_aligned": "message.target_address",
    "isend_throws": "order.fifo",
    "isend_crashes": "order.fifo",
    "isend_sleeps": "time.data",
    "isend_corrupts": "message.odd",
    "isend_spoils_early": "order.early_long",
    "isend_again_sent": "order.fifo",
    "isend_empty_null": "message.empty_null",
    "isend_short": "message.1g",
    "isend_mixes": "mesh.threads",
    "isend_one_tag": "order.tags_reversed",
    "isend_abs_tag": "order.tags_extreme",
    "isend_logs": "log.messages",
    "isend_code": "request.flood",
    "isend_unsure": "order.fifo",
    "irecv_one_tag": "order.tags",
    "irecv_long": "request.too_long",
    "irecv_early": "message.spare",
    "irecv_reversed": "group.sizes",
    "irecv_beside": "message.odd",
    "pieces_half": "pieces.entries",
    "pieces_reversed": "pieces.cuts",
    "test_blocks": "order.not_done",
    "test_sizes_early": "request.sizes_done",
    "test_in_order": "request.newest_first",
    "test_elsewhere": "process.short",
    "test_after_others": "process.connections",
    "test_no_sizes": "message.odd",
    "test_swallows": "fault.receiver",
    "test_two_sentences": "fault.sentence",
    "test_code": "fault.code",
    "test_raises": "fault.sender_closes",
    "test_exits": "fault.sender_closes",
    "close_sleeps": "time.connect",
    "close_send_leaks": "connect.leaves",
    "close_touches": "close.receives",
    "close_others": "close.own",
    "close_listen_leaks": "listen.close",
    "table_reserved": "table.reserved",
    "query_picky": "query.newer_host",
    "query_opens": "query.leaves",
    "query_changes": "query.constant",
}

SHORT = {  # of a plugin whose longest message has 4 KiB; the mutant short_right has no fault
    "short_isend": "message.longest",
    "short_pieces": "pieces.cuts",
}
DMABUF = {  # of a plugin that supports dma-bufs; the mutant dmabuf_right has no fault
    "dmabuf_unoffered": "register.kinds",
    "dmabuf_no_flush": "device.flush",
    "dmabuf_flush_fails": "dmabuf.flush",
    "dmabuf_flush_clears": "dmabuf.flush",
    "dmabuf_flush_never": "dmabuf.flush",
}
GATHERING = {  # of a plugin that gathers registered memory
    "gathered_reversed": "pieces.gathered",
    "gathered_short": "pieces.gathered",
    "gathered_spoils": "pieces.gathered",
    "deregister_alone": "register.threads",
}
TUNER = {  # a number: the ABI version to test; 6 without one
    "init_refuses_large": "tuner.any",
    "init_leaks_descriptor": "tuner.many",
    "init_leaks_memory": "tuner.many",
    "init_leaks_thread": "tuner.process",
    "init_environment": "tuner.process",
    "model_nan": "tuner.model",
    "init_keeps_model": "tuner.borrowed",
    "context_shared": "tuner.two",
    "finalize_fails": "tuner.init",
    "info_throws": "costs.sane",
    "info_fails": "costs.sane",
    "info_prints": "tuner.silent",
    "info_sleeps": "costs.quick",
    "info_exits": "costs.untuned",
    "costs_nan": "costs.sane",
    "costs_negative": "costs.sizes",
    "costs_all_forbidden": "costs.sane",
    "costs_forbidden": "costs.offered",
    "costs_stride": "costs.shape",
    "costs_beside": "costs.inside",
    "costs_random": "costs.repeat",
    "costs_by_host": "costs.processes",
    "channels_negative": "costs.channels",
    "channels_many 3": "costs.channels",
    "chunk_zero": "costs.chunk",
    "pair_half 2": "costs.sane",
    "pair_nvls 2": "costs.sane",
}
PROFILER = {  # as in TUNER; 5 without a number
    "init_fails": "profiler.init",
    "init_once": "profiler.several",
    "init_leaks_descriptor": "profiler.many",
    "init_environment": "profiler.process",
    "init_name 4": "profiler.any",
    "init_name 6": "profiler.any",
    "mask_by_communicator": "profiler.mask",
    "mask_cleared": "profiler.mask",
    "start_throws": "event.wanted",
    "start_picky": "event.each",
    "start_picky 4": "event.each",
    "start_sleeps": "profiler.quick",
    "start_prints": "profiler.silent",
    "start_full": "event.many",
    "start_parent": "event.late",
    "record_picky": "event.states",
    "record_fails": "event.tree",
    "stop_what 4": "event.wanted",
    "stop_own_thread": "event.other_thread",
    "stop_nested": "event.interleaved",
    "stop_children": "event.parents_first",
    "stop_leaks": "profiler.many",
    "finalize_fails": "profiler.init",
    "finalize_waits": "event.open",
    "finalize_counts": "event.open",
}
COLLNET = {
    "init_environment": "collnet.process",
    "init_leaks_descriptor": "collnet.many",
    "reserved_written": "collnet.devices",
    "requests_too_many": "reduce.many",
    "support_all": "collnet.support_unknown",
    "support_changes": "collnet.support",
    "listen_any_device": "collnet.no_device",
    "connect_sleeps": "collnet.no_wait",
    "connect_throws": "collnet.two",
    "connect_lies": "collnet.no_wait",
    "reduce_wrong_op": "reduce.types",
    "reduce_signed": "reduce.types",
    "reduce_short": "reduce.sizes",
    "reduce_writes_send": "reduce.address",
    "test_early": "reduce.not_done",
    "close_leaks": "collnet.many",
}


SEEDED = {  # of seeded_mutant.cpp: what planted_test.py showed to be missed
    "tag_8bit": "order.tags_bits",
    "tag_16bit": "order.tags_bits",
    "tag_unsigned": "order.tags_bits",
}
# Those that another plugin than net-socket, wrapped by PLEXUS_TEST_MUTANT_OF, cannot have.
for name in os.environ.get("PLEXUS_TEST_MUTANTS_EXCEPT", "").split():
    del NET[name]


def check(library, only, mutant=None, inner=INNER, **variables):
    """(exit code, {id: (verdict, detail)}); a failure of any grade counts."""
    environment = {**os.environ, "PLEXUS_MUTANT_OF": inner, "PLEXUS_MUTANT_OF_COLLNET": AGGREGATOR, **variables}
    environment.pop("PLEXUS_MUTANT", None)
    if mutant:
        environment["PLEXUS_MUTANT"] = mutant
    ended = subprocess.run([os.path.join(BIN, "plexus"), "plugin", "check", os.path.join(EXAMPLES, library), "--json",
                            "-", "--strict", "--only", only, "--patience", str(max(1, FACTOR))],
                           env=environment, capture_output=True, text=True, timeout=100 * max(1, FACTOR), check=False)
    report = json.loads(ended.stdout)
    return ended.returncode, {each["id"]: (each["verdict"], each["detail"]) for each in report["checks"]}


# Faults that a fixture of NCCL's ABI has on purpose (tcp_engine.h): the check that must fail, its verdict, what it says.
VENDORS = {
    "connect_leaks": ("connect.fails", "weak", "open after 200 connects"),
    "failure_leaks": ("fault.leaves", "weak", "bytes of heap leaked by 200 failed transfers"),
    "slot_lost": ("request.refused", "fail", "calls that returned PLEXUS_AGAIN: "),
    "slow_peer": ("time.peers", "beyond", "messages of 64 bytes over connection "),
    "blocks": ("time.slow_peer", "fail", "every second call of test takes"),
    "flips": ("message.thousand", "fail", "message 500 of 1120: byte "),
    "lost": ("order.fifo", "fail", "timed out after 15000 ms: receive 981 of 1000 (room for "),
    "close_discards": ("close.delivers", "fail", "whose sends were done when their sender closed: "),
    "offload_needed": ("vendor.no_offload", "fail", "was killed by SIGSEGV in connect"),
    "early_kept": ("vendor.early", "fail", "irecv left `*request` as it was"),
    "handle_long": ("vendor.arguments", "fail", "wrote beyond the 128 bytes of the handle"),
    "done_kept": ("vendor.arguments", "fail", "without a value of 0 or 1 in `*done`"),
}


class Mutants:
    def expect_killed(self, killed_by, library, newest=0, inner=INNER):
        """`library`: of a mutant's ABI version."""
        survivors = []
        # Most of the time is waiting: for what a mutant never does, to the check's deadline.
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            runs = {}
            for mutant, only in killed_by.items():
                name, _, version = mutant.partition(" ")
                runs[mutant] = pool.submit(check, library(version or newest), only, name, inner)
            for mutant, run in runs.items():
                code, verdicts = run.result()
                verdict, detail = verdicts[killed_by[mutant]]
                print(f"{mutant:<24} {killed_by[mutant]:<24} {verdict}: {detail}", flush=True)
                if verdict != "fail" or code != 1:
                    survivors.append(mutant)
        print(f"{len(killed_by) - len(survivors)} of {len(killed_by)} mutants killed", flush=True)
        self.assertEqual(survivors, [])


class Net(Mutants, unittest.TestCase):
    def test_the_wrapper_without_a_fault_passes(self):
        code, verdicts = check("libplexus-net-mutant.so", ",".join(sorted(set(NET.values()))))
        self.assertEqual([name for name, (verdict, _) in verdicts.items() if verdict != "pass"], [], verdicts)
        self.assertEqual(code, 0)

    def test_every_mutant_of_a_net_plugin_is_killed(self):
        self.expect_killed(NET, lambda _: "libplexus-net-mutant.so")
        self.assertGreaterEqual(len(NET), 25)

    def test_every_mutant_that_was_missed_once_is_killed(self):
        self.expect_killed(SEEDED, lambda _: "libplexus-net-seeded.so")

    def test_no_message_is_longer_than_the_plugin_says(self):
        """All checks of messages, on a plugin whose longest one has 4 KiB and which refuses longer ones."""
        groups = "register,connect,message,order,group,request,pieces,parallel,mesh,process,fork,close,fault,time,log"
        code, verdicts = check("libplexus-net-mutant.so", groups, "short_right")
        self.assertEqual({name: detail for name, (verdict, detail) in verdicts.items() if verdict == "fail"}, {})
        self.assertEqual((code, verdicts["message.longest"][0]), (0, "pass"))
        self.expect_killed(SHORT, lambda _: "libplexus-net-mutant.so")

    def test_every_mutant_that_takes_dmabufs_is_killed(self):
        library = "libplexus-net-mutant.so"
        self.expect_killed(DMABUF, lambda _: library)
        code, verdicts = check(library, "device.flush,dmabuf.flush,register.kinds", "dmabuf_right")
        self.assertEqual((code, {verdict for verdict, _ in verdicts.values()}), (0, {"pass"}), verdicts)
        code, verdicts = check(library, "dmabuf.flush", "dmabuf_refused")
        self.assertEqual((code, verdicts["dmabuf.flush"]), (
            0, ("skip", "the plugin cannot register a dma-buf of host memory: mutant: not of a GPU")))


    def test_every_mutant_that_gathers_is_killed(self):
        inner = INNER if "PLEXUS_TEST_MUTANT_OF" in os.environ else os.path.join(EXAMPLES, "libplexus-net-gathering.so")
        code, verdicts = check("libplexus-net-mutant.so", ",".join(sorted(set(GATHERING.values()))), inner=inner)
        self.assertEqual((code, {verdict for verdict, _ in verdicts.values()}), (0, {"pass"}), verdicts)
        self.expect_killed(GATHERING, lambda _: "libplexus-net-mutant.so", inner=inner)


class Vendors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        listed = subprocess.run([os.path.join(BIN, "plexus"), "plugin", "checks"], capture_output=True, text=True, check=True)
        words = {"breaks jobs": "fail", "weak under faults": "weak", "beyond NCCL's contract": "beyond"}
        lines = listed.stdout.splitlines()
        cls.grades = {first.split()[1]: words[last.strip().removesuffix(" when it fails")]
                      for first, _, last in zip(lines[0::3], lines[1::3], lines[2::3])}

    def check(self, only, fault=""):
        library = os.path.join(EXAMPLES, "libnccl-net-tcp-v9.so")
        return check(library, only, TCP_FIXTURE_FAULT=fault)

    def test_every_fault_of_a_vendors_plugin_is_found(self):
        for fault, (only, expected, says) in VENDORS.items():
            with self.subTest(fault):
                code, verdicts = self.check(only, fault)
                self.assertEqual((code, verdicts[only][0]), (1, "fail"), verdicts)
                self.assertEqual(self.grades[only], expected)
                self.assertIn(says, verdicts[only][1])

    def test_without_a_fault_the_same_checks_pass(self):
        code, verdicts = self.check(",".join(only for only, _, _ in VENDORS.values()))
        self.assertEqual((code, {verdict for verdict, _ in verdicts.values()}), (0, {"pass"}), verdicts)


class Others(Mutants, unittest.TestCase):
    def test_every_mutant_of_a_tuner_is_killed(self):  # without a fault it passes: conformance_nccl_tuner_v2 to v6
        self.expect_killed(TUNER, "libplexus-tuner-mutant-v{}.so".format, 6)

    def test_a_tuner_whose_trials_do_not_end_or_are_not_the_same_is_found(self):
        for name, says in (("endless", "it asks for another trial after 256"), ("moody", "asked for the first time gets another")):
            code, verdicts = check(f"libplexus-tuner-wild-{name}.so", "times.trials")
            self.assertEqual((code, verdicts["times.trials"][0]), (1, "fail"), verdicts)
            self.assertIn(says, verdicts["times.trials"][1])

    def test_a_profiler_that_knows_nvidias_networks_is_right(self):
        for version in (4, 5, 6, 7):
            code, verdicts = check(f"libplexus-profiler-mutant-v{version}.so", "event", "start_reads_sockets")
            self.assertEqual((code, {verdict for verdict, _ in verdicts.values()}), (0, {"pass"}), verdicts)

    def test_a_profiler_that_gives_no_context_is_right(self):
        """As NVIDIA's inspector without a GPU: NCCL finalizes what init gave, and nothing else."""
        for version in (4, 5, 6, 7):
            code, verdicts = check(f"libplexus-profiler-mutant-v{version}.so", "profiler,event", "init_without_context")
            self.assertEqual((code, {verdict for verdict, _ in verdicts.values()}), (0, {"pass"}), verdicts)

    def test_a_profiler_that_does_not_track_all_events_is_right(self):
        code, verdicts = check("libplexus-profiler-mutant-v6.so", "profiler,event", "start_pooled")
        self.assertEqual((code, {verdict for verdict, _ in verdicts.values()}), (0, {"pass"}), verdicts)

    def test_every_mutant_of_a_profiler_is_killed(self):  # without a fault: conformance_profiler_v4 to v7
        self.expect_killed(PROFILER, "libplexus-profiler-mutant-v{}.so".format, 5)

    def test_every_mutant_of_a_network_that_reduces_is_killed(self):
        code, verdicts = check("libplexus-collnet-mutant.so", ",".join(sorted(set(COLLNET.values()))))
        self.assertEqual((code, {verdict for verdict, _ in verdicts.values()}), (0, {"pass"}), verdicts)
        self.expect_killed(COLLNET, lambda _: "libplexus-collnet-mutant.so")


if __name__ == "__main__":
    unittest.main()
