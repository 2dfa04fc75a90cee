#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The process that made the unique id leaves in order: child communicators of the others live on, split, and hear of
deaths. A rank that aborts is named."""
import collections
import json
import os
import pathlib
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import job

SECONDS = 60  # per call
DEATH_SECONDS = 8
REMOTE_ERROR = 6
MANY = 32
ABORTS = 60
LIBRARY = str(pathlib.Path(job.PLEXUS).parent.parent / "lib" / "libnccl.so")
SCRIPTED_RANK = str(pathlib.Path(__file__).with_name("scripted_rank.py"))
OVER_TCP = {"NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "1"}

Result = collections.namedtuple("Result", ["code", "text", "seconds", "value"])


class ScriptedRank:
    """A process of scripted_rank.py."""

    def __init__(self, environment, prefix=(), prepare=None, stderr=None):
        self.process = subprocess.Popen([*prefix, sys.executable, "-B", SCRIPTED_RANK], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=stderr, env=environment, preexec_fn=prepare)

    def tell(self, *words):
        self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()

    def answer(self, seconds=SECONDS):
        """Of the oldest call that was not answered."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(job.bound(seconds)):
                raise AssertionError(f"a call hangs for {job.bound(seconds)} s")
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"died: {self.process.wait()}")
        return Result(*json.loads(line))

    def kill(self):
        self.process.kill()
        self.process.wait()

    def leave(self):
        """Exits without another call."""
        self.tell("exit")
        self.process.wait(timeout=job.bound(SECONDS))

    def stop(self):
        self.kill()
        self.process.stdin.close()
        self.process.stdout.close()


class ScriptedRanks(job.Test):
    """Jobs of processes that do as they are told."""
    environment = {}
    prefix = ()  # before the command
    prepare = None  # runs in each process before it
    stderr = None  # of all processes

    def start_scripted(self):
        rank = ScriptedRank(job.clean_environment(PLEXUS_TEST_LIBRARY=LIBRARY, NCCL_SOCKET_IFNAME="=lo",
                                          NCCL_OOB_NET_IFNAME="=lo", **self.environment),
                    self.prefix, self.prepare, self.stderr)
        self.addCleanup(rank.stop)
        return rank

    def tell_all(self, ranks, *words):
        """All make one call, which must succeed; their values."""
        for rank in ranks:
            rank.tell(*words)
        values = []
        for rank in ranks:
            result = rank.answer()
            self.assertEqual(result.code, 0, f"{words}: {result.text}")
            values.append(result.value)
        return values

    def start_world(self, nranks, maker=None):
        """Ranks with a communicator `world`; the first made the unique id, or `maker`."""
        ranks = [self.start_scripted() for _ in range(nranks)]
        (unique_id,) = self.tell_all([maker or ranks[0]], "make_id")
        for number, rank in enumerate(ranks):
            rank.tell("init", "world", unique_id, nranks, number)
        for rank in ranks:
            result = rank.answer()
            self.assertEqual(result.code, 0, result.text)
        return ranks

    def split(self, ranks, parent, child, nothers=1):
        """All of `ranks` split; the first ones are in no child, the others in one."""
        for number, rank in enumerate(ranks):
            rank.tell("split", parent, child, -1 if number < nothers else 0)
        for rank in ranks:
            result = rank.answer()
            self.assertEqual(result.code, 0, result.text)

    def leave_in_order(self, rank, *names):
        for name in names:
            self.tell_all([rank], "destroy", name)
        rank.leave()

    def expect_sum(self, ranks, name):
        self.assertEqual(self.tell_all(ranks, "sum", name), [len(ranks)] * len(ranks))

    def expect_death_of(self, dead, ranks, name):
        """It is named by its process: messages of the control plane count ranks of the world, others those of the child."""
        for rank in ranks:
            rank.tell("sum_until_error", name)
        for rank in ranks:
            result = rank.answer(DEATH_SECONDS)
            self.assertEqual(result.code, REMOTE_ERROR, result.text)
            self.assertIn(f":{dead.process.pid})", result.text)


class Leaving(ScriptedRanks):
    def test_the_child_calls_for_the_first_time(self):
        ranks = self.start_world(3)
        self.split(ranks, "world", "child")
        self.tell_all(ranks[1:], "destroy", "world")
        self.leave_in_order(ranks[0], "world")
        self.expect_sum(ranks[1:], "child")
        self.tell_all(ranks[1:], "destroy", "child")

    def test_the_child_splits(self):
        ranks = self.start_world(3)
        self.split(ranks, "world", "child")
        self.leave_in_order(ranks[0], "world")
        self.split(ranks[1:], "child", "grandchild", 0)
        self.expect_sum(ranks[1:], "grandchild")
        for name in ("grandchild", "child", "world"):
            self.tell_all(ranks[1:], "destroy", name)

    def test_a_later_death_is_named(self):
        ranks = self.start_world(4)
        self.split(ranks, "world", "child")
        self.leave_in_order(ranks[0], "world")
        self.expect_sum(ranks[1:], "child")
        ranks[3].kill()
        self.expect_death_of(ranks[3], ranks[1:3], "child")

    def test_the_death_of_the_new_host_is_named(self):
        ranks = self.start_world(4)
        self.split(ranks, "world", "child")
        self.leave_in_order(ranks[0], "world")
        self.expect_sum(ranks[1:], "child")
        ranks[1].kill()
        self.expect_death_of(ranks[1], ranks[2:], "child")

    def test_the_child_is_destroyed(self):
        ranks = self.start_world(3)
        self.split(ranks, "world", "child")
        self.leave_in_order(ranks[0], "world")
        self.tell_all(ranks[1:], "destroy", "child")
        self.tell_all(ranks[1:], "destroy", "world")

    def test_one_after_the_other_leaves(self):
        ranks = self.start_world(4)
        self.split(ranks, "world", "child")
        self.split(ranks[1:], "child", "grandchild")
        self.leave_in_order(ranks[0], "world")
        self.expect_sum(ranks[1:], "child")
        self.leave_in_order(ranks[1], "child", "world")
        self.expect_sum(ranks[2:], "grandchild")
        self.split(ranks[2:], "grandchild", "last", 0)
        self.expect_sum(ranks[2:], "last")
        ranks[3].kill()
        self.expect_death_of(ranks[3], ranks[2:3], "last")

    def test_a_rank_dies_while_the_control_plane_moves(self):
        ranks = self.start_world(4)
        self.split(ranks, "world", "child")
        os.kill(ranks[3].process.pid, signal.SIGSTOP)  # it does not answer the old host
        ranks[0].tell("destroy", "world")
        ranks[3].kill()
        self.assertEqual(ranks[0].answer().code, 0)
        ranks[0].leave()
        self.expect_death_of(ranks[3], ranks[1:3], "child")

    def test_the_maker_of_the_id_is_no_rank(self):
        launcher = self.start_scripted()
        ranks = self.start_world(3, launcher)
        launcher.leave()
        self.expect_sum(ranks, "world")
        self.split(ranks, "world", "child")
        self.expect_sum(ranks[1:], "child")
        ranks[2].kill()
        self.expect_death_of(ranks[2], ranks[1:2], "child")

    def test_an_abort_is_what_the_others_hear_of(self):
        """Not of the connections that it closes."""
        ranks = self.start_world(3)
        aborting, others = ranks[1], [ranks[0], ranks[2]]
        for _ in range(ABORTS):
            self.split(ranks, "world", "child", 0)
            self.expect_sum(ranks, "child")
            for rank in others:
                rank.tell("sum", "child")
            self.tell_all([aborting], "abort", "child")
            for rank in others:
                result = rank.answer()
                self.assertEqual(result.code, REMOTE_ERROR, result.text)
                self.assertIn("rank 1 called ncclCommAbort", result.text)
            self.tell_all(others, "abort", "child")

    def test_many_ranks(self):
        ranks = self.start_world(MANY)
        self.split(ranks, "world", "child")
        begin = time.monotonic()
        self.leave_in_order(ranks[0], "world")
        seconds = time.monotonic() - begin
        self.assertLess(seconds, job.bound(12), "leaving is bounded")
        self.expect_sum(ranks[1:], "child")
        ranks[-1].kill()
        self.expect_death_of(ranks[-1], ranks[1:-1], "child")


class Unequal(ScriptedRanks):
    """Calls that some ranks have made and others have not, small enough to end alone: told when all have left."""

    def setUp(self):
        self.stderr = tempfile.TemporaryFile("w+")
        self.addCleanup(self.stderr.close)

    def leave_all(self, ranks, how="destroy"):
        """All leave at once; what they wrote to standard error, where several may have found the same at the same time."""
        self.tell_all(ranks, how, "world")
        for rank in ranks:
            rank.tell("end")
        for rank in ranks:
            rank.process.wait(timeout=job.bound(SECONDS))
        self.stderr.seek(0)
        return sorted({line for line in self.stderr.read().splitlines() if line})

    def exchange(self, source, target):
        """A message from rank 0 to rank 2, which connects them."""
        source.tell("send", "world", 2, 5)
        target.tell("recv", "world", 0)
        self.assertEqual([source.answer().code, target.answer().value], [0, 5])

    def test_one_collective_more(self):
        ranks = self.start_world(3)
        for _ in range(21):
            self.tell_all(ranks, "broadcast", "world", 1)
        self.tell_all(ranks[1:2], "broadcast", "world", 1)
        output = self.leave_all(ranks)
        self.assertTrue(output)
        for line in output:
            self.assertRegex(line, r"^plexus: comm 0x[0-9a-f]+ of 3 ranks: the ranks' calls differ: rank 1 has destroyed its "
                             r"communicator after 22 collectives, rank [02] after 21, without broadcast\(count 1, float, root 1.*"
                             r"call number 21; every rank of a communicator must make the same calls in the same order$")

    def test_one_collective_more_where_ranks_leave_one_by_one(self):
        for order in (1, -1):
            with self.subTest(order=order):
                self.stderr.seek(0)
                self.stderr.truncate()
                ranks = self.start_world(3)
                self.tell_all(ranks, "broadcast", "world", 1)
                self.tell_all(ranks[1:2], "broadcast", "world", 1)
                for rank in ranks[::order][:2]:
                    self.tell_all([rank], "destroy", "world")
                    rank.tell("end")
                    rank.process.wait(timeout=job.bound(SECONDS))
                self.leave_all(ranks[::order][2:])
                self.stderr.seek(0)
                text = self.stderr.read()
                self.assertEqual(text.count("rank 1 has destroyed its communicator after 2 collectives"), 1, text)

    def test_a_message_that_nobody_takes(self):
        ranks = self.start_world(3)
        self.exchange(ranks[0], ranks[2])
        self.tell_all(ranks[:1], "send", "world", 2, 6)
        for rank in ranks[:2]:
            self.leave_all([rank])
        output, = self.leave_all(ranks[2:])
        self.assertIn("rank 0 has destroyed its communicator after 2 calls of ncclSend to rank 2, which has made 1 of "
                      "ncclRecv from it; every send needs its receive", output)

    def test_equal_calls_are_no_matter(self):
        ranks = self.start_world(3)
        self.expect_sum(ranks, "world")
        self.exchange(ranks[0], ranks[2])
        self.assertEqual(self.leave_all(ranks), [])

    def test_calls_of_ranks_that_aborted_are_no_matter(self):
        ranks = self.start_world(3)
        self.tell_all(ranks, "broadcast", "world", 1)
        self.tell_all(ranks[1:2], "broadcast", "world", 1)
        self.assertEqual(self.leave_all(ranks, "abort"), [])


class LeavingOverTcp(Leaving):
    environment = OVER_TCP
    test_many_ranks = unittest.skip("as over shared memory")(Leaving.test_many_ranks)


if __name__ == "__main__":
    job.main()
