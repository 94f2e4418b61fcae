"""A generated kernel with its arguments."""

from __future__ import annotations

import functools
import linecache
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from torch_accel.triton import frontend
from torch_accel.triton.ir import reader
from torch_accel.triton.ir.core import Operation
from torch_accel.triton.ir.floats import encode, from_bits, storage
from torch_accel.triton.ir.types import Scalar

from .cells import Cell
from .grammar import HEADER, TYPES

ROOM = 2048  # elements of each memory
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5, np.inf, -np.inf, np.nan, 1e-42, -3e-39, 3e38, 65520.0, 1e-7)


@dataclass
class Pointer:
    """An argument: a place in a memory. Those of one memory may overlap."""

    name: str
    type: str
    memory: int
    offset: int = 0
    loaded: bool = False
    kind: str = "data"  # approx, index, flag


@dataclass
class Program:
    """``choices`` make it again; ``memories`` are the types of its arrays; ``scalars`` its numbers."""

    choices: list[int]
    seed: int
    shape: tuple[int, ...] = (16,)
    grid: tuple[int, ...] = (1,)
    lines: list[str] = field(default_factory=list)
    pointers: list[Pointer] = field(default_factory=list)
    memories: list[str] = field(default_factory=list)
    scalars: dict[str, int] = field(default_factory=dict)
    cells: set[Cell] = field(default_factory=set)

    def kernel(self) -> str:
        """The kernel's own text."""
        names = [*(pointer.name for pointer in self.pointers), *self.scalars]
        return f"@triton.jit\ndef kernel({', '.join(names)}):\n" + "".join(f"    {line}\n" for line in self.lines)

    def text(self) -> str:
        """All of the source."""
        return f"{HEADER}\n{self.kernel()}"

    @functools.cached_property
    def module(self) -> Operation:
        """Triton's IR, read."""
        text, name = self.text(), f"<fuzz {self.seed} {len(self.choices)}>"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)  # where Triton looks for the source
        known: dict[str, Any] = {"__name__": "fuzzed"}
        exec(compile(text, name, "exec"), known)
        types = {pointer.name: f"*{TYPES[pointer.type][1]}" for pointer in self.pointers}
        return reader.read(frontend.ttir(known["kernel"], {**types, **dict.fromkeys(self.scalars, "i32")}))

    def data(self) -> list[np.ndarray[Any, Any]]:
        """The memories before the launch: all kinds of numbers."""
        rng = np.random.default_rng(self.seed)
        kinds = {pointer.memory: pointer.kind for pointer in self.pointers}
        return [_values(rng, type, kinds.get(at, "data")) for at, type in enumerate(self.memories)]

    def size(self, pointer: Pointer) -> int:
        """Bytes of an element."""
        return storage(Scalar(pointer.type)).itemsize


def _values(rng: np.random.Generator, type: str, kind: str) -> np.ndarray[Any, Any]:
    elem = Scalar(type)
    if kind == "index":
        return rng.integers(0, 512, ROOM).astype(np.int32)
    if type == "i1":
        return rng.integers(0, 3, ROOM) > 0
    if elem.is_float:
        numbers = rng.normal(size=ROOM) * 2.0 ** rng.integers(-3, 6, ROOM)
        numbers = np.where(rng.integers(0, 3, ROOM) > 0, numbers, np.round(numbers))
        special = rng.integers(0, 24, ROOM) == 0
        return encode(elem, np.where(special, rng.choice(SPECIAL, ROOM), numbers))
    bits = rng.integers(0, 1 << elem.width, ROOM, dtype=np.uint64, endpoint=False) if elem.width < 64 else rng.integers(0, 1 << 63, ROOM, dtype=np.uint64) * 2 + 1  # fmt: skip
    small = rng.integers(-9, 10, ROOM).astype(np.int64).view(np.uint64) & np.uint64((1 << elem.width) - 1)
    edge = rng.choice(
        np.array([1 << elem.width - 1, (1 << elem.width - 1) - 1, (1 << elem.width) - 1, 0], np.uint64), ROOM
    )
    which = rng.integers(0, 8, ROOM)
    return from_bits(elem, np.where(which == 0, edge, np.where(which < 5, small, bits)))
