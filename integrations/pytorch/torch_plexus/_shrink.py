# SPDX-License-Identifier: Apache-2.0
"""Making groups, and going on after ranks have died."""
import datetime
import os
import socket
import time

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from ._C import ProcessGroupPlexus
from ._store import TCPStore

# A connection to a rank that dies may end before it is known why.
_NOTICE_SECONDS = 2
_POLL_SECONDS = 0.01
_ready = []  # the group that create_group is to return next, made by shrink()


def backend_of(group):
    """From PyTorch 2 on a group has a backend for each kind of device; before, it is the backend."""
    return group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group


def create_group(store, rank, size, timeout):
    if _ready:
        group = _ready.pop()
        group.use_store(store)
        return group
    return ProcessGroupPlexus(store, rank, size, timeout)


def shrink(*, ranks=(), timeout=datetime.timedelta(seconds=60)):
    """Replaces the default group by one of the ranks that are left, after ranks have died.

    ranks: ranks that live but are to stay out, the same on all ranks that call. All ranks that are left must call,
    within `timeout`. Groups of new_group and DistributedDataParallel hold the old group: make them again. Returns
    the ranks that are gone or stay out.
    """
    world = dist.group.WORLD
    old = backend_of(world)
    if not isinstance(old, ProcessGroupPlexus):
        raise RuntimeError("shrink: the default group's backend is not plexus; make it with "
                           "init_process_group('plexus')")
    gone = set(ranks).union(old.gone_ranks()) or _learn_of_gone(old, set())
    if not gone:
        raise ValueError("shrink: no rank is known to have died; pass those that are to stay out as ranks")
    old_store = distributed_c10d._pg_map[world][1]
    rest = _make_rest(old, gone, time.monotonic() + timeout.total_seconds())
    store = _share_store(rest, old_store, timeout)
    dist.destroy_process_group()
    del old, world
    _ready.append(rest)
    dist.init_process_group("plexus", store=store, rank=rest.rank(), world_size=rest.size(), timeout=timeout)
    return sorted(gone)


def _learn_of_gone(group, known):
    """The ranks that are gone beside those that are known; waits a little for the first."""
    until = time.monotonic() + _NOTICE_SECONDS
    while True:
        more = set(group.gone_ranks()) - known
        if more or time.monotonic() > until:
            return more
        time.sleep(_POLL_SECONDS)


def _make_rest(old, gone, until):
    """A rank that died unnoticed makes shrinking fail, which names it."""
    while True:
        try:
            return old.shrink(sorted(gone))
        except RuntimeError:
            more = _learn_of_gone(old, gone)
            if not more or time.monotonic() > until:
                raise
            gone |= more


def _share_store(rest, old_store, timeout):
    """A store that all ranks of `rest` reach: the old one if its host is alive, else one on the first rank."""
    address, store = "", None
    if rest.rank() == 0:
        try:
            name = f"shrunk/{old_store.add('shrunk', 1)}"
            store, address = dist.PrefixStore(name, old_store), f"old {name}"
        except RuntimeError:
            host = _own_address()
            store = TCPStore(host, 0, rest.size(), True, timeout, wait_for_workers=False)
            address = f"new {host} {store.port}"
    address = _broadcast_text(rest, address)
    if store is None:
        kind, *place = address.split()
        store = (dist.PrefixStore(place[0], old_store) if kind == "old" else
                 TCPStore(place[0], int(place[1]), rest.size(), False, timeout, wait_for_workers=False))
    return store


def _own_address():
    """This host's address towards the other hosts of the job."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((os.environ.get("MASTER_ADDR", "127.0.0.1"), 9))  # sends nothing
            return probe.getsockname()[0]
        except OSError:
            return socket.gethostname()


def _broadcast_text(group, text):
    data = torch.zeros(256, dtype=torch.uint8)
    data[:len(text)] = torch.tensor(list(text.encode()), dtype=torch.uint8)
    group.broadcast(data, 0).wait()
    return bytes(data.tolist()).rstrip(b"\0").decode()
