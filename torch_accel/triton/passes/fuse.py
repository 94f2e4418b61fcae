"""Which tiles are computed where they are used, and which are buffers that are filled once.

A load may be done later than it stands, or again, only if nothing that may alias writes in between. The store that it flows into
is such a write too: then both must be affine, and ``lower`` adds a test that the two ranges are apart, or the same elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ..analysis.alias import Roots
from ..analysis.axis import Affine, Axes, Poly, divisor, wide
from ..analysis.order import WRITES, Order
from ..ir.core import Operation, Value
from ..ir.ops import attribute
from ..ir.types import Ptr, Scalar, Tile, Type, element, shape
from .lanes import ELEMENTS, unit_reshape

# Operations of a body that are as cheap as reading a buffer, and what others cost beside them.
COSTS = {"divf": 6, "sqrt": 6, "remf": 12, "divsi": 8, "divui": 8, "remsi": 8, "remui": 8}
FUNCTION = 16  # exp and kin
GATHER = 8
KEEPING = ("reduce", "scan", "dot", "dot_scaled")  # they may use a tile that another reduction or scan has written
FREE = ("const", "iota", "splat", "broadcast", "expand", "trans", "reshape", "split", "poison")
DEEP = 64  # operations on the way to a leaf, at most
SMALL = 12  # operations on indices only that are done again anywhere


@dataclass
class Plan:
    """``inline``: tiles computed where they are used. ``kept``: tiles computed by the reduction or scan that uses them first, which
    writes them to a buffer for later uses. ``reuse``: tiles that take over the buffer of another one, a loop's argument."""

    inline: set[Value] = field(default_factory=set)
    kept: dict[Value, Operation] = field(default_factory=dict)
    reuse: dict[Value, Value] = field(default_factory=dict)
    axes: Axes = field(default_factory=Axes)
    roots: Roots | None = None
    divisors: dict[Value, int] = field(default_factory=dict)

    @property
    def fused(self) -> bool:
        """Whether there is a plan at all."""
        return self.roots is not None

    def may_alias(self, a: Value, b: Value) -> bool:
        """Whether two addresses of the tile IR may point into the same memory."""
        assert self.roots is not None
        return self.roots.may_alias(a, b)

    def align(self, base: Value, offset: Poly, elem: Type) -> int:
        """Bytes, at most 64, that divide base + offset elements."""
        assert isinstance(elem, Ptr)
        size = max(1, elem.elem.width // 8) if isinstance(elem.elem, Scalar) else 8
        found = math.gcd(64, divisor(base, self.divisors))
        for factors, number in offset.terms:
            found = math.gcd(found, size * number * math.prod(divisor(factor, self.divisors) for factor in factors))
        return found


@dataclass
class _Tree:
    """What computing an element of a tile takes: operations, their cost, the longest way, whether it reads memory or buffers."""

    cost: int
    depth: int
    reads: bool


class _Fuse:
    def __init__(self, function: Operation) -> None:
        self.order, self.axes, self.roots = Order(function), Axes(), Roots(function)
        self.trees: dict[Value, _Tree] = {}
        self.points: dict[Value, set[Operation]] = {}  # the operations whose nests compute or read a tile
        known = zip(function.regions[0].block.arguments, attribute(function, "arguments"))
        divisors = {value: one.get("divisibility", 1) for value, one in known}
        self.plan = Plan(axes=self.axes, roots=self.roots, divisors=divisors)
        for op in self.order.number:  # from the first on, so that no way to the leaves is long
            for value in op.results:
                self.tree(value)
                self.axes.of(value)
                self.roots.of(value)
        for op in reversed(self.order.number):
            for value in op.results:
                if isinstance(value.type, Tile):
                    self.decide(op, value)
        for op in self.order.number:
            if op.name == "for":
                self.carried(op)

    def tree(self, value: Value) -> _Tree:
        """The most that computing an element may take."""
        if value not in self.trees:
            self.trees[value] = self._tree(value)
        return self.trees[value]

    def _tree(self, value: Value) -> _Tree:
        op = value.owner
        if not isinstance(value.type, Tile):
            return _Tree(0, 0, False)
        if not isinstance(op, Operation) or op.name not in ELEMENTS or op.name == "gather":
            return _Tree(1, 0, True)
        parts = [self.tree(operand) for operand in op.operands]
        depth = 1 + max((part.depth for part in parts), default=0)
        reads = any(part.reads for part in parts)
        cost = sum(part.cost for part in parts)
        if op.name == "load":
            # An affine address and a mask of indices go along with the access.
            address = 0 if self.axes.of(op.operands[0]) else GATHER + parts[0].cost
            return _Tree(1 + address + sum(part.cost for part in parts[1:] if part.reads), depth, True)
        if op.name == "elementwise":
            cost += COSTS.get(
                op.attributes["opcode"], 1 if len(op.operands) > 1 or op.attributes["opcode"] in _CHEAP else FUNCTION
            )
        elif op.name == "extern_math":
            cost += FUNCTION
        elif op.name not in FREE:
            cost += 1
        return _Tree(min(cost, 1000), depth, reads)

    def decide(self, op: Operation, value: Value) -> None:
        """Puts a tile into ``inline`` if it may and should be; its uses are decided already."""
        users = self.order.users.get(value, [])
        points = self.points[value] = self.read_at(value)
        if op.name not in ELEMENTS:
            return
        forced = self.forced(value, users)
        if not forced and self.worth(op, value, points) and (op.name != "load" or self.legal(op, points)):
            self.plan.inline.add(value)
            return
        if forced and any(user.name not in KEEPING for user in users):
            return
        first = min(points, key=self.order.number.__getitem__, default=op)
        if (
            first.name in ("reduce", "scan")
            and first.operands.count(value) == 1
            and self.order.block[first] is self.order.block[op]
            and self.tree(value).depth <= DEEP
            and (op.name != "load" or (not attribute(op, "volatile") and self.legal(op, {first})))
        ):
            self.plan.kept[value] = first

    def read_at(self, value: Value) -> set[Operation]:
        """The operations in whose nests a tile is computed or read: its users, and for those that are inline, theirs."""
        points: set[Operation] = set()
        for user in self.order.users.get(value, []):
            inline = [result for result in user.results if result in self.plan.inline]
            points |= set().union(*(self.points[one] for one in inline))
            kept = [self.plan.kept[result] for result in user.results if result in self.plan.kept]
            points.update(kept)
            if len(inline) + len(kept) < len(user.results) or not user.results:
                points.add(user)
        return points

    def forced(self, value: Value, users: list[Operation]) -> bool:
        """Whether a use needs a buffer."""
        for user in users:
            if user.name in ("dot", "dot_scaled") and user.operands.index(value) != 2:
                return True
            if user.name in ("dot", "dot_scaled") and user.operands.count(value) > 1:
                return True
            if user.name in ("histogram", "print", "call") or (user.name == "gather" and user.operands[0] is value):
                return True
            if user.name == "map" and attribute(user, "pack") != 1:
                return True
            if user.name == "reshape" and not self.plain_reshape(user):
                return True
            if user.name == "yield" and user.parent is not None and user.parent.parent is not None:
                around = user.parent.parent.parent
                if around is not None and around.name in ("for", "while"):
                    return True
        return False

    def plain_reshape(self, op: Operation) -> bool:
        return unit_reshape(shape(op.operands[0].type), shape(op.results[0].type))

    def worth(self, op: Operation, value: Value, points: set[Operation]) -> bool:
        """Whether computing it again costs less than a buffer."""
        tree = self.tree(value)
        if op.name == "reshape" and not self.plain_reshape(op):
            return False
        if tree.depth > DEEP or (op.name == "load" and attribute(op, "volatile")):
            return False
        if not points or (isinstance(element(value.type), Ptr) and self.axes.of(value)):
            return True  # never computed, or no more than an offset
        if not tree.reads and tree.cost <= SMALL:
            return True
        if any(self.order.deeper(op, point) for point in points):
            return False
        if any(self.spread(value, user) for user in self.order.users[value]) and tree.cost > 2:
            return False
        return (len(points) - 1) * tree.cost <= len(points) + 1

    def spread(self, value: Value, user: Operation) -> bool:
        """Whether a use computes elements many times over."""
        if user.name == "broadcast":
            return shape(user.operands[0].type) != shape(user.results[0].type)
        return user.name in ("gather", "map") or (
            user.name == "expand"
            and any(self.spread(user.results[0], one) for one in self.order.users.get(user.results[0], []))
        )

    def legal(self, op: Operation, points: set[Operation]) -> bool:
        """The aliasing rule, for a load."""
        address = op.operands[0]
        for point in points:
            if any(self.order.clobbers(write, self.roots, address) for write in self.order.between(op, point)):
                return False
            if point.name in WRITES and self.order.clobbers(point, self.roots, address):
                forms = (self.axes.of(address), self.axes.of(point.operands[0]))
                if point.name != "store" or not all(map(testable, forms)):
                    return False
        return True

    def carried(self, op: Operation) -> None:
        """Lets what a `for` carries take over its argument's buffer, where all that reads the old tile comes before."""
        block = op.regions[0].block
        for argument, value in zip(block.arguments[1:], block.terminator.operands):
            owner = value.owner
            if not isinstance(value.type, Tile) or not isinstance(owner, Operation) or value in self.plan.inline:
                continue
            if value in self.plan.kept:
                continue
            if (
                owner.parent is not block
                or self.order.users[value] != [block.terminator]
                or owner.name not in _IN_PLACE
            ):
                continue
            if block.terminator.operands.count(value) == 1 and self.before(argument, owner):
                self.plan.reuse[value] = argument

    def before(self, argument: Value, owner: Operation) -> bool:
        """Whether a tile is read before ``owner``'s nest, or by it, element by element at the place that it writes."""
        number = self.order.number
        return all(
            number[point] < number[owner] or (point is owner and self.straight(argument, owner))
            for point in self.read_at(argument)
        )

    def straight(self, argument: Value, owner: Operation) -> bool:
        """Whether ``owner`` reads a tile at its own indices only."""
        operands = owner.operands[2:3] if owner.name in ("dot", "dot_scaled") else owner.operands
        others = [one for one in owner.operands if one not in operands]
        if argument in others:
            return False
        queue, seen = list(operands), set()
        while queue:
            value = queue.pop()
            if value in seen or value is argument:
                continue
            seen.add(value)
            inner = value.owner
            if value in self.plan.inline and isinstance(inner, Operation):
                if inner.name not in _IN_PLACE and self.reaches(inner, argument, set()):
                    return False
                queue += inner.operands
        return True

    def reaches(self, op: Operation, argument: Value, seen: set[Value]) -> bool:
        """Whether an inline operation reads a tile. ``seen`` have been looked at."""
        for one in op.operands:
            if one is argument:
                return True
            inner = one.owner
            if one in self.plan.inline and one not in seen and isinstance(inner, Operation):
                seen.add(one)
                if self.reaches(inner, argument, seen):
                    return True
        return False


_CHEAP = ("floor", "ceil", "absf", "negf", "absi")
_IN_PLACE = ("elementwise", "cast", "bitcast", "select", "cmp", "extern_math", "dot", "dot_scaled")


def testable(form: Affine | None) -> bool:
    """Whether the range of an affine address can be computed in 64 bits: its strides are of 32."""
    return form is not None and form.base is not None and not any(wide(stride) for stride in form.strides)


def plan(function: Operation) -> Plan:
    """The plan of a `func` of the tile IR."""
    return _Fuse(function).plan
