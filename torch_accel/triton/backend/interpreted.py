"""A kernel that the interpreter runs in the place of its code: on the device's memory, on the stream's worker, when its turn comes.

To the driver it is a kernel of one program, which runs those of the whole grid in ascending order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..._native import _C
from ..codegen.compile import packed
from ..codegen.context import TEXT, Context, Fault
from ..codegen.values import elem_of
from ..interpret import tile
from ..interpret.arithmetic import array_dtype
from ..interpret.checks import Checks
from ..interpret.device import DeviceMemory, follows_others
from ..interpret.engine import KernelFault
from ..ir import text
from ..ir.types import I32, Ptr

_EVERYWHERE = 1 << 63  # bytes of a pointer that is no tensor: more than this


class Interpreted:
    """What a compiled kernel's metadata has of it: the tile IR with its locations, and what to look for.

    ``address`` is an accelGridFunction as long as this lives. Its arguments are the kernel's, then the grid (three i32), then the ranges.
    """

    def __init__(self, name: str, shown: str, kinds: list[str]) -> None:
        self.name, self.module, self.kinds = name, text.parse(shown), kinds
        (function,) = (op for op in self.module.regions[0].block.operations if op.attributes["name"] == name)
        values = function.regions[0].block.arguments
        self._names = [value.name for value in values]
        self._types = [elem_of(value.type) for value in values]
        self._others = follows_others(self.module)
        self._call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(self._run)
        address = ctypes.cast(self._call, ctypes.c_void_p).value
        assert address is not None
        self.address = address

    def _run(self, context: int, arguments: int) -> int:
        try:
            self._launch(arguments)
            return 0
        except KernelFault as fault:
            message = str(fault).removeprefix("accel: ")
        except Exception as error:
            message = (
                f"kernel '{self.name}' cannot be interpreted, which its checks ask for: {type(error).__name__}: {error}"
            )
        record = Fault.from_address(Context.from_address(context).fault)
        record.text = message.encode()[
            : TEXT - 1
        ]  # without a site, as the driver hands the record over, the text says all
        return 1

    def _launch(self, arguments: int) -> None:
        """One launch, from its argument bytes."""
        *places, end = packed([*self._types, I32, I32, I32])
        pointers = [name for name, type in zip(self._names, self._types) if isinstance(type, Ptr)]
        first = -(-end // 8) * 8
        data = np.frombuffer(ctypes.string_at(arguments, first + 16 * len(pointers)), np.uint8)
        numbers = [
            data[at:].view(np.uint8)[: array_dtype(type).itemsize].view(array_dtype(type)).reshape(()).copy()
            for type, at in zip([*self._types, I32, I32, I32], places)
        ]
        grid: Any = tuple(int(number) for number in numbers[-3:])
        ranges = list(self._ranges(pointers, data[first:].view(np.uint64).tolist()))
        known = [one for one in ranges if one[2] < _EVERYWHERE]
        checks = Checks(",".join(kind for kind in self.kinds if kind != "oob"))
        memory = DeviceMemory(checks, known, self._others or len(known) < len(ranges))
        try:
            tile.run(self.module, self.name, grid, numbers[:-3], memory)
        finally:
            if "uninit" in self.kinds:
                _C._wrote_only(memory.newly_written())

    def _ranges(self, names: list[str], words: list[int]) -> Iterator[tuple[str, int, int]]:
        yield from zip(names, words[::2], words[1::2])
