"""Device memory: what is in use, and NumPy's view of it. Names and statistics as torch.cuda.memory has them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray

from . import _compat
from ._lazy import lazy_init
from ._native import _C
from ._utils import Device, _get_device_index, array_of, array_over

__all__ = [
    "arena",
    "empty_cache",
    "empty_host_cache",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "numpy",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
]


def _index(device: Device) -> int:
    return _C._check_index(_get_device_index(device, optional=True))


def empty_cache() -> None:
    """Returns the cached blocks that nothing uses to the chip."""
    torch.accelerator.empty_cache()


def empty_host_cache() -> None:
    """Returns the cached pinned memory that nothing uses to the system."""
    torch.accelerator.empty_host_cache()


def memory_stats(device: Device = None) -> OrderedDict[str, Any]:
    """Statistics of the caching allocator, keys as in torch.cuda.memory_stats (``allocated_bytes.all.current``, ...).

    Empty before accel is initialised.
    """
    return torch.accelerator.memory_stats(_index(device)) if _C._is_initialized() else OrderedDict()


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """:func:`memory_stats` as nested dictionaries."""
    return _compat.accelerator_device_stats(_index(device)) if _C._is_initialized() else {}


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Sets the historical totals (``allocated``, ``freed``, ``num_ooms``, ...) of a device to zero."""
    if _C._is_initialized():
        torch.accelerator.reset_accumulated_memory_stats(_index(device))


def reset_peak_memory_stats(device: Device = None) -> None:
    """Sets the peaks of a device to the present values."""
    if _C._is_initialized():
        torch.accelerator.reset_peak_memory_stats(_index(device))


def memory_allocated(device: Device = None) -> int:
    """Bytes that tensors occupy on a device."""
    return int(memory_stats(device).get("allocated_bytes.all.current", 0))


def max_memory_allocated(device: Device = None) -> int:
    """Peak of :func:`memory_allocated` since the start or :func:`reset_peak_memory_stats`."""
    return int(memory_stats(device).get("allocated_bytes.all.peak", 0))


def memory_reserved(device: Device = None) -> int:
    """Bytes that the caching allocator holds on a device."""
    return int(memory_stats(device).get("reserved_bytes.all.current", 0))


def max_memory_reserved(device: Device = None) -> int:
    """Peak of :func:`memory_reserved` since the start or :func:`reset_peak_memory_stats`."""
    return int(memory_stats(device).get("reserved_bytes.all.peak", 0))


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """(free, total) bytes of a device, as the chip counts them: cached blocks are not free. Initialises accel."""
    lazy_init()
    free, total = torch.accelerator.get_memory_info(_index(device))
    return free, total


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """:func:`host_memory_stats` as nested dictionaries."""
    return _C._host_memory_stats() if _C._is_initialized() else {}


def host_memory_stats() -> OrderedDict[str, Any]:
    """Statistics of pinned host memory, keys as in torch.cuda.host_memory_stats. Empty before accel is initialised."""
    flat: dict[str, Any] = {}

    def visit(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                visit(f"{prefix}.{key}" if prefix else key, inner)
        else:
            flat[prefix] = value

    visit("", host_memory_stats_as_nested_dict())
    return OrderedDict(sorted(flat.items()))


def reset_accumulated_host_memory_stats() -> None:
    """Sets the historical totals of pinned host memory to zero."""
    if _C._is_initialized():
        _C._reset_accumulated_host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    """Sets the peaks of pinned host memory to the present values."""
    if _C._is_initialized():
        _C._reset_peak_host_memory_stats()


def _format_size(value: int, scale: int) -> str:
    unit = 0
    while scale >= 768 * 1024 and unit < 5:
        value, scale, unit = value // 1024, scale // 1024, unit + 1
    return f"{value:6d} {('B  ', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[unit]}"


def _format_count(value: int, scale: int) -> str:
    unit = 0
    while scale >= 750 * 1000 and unit < 2:
        value, scale, unit = value // 1000, scale // 1000, unit + 1
    return f"{value:7d} {' KM'[unit]} "


_Format = Callable[[int, int], str]
_POOLED: tuple[tuple[str, str, _Format], ...] = (
    ("allocated_bytes", "Allocated memory", _format_size),
    ("active_bytes", "Active memory", _format_size),
    ("requested_bytes", "Requested memory", _format_size),
    ("reserved_bytes", "Reserved memory", _format_size),
    ("inactive_split_bytes", "Non-releasable memory", _format_size),
    ("allocation", "Allocations", _format_count),
    ("active", "Active allocs", _format_count),
    ("segment", "Reserved segments", _format_count),
    ("inactive_split", "Non-releasable allocs", _format_count),
)
_UNPOOLED: tuple[tuple[str, str, _Format], ...] = (
    ("oversize_allocations", "Oversize allocations", _format_count),
    ("oversize_segments", "Oversize segments", _format_count),
)


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """The statistics of a device as the table of torch.cuda.memory_summary. Initialises accel.

    Args:
        device: by default the current device.
        abbreviated: leave out the rows of the large and the small pool.
    """
    lazy_init()
    index = _index(device)
    stats = memory_stats(index)

    def row(label: str, prefix: str, scale_prefix: str, form: _Format) -> str:
        columns = ("current", "peak", "allocated", "freed")
        cells = [form(stats[f"{prefix}.{column}"], stats[f"{scale_prefix}.{column}"]) for column in columns]
        return f" {label:<21} | " + " | ".join(cells) + " "

    thick, thin = "=" * 75, "-" * 75
    title = f" {'':16} PyTorch accel memory summary, device ID {index:<16d} "
    events = f"  {'':9} accel OOMs: {stats['num_ooms']:<11d} | {'':6} accelMalloc retries: {stats['num_alloc_retries']:<7d}  "
    header = "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  "
    lines = [thick, title, thin, events, thick, header]
    for key, name, form in _POOLED:
        labels = [("all", name)]
        if not abbreviated:
            labels += [("large_pool", "      from large pool"), ("small_pool", "      from small pool")]
        lines.append(thin)
        lines += [row(label, f"{key}.{pool}", f"{key}.all", form) for pool, label in labels]
    for key, name, form in _UNPOOLED:
        lines += [thin, row(name, key, key, form)]
    lines.append(thick)
    return "".join(f"|{line}|\n" for line in lines)


def arena(device: Device = None) -> NDArray[Any]:
    """The whole memory of a device as a NumPy array, uint8 of shape (total memory in bytes,), writable.

    These are the bytes the device computes on. Nothing is synchronised: call torch.accel.synchronize before reading what a
    launch writes, and write only what no launch uses. Initialises accel.
    """
    lazy_init()
    address, size = _C._arena(_index(device))
    return array_over(address, (size,), "|u1", None, writable=True, owner=None)


def numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """A read-only NumPy array over the bytes of an accel tensor, of its shape, dtype and strides; nothing is copied.

    Waits for the device first. The array keeps the tensor's memory alive and shows what later launches write there.

    Raises:
        TypeError: not a strided accel tensor, or a dtype that NumPy does not have (bfloat16, float8).
        RuntimeError: the conjugate or negative bit is set, or a launch has failed.
    """
    array = array_of(tensor, writable=False)
    _C._synchronize_device(_get_device_index(tensor.device), "torch.accel.memory.numpy")
    return array
