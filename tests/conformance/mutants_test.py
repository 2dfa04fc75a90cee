#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kit kills mutants: net-socket with one fault each (mutant.cpp) fails the check that is there for it.

Reports the kill rate. Without a fault the wrapper passes the same checks: it is the fault that is seen.
"""
import concurrent.futures
import json
import os
import subprocess
import sys
import unittest

BIN = os.environ["PLEXUS_TEST_BIN_DIR"]
MUTANT = os.path.join(os.environ["PLEXUS_TEST_EXAMPLE_DIR"], "libplexus-net-mutant.so")
INNER = os.path.join(os.environ["PLEXUS_TEST_LIB_DIR"], "libplexus-net-socket.so")
FACTOR = int(float(os.environ.get("PLEXUS_TEST_TIME_FACTOR", "1")))

KILLED_BY = {  # mutant -> the check that must fail
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
    "isend_again_sent": "order.fifo",
    "isend_empty_null": "message.empty_null",
    "isend_short": "message.1g",
    "isend_one_tag": "order.tags_reversed",
    "isend_abs_tag": "order.tags_extreme",
    "isend_logs": "log.messages",
    "isend_code": "request.flood",
    "isend_unsure": "order.fifo",
    "irecv_one_tag": "order.tags",
    "irecv_long": "request.too_long",
    "irecv_early": "message.room",
    "irecv_reversed": "group.sizes",
    "irecv_beside": "message.odd",
    "test_blocks": "order.not_done",
    "test_sizes_early": "request.sizes_done",
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


def check(only, mutant=None):
    """(exit code, {id: (verdict, detail)})"""
    environment = {**os.environ, "PLEXUS_MUTANT_OF": INNER}
    environment.pop("PLEXUS_MUTANT", None)
    if mutant:
        environment["PLEXUS_MUTANT"] = mutant
    ended = subprocess.run([os.path.join(BIN, "plexus"), "plugin", "check", MUTANT, "--json", "-", "--only", only,
                            "--patience", str(max(1, FACTOR))],
                           env=environment, capture_output=True, text=True, timeout=100 * max(1, FACTOR), check=False)
    report = json.loads(ended.stdout)
    return ended.returncode, {each["id"]: (each["verdict"], each["detail"]) for each in report["checks"]}


class Mutants(unittest.TestCase):
    def test_the_wrapper_without_a_fault_passes(self):
        code, verdicts = check(",".join(sorted(set(KILLED_BY.values()))))
        self.assertEqual([name for name, (verdict, _) in verdicts.items() if verdict != "pass"], [], verdicts)
        self.assertEqual(code, 0)

    def test_every_mutant_is_killed(self):
        survivors = []
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            runs = {mutant: pool.submit(check, only, mutant) for mutant, only in KILLED_BY.items()}
            for mutant, run in runs.items():
                code, verdicts = run.result()
                verdict, detail = verdicts[KILLED_BY[mutant]]
                print(f"{mutant:<24} {KILLED_BY[mutant]:<24} {verdict}: {detail}", flush=True)
                if verdict != "fail" or code != 1:
                    survivors.append(mutant)
        killed = len(KILLED_BY) - len(survivors)
        print(f"{killed} of {len(KILLED_BY)} mutants killed", flush=True)
        self.assertEqual(survivors, [])
        self.assertGreaterEqual(len(KILLED_BY), 25)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
