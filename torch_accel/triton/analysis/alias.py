"""Which kernel arguments an address may come from. Two arguments may alias, unless the attribute ``noalias`` of one says otherwise."""

from __future__ import annotations

from ..ir.core import Operation, Value
from ..ir.ops import attribute
from ..ir.types import Ptr, element

# Operations whose result points where their first operand does.
_SAME = ("elementwise", "splat", "broadcast", "expand", "reshape", "trans", "bitcast")
ANY = frozenset({-1})


class Roots:
    """``of(address)``: numbers of arguments of a `func`; ``ANY`` if it is not known. ``noalias`` are arguments that share no memory."""

    def __init__(self, function: Operation) -> None:
        self.arguments = function.regions[0].block.arguments
        known = attribute(function, "arguments")
        self.noalias = {number for number, one in enumerate(known) if one.get("noalias")}
        self.known: dict[Value, frozenset[int]] = {}

    def of(self, value: Value) -> frozenset[int]:
        """The arguments that a pointer may be derived from."""
        if value not in self.known:
            self.known[value] = ANY  # of a value that depends on itself
            self.known[value] = self._find(value)
        return self.known[value]

    def _find(self, value: Value) -> frozenset[int]:
        if value in self.arguments:
            return frozenset({self.arguments.index(value)})
        op = value.owner
        if not isinstance(op, Operation) or not op.operands or not isinstance(element(op.operands[0].type), Ptr):
            if isinstance(op, Operation) and op.name == "select":
                return self.of(op.operands[1]) | self.of(op.operands[2])
            return ANY
        return self.of(op.operands[0]) if op.name in _SAME else ANY

    def may_alias(self, a: Value, b: Value) -> bool:
        """Whether two addresses may point into the same memory."""
        one, other = self.of(a), self.of(b)
        if ANY & (one | other) or one & other:
            return True
        return not all(x in self.noalias or y in self.noalias for x in one for y in other)
