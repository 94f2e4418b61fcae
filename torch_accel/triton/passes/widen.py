"""Small floats that only products read are widened where they are written to SRAM, once, and not in each block of a product."""

from __future__ import annotations

import functools
from dataclasses import replace

from ..ir.core import Operation, Value
from ..ir.types import F32, Buf, Scalar
from .buffers import SRAM


def widen(module: Operation, limit: int = SRAM) -> Operation:
    """Makes float32 buffers of those of smaller floats that loops fill and only `mma` reads, where SRAM is large enough for all."""
    for function in module.regions[0].block.operations:
        known = list(function.walk())
        users: dict[Value, list[Operation]] = {}
        for op in known:
            for value in op.operands:
                users.setdefault(value, []).append(op)
        buffers = [op.result for op in known if op.name == "alloc"]
        total = sum(_type(value).bytes for value in buffers)
        for value in buffers:
            type = _type(value)
            wide = replace(type, elem=F32)
            more = wide.bytes - type.bytes
            if total + more <= limit and _small(type) and all(_fits(op, value) for op in users.get(value, [])):
                total += more
                value.type = wide
                for op in users[value]:
                    if op.name == "write":
                        _convert(op)
    return module


def _type(value: Value) -> Buf:
    assert isinstance(value.type, Buf)
    return value.type


def _small(type: Buf) -> bool:
    return isinstance(type.elem, Scalar) and type.elem.is_float and type.elem.width < 32


def _fits(op: Operation, value: Value) -> bool:
    """Whether a use is the same with wider elements."""
    if op.name == "mma":
        acc = op.operands[0].type
        return value is not op.operands[0] and isinstance(acc, Buf) and acc.elem == F32
    return op.name in ("write", "free")


def _convert(write: Operation) -> None:
    """Widens what is written, exactly."""
    value, block = write.operands[1], write.parent
    assert block is not None
    cast = Operation("cast", (value,), [F32], {"kind": "float"}, location=write.location)
    cast.parent = block
    block.operations.insert(block.operations.index(write), cast)
    write.operands[1] = cast.result


def within(limit: int) -> functools.partial[Operation]:
    """The pass, for a core's SRAM of ``limit`` bytes."""
    return functools.partial(widen, limit=limit)
