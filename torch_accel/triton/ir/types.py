"""Types of values: scalars, pointers, tiles, buffers. They are immutable and compare by value."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

FLOAT_WIDTHS = {
    "f64": 64,
    "f32": 32,
    "f16": 16,
    "bf16": 16,
    "f8e5m2": 8,
    "f8e4m3fn": 8,
    "f8e4m3fnuz": 8,
    "f8e5m2fnuz": 8,
}


@dataclass(frozen=True, slots=True)
class Scalar:
    """An integer ``i1`` to ``i64``, which has no sign, or a float of ``FLOAT_WIDTHS``."""

    name: str

    @property
    def is_float(self) -> bool:
        """Whether arithmetic on it is floating point."""
        return self.name in FLOAT_WIDTHS

    @property
    def is_int(self) -> bool:
        """Whether it is ``iN``."""
        return re.fullmatch(r"i\d+", self.name) is not None

    @property
    def width(self) -> int:
        """Bits of a value."""
        return FLOAT_WIDTHS.get(self.name) or int(self.name[1:])

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Ptr:
    """A device address of elements of one type, in a memory space."""

    elem: Type
    space: str = "hbm"

    def __str__(self) -> str:
        return f"ptr<{self.elem}, {self.space}>"


@dataclass(frozen=True, slots=True)
class Tile:
    """A value of ``shape`` elements. It has no storage: a tile is no buffer."""

    shape: tuple[int, ...]
    elem: Scalar | Ptr

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"tile<{''.join(f'{size}x' for size in self.shape)}{self.elem}>"


@dataclass(frozen=True, slots=True)
class View:
    """A tile's worth of memory: what a load of it gives has this shape and element type."""

    shape: tuple[int, ...]
    elem: Scalar

    def __str__(self) -> str:
        return f"view<{''.join(f'{size}x' for size in self.shape)}{self.elem}>"


@dataclass(frozen=True, slots=True)
class Buf:
    """Storage of ``shape`` elements, only in the machine IR. ``layout`` says where an element lies: ``row`` is row-major, without gaps.

    ``space`` is ``sram`` (of the core that runs the program), ``const`` (of the object, never written) or ``hbm`` (what a DMA moves: layout
    ``strided`` or ``indexed``, and no storage of its own); ``align`` is in bytes. An i1 takes a byte, an address eight.
    """

    shape: tuple[int, ...]
    elem: Scalar | Ptr
    space: str = "sram"
    layout: str = "row"
    align: int = 64

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size of the storage."""
        return self.count * (8 if isinstance(self.elem, Ptr) else max(1, self.elem.width // 8))

    def __str__(self) -> str:
        return (
            f"buf<{''.join(f'{size}x' for size in self.shape)}{self.elem}, {self.space}, {self.layout}, {self.align}>"
        )


@dataclass(frozen=True, slots=True)
class Token:
    """A DMA that is under way, only in the machine IR."""

    def __str__(self) -> str:
        return "token"


@dataclass(frozen=True, slots=True)
class Function:
    """Types of a function's arguments and results."""

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.inputs))}) -> ({', '.join(map(str, self.results))})"


@dataclass(frozen=True, slots=True)
class Opaque:
    """A type of Triton's IR that the tile IR has no word for, such as a tensor descriptor: its text."""

    text: str

    def __str__(self) -> str:
        return self.text


Type = Scalar | Ptr | Tile | View | Buf | Token | Function | Opaque

I1, I8, I16, I32, I64 = (Scalar(f"i{width}") for width in (1, 8, 16, 32, 64))
F16, BF16, F32, F64 = (Scalar(name) for name in ("f16", "bf16", "f32", "f64"))


def element(type: Type) -> Type:
    """The element type of a tile or buffer; any other type is its own element."""
    return type.elem if isinstance(type, (Tile, Buf)) else type


def shape(type: Type) -> tuple[int, ...]:
    """The shape of a tile or buffer; () of a scalar or pointer."""
    return type.shape if isinstance(type, (Tile, Buf)) else ()


def with_element(type: Type, elem: Scalar | Ptr) -> Type:
    """The type of the same shape with other elements."""
    return Tile(type.shape, elem) if isinstance(type, Tile) else elem


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant's bits: one pattern for all elements, or a pattern for each in row-major order.

    Bits and not numbers: NaN payloads and -0.0 stay what they are.
    """

    type: Type
    bits: tuple[int, ...]
