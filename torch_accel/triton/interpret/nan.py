"""Where a NaN that a kernel stores was made. NaNs that were loaded, or written into the kernel as such, are no fault of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..ir import floats
from ..ir.core import Block, Operation, Value
from ..ir.types import Scalar, Tile, element
from .memory import Array, MemoryFault

if TYPE_CHECKING:
    from .engine import Engine

_GIVEN = frozenset({"load", "const", "bitcast", "poison", "atomic_rmw", "atomic_cas", "call"})


def watch(engine: Engine, op: Operation, operands: list[Array]) -> None:
    """Before a store of the tile IR: raises MemoryFault, with the place where it was made, for a NaN in a lane that is stored."""
    if op.name not in ("store", "atomic_rmw"):
        return
    lanes = np.asarray(operands[2] if len(operands) > 2 else True)
    if not _nans(op.operands[1], operands[1], lanes).any():
        return
    made = _made(engine, op.operands[1], lanes, set())
    if made is not None:
        name = engine.memory.name_of(operands[0], lanes)
        what = made.attributes.get("opcode", made.name)
        raise MemoryFault(
            f"NaN: {what} makes one of numbers here, and it is stored in '{name}' ({op.location})",
            "nan",
            name,
            made.location,
        )


def _nans(value: Value, array: Array, lanes: Array) -> Array:
    elem = element(value.type)
    if not (isinstance(elem, Scalar) and elem.is_float):
        return np.zeros((), np.bool_)
    found = np.isnan(floats.decode(elem, array))
    return found & lanes if lanes.shape in ((), found.shape) else found


def _made(engine: Engine, value: Value, lanes: Array, seen: set[Value]) -> Operation | None:
    """The operation that made a NaN of this value of operands without one; None if it came from outside."""
    if value in seen:
        return None
    seen.add(value)
    inner = list(_sources(value))
    if not isinstance(value.owner, Operation) or inner:
        followed = inner
    elif value.owner.name in _GIVEN:
        return None
    else:
        followed = value.owner.operands
    # Lanes that a mask hides stay hidden as long as shapes stay the same.
    same = isinstance(value.type, Tile) and all(
        v.type.shape == value.type.shape for v in followed if isinstance(v.type, Tile)
    )
    lanes = lanes if same else np.asarray(True)
    guilty = [v for v in followed if v in engine.values and _nans(v, engine.values[v], lanes).any()]
    for one in guilty:
        if (found := _made(engine, one, lanes, seen)) is not None:
            return found
    return None if guilty or inner or not isinstance(value.owner, Operation) else value.owner


def _sources(value: Value) -> Iterator[Value]:
    """Where the value of a loop or a branch comes from: what its regions yield, and what it began with."""
    if isinstance(value.owner, Block):
        op = value.owner.parent.parent if value.owner.parent else None
        at = value.owner.arguments.index(value)
        if op is not None and op.name == "for" and at > 0:
            yield from (op.regions[0].block.terminator.operands[at - 1], op.operands[at + 2])
        elif op is not None and op.name == "while":
            first, second = (region.block for region in op.regions)
            if value.owner is first:
                yield from (second.terminator.operands[at], op.operands[at])
            else:
                yield first.terminator.operands[at + 1]
    elif value.owner.name in ("for", "if", "while"):
        op, at = value.owner, value.owner.results.index(value)
        if op.name == "while":
            yield op.regions[0].block.terminator.operands[at + 1]
        else:
            yield from (region.block.terminator.operands[at] for region in op.regions)
        if op.name == "for":
            yield op.operands[at + 3]
