"""A device's memory for the interpreter: the storages of a launch's tensors, at their addresses, as they are."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ..._native import _C
from ..ir.core import Operation
from ..ir.types import Ptr, element
from .checks import CheckedMemory, Checks
from .memory import Array, MemoryFault


class DeviceMemory(CheckedMemory):
    """Buffers at device addresses. ``ranges``: name, first address and bytes of each; those of one storage are one buffer.

    With ``others`` an address elsewhere is looked up among the allocator's blocks, so that pointers that a kernel loads can be followed;
    an access that leaves its argument for another block is then not found.
    """

    def __init__(self, checks: Checks, ranges: Iterable[tuple[str, int, int]], others: bool) -> None:
        super().__init__(checks)
        self._others = others
        self._before: dict[int, NDArray[np.bool_]] = {}  # what was written when the launch began, by address
        merged: list[tuple[str, int, int]] = []
        for name, begin, bytes in sorted(ranges, key=lambda one: (one[1], -one[2])):
            last = merged[-1] if merged else ("", 0, 0)
            if begin >= last[1] + last[2]:
                merged.append((name, begin, bytes))
            else:
                merged[-1] = (last[0], last[1], max(last[2], begin + bytes - last[1]))
        for name, begin, bytes in merged:
            self._hold(begin, _view(begin, bytes), name)

    def _hold(self, base: int, data: NDArray[np.uint8], name: str) -> int:
        """What nothing has written on the device is unwritten here."""
        at = super()._hold(base, data, name)
        if "uninit" in self.checks.kinds:
            written = np.ones(data.size, np.bool_)
            for first, last in _C._unwritten(base, data.size):
                written[first - base : last - base] = False
            self._written[at] = written
            self._before[base] = written.copy()
        return at

    def newly_written(self) -> list[tuple[int, int]]:
        """The ranges that were unwritten, and have been written by the launch."""
        found = []
        for base, written in zip(self.bases.tolist(), self._written):
            if written is not None:
                changed = np.diff(np.concatenate([[0], written & ~self._before[base], [0]]).astype(np.int8))
                edges = (base + np.flatnonzero(changed)).tolist()
                found += list(zip(edges[::2], edges[1::2]))
        return found

    def _find(self, addresses: Array, size: int) -> tuple[Array, Array]:
        try:
            return super()._find(addresses, size)
        except MemoryFault:
            if not self._others or not any([self._look_up(int(address)) for address in np.unique(addresses)]):
                raise
        return self._find(addresses, size)

    def _look_up(self, address: int) -> bool:
        """Whether the allocator has a block there that was not a buffer yet."""
        at = int(np.searchsorted(self.bases, address, side="right")) - 1
        if at >= 0 and address < self.bases[at] + self.sizes[at]:
            return False
        owner = _C._memory_owner(address)
        if owner is None:
            return False
        self._hold(owner["address"], _view(owner["address"], owner["requested_size"]), "memory of no argument")
        return True


def _view(begin: int, bytes: int) -> Array:
    if not bytes:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * bytes).from_address(_C._host_address(begin)))


def follows_others(module: Operation) -> bool:
    """Whether a module of the tile IR makes pointers of integers, or loads them."""
    return any(
        op.name in ("load", "bitcast", "atomic_rmw", "atomic_cas")
        and any(isinstance(element(value.type), Ptr) for value in op.results)
        and not (op.name == "bitcast" and isinstance(element(op.operands[0].type), Ptr))
        for op in module.walk()
    )
