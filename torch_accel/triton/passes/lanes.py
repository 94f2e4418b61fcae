"""What an element of a tile is, as operations on scalars: emitted where a lane needs it, and once for a nest of loops.

``Emitter`` keeps the blocks that are being filled, from the function's to the innermost body, and puts an operation into the outermost
one where its operands are known: what does not depend on a loop's index is computed before the loop.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..analysis.axis import Affine, Poly, constant
from ..ir.core import UNKNOWN, Block, Operation, Region, Value
from ..ir.types import I32, I64, Buf, Constant, Scalar, Tile, Type, element, shape
from ..machine.ops import MACHINE

if TYPE_CHECKING:
    from .fuse import Plan

Index = Value | int  # an i32 of a lane, or a constant
_Rule = Callable[["Emitter", Operation, Value, tuple[Index, ...]], Value]
_PURE = frozenset(name for name, one in MACHINE.items() if not one.effects and one.results == 1 and name != "alloc")


class Scope:
    """A block that is being filled, and what is known in it. ``core``: it runs once, not in lanes."""

    def __init__(self, block: Block, core: bool) -> None:
        self.block, self.core = block, core
        self.known: dict[Any, Value] = {}


@dataclass(frozen=True)
class Access:
    """An affine access that was emitted: ``load`` is the tile that it gives, None of a store. ``strides`` are by index arguments."""

    load: Value | None
    address: Value
    form: Affine
    offset: Poly
    strides: dict[Value, Poly]


class Emitter:
    """``scalars``: the machine's values of the tile IR's scalars; ``buffers``: where the tiles are that have been materialised.

    ``accesses`` collects what `address` makes affine; None: addresses are computed in each lane.
    """

    accesses: list[Access] | None = None
    slow = False  # whether what is emitted is a nest's version without affine addresses, a loop of single lanes

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.sizes: dict[Value, int] = {}  # of index arguments
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

    def body(
        self, arguments: Sequence[Type], fill: Callable[[Block], Sequence[Value]], dims: tuple[int, ...] = ()
    ) -> Region:
        """A region of lanes: ``fill`` is given its block, and gives what it yields. ``dims``: sizes of its indices."""
        block = Block(arguments)
        self.sizes.update(zip(block.arguments, dims))
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

        region = self.body([I32] * len(dims), body, dims)
        vec = -1 if self.slow else self.vector(region, dims)
        known = {"dims": list(dims), "vec": vec} | attributes
        return self.append(Operation("loop", attributes=known, regions=[region], location=self.location))

    def vector(self, region: Region, dims: tuple[int, ...]) -> int:
        """The dimension for the lanes of vectors: the last one, or one along which memory is read or written without gaps.

        Lanes that write one element do so in order only along the last one.
        """
        if not dims or serial(region):
            return -1
        last, made = len(dims) - 1, self.accesses or ()
        effects = [op for op in region.block.operations if op.name.startswith(("store", "atomic"))]
        stored = [one for one in made if one.load is None and set(one.strides) & set(region.block.arguments)]
        if len(effects) > len(stored) or not all(injective(one.strides, self.sizes) for one in stored):
            return last
        dense = [sum(one.strides.get(index, Poly()).number == 1 for one in made) for index in region.block.arguments]
        return last if dense[last] >= max(dense) else dense.index(max(dense))

    # addresses

    def poly(self, poly: Poly) -> Value:
        """A polynomial's number, an i64."""
        sums = []
        for factors, number in poly.terms:
            parts = [self.wide(factor) for factor in factors]
            parts += [self.constant(number, I64)] if number != 1 or not factors else []
            sums.append(functools.reduce(lambda a, b: self.compute("muli", a, b), parts))
        return functools.reduce(lambda a, b: self.compute("addi", a, b), sums) if sums else self.constant(0, I64)

    def wide(self, value: Value) -> Value:
        """A scalar integer of the tile IR as an i64."""
        if value not in self.scalars:  # a remainder that no operation of the kernel has
            period = self.plan.axes.periods[value]
            rest, by = self.poly(period.offset), self.wide(period.divisor)
            return self.add("elementwise", (rest, by), I64, opcode="remsi")
        made = self.scalars[value]
        return made if made.type == I64 else self.add("cast", (made,), I64, kind="extsi")

    def address(self, tile: Value, at: tuple[Index, ...], load: Value | None) -> Value:
        """The address of an element: affine in the lanes' indices where that is known and wanted."""
        form = self.plan.axes.of(tile) if self.accesses is not None else None
        if form is None or form.base is None:
            return self.at(tile, at)
        offset, strides = form.offset, dict[Value, Poly]()
        for index, stride in zip(at, form.strides):
            if isinstance(index, int):
                offset = offset + stride * constant(index)
            elif stride.terms:
                strides[index] = strides.get(index, Poly()) + stride
        assert self.accesses is not None
        around = {
            index for scope in self.scopes if not scope.core for index in scope.block.arguments if index in self.sizes
        }
        every = {index: strides.get(index, Poly()) for index in at if not isinstance(index, int)}
        if not around.issuperset(every):
            return self.at(tile, at)
        self.accesses.append(Access(load, tile, form, offset, every))
        operands = [self.scalars[form.base], self.poly(offset), *map(self.poly, strides.values()), *strides]
        align = self.plan.align(form.base, offset, element(tile.type))
        more = {"align": align} if align > 1 else {}
        return self.add("access", operands, element(tile.type), segments=(1, 1, len(strides), len(strides)), **more)

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


def injective(strides: dict[Value, Poly], sizes: dict[Value, int]) -> bool:
    """Whether different indices give different elements, as far as numbers show."""
    steps = sorted((abs(poly.number or 0), sizes[index]) for index, poly in strides.items() if sizes[index] > 1)
    reach = 0
    for step, size in steps:
        if step <= reach:
            return False
        reach += step * (size - 1)
    return True


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


def _load(em: Emitter, op: Operation, value: Value, at: tuple[Index, ...]) -> Value:
    """By an affine address where there is one and it is wanted."""
    rest = [em.at(operand, at) for operand in op.operands[1:]]
    return em.add(
        "load",
        [em.address(op.operands[0], at, value), *rest],
        element(value.type),
        segments=op.segments,
        **op.attributes,
    )


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
    **dict.fromkeys(("elementwise", "cast", "bitcast", "select", "cmp", "extern_math", "poison"), _same),
    "load": _load,
}
