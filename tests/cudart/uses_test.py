#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PLEXUS_CHECK=1 on programs with one mistake each (uses.cpp): none hangs, each mistake is named; without it nothing is said.

Usage: uses_test.py PLEXUS PROGRAM    (PROGRAM: cudart_uses)
"""
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "processes"))
import job  # noqa: E402

PLEXUS, PROGRAM = sys.argv[1], sys.argv[2]
SECONDS = 60
PLACE = r"cudart_uses\+0x[0-9a-f]+"
CALL = rf"all_reduce at {PLACE}"

# What is said of each mistake.
SENTENCES = {
    "missing_call": r"rank 0 waits in all_reduce\(.*\), call number 0 for rank 1, which has destroyed its communicator without that call",
    "other_order": r"the ranks' calls differ: rank 1 made broadcast\(.*, rank 0 made all_reduce\(",
    "other_count": r"the ranks' calls differ: rank \d made all_reduce\(count (512|1024), .*, rank \d made all_reduce\(count (512|1024),",
    "other_type": r"the ranks' calls differ: rank \d made .*(float|int32), sum, .*, rank \d made .*(float|int32), sum,",
    "other_operation": r"the ranks' calls differ: rank \d made .*float, (sum|max), .*, rank \d made .*float, (sum|max),",
    "other_root": r"the ranks' calls differ: rank \d made .* root [01], .*, rank \d made .* root [01],",
    "no_such_root": r"reduce: root 2 is not a rank of this communicator \(0\.\.1\)",
    "send_without_receive": r"rank 0 waits in send\(.*\) to rank 1, number 0 to it for rank 1, which has destroyed its communicator",
    "receives_before_sends": r"wait for each other forever: rank \d waits in recv\(.*, rank \d waits in recv\(",
    "group_not_ended": rf"check: rank 1 of 2: {CALL} is in a group of 1 calls that was never ended",
    "leaked_communicator": rf"check: rank 1 of 2: the communicator that was made at {PLACE} .*was never destroyed",
    "destroyed_communicator": r"is not a communicator: it is NULL or was destroyed",
    "two_threads": rf"check: rank [01] of 2: {CALL} .*while another thread is in {CALL}",
    "freed_buffer": rf"check: rank 1 of 2: {CALL}.*: the send buffer 0x[0-9a-f]+ was freed by cudaFree at {PLACE}",
    "freed_nccl_buffer": rf"check: rank 1 of 2: {CALL}.*: the send buffer 0x[0-9a-f]+ was freed by ncclMemFree at {PLACE}",
    "freed_twice": rf"check: cudaFree at {PLACE}.* frees 0x[0-9a-f]+, which cudaFree at {PLACE}.* has freed",
    "unwritten_buffer": rf"check: rank 1 of 2: {CALL}.* sends bytes 2048 to 4095 of 4096 at 0x[0-9a-f]+, which nothing has written",
    "small_buffer": rf"check: rank [01] of 2: {CALL}.*: the send buffer 0x[0-9a-f]+ needs 8192 bytes, and its allocation ends after 4096",
    "pageable_buffer": rf"check: rank 1 of 2: {CALL}.*: the send buffer 0x[0-9a-f]+ is memory that CUDA does not know",
    "buffer_of_other_device":
        rf"check: rank 1 of 2: {CALL}.*: the send buffer is memory of device 7, but the rank is on device 1",
    "filled_on_other_stream": rf"check: rank 0 of 2: {CALL}.* reads 4096 bytes at 0x[0-9a-f]+, which cudaMemsetAsync at {PLACE}.* writes",
    "overwritten_too_early": rf"check: rank [01] of 2: cudaMemsetAsync at {PLACE}.* writes 4096 bytes at 0x[0-9a-f]+, which {CALL}.* reads",
    "read_too_early": rf"check: rank [01] of 2: cudaMemcpy at {PLACE}.* reads 4096 bytes at 0x[0-9a-f]+, which {CALL}.* writes",
    "freed_too_early": rf"check: rank 0 of 2: cudaFree at {PLACE}.* frees 4096 bytes at 0x[0-9a-f]+, which {CALL}.* writes "
                       "and the program has not waited",
    "freed_on_other_stream": rf"check: rank 0 of 2: cudaFreeAsync at {PLACE}.* writes 4096 bytes at 0x[0-9a-f]+, which {CALL}",
    "written_by_other_call": rf"check: rank 0 of 2: {CALL}.* writes 4096 bytes at 0x[0-9a-f]+, which {CALL}.* writes on another",
    "steps_in_one_group": rf"check: rank [01] of 2: recv at {PLACE}.* writes 2048 bytes at 0x[0-9a-f]+, which send at {PLACE}.* uses in the same group",
    "waited_for_wrong_event": rf"check: rank [01] of 2: cudaMemsetAsync at {PLACE}.* writes 4096 bytes at 0x[0-9a-f]+, which {CALL}",
}


def run(case, kind, **environment):
    """Both ranks; their return codes and all that they say."""
    port = str(job.free_port())
    ranks = [job.Command([PLEXUS, "run", "--devices", "8", PROGRAM, case, kind], RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank),
                         LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **environment) for rank in range(2)]
    try:
        ended = [rank.end(SECONDS) for rank in ranks]
    finally:
        for rank in ranks:
            rank.stop()
    return [each.returncode for each in ended], "".join(each.stdout + each.stderr for each in ended)


class Uses(unittest.TestCase):
    def test_every_case_has_a_sentence(self):
        listed = subprocess.run([PLEXUS, "run", PROGRAM], capture_output=True, text=True, timeout=job.bound(SECONDS), check=False)
        self.assertEqual(sorted(listed.stdout.split()), sorted(SENTENCES))

    def test_wrong_programs_end_and_are_named(self):
        for case, sentence in SENTENCES.items():
            with self.subTest(case):
                _, output = run(case, "wrong", PLEXUS_CHECK="1")
                self.assertRegex(output, sentence)

    def test_right_programs_pass_without_a_word(self):
        for case in SENTENCES:
            with self.subTest(case):
                self.assertEqual(run(case, "right", PLEXUS_CHECK="1"), ([0, 0], ""))

    def test_without_the_setting_nothing_is_checked(self):
        _, output = run("leaked_communicator", "wrong")
        self.assertEqual(output, "")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
