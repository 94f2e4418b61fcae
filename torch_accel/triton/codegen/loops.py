"""Loops over lanes: nests, and scans."""

from __future__ import annotations

import contextlib

from ..ir.core import Operation
from ..machine.ops import attribute
from . import rows, transpose
from .reductions import fold_in, loaded, types_of
from .values import Code, Lane

WIDTH = 16  # lanes of a vector, on every instruction set: the order of reductions is made of it


def width_of(count: int) -> int:
    """Lanes that run together in a dimension: the largest power of two in it, up to WIDTH."""
    return min(WIDTH, count & -count)


def loop(code: Code, op: Operation) -> None:
    """Iterations in row-major order, neighbours along ``vec`` together."""
    dims, vec = attribute(op, "dims"), attribute(op, "vec")
    if code.width:  # the loop around is vectorised
        vec = -1
    elif vec < 0 and (reduction := rows.reduction(op)):
        rows.loop(code, op, reduction)
        return
    width = width_of(dims[vec]) if vec >= 0 else 1
    across, turned = transpose.writes(op, vec, width)
    steps = {axis: width for axis in (vec, across) if axis >= 0}
    with contextlib.ExitStack() as stack:
        firsts = [
            stack.enter_context(code.function.loop("0", str(size), str(steps.get(axis, 1))))
            for axis, size in enumerate(dims)
        ]
        stack.enter_context(code.vectors(width))
        block = op.regions[0].block
        with transpose.collected(code, op, turned, firsts) if turned else contextlib.nullcontext() as row:
            if row is not None:
                firsts = [
                    code.function.op(f"add i64 {first}, {row}") if axis == across else first
                    for axis, first in enumerate(firsts)
                ]
            code.block(block, [code.index(first, axis == vec) for axis, first in enumerate(firsts)])


def vscan(code: Code, op: Operation) -> None:
    """One element after the other; lanes are those of the loop around."""
    function, count = code.function, attribute(op, "count")
    types = [code.lanes().type(name) for name in types_of(op)]
    places = [function.alloca(type) for type in types]
    with function.loop("0", str(count)) as step:
        at = function.op(f"sub i64 {count - 1}, {step}") if attribute(op, "reverse") else step
        elements = code.results(op.regions[0].block, [code.index(at, False)])
        fold_in(code, op, function.op(f"icmp eq i64 {step}, 0"), places, [elements])
        running = [Lane(value, bool(code.width)) for value in loaded(code, types, places)]
        code.block(op.regions[2].block, [code.index(at, False), *running])
