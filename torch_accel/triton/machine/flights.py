"""Which DMA is under way where: that each token is waited for once on every path, and that nothing touches what a transfer moves before.

A `for` may carry tokens: what one is of in each turn is found from the turn before, where the slots of a buffer alternate with a number that
the loop carries as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..analysis.alias import Roots
from ..ir.core import Block, Operation, Value
from ..ir.types import Buf, Constant, Token
from .ops import BODIES, attribute, groups

Fault = tuple[Operation, str]


@dataclass(frozen=True)
class Region:
    """A buffer, or one of its slots."""

    buf: Value
    slot: Value | None = None


@dataclass(frozen=True)
class Flight:
    """A transfer that may be under way: what it writes and reads in SRAM; the address in HBM (None: any), whether it writes there.

    Transfers with one number ``independent``, not 0, touch no memory of each other.
    """

    writes: tuple[Region, ...]
    reads: tuple[Region, ...]
    base: Value | None
    stores: bool
    independent: int


_Flying = dict[Value, frozenset[Flight]]


def region(buf: Value) -> Region:
    """The buffer that has a buffer's storage, and the slot of it."""
    slot = None
    while isinstance(buf.owner, Operation) and buf.owner.name in ("recast", "slot"):
        if buf.owner.name == "slot":
            slot = buf.owner.operands[1]
        buf = buf.owner.operands[0]
    return Region(buf, slot)


def _number(value: Value) -> int | None:
    op = value.owner
    if isinstance(op, Operation) and op.name == "const" and isinstance(op.attributes["value"], Constant):
        return op.attributes["value"].bits[0]
    return None


def _other(a: Value, b: Value) -> bool:
    """Whether two slots' numbers differ: other constants, or such as a `for` exchanges in each turn."""
    numbers = [_number(a), _number(b)]
    if None not in numbers:
        return numbers[0] != numbers[1]
    if a.owner is not b.owner:
        return False
    block = a.owner.regions[0].block if isinstance(a.owner, Operation) and a.owner.name == "for" else a.owner
    if not isinstance(block, Block) or block.parent is None or block.parent.parent is None:
        return False
    loop = block.parent.parent
    if loop.name != "for":
        return False
    values = loop.results if a in loop.results else block.arguments[1:]
    if a not in values or b not in values:
        return False
    first, second = values.index(a), values.index(b)
    given, inits = block.terminator.operands, [_number(value) for value in loop.operands[3:]]
    known = None not in (inits[first], inits[second]) and inits[first] != inits[second]
    return known and given[first] is block.arguments[1 + second] and given[second] is block.arguments[1 + first]


def _meet(a: Region, b: Region) -> bool:
    if a.buf is not b.buf:
        return False
    return a.slot is None or b.slot is None or not _other(a.slot, b.slot)


def faults(module: Operation) -> Iterator[Fault]:
    """What is wrong with the DMA of each function."""
    for function in module.regions[0].block.operations:
        if any(op.name == "dma_start" for op in function.walk()):
            checker = _Function(function)
            left = checker.block(function.regions[0].block, {})
            yield from checker.found
            if left:
                yield function.regions[0].block.terminator, "a DMA is not waited for"


class _Function:
    def __init__(self, function: Operation) -> None:
        self.roots = Roots(function)
        self.found: list[Fault] = []

    def say(self, op: Operation, message: str) -> None:
        self.found.append((op, message))

    def block(self, block: Block, flying: _Flying) -> _Flying:
        """What is under way at the end of a block; tokens that its terminator passes on are among it."""
        for op in block.operations:
            self.operation(op, flying)
        return flying

    def operation(self, op: Operation, flying: _Flying) -> None:
        if op.name == "dma_start":
            flight = _flight(op)
            self.check(op, flight, flying)
            flying[op.result] = frozenset({flight})
        elif op.name == "dma_done":
            flying[op.result] = frozenset()
        elif op.name == "dma_wait":
            self.take(op, op.operands[0], flying)
        elif op.name == "if":
            self.branches(op, flying)
        elif op.name == "for":
            self.turns(op, flying)
        elif op.name == "while":
            for inner in op.regions:
                self.closed(op, inner.block, flying)
        else:
            self.check(op, _touched(op), flying)

    def take(self, op: Operation, token: Value, flying: _Flying) -> frozenset[Flight]:
        """The transfers of a token that is used up."""
        if token not in flying:
            self.say(op, "a token is used that is not under way here")
        return flying.pop(token, frozenset())

    def check(self, op: Operation, new: Flight, flying: _Flying) -> None:
        """That nothing under way is touched."""
        for flight in frozenset().union(*flying.values()):
            if any(_meet(a, b) for a in flight.writes for b in (*new.writes, *new.reads)):
                self.say(op, "it uses a buffer that a DMA is filling; wait for its token first")
            elif any(_meet(a, b) for a in flight.reads for b in new.writes):
                self.say(op, "it changes a buffer that a DMA is reading; wait for its token first")
            elif self.clash(op, new, flight):
                self.say(op, "it may access memory that a DMA is moving; wait for its token first")

    def clash(self, op: Operation, new: Flight, flight: Flight) -> bool:
        if op.name in ("call", "barrier"):
            return True
        if op.name not in ("load", "store", "atomic_rmw", "atomic_cas", "dma_start"):
            return False
        if not (new.stores or flight.stores) or (new.independent and new.independent == flight.independent):
            return False
        return new.base is None or flight.base is None or self.roots.may_alias(new.base, flight.base)

    def closed(self, op: Operation, block: Block, flying: _Flying) -> None:
        """A block that runs any number of times, and takes and leaves no token."""
        left = self.block(block, dict(flying))
        if left != flying:
            self.say(op, "a DMA is under way in some of its turns only")

    def branches(self, op: Operation, flying: _Flying) -> None:
        """Both ways leave the same under way; their results' tokens are those of either."""
        ways = [self.block(inner.block, dict(flying)) for inner in op.regions]
        for number, value in enumerate(op.results):
            if isinstance(value.type, Token):
                given = [
                    self.take(inner.block.terminator, inner.block.terminator.operands[number], way)
                    for inner, way in zip(op.regions, ways)
                ]
                flying[value] = frozenset().union(*given)
        results = {value: flying.pop(value) for value in op.results if value in flying}
        if ways[0] != ways[1]:
            self.say(op, "a DMA is under way on one of its two ways only")
        flying.clear()
        flying.update(ways[0] | results)

    def turns(self, op: Operation, flying: _Flying) -> None:
        """A `for`: its tokens are those before it, or those of the turn before."""
        block = op.regions[0].block
        inits, arguments, given = op.operands[3:], block.arguments[1:], block.terminator.operands
        carried = [number for number, value in enumerate(inits) if isinstance(value.type, Token)]
        known = {n: _renamed(self.take(op, inits[n], flying), inits, arguments) for n in carried}
        for last in (False, True):
            kept, self.found = self.found, []
            end = self.block(block, dict(flying) | {arguments[n]: known[n] for n in carried})
            more = {n: _renamed(self.take(block.terminator, given[n], end), given, arguments) for n in carried}
            if end != flying:
                self.say(op, "a DMA is under way in some of its turns only")
            self.found = kept + (self.found if last else [])
            if last and any(more[n] - known[n] for n in carried):
                self.say(op, "a token that it carries is of another buffer in each turn")
            known = {n: known[n] | more[n] for n in carried}
        for n in carried:
            flying[op.results[n]] = _renamed(known[n], arguments, op.results)


def _renamed(flights: Iterable[Flight], old: Sequence[Value], new: Sequence[Value]) -> frozenset[Flight]:
    """Flights whose slots' numbers have other names."""
    names = {a: b for a, b in zip(old, new) if not isinstance(a.type, Token)}

    def rename(regions: tuple[Region, ...]) -> tuple[Region, ...]:
        return tuple(Region(one.buf, names.get(one.slot, one.slot) if one.slot else None) for one in regions)

    return frozenset(replace(one, writes=rename(one.writes), reads=rename(one.reads)) for one in flights)


def _flight(op: Operation) -> Flight:
    named = groups(op)
    target, source = op.operands[:2]
    stores = target.type.space == "hbm"  # type: ignore[union-attr]
    far, near = (target, source) if stores else (source, target)
    reads = [region(value) for value in named["mask"]]
    base = None
    if isinstance(far.owner, Operation) and far.owner.name == "indexed":
        reads.append(region(far.owner.operands[0]))
    elif isinstance(far.owner, Operation):
        base = far.owner.operands[0]
    writes = () if stores else (region(near),)
    return Flight(
        writes, (*reads, region(near)) if stores else tuple(reads), base, stores, attribute(op, "independent")
    )


# Operands of operators on whole buffers that they write; they read the others.
_WRITTEN = {"free": 1, "copy": 1, "histogram": 1, "mma": 1, "mma_scaled": 1}


def _touched(op: Operation) -> Flight:
    """What an operation touches, with all inside it; a call may write all of its buffers."""
    reads: list[Region] = []
    writes: list[Region] = []
    for inner in op.walk() if op.name in BODIES else (op,):
        buffers = [value for value in inner.operands if isinstance(value.type, Buf) and value.type.space == "sram"]
        if inner.name == "write":
            writes.append(region(inner.operands[0]))
        elif inner.name == "read":
            reads.append(region(inner.operands[0]))
        elif inner.name == "call":
            writes += map(region, buffers)
        elif inner.name not in ("recast", "slot", "indexed"):
            first = _WRITTEN.get(inner.name, 0)
            writes += map(region, buffers[:first])
            reads += map(region, buffers[first:])
    stores = op.name in ("store", "atomic_rmw", "atomic_cas")
    base = op.operands[0] if op.name in ("load", "store", "atomic_rmw", "atomic_cas") else None
    return Flight(tuple(writes), tuple(reads), base, stores, 0)
