#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a stream of all_reduce calls, for tests with links that break: started on all ranks by torchrun's
variables. Checks every element of every call, and writes FOLDER/rankN.json: the time of each call in seconds and a hash of the
results' bits.

    far_stream.py FOLDER COUNT CALLS [--gap SECONDS] [--aligned]

FOLDER: shared by all ranks, empty. COUNT: floats of a call. --aligned: ranks begin each call at one moment of the
machine's clock."""
import argparse
import array
import ctypes
import hashlib
import json
import os
import pathlib
import time

FLOAT, SUM = 7, 0  # ncclFloat32, ncclSum
PERIOD_S = 0.1


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
    return library


def check(library, code):
    if code != 0:
        raise SystemExit(library.ncclGetLastError(None).decode())


def unique_id(library, folder, rank):
    """From rank 0 to all, by a file."""
    told = UniqueId()
    path = pathlib.Path(folder) / "id"
    if rank == 0:
        check(library, library.ncclGetUniqueId(ctypes.byref(told)))
        (path.parent / "id.new").write_bytes(bytes(told))
        (path.parent / "id.new").rename(path)
    deadline = time.monotonic() + 30
    while not path.exists():
        if time.monotonic() > deadline:
            raise SystemExit("rank 0 told no id")
        time.sleep(0.01)
    return UniqueId.from_buffer_copy(path.read_bytes())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("count", type=int)
    parser.add_argument("calls", type=int)
    parser.add_argument("--gap", type=float, default=0)
    parser.add_argument("--aligned", action="store_true")
    options = parser.parse_args()
    rank, nranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    library = load()
    comm = ctypes.c_void_p()
    check(library, library.ncclCommInitRank(ctypes.byref(comm), nranks, unique_id(library, options.folder, rank), rank))
    times, bits = [], hashlib.sha256()
    result = array.array("f", bytes(4 * options.count))
    for call in range(options.calls):
        # Small whole numbers: sums are exact, so that every order of adding gives the same bits.
        own = array.array("f", [rank + 1 + call % 7, call % 13]) * ((options.count + 1) // 2)
        if options.aligned:
            now = time.monotonic()
            time.sleep((now // PERIOD_S + 2) * PERIOD_S - now)
        began = time.monotonic()
        check(library, library.ncclAllReduce(own.buffer_info()[0], result.buffer_info()[0], options.count, FLOAT, SUM,
                                             comm, None))
        times.append(time.monotonic() - began)
        total = nranks * (nranks + 1) / 2 + nranks * (call % 7)
        expected = array.array("f", [total, nranks * (call % 13)]) * ((options.count + 1) // 2)
        if bytes(result) != bytes(expected[:options.count]):
            raise SystemExit(f"call {call} gave a wrong result on rank {rank}")
        bits.update(bytes(result))
        if call == 0 and rank == 0:
            (pathlib.Path(options.folder) / "running").touch()
        time.sleep(options.gap)
    check(library, library.ncclCommDestroy(comm))
    told = {"rank": rank, "times": times, "bits": bits.hexdigest()}
    (pathlib.Path(options.folder) / f"rank{rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
