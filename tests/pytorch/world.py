# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes for the tests of this folder: run(test, 4) runs the function `test` of the calling file on
4 ranks and returns what each of them returned. A rank's exception fails the test with its text.

Every wait has a bound, stretched by PLEXUS_TEST_TIME_FACTOR.
"""
import contextlib
import datetime
import os
import pathlib
import pickle
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import unittest

SKIPPED = 77
TIME_FACTOR = float(os.environ.get("PLEXUS_TEST_TIME_FACTOR", "1"))
KILLED = -signal.SIGKILL


def bound(seconds):
    return seconds * TIME_FACTOR


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(SKIPPED)


try:
    import torch
    import torch.distributed as dist
    from torch_plexus._store import TCPStore
except ImportError as missing:
    skip(f"{missing}: the backend for PyTorch was not built; configure says why at 'pytorch'")


TORCH = int(torch.__version__.split(".")[0])


@contextlib.contextmanager
def free_port():
    """A port that a rank opens later. It lies below those that the system gives to other sockets in between, and no other
    test gets it: an abstract socket has its name meanwhile."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket(socket.AF_UNIX) as reservation, socket.socket() as probe:
            try:
                reservation.bind(f"\0plexus-test-port-{port}")
                probe.bind(("127.0.0.1", port))
            except OSError:  # it is another test's, or in use
                continue
            probe.close()
            yield port
            return


@contextlib.contextmanager
def serve_store(on_rank_0, size):
    """What tells the ranks where their store is. Rank 0 serves it itself, or this process, whose store is there for
    ranks that end later than rank 0."""
    if on_rank_0:
        with free_port() as port:
            yield {"MASTER_PORT": port}
    else:
        store = TCPStore("127.0.0.1", 0, size, True, wait_for_workers=False)
        yield {"MASTER_PORT": store.port, "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": 0}
        del store


def run(test, size, *arguments, backend="plexus", seconds=120, may_die=(), timeout=60, store_on_rank_0=False,
        **environment):
    """Each rank is `python3 FILE --rank FUNCTION`, with a default group of `backend`; None: without one."""
    with tempfile.TemporaryDirectory() as folder, serve_store(store_on_rank_0, size) as store:
        call = pathlib.Path(folder, "call")
        call.write_bytes(pickle.dumps((arguments, backend, timeout)))
        ranks = []
        for rank in range(size):
            names = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1",
                     "OMP_NUM_THREADS": 1, **store, **environment}
            ranks.append(subprocess.Popen(
                [sys.executable, "-B", sys.argv[0], "--rank", test.__name__, folder],
                env={**os.environ, **{name: str(value) for name, value in names.items()}},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        wait_for_all(ranks, bound(seconds))
        failed = [f"rank {rank} ended with {process.returncode}\n{process.text}" for rank, process in enumerate(ranks)
                  if has_failed(folder, rank, process, rank in may_die)]
        if failed:  # all of them: the first may only have lost another
            raise AssertionError("\n".join(failed))
        return [result_of(folder, rank) for rank in range(size)]


def wait_for_all(ranks, seconds):
    """Ends the ranks that are late, and fails with what they had to say."""
    until = time.monotonic() + seconds
    late = []
    for rank, process in enumerate(ranks):
        try:
            process.text, _ = process.communicate(timeout=max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            late.append(rank)
    if late:
        for rank in late:
            ranks[rank].kill()
        texts = [f"rank {rank}:\n{process.communicate()[0] if rank in late else process.text}"
                 for rank, process in enumerate(ranks)]
        raise AssertionError(f"ranks {late} still ran after {seconds} s\n" + "\n".join(texts))


def has_failed(folder, rank, process, may_die):
    if may_die and process.returncode == KILLED:
        return False
    return process.returncode != 0 or not pathlib.Path(folder, f"result{rank}").exists()


def result_of(folder, rank):
    """None of a rank that died."""
    path = pathlib.Path(folder, f"result{rank}")
    return pickle.loads(path.read_bytes()) if path.exists() else None


def wait_for_results(folder, seconds):
    """Until all ranks have one: none needs this one any more."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if all(pathlib.Path(folder, f"result{rank}").exists() for rank in range(int(os.environ["WORLD_SIZE"]))):
            return
        time.sleep(0.01)


def serve_rank(functions, name, folder):
    arguments, backend, timeout = pickle.loads(pathlib.Path(folder, "call").read_bytes())
    rank = int(os.environ["RANK"])
    try:
        if backend is not None:
            dist.init_process_group(backend, timeout=datetime.timedelta(seconds=bound(timeout)))
        result = functions[name](*arguments)
        if dist.is_initialized() and backend != "gloo":
            dist.destroy_process_group()
        pathlib.Path(folder, f"result{rank}").write_bytes(pickle.dumps(result))
        if backend == "gloo":
            # It is not destroyed: that joins, with Python's lock, a thread that may want the lock to free a tensor, and
            # hangs (PyTorch 2.6). A thread that still runs a hook's callback in Python ends the process when Python ends.
            wait_for_results(folder, bound(timeout))
            os._exit(0)
    except BaseException:  # noqa: BLE001: whatever it is, it is the test's failure
        traceback.print_exc()
        sys.stdout.flush()
        os._exit(1)


def main(functions):
    """functions: globals() of the test file."""
    if len(sys.argv) > 3 and sys.argv[1] == "--rank":
        serve_rank(functions, sys.argv[2], sys.argv[3])
    else:
        unittest.main(module=functions["__name__"], verbosity=2)
