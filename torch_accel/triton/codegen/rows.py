"""A loop that reduces rows: 16 rows leave a vector each, and these are combined together, so that the results are lanes of one vector."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ..ir.core import Operation, Value
from ..machine.ops import BODIES, attribute
from .reductions import by_vectors, combine, loaded, types_of, vectors
from .values import Code, Lane

ROWS = 16  # as many as a vector has lanes
# What may stand in such a loop beside its reduction: done for a row, and for 16 rows at once, it does the same.
_BEFORE = ("const", "data", "elementwise", "cast", "bitcast", "select", "cmp", "access", "read", "load", "poison")
_AFTER = (*_BEFORE, "write", "store", "extern_math")


def reduction(op: Operation) -> Operation | None:
    """The reduction of a loop that is done by 16 rows; None of any other loop."""
    dims, operations = attribute(op, "dims"), op.regions[0].block.operations[:-1]
    found = [one for one in operations if one.regions]
    if not dims or dims[-1] % ROWS or len(found) != 1 or found[0].name != "vreduce" or by_vectors(found[0]) != ROWS:
        return None
    at = operations.index(found[0])
    inside = {one.name for region in found[0].regions for one in region.block.operations}
    plain = all(one.name in _BEFORE for one in operations[:at]) and all(
        one.name in _AFTER for one in operations[at + 1 :]
    )
    return found[0] if plain and not inside & {*BODIES, "store", "if", "for", "while", "call"} else None


def loop(code: Code, op: Operation, reduction: Operation) -> None:
    """The loop, 16 iterations of its last dimension at a time."""
    function, block, dims = code.function, op.regions[0].block, attribute(op, "dims")
    steps = [1] * (len(dims) - 1) + [ROWS]
    names = types_of(reduction)
    kept = [function.alloca(f"[{ROWS} x <{ROWS} x {name}>], align 64") for name in names]
    with contextlib.ExitStack() as stack:
        firsts = [stack.enter_context(function.loop("0", str(size), str(step))) for size, step in zip(dims, steps)]
        with function.loop("0", str(ROWS)) as row:
            here = [*firsts[:-1], function.op(f"add i64 {firsts[-1]}, {row}")]
            code.values.update(zip(block.arguments, (code.index(first, False) for first in here)))
            code.operations(block.operations[: block.operations.index(reduction)])
            for name, place, value in zip(names, kept, vectors(code, reduction)):
                at = function.op(f"getelementptr <{ROWS} x {name}>, ptr {place}, i64 {row}")
                function.do(f"store <{ROWS} x {name}> {value}, ptr {at}")
        stack.enter_context(code.vectors(ROWS))
        rows = [_row(code, names, kept, number) for number in range(ROWS)]
        code.values.update(zip(reduction.results, (Lane(value, True) for value in _combined(code, reduction, rows))))
        last = len(firsts) - 1
        code.values.update(zip(block.arguments, (code.index(first, axis == last) for axis, first in enumerate(firsts))))
        code.operations(_rest(block.operations[:-1], reduction))


def _row(code: Code, names: Sequence[str], kept: Sequence[str], number: int) -> list[str]:
    types = [f"<{ROWS} x {name}>" for name in names]
    places = [code.function.op(f"getelementptr {type}, ptr {place}, i64 {number}") for type, place in zip(types, kept)]
    return loaded(code, types, places)


def _combined(code: Code, reduction: Operation, rows: list[list[str]]) -> list[str]:
    """In each row the upper half of the lanes is combined into the lower one, until one is left: lane i is that of row i."""
    names, half = types_of(reduction), ROWS // 2
    while half:
        low = [lane - half + ROWS if lane & half else lane for lane in range(ROWS)]
        high = [lane + ROWS if lane & half else lane + half for lane in range(ROWS)]
        rows = [
            combine(
                code, reduction, *([_picked(code, *pair, order) for pair in zip(names, a, b)] for order in (low, high))
            )
            for a, b in zip(rows[:half], rows[half:])
        ]
        half //= 2
    return rows[0]


def _picked(code: Code, name: str, a: str, b: str, order: Sequence[int]) -> str:
    type = f"<{ROWS} x {name}>"
    lanes = ", ".join(f"i32 {lane}" for lane in order)
    return code.function.op(f"shufflevector {type} {a}, {type} {b}, <{ROWS} x i32> <{lanes}>")


def _rest(operations: Sequence[Operation], reduction: Operation) -> list[Operation]:
    """What comes behind a reduction, with what it needs of that before."""
    at = list(operations).index(reduction)
    rest, needed = list(operations[at + 1 :]), set[Value]()
    needed.update(value for one in rest for value in one.operands)
    for one in reversed(operations[:at]):
        if needed.intersection(one.results):
            rest.insert(0, one)
            needed.update(one.operands)
    return rest
