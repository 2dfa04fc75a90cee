#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process that makes communicators as it is told: a line of stdin is a call, a line of stdout its result, as JSON
[code, text of the error, seconds, value]. For tests in which ranks must do things in a certain order.

    make_id                   value: the unique id in hex
    init NAME ID NRANKS RANK
    split NAME CHILD COLOR    CHILD: its name; COLOR -1: in none
    split_now NAME CHILD COLOR  the same without blocking: at once in none, otherwise until the child is ready
    sum NAME [VALUE]          all_reduce of one float, 1.0; value: the result
    steps NAME COUNT LATE     COUNT sums, each after 2 ms of other work and LATE ms more
    sum_until_error NAME      the same, until it fails
    broadcast NAME ROOT       of one float, ROOT's number + 1; value: the result
    send NAME PEER VALUE      one float
    recv NAME PEER            value: the result
    error NAME                value: the asynchronous error
    destroy NAME | abort NAME | revoke NAME
    exit                      at once, without another call (_exit)
    end                       normally, as a script does at its end

PLEXUS_TEST_LIBRARY: the library. PLEXUS_TEST_USER: the user to become once it is loaded, which makes the process not dumpable."""
import ctypes
import json
import os
import sys
import time

FLOAT, SUM, NO_COLOR, IN_PROGRESS = 7, 0, -1, 7


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


class Calls:
    def __init__(self):
        self.library = ctypes.CDLL(os.environ["PLEXUS_TEST_LIBRARY"])
        handle, number = ctypes.c_void_p, ctypes.c_int
        self.library.ncclGetLastError.argtypes = [handle]
        self.library.ncclGetLastError.restype = ctypes.c_char_p
        self.library.ncclCommInitRank.argtypes = [ctypes.POINTER(handle), number, UniqueId, number]
        self.library.ncclCommSplit.argtypes = [handle, number, number, ctypes.POINTER(handle), handle]
        self.library.ncclAllReduce.argtypes = [handle, handle, ctypes.c_size_t, number, number, handle, handle]
        self.library.ncclBroadcast.argtypes = [handle, handle, ctypes.c_size_t, number, number, handle, handle]
        self.library.ncclSend.argtypes = self.library.ncclRecv.argtypes = [handle, ctypes.c_size_t, number, number, handle, handle]
        self.library.ncclCommGetAsyncError.argtypes = [handle, ctypes.POINTER(number)]
        self.library.ncclCommDestroy.argtypes = self.library.ncclCommAbort.argtypes = [handle]
        self.library.ncclCommRevoke.argtypes = [handle, number]
        self.comms = {}

    def make_id(self):
        unique_id = UniqueId()
        return self.library.ncclGetUniqueId(ctypes.byref(unique_id)), bytes(unique_id).hex()

    def init(self, name, unique_id, nranks, rank):
        self.comms[name] = ctypes.c_void_p()
        unique_id = UniqueId.from_buffer_copy(bytes.fromhex(unique_id))
        return self.library.ncclCommInitRank(ctypes.byref(self.comms[name]), int(nranks), unique_id, int(rank)), None

    def steps(self, name, count, late):
        for _ in range(int(count)):
            end = time.monotonic() + (2 + float(late)) / 1000
            while time.monotonic() < end:
                time.sleep(0.0002)  # the work of a step, in the test of who is late with it
            code, _ = self.sum(name)
            if code != 0:
                return code, None
        return 0, None

    def split(self, name, child, color):
        self.comms[child] = ctypes.c_void_p()
        return self.library.ncclCommSplit(self.comms[name], int(color), 0, ctypes.byref(self.comms[child]), None), None

    def split_now(self, name, child, color):
        class Config(ctypes.Structure):  # ncclConfig_t of 2.14
            _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("blocking", ctypes.c_int)]
        config = Config(ctypes.sizeof(Config), 0xcafebeef, 21400, 0)
        self.comms[child] = ctypes.c_void_p()
        code = self.library.ncclCommSplit(self.comms[name], int(color), 0, ctypes.byref(self.comms[child]), ctypes.byref(config))
        while code == IN_PROGRESS:
            time.sleep(0.001)  # as users poll
            _, code = self.error(child)
        return code, None

    def sum(self, name, value=1):
        given, got = ctypes.c_float(float(value)), ctypes.c_float(0)
        code = self.library.ncclAllReduce(ctypes.byref(given), ctypes.byref(got), 1, FLOAT, SUM, self.comms[name], None)
        return code, got.value

    def sum_until_error(self, name):
        code = 0
        while code == 0:
            code, _ = self.sum(name)
        return code, None

    def broadcast(self, name, root):
        data = ctypes.c_float(int(root) + 1)
        code = self.library.ncclBroadcast(ctypes.byref(data), ctypes.byref(data), 1, FLOAT, int(root), self.comms[name], None)
        return code, data.value

    def send(self, name, peer, value):
        return self.library.ncclSend(ctypes.byref(ctypes.c_float(float(value))), 1, FLOAT, int(peer), self.comms[name], None), None

    def recv(self, name, peer):
        got = ctypes.c_float(0)
        code = self.library.ncclRecv(ctypes.byref(got), 1, FLOAT, int(peer), self.comms[name], None)
        return code, got.value

    def error(self, name):
        state = ctypes.c_int(0)
        return self.library.ncclCommGetAsyncError(self.comms[name], ctypes.byref(state)), state.value

    def revoke(self, name):
        return self.library.ncclCommRevoke(self.comms[name], 0), None

    def destroy(self, name):
        return self.library.ncclCommDestroy(self.comms.pop(name)), None

    def abort(self, name):
        return self.library.ncclCommAbort(self.comms.pop(name)), None

    def exit(self):
        os._exit(0)

    def end(self):
        sys.exit(0)


def main():
    calls = Calls()
    if "PLEXUS_TEST_USER" in os.environ:
        user = int(os.environ["PLEXUS_TEST_USER"])
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    for line in sys.stdin:
        what, *arguments = line.split()
        begin = time.monotonic()
        code, value = getattr(calls, what)(*arguments)
        seconds = time.monotonic() - begin
        text = (calls.library.ncclGetLastError(None) or b"").decode() if code else ""
        print(json.dumps([code, text, seconds, value]), flush=True)


if __name__ == "__main__":
    main()
