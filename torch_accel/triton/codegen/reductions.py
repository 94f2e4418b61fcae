"""Reductions in their fixed order: slots that are lanes of vectors, or lie in memory."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.core import Operation
from ..machine.ops import attribute
from .formats import base
from .values import Code, Lane


def combine(code: Code, op: Operation, so_far: Sequence[str], more: Sequence[str]) -> list[str]:
    """Two sets of elements by the second region."""
    arguments = [Lane(text, bool(code.width)) for text in (*so_far, *more)]
    return code.results(op.regions[1].block, arguments)


def types_of(op: Operation) -> list[str]:
    """The LLVM types of the elements that a reduction or scan has."""
    return [base(value.type) for value in op.regions[0].block.terminator.operands]


def fold_in(code: Code, op: Operation, first: str, places: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Sets of elements to their places: the first ones as they are, later ones combined with what is there. ``first`` is an i1."""
    function = code.function
    types = [code.lanes().type(name) for name in types_of(op)] * len(rows)

    def keep(values: Sequence[str]) -> None:
        for type, value, place in zip(types, values, places):
            function.do(f"store {type} {value}, ptr {place}")

    def add() -> None:
        old = loaded(code, types, places)
        count = len(rows[0])
        keep(
            [text for at, row in enumerate(rows) for text in combine(code, op, old[at * count : (at + 1) * count], row)]
        )

    whole = [text for row in rows for text in row]
    if first == "true":
        keep(whole)
    else:
        function.branch(first, lambda: keep(whole), add)


def loaded(code: Code, types: Sequence[str], places: Sequence[str]) -> list[str]:
    """What lies at some places."""
    return [code.function.op(f"load {type}, ptr {place}") for type, place in zip(types, places)]


def vreduce(code: Code, op: Operation) -> None:
    """Slots are lanes of vectors where that is asked for and the counts allow it, else they lie in memory."""
    count, lanes, accumulators = (attribute(op, name) for name in ("count", "lanes", "accumulators"))
    slots = min(count, lanes * accumulators)
    if by_vectors(op) and not code.width:
        results = _halved(code, op, vectors(code, op))
    else:
        results = _by_slots(code, op, count, slots)
    code.values.update(zip(op.results, results))


def by_vectors(op: Operation) -> int:
    """The lanes of the vectors whose lanes are slots; 0 if the slots lie in memory."""
    count, lanes, accumulators = (attribute(op, name) for name in ("count", "lanes", "accumulators"))
    slots = min(count, lanes * accumulators)
    halves = slots & (slots - 1) == 0 and count % slots == 0  # whole vectors, down to the last pair
    width = int(min(lanes, slots))
    return width if attribute(op, "vector") and width > 1 and halves else 0


def vectors(code: Code, op: Operation) -> list[str]:
    """A vector for each element, which holds the last slots: its lanes are what is left to combine."""
    count, lanes, accumulators = (attribute(op, name) for name in ("count", "lanes", "accumulators"))
    function, names, width = code.function, types_of(op), by_vectors(op)
    number = min(count, lanes * accumulators) // width
    with code.vectors(width):
        types = [code.lanes().type(name) for name in names]
        places = [[function.alloca(type) for type in types] for _ in range(number)]
        step = width * number
        flat = [place for here in places for place in here]
        with function.loop("0", str(count), str(step)) as start:
            elements: list[list[str]] = []
            for at in range(number):
                first = function.op(f"add i64 {start}, {at * width}") if at else start
                elements.append(code.results(op.regions[0].block, [code.index(first, True)]))
            one = function.op(f"icmp eq i64 {start}, 0") if count > step else "true"
            fold_in(code, op, one, flat, elements)
        rows = [loaded(code, types, here) for here in places]
        while len(rows) > 1:
            half = (len(rows) + 1) // 2
            rest = rows[half:]
            rows = [*(combine(code, op, a, b) for a, b in zip(rows, rest)), *rows[len(rest) : half]]
    return rows[0]


def _halved(code: Code, op: Operation, values: list[str]) -> list[Lane]:
    """The lanes of vectors combined, the upper half into the lower one until one is left."""
    names, width = types_of(op), by_vectors(op)
    while width > 1:
        parts = [_halves(code, name, width, value) for name, value in zip(names, values)]
        width //= 2
        with code.vectors(width):
            values = combine(code, op, [low for low, _ in parts], [high for _, high in parts])
    return [Lane(value) for value in values]


def _halves(code: Code, name: str, width: int, value: str) -> tuple[str, str]:
    function, type = code.function, f"<{width} x {name}>"
    if width == 2:
        return tuple(function.op(f"extractelement {type} {value}, i64 {lane}") for lane in (0, 1))  # type: ignore[return-value]
    halves = []
    for start in (0, width // 2):
        order = ", ".join(f"i32 {lane}" for lane in range(start, start + width // 2))
        halves.append(function.op(f"shufflevector {type} {value}, {type} poison, <{width // 2} x i32> <{order}>"))
    return halves[0], halves[1]


def _by_slots(code: Code, op: Operation, count: int, slots: int) -> list[Lane]:
    function = code.function
    types = [code.lanes().type(name) for name in types_of(op)]
    arrays = [function.alloca(f"[{slots} x {type}]") for type in types]

    def at(index: str) -> list[str]:
        return [function.op(f"getelementptr {type}, ptr {array}, i64 {index}") for type, array in zip(types, arrays)]

    with function.loop("0", str(count)) as index:
        elements = code.results(op.regions[0].block, [code.index(index, False)])
        if count == slots:
            fold_in(code, op, "true", at(index), [elements])
        else:
            first = function.op(f"icmp slt i64 {index}, {slots}")
            fold_in(code, op, first, at(function.op(f"urem i64 {index}, {slots}")), [elements])
    left = slots
    while left > 1:
        half = (left + 1) // 2
        with function.loop("0", str(left - half)) as index:
            low, high = at(index), at(function.op(f"add i64 {index}, {half}"))
            values = combine(code, op, loaded(code, types, low), loaded(code, types, high))
            for type, value, place in zip(types, values, low):
                function.do(f"store {type} {value}, ptr {place}")
        left = half
    return [Lane(value, bool(code.width)) for value in loaded(code, types, arrays)]
