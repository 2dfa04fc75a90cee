#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that wait for longer than PLEXUS_STALL_S log who keeps them waiting, and go on when it does."""
import json
import os
import pathlib
import signal
import tempfile

import job

# Rows are printed for minutes: after the first one the job runs.
LONG = ["-b", "1K", "-e", "64M", "-i", "1K", "-n", "20", "-w", "1", "--tsv", "-"]
OVER_TCP = {"NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "1"}


class Verdict(job.Test):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "verdicts"
        self.settings = {"PLEXUS_STALL_S": "1", "PLEXUS_STALL_FILE": str(self.file)}

    def verdicts(self):
        text = self.file.read_text() if self.file.exists() else ""
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]

    def wait_for(self, cause):
        self.wait_until(60, lambda: any(found["cause"] == cause for found in self.verdicts()),
                        f"no verdict {cause}")
        return next(found for found in self.verdicts() if found["cause"] == cause)

    def stop_rank(self, stopped, **environment):
        ranks = self.start_ranks(3, "all_reduce", *LONG, *job.limit(120), **self.settings, **environment)
        ranks[0].read_line()
        ranks[0].read_line()
        os.kill(ranks[stopped].pid, signal.SIGSTOP)
        found = self.wait_for("stopped")
        self.assertEqual(found["ranks"], [stopped])
        self.assertIn(f"rank {stopped} (", found["verdict"])
        self.assertIn(f":{ranks[stopped].pid}) does not answer", found["verdict"])
        self.assertIn("in all_reduce(", found["verdict"])
        os.kill(ranks[stopped].pid, signal.SIGCONT)
        ranks[0].read_line()  # it goes on

    def test_a_stopped_rank_is_named(self):
        for stopped in (2, 0):
            with self.subTest(stopped=stopped):
                self.stop_rank(stopped)
                self.file.unlink()

    def test_a_stopped_rank_is_named_over_tcp(self):
        self.stop_rank(1, **OVER_TCP)

    def test_a_message_that_does_not_arrive_names_its_link(self):
        rendezvous = f"127.0.0.1:{job.free_port()}"
        flags = ["sendrecv", "-b", "1M", "-e", "1M", "-n", "2000", "--tsv", "-", *job.limit(120)]
        settings = {"NCCL_NET_PLUGIN": "chaos", "rendezvous": rendezvous, **OVER_TCP, **self.settings}
        # Rank 1's data stays in its network for longer than the others wait.
        ranks = self.start_ranks(3, *flags, skip=(1,), **settings)
        ranks |= self.start_ranks(3, *flags, skip=(0, 2), PLEXUS_CHAOS_SCRIPT="send: stall=24MiB/60s", **settings)
        found = self.wait_for("link")
        self.assertEqual(found["ranks"], [1])
        self.assertIn(f"rank 1 ({os.uname().nodename}:{ranks[1].pid}) has sent a message to rank ",
                      found["verdict"])
        self.assertIn("net/Chaos", found["verdict"])

    def test_a_job_without_stalls_says_nothing(self):
        ranks = self.start_ranks(2, "all_reduce", "-e", "1M", **self.settings)
        for command in ranks.values():
            ended = command.end(60)
            self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(self.verdicts(), [])


if __name__ == "__main__":
    job.main()
