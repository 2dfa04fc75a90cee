#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a stream of all_reduce calls, for tests with links that break: started on all ranks by torchrun's
variables. Checks every element of every call, and writes FOLDER/rankN.json: the time of each call in seconds and a hash of the
results' bits.

    xdc_stream.py FOLDER COUNT CALLS [--aligned] [--fractions] [--back] [--at-loss die|abort]

FOLDER: shared by all ranks, empty. COUNT: floats of a call. --aligned: ranks begin each call at one moment of the
machine's clock. --fractions: numbers whose sum depends on the order of adding, checked nearly. --back: calls until the
choice of algorithm, which each rank writes down for each call, has changed and is back again; after the first change rank 0
makes FOLDER/changed. --at-loss: what the last rank does after the call that took the longest, half a second or more."""
import argparse
import array
import ctypes
import hashlib
import json
import os
import pathlib
import signal
import time

FLOAT, SUM = 7, 0  # ncclFloat32, ncclSum
PERIOD_S = 0.1
LOSS_S = 0.4  # a call that takes so long has lost a link
CALLS_BACK = 3  # that are made with the first choice again


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


def load():
    library = ctypes.CDLL(os.environ["PLEXUS_TEST_LIBRARY"])
    library.ncclGetErrorString.restype = ctypes.c_char_p
    library.ncclGetLastError.restype = ctypes.c_char_p
    library.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId, ctypes.c_int]
    library.ncclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                                      ctypes.c_void_p, ctypes.c_void_p]
    library.ncclCommDestroy.argtypes = [ctypes.c_void_p]
    library.ncclGetLastError.argtypes = [ctypes.c_void_p]
    library.ncclCommAbort.argtypes = [ctypes.c_void_p]
    library.plexusGetLastChoice.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p), ctypes.c_void_p,
                                            ctypes.c_void_p]
    return library


def check(library, code):
    if code != 0:
        raise SystemExit(library.ncclGetLastError(None).decode())


def unique_id(library, folder, rank):
    """From rank 0 to all, by a file."""
    made = UniqueId()
    path = pathlib.Path(folder) / "id"
    if rank == 0:
        check(library, library.ncclGetUniqueId(ctypes.byref(made)))
        (path.parent / "id.new").write_bytes(bytes(made))
        (path.parent / "id.new").rename(path)
    deadline = time.monotonic() + 30
    while not path.exists():
        if time.monotonic() > deadline:
            raise SystemExit("rank 0 made no id")
        time.sleep(0.01)
    return UniqueId.from_buffer_copy(path.read_bytes())


def inputs_of(rank, call, fractions):
    """What a rank's floats are, in turns. Sums of small whole numbers are exact, in whatever order."""
    return [1 / (3 + rank + call), 1e3 / (7 + 5 * rank)] if fractions else [rank + 1 + call % 7, call % 13]


def choice_of(library, comm):
    reported = ctypes.c_char_p()
    check(library, library.plexusGetLastChoice(comm, ctypes.byref(reported), None, None))
    return reported.value.decode()


def any_says(library, comm, wish):
    """Whether some rank wishes so: the same answer on all."""
    own, result = ctypes.c_float(wish), ctypes.c_float()
    check(library, library.ncclAllReduce(ctypes.addressof(own), ctypes.addressof(result), 1, FLOAT, SUM, comm, None))
    return result.value > 0


def is_back(choices):
    """The choice has changed, and been the first one again for some calls."""
    others = [call for call, choice in enumerate(choices) if choice != choices[0]]
    return bool(others) and len(choices) - 1 - others[-1] >= CALLS_BACK


def end_early(library, comm, how):
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    check(library, library.ncclCommAbort(comm))
    raise SystemExit("aborted")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("count", type=int)
    parser.add_argument("calls", type=int)
    parser.add_argument("--aligned", action="store_true")
    parser.add_argument("--fractions", action="store_true")
    parser.add_argument("--back", action="store_true")
    parser.add_argument("--at-loss", choices=["die", "abort"])
    options = parser.parse_args()
    rank, nranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    library = load()
    comm = ctypes.c_void_p()
    check(library, library.ncclCommInitRank(ctypes.byref(comm), nranks, unique_id(library, options.folder, rank), rank))
    times, choices, bits = [], [], hashlib.sha256()
    result = array.array("f", bytes(4 * options.count))
    for call in range(options.calls):
        inputs = [inputs_of(each, call, options.fractions) for each in range(nranks)]
        own = array.array("f", inputs[rank]) * ((options.count + 1) // 2)
        if options.aligned:
            now = time.monotonic()
            time.sleep((now // PERIOD_S + 2) * PERIOD_S - now)
        began = time.monotonic()
        check(library, library.ncclAllReduce(own.buffer_info()[0], result.buffer_info()[0], options.count, FLOAT, SUM,
                                             comm, None))
        times.append(time.monotonic() - began)
        choices.append(choice_of(library, comm))
        if options.at_loss and rank == nranks - 1 and call > 0 and times[-1] > LOSS_S:
            end_early(library, comm, options.at_loss)
        sums = [sum(column) for column in zip(*inputs)]
        if options.fractions:
            right = all(abs(result[at] - sums[at % 2]) < 1e-4 * sums[at % 2] for at in range(options.count))
        else:
            right = bytes(result) == bytes((array.array("f", sums) * ((options.count + 1) // 2))[:options.count])
        if not right:
            raise SystemExit(f"call {call} gave a wrong result on rank {rank}")
        bits.update(bytes(result))
        if call == 0 and rank == 0:
            (pathlib.Path(options.folder) / "running").touch()
        if options.back and rank == 0 and choices[-1] != choices[0]:
            (pathlib.Path(options.folder) / "changed").touch()
        if options.back and any_says(library, comm, rank == 0 and is_back(choices)):
            break
    check(library, library.ncclCommDestroy(comm))
    reported = {"rank": rank, "times": times, "choices": choices, "bits": bits.hexdigest()}
    (pathlib.Path(options.folder) / f"rank{rank}.json").write_text(json.dumps(reported))


if __name__ == "__main__":
    main()
