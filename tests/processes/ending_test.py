#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes that end without ncclCommDestroy: normally, or at once (_exit, a signal). What has arrived from them is used; a
call of the others fails only when a message is missing, and then the reason is told."""
import os
import time

import job
import leaving_test

RUNS = 10
REMOTE_ERROR = leaving_test.REMOTE_ERROR
FAILS_SECONDS = 15  # a second until a wait counts as stalled, five until a call gives up after a death


class Ending(leaving_test.ScriptedRanks):
    environment = {}

    def end(self, rank, how):
        rank.tell(how)
        rank.process.wait(timeout=job.bound(leaving_test.SECONDS))

    def wait_for_failure(self, rank, name):
        """Until `rank` has heard of a death."""
        deadline = time.monotonic() + job.bound(leaving_test.SECONDS)
        while self.tell_all([rank], "error", name) != [REMOTE_ERROR]:
            self.assertLess(time.monotonic(), deadline, "nobody told of the death")

    def expect_error(self, rank, *texts):
        result = rank.answer(FAILS_SECONDS)
        self.assertEqual(result.code, REMOTE_ERROR, result.text)
        for text in texts:
            self.assertIn(text, result.text)

    def test_all_end_after_their_last_call(self):
        """Each at its own time: the first one while the others are still in the call."""
        for how in ("end", "exit"):
            for _ in range(RUNS):
                ranks = self.start_world(3)
                for rank in ranks:
                    rank.tell("sum", "world")
                    rank.tell(how)
                for rank in ranks:
                    result = rank.answer()
                    self.assertEqual((result.code, result.value), (0, 3), f"{how}: {result.text}")

    def test_others_make_the_call_later(self):
        ranks = self.start_world(4)
        self.tell_all(ranks, "broadcast", "world", 0)  # makes the connections
        self.tell_all(ranks[:1], "broadcast", "world", 0)
        self.end(ranks[0], "end")
        self.assertEqual(self.tell_all(ranks[1:], "broadcast", "world", 0), [1, 1, 1])

    def test_who_has_no_color_may_end_before_the_others_split(self):
        for calls in (["destroy world"], []):
            ranks = self.start_world(3)
            self.tell_all(ranks[:1], "split_now", "world", "none", -1)
            for call in calls:
                ranks[0].tell(call)
            ranks[0].tell("end")
            time.sleep(0.2)  # the others come late; that they do decides nothing
            for rank in ranks[1:]:
                rank.tell("split_now", "world", "child", 0)
            for rank in ranks[1:]:
                result = rank.answer()
                self.assertEqual(result.code, 0, f"{calls}: {result.text}")
            self.assertEqual(self.tell_all(ranks[1:], "sum", "child"), [2, 2])
            ranks[0].process.wait(timeout=job.bound(leaving_test.SECONDS))

    def test_messages_of_a_dead_rank_are_received(self):
        ranks = self.start_world(3)
        ranks[0].tell("send", "world", 1, 4)  # makes the connection
        self.assertEqual(self.tell_all(ranks[1:2], "recv", "world", 0), [4])
        self.assertEqual(ranks[0].answer().code, 0)
        for value in (5, 6, 7):
            self.tell_all(ranks[:1], "send", "world", 1, value)
        self.end(ranks[0], "exit")
        self.wait_for_failure(ranks[1], "world")
        for value in (5, 6, 7):
            self.assertEqual(self.tell_all(ranks[1:2], "recv", "world", 0), [value])
        ranks[1].tell("recv", "world", 0)
        self.expect_error(ranks[1], f":{ranks[0].process.pid})")

    def test_calls_that_need_no_dead_rank_go_on(self):
        ranks = self.start_world(3)
        self.expect_sum(ranks, "world")
        self.end(ranks[0], "exit")
        self.wait_for_failure(ranks[2], "world")
        ranks[1].tell("send", "world", 2, 8)
        self.assertEqual(self.tell_all(ranks[2:], "recv", "world", 1), [8])
        self.assertEqual(ranks[1].answer().code, 0)

    def test_a_call_without_the_dead_rank_fails_on_all(self):
        ranks = self.start_world(4)
        self.expect_sum(ranks, "world")
        self.end(ranks[1], "exit")
        others = [ranks[0], ranks[2], ranks[3]]
        for rank in others:
            rank.tell("sum", "world")
        for rank in others:
            self.expect_error(rank, f":{ranks[1].process.pid})")

    def test_who_waits_for_one_that_comes_no_more_is_told(self):
        """Rank 2 waits for rank 1, which sees the death and makes no further call."""
        ranks = self.start_world(3)
        self.expect_sum(ranks, "world")
        self.end(ranks[0], "exit")
        ranks[2].tell("recv", "world", 1)
        self.wait_for_failure(ranks[1], "world")
        self.tell_all(ranks[1:2], "revoke", "world")
        self.expect_error(ranks[2], f":{ranks[0].process.pid})")

    def test_who_waits_for_one_that_revokes_and_leaves_is_told(self):
        for ending in ("destroy", "abort"):
            with self.subTest(ending):
                ranks = self.start_world(2)
                self.expect_sum(ranks, "world")
                ranks[1].tell("recv", "world", 0)
                self.tell_all(ranks[:1], "revoke", "world")
                self.tell_all(ranks[:1], ending, "world")
                self.expect_error(ranks[1], "rank 0 has revoked the communicator")

    def test_a_call_that_an_ended_process_has_not_made_fails(self):
        ranks = self.start_world(3)
        self.expect_sum(ranks, "world")
        self.end(ranks[0], "end")
        self.end(ranks[1], "end")
        ranks[2].tell("sum", "world")
        self.expect_error(ranks[2], "whose process has ended without that call")

    def test_a_process_ends_with_several_communicators(self):
        ranks = self.start_world(3)
        self.split(ranks, "world", "child", 0)
        for name in ("world", "child"):
            self.tell_all(ranks, "broadcast", name, 0)  # makes the connections
        self.tell_all(ranks[:1], "broadcast", "world", 0)
        self.tell_all(ranks[:1], "broadcast", "child", 0)
        self.end(ranks[0], "end")
        for name in ("child", "world"):
            self.assertEqual(self.tell_all(ranks[1:], "broadcast", name, 0), [1, 1])
        self.tell_all(ranks[1:], "destroy", "child")
        self.tell_all(ranks[1:], "destroy", "world")


class EndingOverTcp(Ending):
    environment = leaving_test.OVER_TCP


class EndingOverALibraryThatLosesAMessage(leaving_test.ScriptedRanks):
    environment = {**leaving_test.OVER_TCP, "NCCL_NET_PLUGIN": "tcp-v8", "TCP_FIXTURE_FAULT": "lost",
                   "PLEXUS_PLUGIN_PATH": os.environ.get("PLEXUS_TEST_EXAMPLE_DIR", "build/dev/test-bin")}

    def test_the_network_is_named_beside_the_calls(self):
        """The call was made. All that is known is that its message did not come before the end of the connection."""
        ranks = self.start_world(2)
        for value in range(49):
            ranks[0].tell("send", "world", 1, value)
            self.assertEqual(self.tell_all(ranks[1:], "recv", "world", 0), [value])
            self.assertEqual(ranks[0].answer().code, 0)
        self.tell_all(ranks[:1], "send", "world", 1, 49)
        ranks[0].tell("end")
        ranks[0].process.wait(timeout=job.bound(leaving_test.SECONDS))
        ranks[1].tell("recv", "world", 0)
        text = ranks[1].answer(FAILS_SECONDS).text
        self.assertIn("the network lost its message", text)
        self.assertIn("net plugin TcpOld", text)


if __name__ == "__main__":
    job.main()
