"""Branches to nested `if`s. Triton makes branches only for an early `return`, so that they have no cycles.

A conditional branch becomes an `if`. Where both its ways meet again, the `if` gives the arguments of the block they meet at, and
the function goes on there; where a way returns instead, each way goes on to its own end inside the `if`, which gives what
the function returns. A block that both of these ways reach is then written twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .core import Block, IRError, Operation, Region
from .types import Type

if TYPE_CHECKING:
    from .lower_ttir import Lowering

LIMIT = 4096  # operations that may come of one function's branches


def structure(low: Lowering, body: Region, returns: list[Type]) -> None:
    """Lowers a function's blocks into ``low.block``, which is entered already, with a `return` at the end."""
    _Walk(low, body, returns).run(body.blocks[0], None)


class _Walk:
    def __init__(self, low: Lowering, body: Region, returns: list[Type]) -> None:
        self.low, self.returns = low, returns
        self.meets = _post_dominators(body)
        self.depth = 0
        self.written = 0

    def run(self, block: Block, stop: Block | None) -> None:
        """Lowers the way from ``block`` up to, and without, ``stop``; None is the function's end."""
        while block is not stop:
            *operations, end = block.operations
            self.written += len(operations)
            if self.written > LIMIT and self.depth:
                raise IRError(f"early returns nest too deep: they make more than {LIMIT} operations", end.location)
            for operation in operations:
                self.low.operation(operation)
            if end.name == "cf.br":
                block = self.jump(block, end)
            elif end.name == "cf.cond_br":
                meet = self.meets[block]
                self.branch(end, meet, stop)
                if meet is None or meet is stop:
                    return
                block = meet
            else:
                assert end.name == "tt.return", end.name
                name = "yield" if self.depth else "return"
                operands = [self.low.values[value] for value in end.operands]
                self.low.block.append(Operation(name, operands, location=end.location))
                return
        if self.depth:
            operands = [self.low.values[value] for value in block.arguments] if block else []
            self.low.block.append(Operation("yield", operands))

    def jump(self, source: Block, end: Operation) -> Block:
        """The block of a plain branch, whose arguments take the branch's operands."""
        (target,) = end.successors
        for argument, value in zip(target.arguments, [self.low.values[value] for value in end.operands]):
            self.low.values[argument] = value
        return target

    def branch(self, end: Operation, meet: Block | None, stop: Block | None) -> None:
        """An `if` for a conditional branch; the arguments of ``meet`` become its results."""
        low, outer = self.low, self.low.block
        # Ways that end with the function give what it returns.
        results = [value.type for value in meet.arguments] if meet else self.returns
        regions = []
        counts = end.segments or (1, 0, 0)
        first = 1 + counts[1]
        slices = (end.operands[1:first], end.operands[first:])
        self.depth += 1
        for target, operands in zip(end.successors, slices):
            low.block = Block()
            for argument, value in zip(target.arguments, [low.values[value] for value in operands]):
                low.values[argument] = value
            self.run(target, meet)
            regions.append(Region([low.block]))
        self.depth -= 1
        low.block = outer
        made = outer.append(
            Operation("if", [low.values[end.operands[0]]], results, regions=regions, location=end.location)
        )
        if meet:
            for argument, value in zip(meet.arguments, made.results):
                value.name = argument.name
                low.values[argument] = value
            if meet is stop and self.depth:
                outer.append(Operation("yield", made.results))
        else:
            outer.append(Operation("yield" if self.depth else "return", made.results, location=end.location))


def _post_dominators(body: Region) -> dict[Block, Block | None]:
    """For each block the nearest block on all ways from it to the function's end; None where they meet nowhere before."""
    order: list[Block] = []
    state: dict[Block, str] = {}

    def visit(block: Block) -> None:
        state[block] = "open"
        for successor in block.terminator.successors:
            if state.get(successor) == "open":
                raise IRError("a branch goes back; loops must be 'for' or 'while'", block.terminator.location)
            if successor not in state:
                visit(successor)
        state[block] = "done"
        order.append(block)

    visit(body.blocks[0])
    after: dict[Block, list[Block]] = {}  # from the nearest to the last one
    for block in order:
        successors = block.terminator.successors
        chains = [[successor, *after[successor]] for successor in successors]
        common = [b for b in chains[0] if all(b in chain for chain in chains[1:])] if chains else []
        after[block] = common
    return {block: chain[0] if chain else None for block, chain in after.items()}
