"""Nests whose masks are true for every element, as most programs of a grid have them: a version without masks, behind a test.

A mask is dropped where it is made of comparisons of sums of indices, and of values that are the same for the nest: at the ends of the
indices' ranges they show what holds in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..ir.core import Block, Operation, Region, Value
from ..ir.types import I1, Constant, Scalar, Type
from ..machine.ops import BODIES, attribute, groups

SMALL = 128  # a nest of fewer iterations is left as it is
_ENDS = {
    "slt": (1, 0),
    "sle": (1, 0),
    "sgt": (0, 1),
    "sge": (0, 1),
}  # the ends of both sides at which it is hardest to hold
_Ends = tuple[Value, Value]


def full(module: Operation) -> Operation:
    """Gives each vectorised nest of the core with such masks its second version."""
    for function in module.regions[0].block.operations:
        replaced: dict[Value, Value] = {}
        _block(function.regions[0].block, [], replaced)
        for op in function.walk():
            op.operands = [replaced.get(value, value) for value in op.operands]
    return module


def _block(block: Block, around: list[dict[Any, Value]], replaced: dict[Value, Value]) -> None:
    operations, block.operations = block.operations, []
    known = [*around, dict[Any, Value]()]
    for op in operations:
        if op.name in BODIES:
            nest = _Nest(op, block, known)
            if nest.masks():
                made = nest.versions()
                replaced.update(zip(op.results, made.results))
                continue
        else:
            for region in op.regions:
                _block(region.block, known, replaced)
        block.append(op)


class _Nest:
    """A nest of the core, which ``block`` is about to get; ``known`` are values that were computed for tests before."""

    def __init__(self, op: Operation, block: Block, known: list[dict[Any, Value]]) -> None:
        self.op, self.block, self.known = op, block, known
        self.inside = {value for inner in op.walk() for value in inner.results}
        self.sizes: dict[Value, int] = {}
        for inner in op.walk():
            if inner.name in BODIES:
                self.inside |= {value for region in inner.regions for value in region.block.arguments}
                dims = attribute(inner, "dims") if inner.name == "loop" else [attribute(inner, "count")]
                self.sizes.update(zip(inner.regions[0].block.arguments, dims))
        self.holds: dict[Value, None] = {}  # comparisons that the test covers

    def masks(self) -> bool:
        """Whether the nest is worth a second version: vectorised, not small, with masks that a test may show to be true."""
        inner = list(self.op.walk())
        iterations = 1
        for size in self.sizes.values():
            iterations *= size
        vectors = any(
            attribute(one, "vec") >= 0 if one.name == "loop" else attribute(one, "vector")
            for one in inner
            if one.name in BODIES
        )
        if iterations < SMALL or not vectors:
            return False
        given = [value for one in inner if one.name in ("load", "store") for value in groups(one)["mask"]]
        given += [one.operands[0] for one in inner if one.name == "select"]
        for value in given:
            parts = self.parts(value)
            if all(self.affine(part) for part in parts):
                self.holds.update(dict.fromkeys(parts))
        return bool(self.holds)

    def parts(self, mask: Value) -> list[Value]:
        """The conditions whose conjunction a mask is."""
        op = mask.owner
        if (
            isinstance(op, Operation)
            and op.name == "elementwise"
            and op.attributes["opcode"] == "andi"
            and mask in self.inside
        ):
            return [part for operand in op.operands for part in self.parts(operand)]
        return [mask]

    def affine(self, condition: Value) -> bool:
        """Whether the ends of the indices show that a condition holds for all."""
        op = condition.owner
        if condition not in self.inside:
            return True
        return (
            isinstance(op, Operation)
            and op.name == "cmp"
            and op.attributes["predicate"] in _ENDS
            and all(self.sum(operand) for operand in op.operands)
        )

    def sum(self, value: Value) -> bool:
        """Whether a value is a sum of indices and of what is the same for the nest."""
        op = value.owner
        if value not in self.inside or value in self.sizes:
            return isinstance(value.type, Scalar) and value.type.is_int
        if not isinstance(op, Operation):
            return False
        known = op.name == "elementwise" and op.attributes["opcode"] == "addi"
        known = known or (op.name == "cast" and op.attributes["kind"] == "extsi")
        return known and all(self.sum(operand) for operand in op.operands)

    # the test

    def add(self, name: str, operands: Sequence[Value], type: Type, **attributes: Any) -> Value:
        """A value of the core, computed once."""
        key = (name, tuple(operands), type, tuple(attributes.items()))
        for scope in self.known:
            if key in scope:
                return scope[key]
        op = self.block.append(Operation(name, operands, [type], attributes, location=self.op.location))
        self.known[-1][key] = op.result
        return op.result

    def constant(self, number: int, type: Scalar) -> Value:
        return self.add("const", (), type, value=Constant(type, (number,)))

    def compare(self, predicate: str, a: Value, b: Value) -> Value:
        return self.add("cmp", (a, b), I1, predicate=predicate)

    def ends(self, value: Value, tests: list[Value]) -> _Ends:
        """The least and the largest of a sum, right if ``tests`` hold: that it does not wrap."""
        op = value.owner
        if value in self.sizes:
            assert isinstance(value.type, Scalar)
            return self.constant(0, value.type), self.constant(self.sizes[value] - 1, value.type)
        if value not in self.inside:
            return value, value
        assert isinstance(op, Operation)
        parts = [self.ends(operand, tests) for operand in op.operands]
        low, high = (self.add(op.name, side, value.type, **op.attributes) for side in zip(*parts))
        if low is not high and op.name != "cast":
            tests.append(self.compare("sge", high, low))
        return low, high

    def test(self) -> Value:
        """Whether all conditions hold for all elements."""
        tests: list[Value] = []
        for condition in self.holds:
            op = condition.owner
            if condition not in self.inside:
                tests.append(condition)
                continue
            assert isinstance(op, Operation)
            sides = [self.ends(operand, tests) for operand in op.operands]
            predicate = op.attributes["predicate"]
            tests.append(self.compare(predicate, *(side[at] for side, at in zip(sides, _ENDS[predicate]))))
        found, *rest = dict.fromkeys(tests)
        for one in rest:
            found = self.add("elementwise", (found, one), I1, opcode="andi")
        return found

    # the version without masks

    def versions(self) -> Operation:
        """The `if` that has both."""
        go, true = self.test(), self.add("const", (), I1, value=Constant(I1, (1,)))
        old, blocks = self.op, (Block(), Block())
        types = [value.type for value in old.results]
        masked = Operation(old.name, old.operands, types, old.attributes, old.regions, old.location, old.segments)
        for op, block in (
            (_Copy(self.holds, true).operation(old, blocks[0]), blocks[0]),
            (blocks[1].append(masked), blocks[1]),
        ):
            block.append(Operation("yield", op.results, location=old.location))
        regions = [Region([block]) for block in blocks]
        made = self.block.append(Operation("if", (go,), types, regions=regions, location=self.op.location))
        for value, new in zip(old.results, made.results):
            new.name = value.name
        return made


class _Copy:
    """Copies operations where conditions are known to hold; ``true`` stands for them."""

    def __init__(self, holds: Iterable[Value], true: Value) -> None:
        self.values = dict.fromkeys(holds, true)
        self.true = true

    def operation(self, op: Operation, block: Block) -> Operation:
        """The copy of an operation, at the end of a block."""
        operands, segments = [self.values.get(value, value) for value in op.operands], op.segments
        if op.name in ("load", "store") and any(self.values.get(value) is self.true for value in groups(op)["mask"]):
            count = 1 if op.name == "load" else 2  # without mask, and without what is loaded instead
            operands, segments = operands[:count], None
        made = Operation(
            op.name, operands, [value.type for value in op.results], op.attributes, (), op.location, segments
        )
        for region in op.regions:
            inner = Block(
                [value.type for value in region.block.arguments], [value.name for value in region.block.arguments]
            )
            self.values.update(zip(region.block.arguments, inner.arguments))
            for one in region.block.operations:
                if not self.folded(one):
                    self.operation(one, inner)
            copied = Region([inner])
            copied.parent = made
            made.regions.append(copied)
        for old, new in zip(op.results, made.results):
            new.name = old.name
            self.values[old] = new
        return block.append(made)

    def folded(self, op: Operation) -> bool:
        """Whether an operation's result is known without it: then it is named, and the operation is left out."""
        if op.results and op.results[0] in self.values:
            return True
        given = [self.values.get(value, value) for value in op.operands]
        if op.name == "select" and given[0] is self.true:
            self.values[op.result] = given[1]
        elif op.name == "elementwise" and op.attributes["opcode"] == "andi" and self.true in given:
            self.values[op.result] = given[0] if given[1] is self.true else given[1]
        else:
            return False
        return True
