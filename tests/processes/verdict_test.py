#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that wait for longer than PLEXUS_STALL_S log who keeps them waiting, and go on when it does."""
import json
import os
import pathlib
import select
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
        """`plexus perf` gathers its times between the all_reduces: the stop may fall into either."""
        ranks = self.start_ranks(3, "all_reduce", *LONG, *job.limit(120), **self.settings, **environment)
        ranks[0].read_line()
        ranks[0].read_line()
        os.kill(ranks[stopped].pid, signal.SIGSTOP)
        found = self.wait_for("stopped")
        self.assertEqual(found["ranks"], [stopped])
        self.assertIn(f"rank {stopped} (", found["verdict"])
        self.assertIn(f":{ranks[stopped].pid}) does not answer", found["verdict"])
        self.assertRegex(found["verdict"], r"in all_(reduce|gather)\(")
        os.kill(ranks[stopped].pid, signal.SIGCONT)
        ranks[0].read_line()  # it goes on

    def test_a_stopped_rank_is_named(self):
        self.stop_rank(2)

    def test_a_stopped_first_rank_is_named(self):
        self.stop_rank(0)

    def test_a_stopped_rank_is_named_over_tcp(self):
        self.stop_rank(1, **OVER_TCP)

    def output(self, ranks):
        """What ranks under way have written to standard error."""
        text = ""
        for command in ranks.values():
            while select.select([command.process.stderr], [], [], 0)[0]:
                part = os.read(command.process.stderr.fileno(), 65536).decode()
                if not part:
                    break
                text += part
        return text

    def test_one_process_says_it_once_where_no_log_was_asked_for(self):
        for stopped in (0, 1):
            ranks = self.start_ranks(3, "all_reduce", *LONG, *job.limit(120), **self.settings)
            ranks[0].read_line()
            ranks[0].read_line()
            os.kill(ranks[stopped].pid, signal.SIGSTOP)
            self.wait_until(60, lambda: sum(found["ranks"] == [stopped] for found in self.verdicts()) >= 2,
                            "no second inquiry")
            output = []  # the file of verdicts may have it before
            self.wait_until(60, lambda: output.append(self.output(ranks)) or "".join(output).endswith("\n"), "nothing is said")
            # On a busy machine both that wait may ask at the same time; each says it once.
            self.assertRegex("".join(output), r"\A(plexus: comm 0x[0-9a-f]+ of 3 ranks: rank \d has waited for \d+ s in "
                             rf"all_(reduce|gather)\([^\n]*: rank {stopped} \([^\n]*:{ranks[stopped].pid}\) does not "
                             r"answer[^\n]*\n){1,2}\Z")
            os.kill(ranks[stopped].pid, signal.SIGCONT)
            ranks[0].read_line()  # it goes on
            for command in ranks.values():
                command.stop()
            self.file.unlink()

    def test_those_who_asked_for_silence_get_it(self):
        ranks = self.start_ranks(3, "all_reduce", *LONG, *job.limit(120), **self.settings, NCCL_DEBUG="NONE")
        ranks[0].read_line()
        ranks[0].read_line()
        os.kill(ranks[1].pid, signal.SIGSTOP)
        self.wait_for("stopped")
        os.kill(ranks[1].pid, signal.SIGCONT)
        ranks[0].read_line()
        self.assertEqual(self.output(ranks), "")

    def test_a_message_that_does_not_arrive_names_its_link(self):
        flags = ["sendrecv", "-b", "1M", "-e", "1M", "-n", "2000", "--tsv", "-", *job.limit(120)]
        # Rank 1's data stays in its network for longer than the others wait.
        ranks = self.start_chaos(flags, 1, {"PLEXUS_CHAOS_SCRIPT": "send: stall=24MiB/60s"})
        found = self.wait_for("link")
        self.assertEqual(found["ranks"], [1])
        self.assertIn(f"rank 1 ({os.uname().nodename}:{ranks[1].pid}) has sent a message to rank ",
                      found["verdict"])
        self.assertIn("net/Chaos", found["verdict"])

    def hold_up(self, entry):
        """The verdict of three ranks, in rank 1 of which this entry of the plugin answers PLEXUS_AGAIN for ever."""
        self.file.unlink(missing_ok=True)
        flags = ["sendrecv", "-b", "64K", "-e", "64K", "-n", "2000", "--tsv", "-", *job.limit(120)]
        settings = {"NCCL_NET_PLUGIN": "scripted", "PLEXUS_PLUGIN_PATH": os.environ["PLEXUS_TEST_EXAMPLE_DIR"],
                    "rendezvous": f"127.0.0.1:{job.free_port()}", **OVER_TCP, **self.settings}
        ranks = self.start_ranks(3, *flags, skip=(1,), **settings)
        ranks |= self.start_ranks(3, *flags, skip=(0, 2), **settings, PLEXUS_SCRIPTED_NET_FAULT=entry)
        found = self.wait_for("link")
        for command in ranks.values():
            command.stop()
        self.assertIn(1, found["ranks"], found["verdict"])
        return found["verdict"]

    def test_an_entry_that_says_again_for_ever_is_named_with_plugin_device_and_numbers(self):
        device = r"of plugin scripted on device 0 \(\S+\)"
        held = r"rank 1 \(\S+\) is held up by its network:"
        self.assertRegex(self.hold_up("isend"), rf"{held} isend {device} to rank \d \(\S+\) has no room \(PLEXUS_AGAIN\) for "
                                                r"message \d+ of \d+ bytes, with \d requests under way")
        # Who asks first may see only the message that does not come.
        self.assertRegex(self.hold_up("irecv"), rf"{held} irecv {device} from rank \d \(\S+\) has no room \(PLEXUS_AGAIN\) for "
                                                r"the buffer of message \d+, with no request under way"
                                                r"|has sent a message to rank \d that does not arrive by net/scripted")
        for entry in ("connect", "accept"):  # the other end does not finish either
            self.assertRegex(self.hold_up(entry), rf"is held up by its network: (connect|accept) {device} (to|from) rank \d "
                                                  r"\(\S+\) does not finish")

    def start_chaos(self, flags, odd, odd_settings, log=None):
        """Three ranks over net-chaos, one of them with other settings."""
        settings = {"NCCL_NET_PLUGIN": "chaos", "rendezvous": f"127.0.0.1:{job.free_port()}", **OVER_TCP, **self.settings}
        if log:
            settings |= {"NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": f"{log}.%p"}
        ranks = self.start_ranks(3, *flags, skip=(odd,), **settings)
        others = [rank for rank in range(3) if rank != odd]
        return ranks | self.start_ranks(3, *flags, skip=others, **settings, **odd_settings)

    def test_a_plugin_that_does_not_return_is_named_with_its_function(self):
        block = self.file.with_name("block")
        ranks = self.start_chaos(["all_reduce", *LONG, *job.limit(120)], 1, {"PLEXUS_CHAOS_BLOCK": f"isend@{block}"})
        ranks[0].read_line()
        ranks[0].read_line()
        block.touch()
        found = self.wait_for("in_plugin")
        self.assertEqual(found["ranks"], [1])
        self.assertIn(f":{ranks[1].pid}) has been inside isend of plugin Chaos for", found["verdict"])
        block.unlink()
        ranks[0].read_line()  # it goes on

    def wait_for_line(self, ranks, log, text):
        files = [pathlib.Path(f"{log}.{ranks[rank].pid}") for rank in (0, 2)]
        for file in files:
            self.wait_until(60, lambda: file.exists() and text in file.read_text(),
                            f"{text} is not in {file}")

    def test_init_names_the_rank_in_a_plugin(self):
        block = self.file.with_name("block")
        log = self.file.with_name("log")
        block.touch()
        ranks = self.start_chaos(["all_reduce", "-e", "1K"], 1, {"PLEXUS_CHAOS_BLOCK": f"init@{block}"}, log)
        self.wait_for_line(ranks, log, f":{ranks[1].pid}) [has been inside init of plugin Chaos for")
        block.unlink()
        for command in ranks.values():
            self.assertEqual(command.end(60).returncode, 0)

    def test_init_names_the_rank_that_has_not_come(self):
        log = self.file.with_name("log")
        settings = {"rendezvous": f"127.0.0.1:{job.free_port()}", "NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": f"{log}.%p",
                    **self.settings}
        ranks = self.start_ranks(3, "all_reduce", "-e", "1K", skip=(1,), **settings)
        self.wait_for_line(ranks, log, "still waiting for rank 1: others have waited for 1 s in init")
        ranks |= self.start_ranks(3, "all_reduce", "-e", "1K", skip=(0, 2), **settings)
        for command in ranks.values():
            self.assertEqual(command.end(60).returncode, 0)

    def test_init_says_once_who_has_not_come(self):
        log = self.file.with_name("log")
        settings = {"rendezvous": f"127.0.0.1:{job.free_port()}", **self.settings}
        ranks = self.start_ranks(3, "all_reduce", "-e", "1K", skip=(1, 2), **settings)
        ranks |= self.start_ranks(3, "all_reduce", "-e", "1K", skip=(0, 1), NCCL_DEBUG="WARN", NCCL_DEBUG_FILE=f"{log}.%p",
                                  **settings)
        file = pathlib.Path(f"{log}.{ranks[2].pid}")
        self.wait_until(60, lambda: file.exists() and "others have waited for 2 s" in file.read_text(), "no second line")
        self.assertRegex(self.output(ranks), r"\Aplexus: still waiting for rank 1: others have waited for 1 s in init[^\n]*\n\Z")
        ranks |= self.start_ranks(3, "all_reduce", "-e", "1K", skip=(0, 2), **settings)
        for command in ranks.values():
            self.assertEqual(command.end(60).returncode, 0)

    def test_a_job_without_stalls_says_nothing(self):
        ranks = self.start_ranks(2, "all_reduce", "-e", "1M", **self.settings)
        for command in ranks.values():
            ended = command.end(60)
            self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(self.verdicts(), [])


if __name__ == "__main__":
    job.main()
