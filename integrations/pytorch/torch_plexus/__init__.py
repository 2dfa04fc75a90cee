# SPDX-License-Identifier: Apache-2.0
"""Plexus as a backend of torch.distributed, for CPU tensors.

    import torch_plexus
    torch.distributed.init_process_group("plexus")

docs/pytorch.md of Plexus has the whole story.
"""
import atexit
import os

# The backend's ranks compute on the host, also where there are GPUs.
os.environ.setdefault("PLEXUS_DEVICE", "host")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed import distributed_c10d  # noqa: E402

from ._C import ProcessGroupPlexus, drain, plexus_version  # noqa: E402
from ._shrink import backend_of, create_group, shrink  # noqa: E402

__all__ = ["ProcessGroupPlexus", "abort", "plexus_version", "shrink"]


def abort(reason, group=None):
    """Ends all calls of the group with an error: here with `reason`, on the other ranks with one that names
    this rank."""
    backend_of(group or dist.group.WORLD).abort(reason)


def _monitored_barrier(group=dist.group.WORLD, timeout=None, wait_all_ranks=False):
    """torch.distributed.monitored_barrier, which refuses all backends but gloo, with this one."""
    if dist.get_backend(group) != "plexus":
        return _torch_monitored_barrier(group, timeout, wait_all_ranks)
    return (group or dist.group.WORLD).monitored_barrier(timeout or dist.default_pg_timeout, wait_all_ranks)


_for_devices = {"devices": ["cpu"]} if int(torch.__version__.split(".")[0]) >= 2 else {}
dist.Backend.register_backend("plexus", create_group, **_for_devices)
_torch_monitored_barrier = dist.monitored_barrier
dist.monitored_barrier = distributed_c10d.monitored_barrier = _monitored_barrier
atexit.register(drain)
