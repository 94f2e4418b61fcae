"""What an element of a tile is, as operations on scalars: emitted where a lane needs it, and once for a nest of loops.

``Emitter`` keeps the blocks that are being filled, from the function's to the innermost body, and puts an operation into the outermost
one where its operands are known: what does not depend on a loop's index is computed before the loop.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..ir.core import UNKNOWN, Block, Operation, Region, Value
from ..ir.types import I32, Buf, Constant, Scalar, Tile, Type, element, shape
from ..machine.ops import MACHINE

Index = Value | int  # an i32 of a lane, or a constant
_Rule = Callable[["Emitter", Operation, Value, tuple[Index, ...]], Value]
_PURE = frozenset(name for name, one in MACHINE.items() if not one.effects and one.results == 1 and name != "alloc")


class Scope:
    """A block that is being filled, and what is known in it. ``core``: it runs once, not in lanes."""

    def __init__(self, block: Block, core: bool) -> None:
        self.block, self.core = block, core
        self.known: dict[Any, Value] = {}


class Emitter:
    """``scalars``: the machine's values of the tile IR's scalars; ``buffers``: where the tiles are that have been materialised."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.levels: dict[Value, int] = {}
        self.scalars: dict[Value, Value] = {}
        self.buffers: dict[Value, Value] = {}
        self.location = UNKNOWN

    # blocks

    @contextlib.contextmanager
    def scope(self, block: Block, core: bool) -> Iterator[Block]:
        """Fills a block: its arguments are known from here on."""
        self.levels.update(dict.fromkeys(block.arguments, len(self.scopes)))
        self.scopes.append(Scope(block, core))
        try:
            yield block
        finally:
            self.scopes.pop()

    @property
    def floor(self) -> int:
        """The level of the innermost block of the core: what reads memory stays there."""
        return max(level for level, scope in enumerate(self.scopes) if scope.core)

    def body(self, arguments: Sequence[Type], fill: Callable[[Block], Sequence[Value]]) -> Region:
        """A region of lanes: ``fill`` is given its block, and gives what it yields."""
        block = Block(arguments)
        with self.scope(block, core=False):
            self.append(Operation("yield", fill(block), location=self.location))
        return Region([block])

    def append(self, op: Operation) -> Operation:
        """Adds an operation to the innermost block."""
        self.levels.update(dict.fromkeys(op.results, len(self.scopes) - 1))
        return self.scopes[-1].block.append(op)

    def add(self, name: str, operands: Sequence[Value], type: Type, **more: Any) -> Value:
        """Adds an operation with one result; one without effects goes as far out as its operands allow, once."""
        segments = more.pop("segments", None)
        level = max((self.levels[value] for value in operands), default=0)
        if name not in _PURE:
            level = max(level, self.floor)
        scope = self.scopes[level]
        key = (name, tuple(operands), type, tuple(sorted(more.items())))
        if key not in scope.known or name not in _PURE:
            op = Operation(name, operands, [type], more, location=self.location, segments=segments)
            scope.known[key] = scope.block.append(op).result
            self.levels[op.result] = level
        return scope.known[key]

    def constant(self, number: int, type: Scalar = I32) -> Value:
        """A constant's value."""
        return self.add("const", (), type, value=Constant(type, (number & (1 << type.width) - 1,)))

    def loop(self, dims: tuple[int, ...], fill: Callable[[tuple[Value, ...]], None], **attributes: Any) -> Operation:
        """A loop over lanes; ``fill`` is given its indices."""

        def body(block: Block) -> Sequence[Value]:
            fill(tuple(block.arguments))
            return ()

        region = self.body([I32] * len(dims), body)
        vec = len(dims) - 1 if dims and not serial(region) else -1
        known = {"dims": list(dims), "vec": vec} | attributes
        return self.append(Operation("loop", attributes=known, regions=[region], location=self.location))

    # elements

    def index(self, index: Index) -> Value:
        """An index as a value."""
        return self.constant(index) if isinstance(index, int) else index

    def compute(self, opcode: str, a: Value, b: Value) -> Value:
        """An elementwise operation of two values."""
        return self.add("elementwise", (a, b), a.type, opcode=opcode)

    def read(self, buf: Value, indices: Sequence[Index]) -> Value:
        """An element of a buffer."""
        return self.add("read", (buf, *map(self.index, indices)), element(buf.type))

    def write(self, buf: Value, value: Value, indices: Sequence[Index]) -> None:
        """Writes an element of a buffer."""
        self.append(Operation("write", (buf, value, *map(self.index, indices)), location=self.location))

    def at(self, value: Value, indices: tuple[Index, ...] = ()) -> Value:
        """The element of a tile at some indices, or a scalar."""
        if not isinstance(value.type, Tile):
            return self.scalars[value]
        for scope in reversed(self.scopes):
            if (value, indices) in scope.known:
                return scope.known[value, indices]
        outer, op = self.location, value.owner
        if value in self.buffers:
            found = self.read(self.buffers[value], indices)
        else:
            assert isinstance(op, Operation)
            self.location = op.location
            found = ELEMENTS[op.name](self, op, value, indices)
        self.location = outer
        self.scopes[self.levels[found]].known[value, indices] = found
        return found

    def inline(self, block: Block, arguments: Sequence[Value]) -> list[Value]:
        """A region of scalars, copied here: what its terminator gives."""
        self.scalars.update(zip(block.arguments, arguments))
        for op in block.operations[:-1]:
            self.clone(op)
        return [self.scalars[value] for value in block.terminator.operands]

    def clone(self, op: Operation) -> None:
        """An operation on scalars, with its regions, at the end of the innermost block."""
        regions = []
        for region in op.regions:
            block = Block([value.type for value in region.block.arguments])
            with self.scope(block, core=False):
                given = self.inline(region.block, block.arguments)
                name = region.block.terminator.name
                self.append(Operation(name, given, location=op.location))
            regions.append(Region([block]))
        types = [value.type for value in op.results]
        operands = [self.scalars[value] for value in op.operands]
        made = Operation(op.name, operands, types, op.attributes, regions, op.location, op.segments)
        self.scalars.update(zip(op.results, self.append(made).results))


def serial(region: Region) -> bool:
    """Whether a body has control flow or calls, so that its lanes run one by one."""
    return any(op.name in ("if", "for", "while", "call") for outer in region.block.operations for op in outer.walk())


def _const(em: Emitter, op: Operation, value: Value, at: tuple[Index, ...]) -> Value:
    constant, elem = op.attributes["value"], element(value.type)
    if len(constant.bits) == 1:
        return em.add("const", (), elem, value=Constant(elem, constant.bits))
    data = em.add("data", (), Buf(shape(value.type), elem, "const"), value=constant)  # type: ignore[arg-type]
    return em.read(data, at)


def _iota(em: Emitter, op: Operation, value: Value, at: tuple[Index, ...]) -> Value:
    start = op.attributes.get("start", 0)
    if isinstance(at[0], int):
        return em.constant(at[0] + start)
    return em.compute("addi", at[0], em.constant(start)) if start else at[0]


def _broadcast(em: Emitter, op: Operation, value: Value, at: tuple[Index, ...]) -> Value:
    source = op.operands[0]
    return em.at(source, tuple(0 if size == 1 else index for index, size in zip(at, shape(source.type))))


def _expand(em: Emitter, op: Operation, value: Value, at: tuple[Index, ...]) -> Value:
    axis = op.attributes["axis"]
    return em.at(op.operands[0], at[:axis] + at[axis + 1 :])


def _trans(em: Emitter, op: Operation, value: Value, at: tuple[Index, ...]) -> Value:
    source: dict[int, Index] = dict(zip(op.attributes["order"], at))
    return em.at(op.operands[0], tuple(source[axis] for axis in range(len(at))))


def unit_reshape(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    """Whether two shapes differ in dimensions of size 1 only."""
    return [size for size in old if size != 1] == [size for size in new if size != 1]


def _reshape(em: Emitter, op: Operation, value: Value, at: tuple[Index, ...]) -> Value:
    source = op.operands[0]
    rest = iter(index for index, size in zip(at, shape(value.type)) if size != 1)
    return em.at(source, tuple(0 if size == 1 else next(rest) for size in shape(source.type)))


def _split(em: Emitter, op: Operation, value: Value, at: tuple[Index, ...]) -> Value:
    return em.at(op.operands[0], (*at, op.results.index(value)))


def _gather(em: Emitter, op: Operation, value: Value, at: tuple[Index, ...]) -> Value:
    """The source is a buffer."""
    source, indices = op.operands
    picked = em.at(indices, at)
    width = picked.type.width  # type: ignore[union-attr]
    if width != 32:
        picked = em.add("cast", (picked,), I32, kind="extsi" if width < 32 else "trunci")
    axis = op.attributes["axis"]
    return em.read(em.buffers[source], (*at[:axis], picked, *at[axis + 1 :]))


def _same(em: Emitter, op: Operation, value: Value, at: tuple[Index, ...]) -> Value:
    operands = [em.at(operand, at) for operand in op.operands]
    return em.add(op.name, operands, element(value.type), segments=op.segments, **op.attributes)


# What a tile's element is, for operators whose result need not be a buffer.
ELEMENTS: dict[str, _Rule] = {
    "const": _const,
    "iota": _iota,
    "splat": lambda em, op, value, at: em.at(op.operands[0]),
    "broadcast": _broadcast,
    "expand": _expand,
    "trans": _trans,
    "reshape": _reshape,
    "split": _split,
    "gather": _gather,
    **dict.fromkeys(("elementwise", "cast", "bitcast", "select", "cmp", "extern_math", "load", "poison"), _same),
}
