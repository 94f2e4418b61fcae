"""Branches to nested `if`s. Triton makes branches only for an early `return`, so that they have no cycles.

A conditional branch becomes an `if` whose ways end at the next block that both of them reach. A way that leaves for a block
further out instead, such as the function's end, says so in a number that the `if` gives beside the blocks' arguments, and what
comes next is an `if` over that number. So every block is lowered once, but for one that is not the first where two ways meet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .core import Block, IRError, Operation, Region, Value
from .types import I1, I32, Constant, Type

if TYPE_CHECKING:
    from .lower_ttir import Lowering

LIMIT = 65536  # operations that may come of one function's blocks
END = Block()  # where a function's returns lead; its arguments are what the function returns


def structure(low: Lowering, body: Region, returns: list[Type], end: str = "return") -> None:
    """Lowers a function's blocks into ``low.block``, which is entered already, with a `return`, or another ``end``."""
    walk = _Walk(low, _order(body), returns)
    _, found = walk.run(body.blocks[0], [END])
    low.block.append(Operation(end, found[END], location=walk.place))


Found = dict[Block, list[Value]]  # arguments for each exit that may be reached
_Way = Callable[[], tuple[Value | int, Found]]


class _Walk:
    def __init__(self, low: Lowering, order: list[Block], returns: list[Type]) -> None:
        self.low, self.returns = low, returns
        self.number = {block: index for index, block in enumerate([*order, END])}
        self.place = order[0].operations[-1].location
        self.written = 0

    def types(self, block: Block) -> list[Type]:
        return self.returns if block is END else [value.type for value in block.arguments]

    def run(self, block: Block, exits: list[Block]) -> tuple[Value | int, Found]:
        """Lowers the ways from ``block`` to the exits: which of them is reached, and the arguments for each that may be."""
        while True:
            *operations, end = block.operations
            self.written += len(operations)
            if self.written > LIMIT:
                raise IRError(f"early returns make more than {LIMIT} operations", end.location)
            for operation in operations:
                self.low.operation(operation)
            self.place = end.location
            if end.name == "cf.cond_br":
                which, found = self.branch(end, exits)
            else:
                target = end.successors[0] if end.successors else END
                which, found = self.number[target], {target: [self.low.values[value] for value in end.operands]}
            meets = [target for target in found if target not in exits]
            if not meets:
                return which, found
            (block,) = meets
            if len(found) > 1:
                return self.rest(end, block, exits, which, found)
            self.enter(block, found[block])

    def enter(self, block: Block, values: list[Value]) -> None:
        self.low.values.update(zip(block.arguments, values))

    def branch(self, end: Operation, exits: list[Block]) -> tuple[Value | int, Found]:
        """An `if` for a conditional branch, up to where its ways meet or to the exits."""
        counts = end.segments or (1, 0, 0)
        middle = 1 + counts[1]
        given = [[self.low.values[value] for value in part] for part in (end.operands[1:middle], end.operands[middle:])]
        reached = [self.reach(target, exits) for target in end.successors]
        meets = sorted((reached[0] & reached[1]) - set(exits), key=self.number.__getitem__)[:1]
        inner = meets + [one for one in exits if one in reached[0] | reached[1]]

        def way(index: int) -> tuple[Value | int, Found]:
            target = end.successors[index]
            if target in inner:
                return self.number[target], {target: given[index]}
            self.enter(target, given[index])
            return self.run(target, inner)

        return self.choose(end, self.low.values[end.operands[0]], inner, lambda: way(0), lambda: way(1))

    def rest(
        self, end: Operation, block: Block, exits: list[Block], which: Value | int, found: Found
    ) -> tuple[Value | int, Found]:
        """What follows where some ways meet at ``block`` and others have left: an `if` that goes on from there."""
        assert isinstance(which, Value)
        here = self.add(end, "cmp", [which, self.constant(end, self.number[block])], I1, predicate="eq")
        reached = self.reach(block, exits)
        inner = [one for one in exits if one in found or one in reached]

        def on() -> tuple[Value | int, Found]:
            self.enter(block, found[block])
            return self.run(block, inner)

        left = {target: values for target, values in found.items() if target is not block}
        only = next(iter(left))
        return self.choose(end, here, inner, on, lambda: (which if len(left) > 1 else self.number[only], left))

    def choose(self, end: Operation, go: Value, inner: list[Block], yes: _Way, no: _Way) -> tuple[Value | int, Found]:
        """An `if` with two ways to the exits ``inner``; what it gives is which exit, if there are several, and their arguments."""
        outer = self.low.block
        regions = []
        for way in (yes, no):
            self.low.block = Block()
            which, found = way()
            values: list[Value] = []
            if len(inner) > 1:
                values.append(self.constant(end, which) if isinstance(which, int) else which)
            for target in inner:
                values += found.get(target) or [self.add(end, "poison", [], type) for type in self.types(target)]
            self.low.block.append(Operation("yield", values, location=self.place))
            regions.append(Region([self.low.block]))
        self.low.block = outer
        types = [I32] * (len(inner) > 1) + [type for target in inner for type in self.types(target)]
        made = outer.append(Operation("if", [go], types, regions=regions, location=end.location))
        results = iter(made.results)
        number: Value | int = next(results) if len(inner) > 1 else self.number[inner[0]]
        given = {target: [next(results) for _ in self.types(target)] for target in inner}
        for target, values in given.items():
            for argument, value in zip(target.arguments, values):
                value.name = argument.name
        return number, given

    def reach(self, block: Block, exits: list[Block]) -> set[Block]:
        """The blocks on the ways from ``block`` to the exits, with both."""
        seen, queue = set(), [block]
        while queue:
            one = queue.pop()
            if one not in seen:
                seen.add(one)
                if one not in exits:
                    queue += one.terminator.successors or [END]
        return seen

    def add(self, end: Operation, name: str, operands: list[Value], type: Type, **attributes: object) -> Value:
        return self.low.add(end, name, operands, type, **attributes)

    def constant(self, end: Operation, number: int) -> Value:
        return self.add(end, "const", [], I32, value=Constant(I32, (number,)))


def _order(body: Region) -> list[Block]:
    """The blocks that can be reached, each before those that it leads to."""
    order: list[Block] = []
    state: dict[Block, bool] = {}

    def visit(block: Block) -> None:
        state[block] = False
        for successor in block.terminator.successors:
            if state.get(successor) is False:
                raise IRError("a branch goes back; loops must be 'for' or 'while'", block.terminator.location)
            if successor not in state:
                visit(successor)
        state[block] = True
        order.append(block)

    visit(body.blocks[0])
    return order[::-1]
