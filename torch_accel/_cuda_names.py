"""What stands at each name of torch.cuda while torch_accel.as_cuda() is in force: accel's own, where docs/parity.md has one."""

from __future__ import annotations

import importlib
import itertools
import os
import pkgutil
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

import torch_accel as accel

from ._lazy import lazy_init
from ._native import _C
from ._utils import Device, _get_device_index

Capability = tuple[int, int]

# What torch.cuda has under another name than torch.accel.
_RENAMED = {
    "CUDAGraph": "AccelGraph",
    "CudaError": "AccelError",
    "cudaStatus": "accelStatus",
    "max_memory_cached": "max_memory_reserved",
    "memory_cached": "memory_reserved",
    "reset_max_memory_allocated": "reset_peak_memory_stats",
    "reset_max_memory_cached": "reset_peak_memory_stats",
}

# What stays torch's: it is made of functions that are replaced, or holds as it is.
_KEPT = {"DeferredCudaCallError", "nccl.is_available", "nvtx.range", "profiler.profile"}

# Name or module of torch.cuda -> what accel has in its place, if anything, and why it cannot be the same, in the words of
# docs/parity.md.
_ABSENT = {
    "CUDAPluggableAllocator": (
        "torch.accel.MemPool",
        "Memory comes from the chip's arenas alone; a pool keeps memory apart.",
    ),
    "GreenContext": (
        None,
        "A share of the multiprocessors of a chip. Kernels of the simulated chip run on the threads of the host, which are "
        "not partitioned.",
    ),
    "cudart": (
        "torch.accel.check_error",
        "The chip's interface is C (`csrc/driver/accel.h`), for ctypes or C++; this turns its codes into exceptions.",
    ),
    "current_blas_handle": (
        None,
        "The handle of a cuBLAS context. Products run in the CPU's library, which has none.",
    ),
    "gds": (
        "torch.accel.memory.arena",
        "Device bytes as a NumPy array: `file.readinto(array)` reads into them with no copy between, as GPUDirect Storage "
        "does.",
    ),
    "get_arch_list": (
        None,
        "The chips that torch carries binaries for. There is one chip, and its kernels are the host's own.",
    ),
    "jiterator": ("torch.accel.numpy_kernel", "An operator from a function: in NumPy, not in a string of C++."),
    "memory_usage": (
        None,
        "The share of time in which memory was busy, from a sensor. There is no sensor, so it would be invented.",
    ),
    "nccl": (None, "NCCL is NVIDIA's library; torch.distributed is how processes meet."),
    "tunable": (
        None,
        "Chooses among the matrix products of GPU libraries by timing them. There is one implementation here.",
    ),
}
_ABSENT_AS = {
    "current_solver_handle": "current_blas_handle",
    "get_gencode_flags": "get_arch_list",
    "power_draw": "memory_usage",
    "temperature": "memory_usage",
    "utilization": "memory_usage",
}


def _absent(name: str, theirs: object) -> object:
    """What raises when it is called, or made if ``theirs`` is a class, and says why accel has no such thing."""
    row = _ABSENT_AS.get(name, name)
    instead, reason = _ABSENT[row if row in _ABSENT else row.split(".")[0]]
    text = f"accel, which stands in for CUDA here, has no torch.cuda.{name}. {reason}" + (
        f" Use {instead}." if instead else ""
    )

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(text)

    return type(theirs.__name__, (), {"__init__": refuse, "__doc__": text}) if isinstance(theirs, type) else refuse


def asked_by_torch() -> bool:
    """Whether the code that asked the function or property that calls this is torch's or ours."""
    name = sys._getframe(2).f_globals.get("__name__")
    return isinstance(name, str) and name.partition(".")[0] in ("torch", "torch_accel", "functorch")


def _is_available() -> bool:
    return not asked_by_torch() and accel.is_available()


def _amp_definitely_not_available() -> bool:
    return not accel.is_available()


# Of the calls of as_cuda() in force, those that state one.
capabilities: list[Capability] = []


def _get_device_capability(device: Device = None) -> Capability:
    if capabilities:
        return capabilities[-1]
    raise NotImplementedError(
        "accel, which stands in for CUDA here, has no compute capability: a number would name a chip that it is not. "
        "State the one that the program shall see: torch_accel.as_cuda(capability=(8, 0))."
    )


def capability_part(part: int) -> property:
    """``major`` or ``minor`` of the properties of a device."""

    def get(self: object) -> int:
        try:
            return _get_device_capability()[part]
        except NotImplementedError as error:
            raise AttributeError(str(error)) from None

    return property(get)


def _clock_rate(device: Device = None) -> int:
    return accel.get_device_properties(device).clock_khz // 1000


def _list_gpu_processes(device: Device = None) -> str:
    index = _C._check_index(_get_device_index(device, optional=True))
    used = accel.device_memory_used(index) / 2**20
    return f"GPU:{index}\nprocess {os.getpid():>10d} uses {used:>12.3f} MB GPU memory"


def _lazy_call(callable: Callable[[], object], **kwargs: Any) -> None:
    lazy_init()
    callable()


class _Graph(accel.graph):
    def __init__(self, cuda_graph: accel.AccelGraph, *args: Any, **kwargs: Any) -> None:
        super().__init__(cuda_graph, *args, **kwargs)
        self.cuda_graph = cuda_graph


class _Nvtx:
    """torch.cuda.nvtx: ranges of torch's profiler."""

    def __init__(self) -> None:
        self._thread = threading.local()
        self._started: dict[int, torch.profiler.record_function] = {}
        self._numbers = itertools.count(1)

    def _enter(self, msg: str) -> torch.profiler.record_function:
        marked = torch.profiler.record_function(msg)
        marked.__enter__()
        return marked

    def range_push(self, msg: str) -> int:
        stack = self._thread.__dict__.setdefault("stack", [])
        stack.append(self._enter(msg))
        return len(stack) - 1

    def range_pop(self) -> int:
        stack = self._thread.__dict__.get("stack")
        if not stack:
            return -1  # as NVTX
        stack.pop().__exit__(None, None, None)
        return len(stack)

    def range_start(self, msg: str) -> int:
        number = next(self._numbers)
        self._started[number] = self._enter(msg)
        return number

    def range_end(self, range_id: int) -> None:
        self._started.pop(range_id).__exit__(None, None, None)

    def mark(self, msg: str) -> None:
        self._enter(msg).__exit__(None, None, None)


def _nothing() -> None:
    """As torch.cuda.profiler.start where no tool watches."""


_nvtx = _Nvtx()
_OWN: dict[str, object] = {
    "_lazy_call": _lazy_call,
    "amp.amp_definitely_not_available": _amp_definitely_not_available,
    "clock_rate": _clock_rate,
    "get_device_capability": _get_device_capability,
    "graph": _Graph,
    "is_available": _is_available,
    **{name: _absent(name, None) for name in ("jiterator._create_jit_fn", "jiterator._create_multi_output_jit_fn")},
    "list_gpu_processes": _list_gpu_processes,
    "profiler.start": _nothing,
    "profiler.stop": _nothing,
    **{
        f"nvtx.{name}": getattr(_nvtx, name) for name in ("mark", "range_end", "range_pop", "range_push", "range_start")
    },
}


def _shortest(place: str, name: str, value: object) -> str:
    """The name of a thing of torch.cuda as docs/parity.md has it: under the package that exports it, if one does."""
    package = place.split(".")[0]
    if getattr(torch.cuda, name, None) is value:
        return name
    if "." in place and getattr(getattr(torch.cuda, package), name, None) is value:
        return f"{package}.{name}"
    return f"{place}.{name}"


def cuda_names() -> Iterator[tuple[ModuleType, str, object]]:
    """(module of torch.cuda, name in it, what stands there): accel's own of that name in that place, if there is one."""
    found = pkgutil.walk_packages(torch.cuda.__path__, "torch.cuda.")
    modules = [importlib.import_module(module.name) for module in found if "._" not in module.name]
    for module in [torch.cuda, *modules]:
        place = module.__name__.removeprefix("torch.cuda").lstrip(".")
        ours = sys.modules.get(f"torch_accel.{place}".rstrip("."))
        exported = getattr(module, "__all__", ())
        for name, theirs in list(vars(module).items()):
            if name.startswith("__") or not callable(theirs):
                continue
            short = _shortest(place, name, theirs)
            value = _OWN.get(short) or vars(ours or object).get(_RENAMED.get(name, name))
            public = name in exported or (name[0] != "_" and getattr(theirs, "__module__", "") == module.__name__)
            if value is theirs:  # what both import
                continue
            if value is not None:
                yield module, name, value
            elif public and short not in _KEPT:
                yield module, name, _absent(short, theirs)
