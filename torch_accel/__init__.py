"""An accelerator that you can pip install: registers the device ``accel`` with PyTorch and simulates the chip on the CPU.

This package is ``torch.accel``. Its functions follow torch.cuda's names and meanings.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.backend_registration import generate_methods_for_privateuse1_backend, rename_privateuse1_backend

from . import (
    _alias,
    _compat,
    _exchange,
    _fault,
    _legacy,
    _parallel,
    amp,
    comm,
    errors,
    graphs,
    memory,
    multiprocessing,
    random,
    sanitizer,
    sparse,
    streams,
    testing,
    utils,
)
from ._lazy import lazy_init
from ._native import _C
from ._numpy_kernel import numpy_kernel
from ._utils import Device, _get_device_index
from ._version import __version__
from .amp import get_amp_supported_dtype
from .backend_meta import set_tensor_flags, tensor_flags
from .errors import (
    AcceleratorError,
    AccelError,
    OutOfMemoryError,
    accelStatus,
    check_error,
    get_sync_debug_mode,
    reset_device,
    set_sync_debug_mode,
)
from .fallback import fallback_report
from .graphs import AccelGraph, graph, graph_pool_handle, is_current_stream_capturing, make_graphed_callables
from .memory import (
    MemPool,
    caching_allocator_alloc,
    caching_allocator_delete,
    caching_allocator_disabled,
    caching_allocator_enable,
    change_current_allocator,
    empty_cache,
    empty_host_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
    use_mem_pool,
)
from .multiprocessing import ipc_collect
from .random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)

if TYPE_CHECKING:
    from .as_cuda import as_cuda

__all__ = [
    "AccelError",
    "AccelGraph",
    "AcceleratorError",
    "Event",
    "ExternalStream",
    "MemPool",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "__version__",
    "accelStatus",
    "amp",
    "as_cuda",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "can_device_access_peer",
    "change_current_allocator",
    "check_error",
    "comm",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_memory_used",
    "device_of",
    "empty_cache",
    "empty_host_cache",
    "errors",
    "fallback_report",
    "get_allocator_backend",
    "get_amp_supported_dtype",
    "get_device_name",
    "get_device_properties",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "get_stream_from_external",
    "get_sync_debug_mode",
    "graph",
    "graph_pool_handle",
    "graphs",
    "has_half",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_tf32_supported",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "multiprocessing",
    "numpy_kernel",
    "random",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_device",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "sanitizer",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_debug_mode",
    "set_tensor_flags",
    "sparse",
    "stream",
    "streams",
    "synchronize",
    "tensor_flags",
    "testing",
    "use_mem_pool",
    "utils",
]

_LEGACY_TYPES = _legacy.tensor_types("torch.accel", torch.strided) | _legacy.storage_types()
globals().update(_LEGACY_TYPES)
__all__ += sorted(_LEGACY_TYPES)

default_generators: tuple[torch.Generator, ...]
has_half = True


def __getattr__(name: str) -> Any:
    if name == "default_generators":  # lazy, because making them initialises the chip
        lazy_init()
        value = tuple(_C._default_generator(index) for index in range(device_count()))
        globals()[name] = value
        return value
    if name == "as_cuda":  # few programs want it
        return importlib.import_module("torch_accel.as_cuda")
    if name == "_initialized":  # torch.utils.checkpoint reads torch.cuda's variable
        return is_initialized()
    raise AttributeError(f"module 'torch.accel' has no attribute {name!r}")


def _lazy_init() -> None:
    """torch calls it before it makes the first accel tensor."""
    lazy_init()


def init() -> None:
    """Initialises the chip: reads the ACCEL_* variables and opens the devices. Called by whatever needs it.

    Raises:
        RuntimeError: there is no device, a variable has an unusable value, or this is a forked child of a process that
            had initialised.
    """
    lazy_init()


def is_initialized() -> bool:
    """True once the chip is initialised in this process."""
    return _C._is_initialized() and not _C._is_in_bad_fork()


def _is_in_bad_fork() -> bool:
    """True in a forked child of a process that had initialised the chip: accel cannot be used there."""
    return _C._is_in_bad_fork()


def is_available() -> bool:
    """True if there is a device. Never raises and does not initialise; False with ACCEL_DEVICES=0."""
    return _C._device_count() > 0


def device_count() -> int:
    """The number of devices (ACCEL_DEVICES, ACCEL_VISIBLE_DEVICES). Does not initialise."""
    return _C._device_count()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: accel computes in bfloat16."""
    return True


def is_tf32_supported() -> bool:
    """False: accel multiplies float32 matrices in float32."""
    return False


def current_device() -> int:
    """The index of this thread's current device."""
    return _C._current_device()


def set_device(device: Device) -> None:
    """Makes ``device`` this thread's current device; a negative index changes nothing.

    Raises:
        RuntimeError: there is no such device.
    """
    index = _get_device_index(device)
    if index >= 0:
        _C._set_device(index)


def _exchange_device(index: int) -> int:
    """As set_device; returns the previous index. A negative index changes nothing."""
    return _C._exchange_device(index)


def _maybe_exchange_device(index: int) -> int:
    """As _exchange_device, never raises or initialises."""
    return _C._maybe_exchange_device(index)


class device:
    """Context manager that changes the current device; None or a negative index changes nothing."""

    def __init__(self, device: Device) -> None:
        self.idx = _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _C._exchange_device(self.idx)

    def __exit__(self, *exc_info: object) -> None:
        _C._maybe_exchange_device(self.prev_idx)


class device_of(device):
    """Context manager that changes the current device to that of a tensor or storage; no change if it is not on accel."""

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage) -> None:
        super().__init__(obj.device.index if obj.device.type == "accel" else -1)


def get_device_properties(device: Device = None) -> _C._AccelDeviceProperties:
    """Name, memory and units of a device. Initialises accel."""
    lazy_init()
    return _C._get_device_properties(_get_device_index(device, optional=True))


def get_device_name(device: Device = None) -> str:
    """The name of a device. Initialises accel."""
    return get_device_properties(device).name


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """True for two different devices: all devices of a process share one address space, over links.

    Initialises accel.

    Raises:
        RuntimeError: there is no such device.
    """
    lazy_init()
    return _C._check_index(_get_device_index(device, optional=True)) != _C._check_index(_get_device_index(peer_device))


def device_memory_used(device: Device = None) -> int:
    """Bytes of a device's memory in use, the allocator's cache included. Initialises accel."""
    free, total = mem_get_info(device)
    return total - free


def synchronize(device: Device = None) -> None:
    """Waits until all streams of a device are empty. Initialises accel.

    Raises:
        torch.AcceleratorError: a launch since the last synchronisation has failed.
    """
    lazy_init()
    _C._synchronize_device(_get_device_index(device, optional=True), "torch.accel.synchronize")


def _sleep(cycles: int) -> None:
    """Holds the current stream for that many cycles of a nanosecond; the host does not wait."""
    if cycles < 0:
        raise ValueError(f"torch.accel._sleep expects a number of cycles of at least 0, but got {cycles}")
    lazy_init()
    _C._sleep(cycles)


def _register() -> None:
    if hasattr(torch, "accel"):
        return
    rename_privateuse1_backend("accel")
    generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    _compat.allow_on_uninitialized("accel", "is_accel")
    _compat.register_device_module(sys.modules[__name__])
    _compat.extend_flex_attention()
    _compat.recognise_triton_kernels()
    _compat.extend_jagged_attention(lambda: get_rng_state().numel() == 16)  # the CPU generator has more
    _compat.install_parallel(
        {
            name: getattr(_parallel, name)
            for name in (
                "broadcast",
                "broadcast_coalesced",
                "broadcast_out",
                "gather",
                "gather_out",
                "scatter",
                "scatter_out",
            )
        }
    )
    _alias.install()
    _fault.wrap_faulthandler()
    _exchange.install()
    multiprocessing.register()


_register()
