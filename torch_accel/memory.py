"""Device memory: what is in use, and NumPy's view of it. Names and statistics as torch.cuda.memory has them."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import torch
from numpy.typing import NDArray

from . import _compat, _memory_summary
from ._lazy import lazy_init
from ._memory_history import (  # noqa: F401  torch.cuda.memory has these names too
    _allocation_traceback,
    _dump_snapshot,
    _get_memory_metadata,
    _record_memory_history,
    _record_memory_history_impl,
    _record_memory_history_legacy,
    _save_memory_usage,
    _save_segment_usage,
    _set_memory_metadata,
    _snapshot,
    owner,
)
from ._native import _C
from ._utils import Device, _get_device_index, array_of, array_over

__all__ = [
    "Fragmentation",
    "MemPool",
    "arena",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "change_current_allocator",
    "empty_cache",
    "empty_host_cache",
    "fragmentation",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "numpy",
    "owner",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "use_mem_pool",
]


def _index(device: Device) -> int:
    return _C._check_index(_get_device_index(device, optional=True))


def empty_cache() -> None:
    """Returns the cached blocks that nothing uses to the chip."""
    torch.accelerator.empty_cache()


def empty_host_cache() -> None:
    """Returns the cached pinned memory that nothing uses to the system."""
    torch.accelerator.empty_host_cache()


def _flat(nested: dict[str, Any]) -> OrderedDict[str, Any]:
    """``{"a": {"b": 1, (0, 1): 2}}`` as ``{"a.0_1": 2, "a.b": 1}``."""
    flat: dict[str, Any] = {}

    def visit(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                name = "_".join(map(str, key)) if isinstance(key, tuple) else key
                visit(f"{prefix}.{name}" if prefix else name, inner)
        else:
            flat[prefix] = value

    visit("", nested)
    return OrderedDict(sorted(flat.items()))


def memory_stats(device: Device = None) -> OrderedDict[str, Any]:
    """Statistics of the caching allocator, keys as in torch.cuda.memory_stats (``allocated_bytes.all.current``, ...).

    Private pools are under ``reserved_bytes_by_private_pools.0_1``, by their ids. Empty before accel is initialised.
    """
    return _flat(memory_stats_as_nested_dict(device))


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """:func:`memory_stats` as nested dictionaries; the ids of private pools are tuples."""
    if not _C._is_initialized():
        return {}
    index = _index(device)
    stats = _compat.accelerator_device_stats(index)
    stats["reserved_bytes_by_private_pools"] = _C._reserved_bytes_by_private_pools(index)
    return stats


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
    return _flat(host_memory_stats_as_nested_dict())


def reset_accumulated_host_memory_stats() -> None:
    """Sets the historical totals of pinned host memory to zero."""
    if _C._is_initialized():
        _C._reset_accumulated_host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    """Sets the peaks of pinned host memory to the present values."""
    if _C._is_initialized():
        _C._reset_peak_host_memory_stats()


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """The statistics of a device as the table of torch.cuda.memory_summary. Initialises accel.

    Args:
        device: by default the current device.
        abbreviated: leave out the rows of the large and the small pool.
    """
    lazy_init()
    index = _index(device)
    return _memory_summary.summary(memory_stats(index), index, abbreviated)


def memory_snapshot(mempool_id: tuple[int, int] | None = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """The segments of the caching allocator and their blocks, as torch.cuda.memory_snapshot gives them.

    A ``stream`` is a stream's ``stream_id``. Empty before accel is initialised.

    Args:
        mempool_id: only the segments of that private pool.
        include_traces: of no effect on the result; without, nothing is read of the history.
    """
    if not _C._is_initialized():
        return []
    return list(_C._memory_snapshot(mempool_id or (0, 0), include_traces)["segments"])


class Fragmentation(NamedTuple):
    """How the reserved memory of a device is cut up. Sizes in bytes."""

    reserved: int
    """In segments."""
    active: int
    """In blocks that are in use, or that wait for a stream."""
    largest: int
    """The largest idle block: what a request can have at once."""
    releasable: int
    """In segments that are idle as a whole, which empty_cache() returns unless a private pool is in use."""
    split: int
    """Idle, between blocks in use: serves requests that fit only."""

    @property
    def idle(self) -> int:
        """Reserved, not active."""
        return self.reserved - self.active

    @property
    def ratio(self) -> float:
        """The part of the idle memory that the largest request could not have: 0.0 for one piece."""
        return 1 - self.largest / self.idle if self.idle else 0.0


def fragmentation(device: Device = None) -> Fragmentation:
    """How the caching allocator's idle memory on a device is cut up. All zero before accel is initialised."""
    if not _C._is_initialized():
        return Fragmentation(0, 0, 0, 0, 0)
    index = _index(device)
    segments = [segment for segment in memory_snapshot(include_traces=False) if segment["device"] == index]
    idle = [block["size"] for segment in segments for block in segment["blocks"] if block["state"] == "inactive"]
    releasable = sum(segment["total_size"] for segment in segments if segment["active_size"] == 0)
    return Fragmentation(
        reserved=sum(segment["total_size"] for segment in segments),
        active=sum(segment["active_size"] for segment in segments),
        largest=max(idle, default=0),
        releasable=releasable,
        split=sum(idle) - releasable,
    )


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Lets this process reserve at most that part of a device's memory, as torch.cuda's function of this name.

    Args:
        fraction: from 0 to 1, of the total memory.
        device: by default the current device.

    Raises:
        TypeError: ``fraction`` is not a float.
        ValueError: it is below 0 or above 1.
    """
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    lazy_init()
    _C._set_memory_fraction(_index(device), fraction)


def get_per_process_memory_fraction(device: Device = None) -> float:
    """The part of a device's memory that this process may reserve: 1.0 unless it was set."""
    lazy_init()
    return _C._get_memory_fraction(_index(device))


def caching_allocator_alloc(size: int, device: Device = None, stream: torch.Stream | None = None) -> int:
    """Device memory for other libraries: an address, to be given back to :func:`caching_allocator_delete`.

    Args:
        size: bytes; 0 gives address 0.
        device: by default the current device.
        stream: the stream that will use it; by default the device's current one.

    Raises:
        torch.OutOfMemoryError: the device is full.
    """
    lazy_init()
    if stream is None:
        stream = torch.accelerator.current_stream(_index(device))
    elif not isinstance(stream, torch.Stream):
        raise TypeError("Invalid type for stream argument, must be `torch.accel.Stream`")
    if size < 0:
        raise ValueError(f"Invalid size: {size}. It must be at least 0")
    return _C._caching_allocator_alloc(size, stream)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Gives back memory of :func:`caching_allocator_alloc`: its stream may use it again at once, in order.

    Raises:
        RuntimeError: no allocated block begins at that address.
    """
    _C._caching_allocator_delete(mem_ptr)


def caching_allocator_enable(value: bool = True) -> None:
    """Turns caching on or off for this process.

    Off, every allocation outside private pools has a segment of its own, and what was freed goes back to the chip as soon as the
    stream has got there, at the latest with the next allocation: a use after the free then reads zeros. Initialises accel.
    """
    lazy_init()
    _C._enable_caching(value)


@contextlib.contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """Turns caching off inside this context; see :func:`caching_allocator_enable`."""
    before = _C._caching_enabled()
    caching_allocator_enable(False)
    try:
        yield
    finally:
        caching_allocator_enable(before)


def get_allocator_backend() -> str:
    """``native``: accel has one allocator, its own caching one."""
    return "native"


def change_current_allocator(allocator: object) -> NoReturn:
    """accel's allocator cannot be changed: its blocks carry the tickets that make reuse safe. Always raises."""
    raise RuntimeError(
        "torch.accel has no pluggable allocators: device memory comes from the chip's arenas, and reuse is ordered by the "
        "tickets of the caching allocator's blocks. PYTORCH_ALLOC_CONF configures it, torch.accel.MemPool keeps memory apart"
    )


class MemPool:
    """A private pool of the caching allocator, as torch.cuda.MemPool: memory that serves only what is routed to it.

    Args:
        allocator: must be None: accel has no pluggable allocators.
        use_on_oom: the pool's idle blocks serve any allocation that would fail otherwise.
        no_split: a segment of the pool serves one allocation at a time.
    """

    def __init__(self, allocator: object = None, use_on_oom: bool = False, no_split: bool = False) -> None:
        if allocator is not None:
            change_current_allocator(allocator)
        lazy_init()
        self._pool = _C._MemPool(_C._current_device(), use_on_oom, no_split)

    @property
    def id(self) -> tuple[int, int]:
        """The id of this pool, as ``segment_pool_id`` of a snapshot shows it."""
        return self._pool.id

    @property
    def allocator(self) -> None:
        """None: the pool's memory comes from accel's own allocator."""
        return None

    def use_count(self) -> int:
        """How many hold this pool: this object, :func:`use_mem_pool`, and the graphs captured in it."""
        return self._pool.use_count()

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """The segments of this pool on all devices; see :func:`memory_snapshot`."""
        return memory_snapshot(self.id, include_traces=include_traces)


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Device = None) -> Iterator[None]:
    """What this thread allocates on a device comes from the pool, inside this context; of nested ones the inner counts.

    Other threads, the autograd engine's among them, go on as before.

    Args:
        pool: the pool.
        device: by default the current device.

    Raises:
        RuntimeError: the pool is already in use by a ``use_mem_pool``.
    """
    index = _index(device)
    _C._begin_allocate_current_thread_to_pool(index, pool.id)
    try:
        yield
    finally:
        _C._end_allocate_to_pool(index, pool.id)
        _C._release_pool(index, pool.id)


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
