"""What a value of the machine IR is while code is written: the same for all lanes, or a vector, with what is known of its lanes."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ir.core import Block, Location, Operation, Value
from ..ir.types import Buf, Ptr, Scalar, Type
from .emit import Function, Lanes, Module
from .formats import base

if TYPE_CHECKING:
    from .bounds import Bounds


@dataclass(frozen=True)
class Lane:
    """``text`` is a single value, or a vector. ``first`` is the i64 of lane 0 where the next ones follow: an index's lanes are one
    apart, an address's one element."""

    text: str
    vector: bool = False
    first: str = ""


class Code:
    """Writes one function: where it writes, its values, and how many lanes run together (0 outside of vectorised loops)."""

    def __init__(self, module: Module, function: Function, locations: list[Location]) -> None:
        self.module, self.function, self.locations = module, function, locations
        self.values: dict[Value, Lane] = {}
        self.turned: dict[Operation, str] = {}  # where a write's lanes go that lie apart in their buffer
        self.divided = False  # whether nests are functions of their own
        self.width = 0
        self.frame = 0
        #: what accesses are checked against; None: nothing is checked
        self.bounds: Bounds | None = None
        #: the accesses of the loops around that need no check; None outside of such loops
        self.trusted: frozenset[Operation] | None = None

    # values

    def lanes(self, vector: bool = True) -> Lanes:
        """Instructions on vectors of the current width, or on single values."""
        return Lanes(self.function, self.width if vector else 0)

    def spread(self, lane: Lane, type: Type, vector: bool = True) -> str:
        """A value as a vector of the current width, or as it is."""
        if lane.vector or not vector or not self.width:
            return lane.text
        if not lane.text.startswith("%"):
            return f"splat ({base(type)} {lane.text})"
        return self.lanes().splat(base(type), lane.text)

    def operands(self, op: Operation) -> tuple[Lanes, list[str], bool]:
        """An operation's operands, as vectors if one of them is."""
        found = [self.values[value] for value in op.operands]
        vector = any(lane.vector for lane in found)
        return (
            self.lanes(vector),
            [self.spread(lane, value.type, vector) for lane, value in zip(found, op.operands)],
            vector,
        )

    def set(self, op: Operation, text: str, vector: bool) -> None:
        """Names the result of an operation."""
        self.values[op.result] = Lane(text, vector)

    @contextlib.contextmanager
    def vectors(self, width: int) -> Iterator[None]:
        """Runs ``width`` lanes together; 1 is a single value."""
        outer, self.width = self.width, width if width > 1 else 0
        try:
            yield
        finally:
            self.width = outer

    def index(self, first: str, vector: bool) -> Lane:
        """An i32 index of an i64: of this iteration, or of the lanes from there on."""
        one = self.lanes(False).convert("trunc", "i64", "i32", first)
        if not vector or not self.width:
            return Lane(one, False, first)
        e = self.lanes()
        return Lane(e.binary("add", "i32", e.splat("i32", one), self.iota("i32")), True, first)

    def iota(self, name: str, step: int = 1) -> str:
        """0, step, 2 * step, ... in the lanes."""
        return f"<{', '.join(f'{name} {lane * step}' for lane in range(self.width))}>"

    # blocks

    def block(self, block: Block, arguments: Sequence[Lane]) -> Operation:
        """Writes the operations of a block; gives its terminator."""
        self.values.update(zip(block.arguments, arguments))
        self.operations(block.operations[:-1])
        return block.terminator

    def operations(self, operations: Sequence[Operation]) -> None:
        """Writes operations."""
        from .operators import HANDLERS

        for op in operations:
            HANDLERS[op.name](self, op)

    def results(self, block: Block, arguments: Sequence[Lane]) -> list[str]:
        """What a body gives, as vectors where lanes run together."""
        end = self.block(block, arguments)
        return [self.spread(self.values[value], value.type) for value in end.operands]

    def site(self, location: Location) -> int:
        """The number of a place in the source, for fault records."""
        if location not in self.locations:
            self.locations.append(location)
        return self.locations.index(location)


def parameter(type: Type) -> str:
    """The LLVM type of a function's argument."""
    return "ptr" if isinstance(type, Buf) else base(type)


def literal(elem: Type, bits: int) -> str:
    """A constant of its bits."""
    name = base(elem)
    if name == "i1":
        return "true" if bits else "false"
    if name == "half":
        return f"0xH{bits:04X}"
    if name == "float":  # LLVM writes it as the float64 of the same value, NaN with its payload
        if bits & 0x7F800000 == 0x7F800000:
            wide = (bits >> 31) << 63 | 0x7FF << 52 | (bits & 0x7FFFFF) << 29
            return f"0x{wide:016X}"
        (number,) = struct.unpack("f", struct.pack("I", bits))
        return f"0x{int.from_bytes(struct.pack('>d', number), 'big'):016X}"
    if name == "double":
        return f"0x{bits:016X}"
    width = int(name[1:])
    return str(bits - (bits >> (width - 1) << width))


def constant(value: Value) -> int | None:
    """The number of an integer that is a `const`, with its sign; None of anything else."""
    if not isinstance(value.owner, Operation) or value.owner.name != "const" or not isinstance(value.type, Scalar):
        return None
    bits, width = value.owner.attributes["value"].bits[0], value.type.width
    return int(bits - (bits >> (width - 1) << width))


def elem_of(type: Type) -> Scalar | Ptr:
    """The type of a scalar value."""
    assert isinstance(type, (Scalar, Ptr))
    return type
