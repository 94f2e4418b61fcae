"""Where operations stand, who uses values, and what may write memory between two places."""

from __future__ import annotations

from ..ir.core import Block, Operation, Value
from . import alias

WRITES = ("store", "atomic_rmw", "atomic_cas", "call", "barrier")


class Order:
    """Of a `func`: ``number`` of each operation in order of text (an operation comes before its regions), ``users`` of values."""

    def __init__(self, function: Operation) -> None:
        self.number: dict[Operation, int] = {}
        self.loops: dict[Operation, tuple[Operation, ...]] = {}  # `for` and `while` around, the outermost first
        self.users: dict[Value, list[Operation]] = {}
        self.block: dict[Operation, Block] = {}
        self._walk(function.regions[0].block, ())
        self.writes = [op for op in self.number if op.name in WRITES]

    def _walk(self, block: Block, loops: tuple[Operation, ...]) -> None:
        for op in block.operations:
            self.number[op] = len(self.number)
            self.loops[op], self.block[op] = loops, block
            for value in op.operands:
                self.users.setdefault(value, []).append(op)
            for region in op.regions:
                self._walk(region.block, (*loops, op) if op.name in ("for", "while") else loops)

    def deeper(self, op: Operation, other: Operation) -> list[Operation]:
        """The loops around another operation that are not around ``op``."""
        return [loop for loop in self.loops[other] if loop not in self.loops[op]]

    def between(self, op: Operation, other: Operation) -> list[Operation]:
        """What may write memory after ``op`` and before ``other``, which it dominates; earlier turns of a loop count."""
        around = self.deeper(op, other)
        return [
            write
            for write in self.writes
            if write not in (op, other)
            and (
                self.number[op] < self.number[write] < self.number[other]
                or any(loop in self.loops[write] for loop in around)
            )
        ]

    def clobbers(self, write: Operation, roots: alias.Roots, address: Value) -> bool:
        """Whether a write may change what lies at an address; a call or a barrier may change all."""
        if write.name in ("call", "barrier"):
            return True
        return roots.may_alias(write.operands[0], address)
