"""Device memory as NumPy arrays: each is a buffer with an address, and every access is checked against the buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir.core import Location

Array = NDArray[Any]
FIRST, GAP = 1 << 40, 1 << 21  # where the first buffer begins, and the least distance between two


class MemoryFault(Exception):
    """An access that is wrong; the text names lane, address and buffer. ``kind`` is "oob", or what ``checks`` look for.

    ``location`` is the kernel's line at fault, if that is not the access.
    """

    def __init__(self, message: str, kind: str = "oob", argument: str = "", location: Location | None = None) -> None:
        super().__init__(message)
        self.kind, self.argument, self.location = kind, argument, location


class Memory:
    """Buffers by address. Addresses are int64 and the same in every run."""

    def __init__(self) -> None:
        self.bases = np.empty(0, np.int64)
        self.sizes = np.empty(0, np.int64)
        self.bytes: list[NDArray[np.uint8]] = []
        self.names: list[str] = []

    def add(self, array: Array, name: str = "") -> int:
        """Makes a C-contiguous array a buffer, in place, and returns its address; a part of a buffer has an address in it."""
        if not array.flags.c_contiguous:
            raise ValueError(f"accel: buffer '{name}' is not contiguous; pass numpy.ascontiguousarray(...)")
        start = array.ctypes.data
        for known, held in zip(self.bases, self.bytes):
            at = start - held.ctypes.data
            if at >= 0 and at + array.nbytes <= held.size and array.nbytes:
                return int(known) + at
            if -array.nbytes < at < held.size:
                raise ValueError(
                    f"accel: buffer '{name}' begins or ends in another; pass parts of one array after the whole"
                )
        base = FIRST if not self.bytes else int(self.bases[-1]) + -(-int(self.sizes[-1]) // GAP) * GAP + GAP
        self._hold(base, array.reshape(-1).view(np.uint8), name or f"buffer {len(self.bytes)}")
        return base

    def _hold(self, base: int, data: NDArray[np.uint8], name: str) -> int:
        """Makes bytes a buffer at an address; gives its number, by which buffers are in ascending order of addresses."""
        at = int(np.searchsorted(self.bases, base))
        self.bytes.insert(at, data)
        self.names.insert(at, name)
        self.bases = np.insert(self.bases, at, np.int64(base))
        self.sizes = np.insert(self.sizes, at, np.int64(data.size))
        return at

    def _find(self, addresses: Array, size: int) -> tuple[Array, Array]:
        """Buffer and offset of each address (1-d)."""
        found = np.searchsorted(self.bases, addresses, side="right") - 1
        safe = np.maximum(found, 0)
        offset = addresses - self.bases[safe] if len(self.bases) else addresses
        good = (found >= 0) & (offset + size <= self.sizes[safe]) if len(self.bases) else np.zeros(len(addresses), bool)
        if not good.all():
            lane = int(np.argmin(good))
            where, name = "no buffer", ""
            if self.names:
                near = self._nearest(int(addresses[lane]))
                name = self.names[near]
                where = f"byte {addresses[lane] - self.bases[near]} of '{name}', which has {self.sizes[near]}"
            raise MemoryFault(
                f"out of bounds: {size} bytes at {int(addresses[lane]) & (1 << 64) - 1:#x} (lane {lane}): {where}; "
                "mask the lane, or mend its index",
                argument=name,
            )
        return found, offset

    def _nearest(self, address: int) -> int:
        return int(np.argmin(np.maximum(self.bases - address, address - (self.bases + self.sizes))))

    def name_of(self, addresses: Array, mask: Array) -> str:
        """The buffer that the first lane of an access is in."""
        lanes, _ = active_lanes(addresses, mask)
        return self.names[self._nearest(int(lanes[0]))]

    def load(self, addresses: Array, dtype: np.dtype[Any], mask: Array | None) -> Array:
        """Elements at the addresses; 0 where the mask is false, and nothing is read there."""
        wide = np.dtype(np.uint8) if dtype == np.bool_ else dtype
        result = np.zeros(addresses.shape, wide)
        flat, active, where = result.reshape(-1), *active_lanes(addresses, mask)
        found, offset = self._find(active, wide.itemsize)
        for buffer in np.unique(found):
            here = found == buffer
            flat[where[here]] = _gather(self.bytes[buffer], offset[here], wide)
        return result.astype(np.bool_) if dtype == np.bool_ else result

    def store(self, addresses: Array, value: Array, mask: Array | None) -> None:
        """Writes elements where the mask is true, in ascending order of lanes: the last one wins."""
        value = np.broadcast_to(value.view(np.uint8) if value.dtype == np.bool_ else value, addresses.shape)
        active, where = active_lanes(addresses, mask)
        found, offset = self._find(active, value.dtype.itemsize)
        flat = np.ascontiguousarray(value).reshape(-1)[where]
        for buffer in np.unique(found):
            here = found == buffer
            index = offset[here][:, None] + np.arange(value.dtype.itemsize)
            self.bytes[buffer][index] = np.ascontiguousarray(flat[here]).view(np.uint8).reshape(index.shape)

    def exchange(self, address: Array, dtype: np.dtype[Any], update: Callable[[Array], Array], order: str) -> Array:
        """An atomic on one element, with ``order`` "relaxed", "acquire", "release" or "acq_rel": gives the old one."""
        old = self.load(address, dtype, None)
        self.store(address, update(old), None)
        return old


def active_lanes(addresses: Array, mask: Array | None) -> tuple[Array, Array]:
    """Addresses of the lanes that take part, and their numbers."""
    flat = addresses.reshape(-1)
    where = np.arange(flat.size) if mask is None else np.flatnonzero(np.broadcast_to(mask, addresses.shape))
    return flat[where], where


def _gather(data: NDArray[np.uint8], offset: Array, dtype: np.dtype[Any]) -> Array:
    size = dtype.itemsize
    if size == 1:
        return data[offset].view(dtype)
    return np.ascontiguousarray(data[offset[:, None] + np.arange(size)]).view(dtype).reshape(-1)
