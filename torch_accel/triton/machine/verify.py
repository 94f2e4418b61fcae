"""Checks a module of the machine IR: its table, its two levels, what crosses control flow, and the lives of buffers."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir import verify as base
from ..ir.core import Block, Operation, Value
from ..ir.types import Buf, Ptr, Scalar, Token
from ..target import Target
from . import flights
from .ops import BODIES, MACHINE, attribute, groups, indices

# Operators that run once for a program, and those that need lanes.
_DMA = ("window", "indexed", "dma_start", "dma_done", "dma_wait")
_CORE = ("alloc", "free", "data", "recast", "copy", "histogram", "mma", "mma_scaled", "return", "slot", *_DMA)
_MAKES = ("alloc", "data", "recast", "slot", "window", "indexed")
_MEMORY = ("load", "store", "atomic_rmw", "atomic_cas")


def verify(module: Operation, target: Target | None = None) -> None:
    """Raises IRError for the first fault of a module of the machine IR, also for what the target cannot do; the text names operation and line."""
    base.verify(module, MACHINE)
    base.check(module, tuple(_levels(module)))
    base.check(module, tuple(_abilities(module, target)) if target is not None else ())
    base.check(module, tuple(flights.faults(module)))


def _abilities(module: Operation, target: Target, lane: bool = False) -> Iterator[tuple[Operation, str]]:
    """What the target cannot do."""
    for region in module.regions:
        for op in region.block.operations:
            if lane and op.name in _MEMORY and not target.direct_hbm:
                yield op, f"a lane accesses hbm, which {target.name} does by DMA only"
            if op.name == "dma_start" and not 0 <= attribute(op, "queue") < target.queues:
                yield op, f"the queue is {attribute(op, 'queue')}, {target.name} has {target.queues}"
            if op.name in ("mma", "mma_scaled") and target.mma and _product(op) not in target.mma:
                yield op, f"a product of {_product(op)}, {target.name} has {', '.join(map(str, target.mma))}"
            yield from _abilities(op, target, lane or op.name in BODIES)


def _product(op: Operation) -> tuple[int, ...]:
    """M, N and K of a product, behind the sizes of its batches; none for a scaled one."""
    shapes = [value.type.shape for value in op.operands[:2] if isinstance(value.type, Buf)]
    return (*shapes[0], shapes[1][-1]) if op.name == "mma" else ()


def _levels(module: Operation) -> Iterator[tuple[Operation, str]]:
    for function in module.regions[0].block.operations:
        block = function.regions[0].block
        for value in block.arguments:
            if not isinstance(value.type, (Scalar, Ptr, Buf)):
                yield function, f"an argument is {value.type}, expected a scalar, a pointer or a buffer"
        yield from _block(block, [])


def _block(block: Block, bodies: list[Operation]) -> Iterator[tuple[Operation, str]]:
    freed: set[Value] = set()
    made: set[Value] = set()
    for op in block.operations:
        for value in op.results:
            if not isinstance(value.type, (Scalar, Ptr, Token)) and op.name not in _MAKES:
                yield op, f"a result is {value.type}, expected a scalar or a pointer"
        if bodies and op.name in _CORE:
            yield op, "it stands in a loop over lanes"
        if op.name in ("for", "while", "if", "yield", "condition", "return"):
            for value in op.operands:
                if isinstance(value.type, Buf):
                    yield op, f"it carries a buffer, {value.type}"
        if op.name == "access":
            yield from _access(op, bodies)
        used = {value for inner in op.walk() for value in inner.operands}
        if used & freed:
            yield op, "it uses a buffer after its free"
        if op.name == "alloc":
            made.add(op.result)
        elif op.name == "recast" and op.operands[0] in freed:
            yield op, "it uses a buffer after its free"
        elif op.name == "free":
            if op.operands[0] not in made:
                yield op, "the buffer is not of an alloc of this block"
            freed.add(op.operands[0])
            freed |= _recasts(block, op.operands[0])
        for region in op.regions:
            yield from _block(region.block, [*bodies, op] if op.name in BODIES else bodies)
    if made - freed:
        yield block.operations[-1], "a buffer of its block is never freed"


def _recasts(block: Block, buf: Value) -> set[Value]:
    """The recasts and slots of a buffer in its block, and theirs."""
    found = {buf}
    for op in block.operations:
        if op.name in ("recast", "slot") and op.operands[0] in found:
            found.add(op.result)
    return found


def _access(op: Operation, bodies: list[Operation]) -> Iterator[tuple[Operation, str]]:
    named = groups(op)
    known = indices(bodies)
    for value in named["indices"]:
        if value not in known:
            yield op, "an index is no index argument of a body around"
            return
    for value in (*named["base"], *named["offset"], *named["strides"]):
        block = value.owner if isinstance(value.owner, Block) else value.owner.parent
        while block is not None and block.parent is not None:
            if set(named["indices"]) & set(block.arguments):
                yield op, "base, offset or a stride is defined in a body whose index it has"
                return
            at = block.parent.parent
            block = at.parent if at is not None else None
