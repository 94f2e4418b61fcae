"""Loops over lanes: nests, reductions in their fixed order, scans."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ..ir.core import Operation
from ..machine.ops import attribute
from .formats import base
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
    width = width_of(dims[vec]) if vec >= 0 else 1
    with contextlib.ExitStack() as stack:
        firsts = [
            stack.enter_context(code.function.loop("0", str(size), str(width if axis == vec else 1)))
            for axis, size in enumerate(dims)
        ]
        if vec >= 0:
            stack.enter_context(code.vectors(width))
        indices = [code.index(first, axis == vec) for axis, first in enumerate(firsts)]
        code.block(op.regions[0].block, indices)


def _combine(code: Code, op: Operation, so_far: Sequence[str], more: Sequence[str]) -> list[str]:
    arguments = [Lane(text, bool(code.width)) for text in (*so_far, *more)]
    return code.results(op.regions[1].block, arguments)


def _types(op: Operation) -> list[str]:
    return [base(value.type) for value in op.regions[0].block.terminator.operands]


def _fold_in(code: Code, op: Operation, first: str, places: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Sets of elements to their places: the first ones as they are, later ones combined with what is there. ``first`` is an i1."""
    function = code.function
    types = [code.lanes().type(name) for name in _types(op)] * len(rows)

    def keep(values: Sequence[str]) -> None:
        for type, value, place in zip(types, values, places):
            function.do(f"store {type} {value}, ptr {place}")

    def add() -> None:
        old = _loaded(code, types, places)
        count = len(rows[0])
        keep(
            [
                text
                for at, row in enumerate(rows)
                for text in _combine(code, op, old[at * count : (at + 1) * count], row)
            ]
        )

    whole = [text for row in rows for text in row]
    if first == "true":
        keep(whole)
    else:
        function.branch(first, lambda: keep(whole), add)


def _loaded(code: Code, types: Sequence[str], places: Sequence[str]) -> list[str]:
    return [code.function.op(f"load {type}, ptr {place}") for type, place in zip(types, places)]


def vreduce(code: Code, op: Operation) -> None:
    """Slots are lanes of vectors where that is asked for and the counts allow it, else they lie in memory."""
    count, lanes, accumulators = (attribute(op, name) for name in ("count", "lanes", "accumulators"))
    slots = min(count, lanes * accumulators)
    width = min(lanes, slots)
    halves = slots & (slots - 1) == 0 and count % slots == 0  # whole vectors, down to the last pair
    if attribute(op, "vector") and not code.width and width > 1 and halves:
        results = _by_vectors(code, op, count, width, slots // width)
    else:
        results = _by_slots(code, op, count, slots)
    code.values.update(zip(op.results, results))


def _by_vectors(code: Code, op: Operation, count: int, width: int, vectors: int) -> list[Lane]:
    function, names = code.function, _types(op)
    with code.vectors(width):
        types = [code.lanes().type(name) for name in names]
        places = [[function.alloca(type) for type in types] for _ in range(vectors)]
        step = width * vectors
        flat = [place for here in places for place in here]
        with function.loop("0", str(count), str(step)) as start:
            elements: list[list[str]] = []
            for number in range(vectors):
                first = function.op(f"add i64 {start}, {number * width}") if number else start
                elements.append(code.results(op.regions[0].block, [code.index(first, True)]))
            one = function.op(f"icmp eq i64 {start}, 0") if count > step else "true"
            _fold_in(code, op, one, flat, elements)
        rows = [_loaded(code, types, here) for here in places]
        while len(rows) > 1:
            half = (len(rows) + 1) // 2
            rest = rows[half:]
            rows = [*(_combine(code, op, a, b) for a, b in zip(rows, rest)), *rows[len(rest) : half]]
    values = rows[0]
    while width > 1:
        parts = [_halves(code, name, width, value) for name, value in zip(names, values)]
        width //= 2
        with code.vectors(width):
            values = _combine(code, op, [low for low, _ in parts], [high for _, high in parts])
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
    types = [code.lanes().type(name) for name in _types(op)]
    arrays = [function.alloca(f"[{slots} x {type}]") for type in types]

    def at(index: str) -> list[str]:
        return [function.op(f"getelementptr {type}, ptr {array}, i64 {index}") for type, array in zip(types, arrays)]

    with function.loop("0", str(count)) as index:
        elements = code.results(op.regions[0].block, [code.index(index, False)])
        if count == slots:
            _fold_in(code, op, "true", at(index), [elements])
        else:
            first = function.op(f"icmp slt i64 {index}, {slots}")
            _fold_in(code, op, first, at(function.op(f"urem i64 {index}, {slots}")), [elements])
    left = slots
    while left > 1:
        half = (left + 1) // 2
        with function.loop("0", str(left - half)) as index:
            low, high = at(index), at(function.op(f"add i64 {index}, {half}"))
            values = _combine(code, op, _loaded(code, types, low), _loaded(code, types, high))
            for type, value, place in zip(types, values, low):
                function.do(f"store {type} {value}, ptr {place}")
        left = half
    return [Lane(value, bool(code.width)) for value in _loaded(code, types, arrays)]


def vscan(code: Code, op: Operation) -> None:
    """One element after the other; lanes are those of the loop around."""
    function, count = code.function, attribute(op, "count")
    types = [code.lanes().type(name) for name in _types(op)]
    places = [function.alloca(type) for type in types]
    with function.loop("0", str(count)) as step:
        at = function.op(f"sub i64 {count - 1}, {step}") if attribute(op, "reverse") else step
        elements = code.results(op.regions[0].block, [code.index(at, False)])
        _fold_in(code, op, function.op(f"icmp eq i64 {step}, 0"), places, [elements])
        running = [Lane(value, bool(code.width)) for value in _loaded(code, types, places)]
        code.block(op.regions[2].block, [code.index(at, False), *running])
