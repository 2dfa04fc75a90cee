# SPDX-License-Identifier: Apache-2.0
"""Runs a script that was written for GPUs on CPUs, as it is:

    python3 -m torch_plexus.oncpu script.py [ARGUMENTS]
    torchrun --nproc_per_node 4 -m torch_plexus.oncpu script.py [ARGUMENTS]

Tensors and modules that go to "cuda" stay on the CPU, the backend "nccl" is "plexus", and the functions of torch.cuda
and torch.accelerator that scripts call around training answer. docs/laptop.md tells what is not covered.
"""
import contextlib
import functools
import multiprocessing.spawn
import os
import runpy
import sys
import time
import types

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

import torch_plexus  # noqa: F401: registers the backend

CPU = torch.device("cpu")
SCRIPT = "PLEXUS_ONCPU_SCRIPT"  # for processes that the script spawns
_current = [int(os.environ.get("LOCAL_RANK", "0"))]


def _names_gpu(value):
    return (isinstance(value, torch.device) and value.type == "cuda") or (isinstance(value, str) and value.split(":")[0] == "cuda")


def _on_cpu(value):
    return CPU if _names_gpu(value) else value


class OnCpu(TorchFunctionMode):
    """Sends what would go to a GPU to the CPU, in all of PyTorch's functions."""

    def __torch_function__(self, function, _, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.device:  # since PyTorch 2.5 a function like all others
            return function("cuda", *args) if args and isinstance(args[0], int) else function(*args, **kwargs)
        if function is torch.Tensor.cuda:
            return args[0]
        if function is torch.Tensor.pin_memory:
            return args[0]
        if function is torch.Tensor.to and len(args) > 1 and isinstance(args[1], int):
            args = (args[0], CPU, *args[2:])
        if function is torch._C._nn._parse_to and args and isinstance(args[0], int):  # of a module
            args = (CPU, *args[1:])
        if "device" in kwargs:
            kwargs["device"] = CPU if isinstance(kwargs["device"], int) else _on_cpu(kwargs["device"])
        if "pin_memory" in kwargs:
            kwargs["pin_memory"] = False
        return function(*map(_on_cpu, args), **kwargs)


class Stream:
    """All work of a CPU is done when its call returns."""

    def __init__(self, *_, **__):
        self.cuda_stream, self.device = 0, torch.device("cuda", _current[0])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def _nothing(self, *_, **__):
        return None

    synchronize = wait_stream = wait_event = _nothing

    def query(self):
        return True

    def record_event(self, event=None):
        event = event or Event()
        event.record()
        return event


class Event:
    def __init__(self, *_, **__):
        self.time = None

    def record(self, *_):
        self.time = time.perf_counter()

    def elapsed_time(self, end):
        return 1000 * (end.time - self.time)

    def _nothing(self, *_):
        return None

    synchronize = wait = _nothing

    def query(self):
        return True


def _device_count():
    """As plexus run has it; else the ranks of this machine."""
    return int(os.environ.get("PLEXUS_CUDART_DEVICES") or os.environ.get("LOCAL_WORLD_SIZE") or max(2, os.cpu_count() or 1))


def _set_device(device):
    index = device if isinstance(device, int) else torch.device(device).index
    _current[0] = _current[0] if index is None else index


@contextlib.contextmanager
def _device(device):
    before = _current[0]
    if device is not None:
        _set_device(device)
    try:
        yield
    finally:
        _current[0] = before


def _answer(value):
    """A function of its own for each name: torch._dynamo refuses one that stands under two names with different rules."""
    return lambda *_, **__: value


def _patch_cuda():
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    name = "Plexus virtual device over host memory"
    properties = types.SimpleNamespace(name=name, major=9, minor=0, total_memory=memory, multi_processor_count=os.cpu_count())
    answers = {
        "is_available": lambda: True, "is_initialized": lambda: True, "device_count": _device_count, "current_device": lambda: _current[0],
        "set_device": _set_device, "device": _device, "get_device_name": lambda *_: name, "get_device_capability": lambda *_: (9, 0),
        "get_device_properties": lambda *_: properties, "mem_get_info": lambda *_: (memory, memory), "Stream": Stream, "Event": Event,
        "stream": lambda stream: stream if stream is not None else contextlib.nullcontext(), "is_bf16_supported": lambda *_: True,
        "current_stream": lambda *_: Stream(), "default_stream": lambda *_: Stream(), "get_rng_state": lambda *_: torch.ByteTensor(),
        "get_rng_state_all": lambda: [], "memory_stats": lambda *_: {}, "memory_summary": lambda *_, **__: "",
    }
    for each in ("init", "_lazy_init", "synchronize", "empty_cache", "ipc_collect", "manual_seed", "manual_seed_all", "seed", "seed_all",
                 "set_rng_state", "set_rng_state_all", "reset_peak_memory_stats", "reset_max_memory_allocated",
                 "set_per_process_memory_fraction"):
        answers[each] = _answer(None)
    for each in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        answers[each] = _answer(0)
    for each, answer in answers.items():
        setattr(torch.cuda, each, answer)
    torch.accelerator = types.SimpleNamespace(
        is_available=lambda: True, device_count=_device_count, current_accelerator=lambda *_, **__: torch.device("cuda"),
        set_device_index=_set_device, set_device_idx=_set_device, current_device_index=lambda: _current[0],
        current_device_idx=lambda: _current[0], synchronize=_answer(None), current_stream=lambda *_: Stream())


def _patch_distributed():
    def on_plexus(create):
        @functools.wraps(create)
        def made(*args, **kwargs):
            kwargs.pop("device_id", None)
            if "backend" in kwargs:
                kwargs["backend"] = _backend(kwargs["backend"])
            elif create.__name__ == "init_process_group":
                args = (_backend(args[0] if args else None), *args[1:])
            return create(*args, **kwargs)
        return made

    for create in ("init_process_group", "new_group"):
        patched = on_plexus(getattr(dist, create))
        setattr(dist, create, patched)
        setattr(dist.distributed_c10d, create, patched)
    dist.is_nccl_available = dist.distributed_c10d.is_nccl_available = lambda: True
    dist.get_default_backend_for_device = lambda *_: "nccl"
    wrap = torch.nn.parallel.DistributedDataParallel.__init__

    @functools.wraps(wrap)
    def wrap_on_cpu(self, module, device_ids=None, output_device=None, *args, **kwargs):
        wrap(self, module, None, None, *args, **kwargs)

    torch.nn.parallel.DistributedDataParallel.__init__ = wrap_on_cpu


def _backend(name):
    """NCCL's part is Plexus's: "nccl", "cpu:gloo,cuda:nccl", none."""
    return "plexus" if name is None or "nccl" in str(name).lower() else name


def _patch_rest():
    load = torch.load

    @functools.wraps(load)
    def load_on_cpu(file, map_location=None, *args, **kwargs):
        return load(file, map_location if callable(map_location) else CPU, *args, **kwargs)

    torch.load = load_on_cpu
    torch.Tensor.pin_memory = lambda self, *_: self
    torch.Tensor.record_stream = _answer(None)
    scale = torch.cuda.amp.GradScaler.__init__

    @functools.wraps(scale)
    def scale_on_cpu(self, *args, **kwargs):
        scale(self, *args, **{**kwargs, "enabled": False})

    torch.cuda.amp.GradScaler.__init__ = scale_on_cpu
    prepare = multiprocessing.spawn.get_preparation_data

    @functools.wraps(prepare)
    def prepare_spawned(name):
        """A spawned process imports the script; it must go the same way."""
        data = prepare(name)
        script = data.pop("init_main_from_path", None)
        if script is not None:
            os.environ[SCRIPT] = script
            data["init_main_from_name"] = "torch_plexus._oncpu_main"
        return data

    multiprocessing.spawn.get_preparation_data = prepare_spawned


def patch():
    """From here on this process has GPUs as far as its script sees."""
    _patch_cuda()
    _patch_distributed()
    _patch_rest()
    OnCpu().__enter__()


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: python3 -m torch_plexus.oncpu SCRIPT [ARGUMENTS]")
    script = sys.argv[1]
    if not os.path.isfile(script):
        sys.exit(f"torch_plexus.oncpu: there is no script {script}")
    patch()
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
