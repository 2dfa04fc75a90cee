#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program of the tests: two ranks by os.fork, as Python programs do it, each with a worker that lives on.

    forking_rank.py

The parent makes the unique id and is rank 0, its child is rank 1. Each forks a worker, which lets the garbage collector
end its parent's communicator, uses one of its own and waits until its parent has no more use for it."""
import ctypes
import gc
import os
import signal
import sys

FLOAT, SUM, COUNT = 7, 0, 1000


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


LIBRARY = ctypes.CDLL(os.environ["PLEXUS_TEST_LIBRARY"])
LIBRARY.ncclGetLastError.restype = ctypes.c_char_p
LIBRARY.ncclGetLastError.argtypes = [ctypes.c_void_p]
LIBRARY.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId, ctypes.c_int]
LIBRARY.ncclCommInitAll.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_void_p]
LIBRARY.ncclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                                  ctypes.c_void_p, ctypes.c_void_p]
LIBRARY.ncclCommDestroy.argtypes = [ctypes.c_void_p]


def check(code):
    if code != 0:
        raise SystemExit(f"process {os.getpid()}: {LIBRARY.ncclGetLastError(None).decode()}")


class Communicator:
    """Ends with its last reference, as in the bindings of others."""

    def __init__(self, nranks, unique_id=None, rank=0):
        self.handle = ctypes.c_void_p()
        if unique_id is None:
            check(LIBRARY.ncclCommInitAll(ctypes.byref(self.handle), nranks, None))
        else:
            check(LIBRARY.ncclCommInitRank(ctypes.byref(self.handle), nranks, unique_id, rank))

    def __del__(self):
        check(LIBRARY.ncclCommDestroy(self.handle))

    def all_reduce(self, result):
        data = (ctypes.c_float * COUNT)(*([1.0] * COUNT))
        check(LIBRARY.ncclAllReduce(data, data, COUNT, FLOAT, SUM, self.handle, None))
        if list(data) != [result] * COUNT:
            raise SystemExit("wrong data")


def fork(body):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        code = 1
        try:
            body()
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    return pid


def wait_well(pid):
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
        raise SystemExit(f"child {pid} of {os.getpid()} did not end well")


def be(unique_id, rank):
    mine = [Communicator(2, unique_id, rank)]
    mine[0].all_reduce(2.0)
    read_end, write_end = os.pipe()

    def work():
        os.close(write_end)
        mine.clear()
        gc.collect()
        Communicator(1).all_reduce(1.0)
        os.read(read_end, 1)

    worker = fork(work)
    for _ in range(5):
        mine[0].all_reduce(2.0)
    mine.clear()
    Communicator(1).all_reduce(1.0)
    os.close(write_end)
    wait_well(worker)


def main():
    unique_id = UniqueId()
    check(LIBRARY.ncclGetUniqueId(ctypes.byref(unique_id)))
    other = fork(lambda: be(unique_id, 1))
    be(unique_id, 0)
    wait_well(other)
    print("well")


signal.alarm(60)
main()
