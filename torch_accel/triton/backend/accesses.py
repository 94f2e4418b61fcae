"""Which pointer arguments a kernel reads and writes through: the access list of its launches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..ir.core import Operation, Value
from ..ir.ops import groups
from ..ir.types import Ptr, View, element

READ, WRITE = 1, 2  # accelAccessRead, accelAccessWrite

_TOUCHES = {"load": READ, "store": WRITE, "atomic_rmw": READ | WRITE, "atomic_cas": READ | WRITE}


def of(module: Operation, name: str) -> list[int]:
    """READ | WRITE of each argument of function ``name`` of the tile IR; 0 for numbers and for pointers that are never followed.

    Pointers are followed through tiles, views, branches and loops. What a kernel reaches through pointers that it loads, or makes of
    integers, belongs to no argument.
    """
    function = next(op for op in module.walk() if op.name == "func" and op.attributes["name"] == name)
    origins = _Origins()
    operations = [op for op in function.walk() if op is not function]
    for operation in operations:
        for values in _same(operation):
            origins.join([value for value in values if _points(value)])
    modes: dict[Value, int] = {}
    for operation in operations:
        for value, mode in _touched(operation):
            modes[origins.of(value)] = modes.get(origins.of(value), 0) | mode
    return [modes.get(origins.of(argument), 0) for argument in function.regions[0].blocks[0].arguments]


class _Origins:
    """Sets of values that may point into the same arguments, each with a value that stands for it."""

    def __init__(self) -> None:
        self._next: dict[Value, Value] = {}

    def of(self, value: Value) -> Value:
        while value in self._next:
            value = self._next[value]
        return value

    def join(self, values: Sequence[Value]) -> None:
        for value in values[1:]:
            one, two = self.of(values[0]), self.of(value)
            if one is not two:
                self._next[one] = two


def _points(value: Value) -> bool:
    return isinstance(value.type, View) or isinstance(element(value.type), Ptr)


def _touched(operation: Operation) -> Iterator[tuple[Value, int]]:
    if operation.name in _TOUCHES:
        yield groups(operation)["address"][0], _TOUCHES[operation.name]
    if operation.name == "call":
        for value in filter(_points, operation.operands):
            yield value, READ | WRITE


def _same(operation: Operation) -> Iterator[Iterable[Value]]:
    """Lists of values of which the pointers among them are one another's copies, moved by an offset."""
    ends = [region.blocks[-1].terminator for region in operation.regions]
    if operation.name == "for":
        first = operation.regions[0].block.arguments[1:]
        yield from zip(groups(operation)["inits"], first, ends[0].operands, operation.results)
    elif operation.name == "while":
        before, after = (region.block.arguments for region in operation.regions)
        yield from zip(groups(operation)["inits"], before, ends[1].operands)
        yield from zip(groups(ends[0])["args"], after, operation.results)
    elif operation.name == "if":
        for end in ends:
            yield from zip(operation.results, end.operands)
    elif operation.name not in _TOUCHES and operation.name != "call":
        yield [*operation.operands, *operation.results]
