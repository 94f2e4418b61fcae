"""Detectors: memory that knows what was written, and by which program of the grid, beside the bytes.

Programs run one after the other here, and still a race is found: two programs that touch one element, one of them to write it,
race unless an atomic orders them. Clocks as in FastTrack (Flanagan and Freund, 2009), of programs instead of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir.core import UNKNOWN, Location
from .memory import Array, Memory, MemoryFault, active_lanes

KINDS = ("nan", "race", "uninit")
_READERS = 4  # of a byte, that a write is compared with

Program = tuple[int, int, int]
Place = Callable[[], tuple[Program, Location]]


class Checks:
    """What ``launch`` looks for beside accesses out of bounds, and which bytes of arrays were never written.

    ``kinds`` is a list, as in ``"uninit,race"``: "uninit" reports reads of what neither NumPy nor a kernel wrote in an array of
    ``empty``; "race" two programs that touch an element unordered, one of them to write it; "nan" a store of a NaN that arithmetic
    made of numbers. One object goes from launch to launch, so that a kernel may read what an earlier one wrote.
    """

    def __init__(self, kinds: str) -> None:
        self.kinds = frozenset(kind.strip() for kind in kinds.split(",") if kind.strip())
        if unknown := sorted(self.kinds.difference(KINDS)):
            raise ValueError(f"accel: there is no check '{unknown[0]}', expected some of {', '.join(KINDS)}")
        self._written: dict[
            int, tuple[Array, NDArray[np.bool_]]
        ] = {}  # by address; the array is kept, so that it stays its own

    def empty(self, shape: int | tuple[int, ...], dtype: Any = np.float32) -> Array:
        """An array of ``shape`` whose bytes count as unwritten until a kernel writes them."""
        array = np.empty(shape, dtype)
        array.view(np.uint8).fill(0xA5)
        self._written[array.ctypes.data] = array, np.zeros(array.nbytes, np.bool_)
        return array

    def written(self, array: Array) -> NDArray[np.bool_] | None:
        """Which bytes of an array of ``empty`` were written; None for other arrays, which always were."""
        return self._written.get(array.ctypes.data, (None, None))[1]


@dataclass
class _Clock:
    """When a program is, and up to when it knows the others: what they did before, it comes after."""

    now: int = 1
    known: dict[int, int] = field(default_factory=dict)

    def learn(self, other: dict[int, int]) -> None:
        for program, time in other.items():
            self.known[program] = max(self.known.get(program, 0), time)


class _Cells:
    """Per byte of a buffer: who wrote it last, and the last programs that read it; 0 is nobody, and program p is p + 1."""

    def __init__(self, size: int) -> None:
        self.writer, self.reader = np.zeros(size, np.int32), np.zeros((size, _READERS), np.int32)
        self.write_time, self.read_time = np.zeros(size, np.int32), np.zeros((size, _READERS), np.int32)
        self.write_atomic, self.read_atomic = np.zeros(size, np.bool_), np.zeros((size, _READERS), np.bool_)


class CheckedMemory(Memory):
    """Memory that reports what ``Checks`` asks for. ``place`` says which program is where."""

    def __init__(self, checks: Checks) -> None:
        super().__init__()
        self.checks = checks
        self.place: Place = lambda: ((0, 0, 0), UNKNOWN)
        self._written: list[NDArray[np.bool_] | None] = []
        self._cells: list[_Cells] = []
        self._clocks: dict[Program, tuple[int, _Clock]] = {}
        self._programs: list[Program] = []
        self._places: list[dict[bool, dict[int, Location]]] = []
        self._released: dict[int, dict[int, int]] = {}
        self._atomic = False

    def _hold(self, base: int, data: NDArray[np.uint8], name: str) -> int:
        """As ``Memory``'s; an array of ``Checks.empty`` begins unwritten."""
        at = super()._hold(base, data, name)
        self._written.insert(at, self.checks.written(data) if "uninit" in self.checks.kinds else None)
        self._cells.insert(at, _Cells(data.size if "race" in self.checks.kinds else 0))
        self._places.insert(at, {False: {}, True: {}})
        return at

    def load(self, addresses: Array, dtype: np.dtype[Any], mask: Array | None) -> Array:
        """As ``Memory.load``, if nothing is wrong with it."""
        self._check(addresses, 1 if dtype == np.bool_ else dtype.itemsize, mask, writes=False)
        return super().load(addresses, dtype, mask)

    def store(self, addresses: Array, value: Array, mask: Array | None) -> None:
        """As ``Memory.store``, if nothing is wrong with it."""
        self._check(addresses, value.dtype.itemsize, mask, writes=True)
        super().store(addresses, value, mask)

    def exchange(self, address: Array, dtype: np.dtype[Any], update: Callable[[Array], Array], order: str) -> Array:
        """As ``Memory.exchange``; an acquire learns what the last releases on this address knew."""
        _, clock = self._now()
        key = int(address[0])
        if order in ("acquire", "acq_rel"):
            clock.learn(self._released.get(key, {}))
        self._atomic = True
        try:
            return super().exchange(address, dtype, update, order)
        finally:
            self._atomic = False
            if order in ("release", "acq_rel"):
                me, _ = self._now()
                released = self._released.setdefault(key, {})
                for program, time in {**clock.known, me: clock.now}.items():
                    released[program] = max(released.get(program, 0), time)
                clock.now += 1

    def _now(self) -> tuple[int, _Clock]:
        program, _ = self.place()
        if program not in self._clocks:
            self._programs.append(program)
            self._clocks[program] = len(self._programs), _Clock()
        return self._clocks[program]

    def _check(self, addresses: Array, size: int, mask: Array | None, writes: bool) -> None:
        lanes, where = active_lanes(addresses, mask)
        found, offset = self._find(lanes, size)
        for buffer in np.unique(found):
            here = found == buffer
            bytes_ = offset[here][:, None] + np.arange(size)
            written = self._written[buffer]
            if written is not None:
                if not writes and not (good := written[bytes_].all(1)).all():
                    at = int(np.argmin(good))
                    raise MemoryFault(
                        f"unwritten: lane {where[here][at]} reads element {bytes_[at, 0] // size} of '{self.names[buffer]}', "
                        "which nothing has written; write it first, or mask the lane",
                        "uninit",
                        self.names[buffer],
                    )
                written[bytes_] |= writes
            if "race" in self.checks.kinds:
                self._order(int(buffer), bytes_, size, writes)

    def _order(self, buffer: int, bytes_: Array, size: int, writes: bool) -> None:
        """Compares an access with those of other programs, and notes it."""
        cells, flat, (me, clock) = self._cells[buffer], bytes_.reshape(-1), self._now()
        known = np.zeros(len(self._programs) + 1, np.int32)
        known[0] = np.iinfo(np.int32).max
        known[list(clock.known)] = list(clock.known.values())
        known[me] = known[0]

        def compare(programs: Array, times: Array, atomic: Array, wrote: bool) -> None:
            late = (times > known[programs]) & ~(atomic & self._atomic)
            if late.any():
                at = np.unravel_index(int(np.argmax(late)), late.shape)
                self._report(buffer, int(flat[at[0]]), size, writes, int(programs[at]), wrote)

        compare(cells.writer[flat], cells.write_time[flat], cells.write_atomic[flat], True)
        if writes:
            compare(cells.reader[flat], cells.read_time[flat], cells.read_atomic[flat], False)
            cells.writer[flat], cells.write_time[flat], cells.write_atomic[flat] = me, clock.now, self._atomic
        else:
            slots = (cells.reader[flat] == me).argmax(1)  # its own slot, or the oldest one
            fresh = cells.reader[flat, slots] != me
            for array in (cells.reader, cells.read_time, cells.read_atomic):
                array[flat[fresh]] = np.roll(array[flat[fresh]], 1, axis=1)
            for array, value in ((cells.reader, me), (cells.read_time, clock.now), (cells.read_atomic, self._atomic)):
                array[flat, slots] = value
        self._places[buffer][writes][me] = self.place()[1]

    def _report(self, buffer: int, byte: int, size: int, writes: bool, other: int, wrote: bool) -> None:
        program, place = self._programs[other - 1], self._places[buffer][wrote].get(other, UNKNOWN)
        name = self.names[buffer]
        raise MemoryFault(
            f"race: {'writes' if writes else 'reads'} element {byte // size} of '{name}', which program {program} "
            f"{'wrote' if wrote else 'read'} ({place}), and nothing orders the two; use an atomic that releases and acquires, "
            "or give each program elements of its own",
            "race",
            name,
        )
