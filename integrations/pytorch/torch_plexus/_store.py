# SPDX-License-Identifier: Apache-2.0
"""TCPStore: PyTorch's, also where it is built without the libuv that it wants unless told otherwise, as Debian's 2.6 is."""
import functools
import importlib
import os

import torch
import torch.distributed as dist

TCPStore = dist.TCPStore
if "+debian" in torch.__version__:
    TCPStore = functools.partial(dist.TCPStore, use_libuv=False)
    os.environ.setdefault("USE_LIBUV", "0")
    # For workers of torchrun, where PyTorch does not look at USE_LIBUV. A function hides the module's name.
    importlib.import_module("torch.distributed.rendezvous").TCPStore = TCPStore
