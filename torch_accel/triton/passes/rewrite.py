"""Copies of the machine IR, with operations made anew on the way: what the passes from one machine IR to another have in common."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

from ..ir.core import UNKNOWN, Block, Operation, Region, Value
from ..ir.types import I1, I32, I64, Constant, Scalar, Type
from ..machine.ops import BODIES, MACHINE


class Copier:
    """Copies operations into the block that is being filled; ``values`` are what operands become.

    ``rules`` of a subclass take an operation by its name, at core level, instead of `copy`.
    """

    def __init__(self) -> None:
        self.values: MutableMapping[Value, Value] = {}
        self.constants: dict[tuple[Block, int, Scalar], Value] = {}
        self.blocks: list[Block] = []
        self.location = UNKNOWN

    # making

    def append(self, op: Operation) -> Operation:
        """Adds an operation to the block that is being filled."""
        return self.blocks[-1].append(op)

    def add(self, name: str, operands: Sequence[Value], type: Type, **more: Any) -> Value:
        """Adds an operation with one result."""
        segments = more.pop("segments", None)
        return self.append(Operation(name, operands, [type], more, location=self.location, segments=segments)).result

    def effect(self, name: str, operands: Sequence[Value] = (), **attributes: Any) -> None:
        """Adds an operation without results."""
        self.append(Operation(name, operands, (), attributes, location=self.location))

    def constant(self, number: int, type: Scalar = I32) -> Value:
        """A constant's value: one that was made in this block or around it, or a new one."""
        for block in self.blocks:
            if (block, number, type) in self.constants:
                return self.constants[block, number, type]
        made = self.add("const", (), type, value=Constant(type, (number & (1 << type.width) - 1,)))
        self.constants[self.blocks[-1], number, type] = made
        return made

    def compute(self, opcode: str, a: Value, b: Value) -> Value:
        """An elementwise operation of two values."""
        return self.add("elementwise", (a, b), a.type, opcode=opcode)

    def compare(self, predicate: str, a: Value, b: Value) -> Value:
        """A comparison of two values."""
        return self.add("cmp", (a, b), I1, predicate=predicate)

    def wide(self, value: Value) -> Value:
        """An i32 or i64 as an i64."""
        return value if value.type == I64 else self.add("cast", (value,), I64, kind="extsi")

    @contextlib.contextmanager
    def filling(self, block: Block) -> Iterator[Block]:
        """Fills a block."""
        self.blocks.append(block)
        try:
            yield block
        finally:
            self.blocks.pop()

    def region(self, arguments: Sequence[Type], fill: Callable[[list[Value]], None]) -> Region:
        """A region that ``fill`` fills, given the arguments; it yields nothing."""
        with self.filling(Block(arguments)) as block:
            fill(block.arguments)
            self.effect("yield")
        return Region([block])

    def loop(self, dims: Sequence[int], fill: Callable[[list[Value]], None]) -> None:
        """A loop over lanes, its last dimension in vectors."""
        region = self.region([I32] * len(dims), fill)
        self.append(Operation("loop", (), (), {"dims": list(dims), "vec": len(dims) - 1}, [region], self.location))

    def turns(self, upper: int, step: int, fill: Callable[[Value], None]) -> None:
        """A `for` from 0 to ``upper``."""
        bounds = [self.constant(0), self.constant(upper), self.constant(step)]
        region = self.region([I32], lambda arguments: fill(arguments[0]))
        self.append(Operation("for", bounds, (), {}, [region], self.location))

    # copying

    rules: dict[str, Callable[[Any, Operation], None]] = {}

    def value(self, value: Value) -> Value:
        """What a value of the old module is in the new one."""
        return self.values.get(value, value)

    def module(self, module: Operation) -> Operation:
        """A module with a copy of each function."""
        with self.filling(Block()) as block:
            for function in module.regions[0].block.operations:
                self.operation(function)
        return Operation("module", regions=[Region([block])], location=module.location)

    def operation(self, op: Operation) -> None:
        """Copies an operation, by its rule if it has one."""
        self.location = op.location
        self.rules.get(op.name, Copier.copy)(self, op)

    def copy(self, op: Operation, rules: bool = True) -> Operation:
        """Copies an operation with its regions; inside of lanes, and without ``rules``, as they are."""
        operands = [self.value(value) for value in op.operands]
        rules = rules and op.name not in BODIES
        regions = [self.inside(region.block, rules) for region in op.regions]
        types = [value.type for value in op.results]
        made = self.append(Operation(op.name, operands, types, op.attributes, regions, op.location, op.segments))
        self.results(op, made)
        return made

    def results(self, old: Operation, new: Operation) -> None:
        """The results of an operation are those of another."""
        for one, other in zip(old.results, new.results):
            other.name = one.name
            self.values[one] = other

    def inside(self, source: Block, rules: bool) -> Region:
        """A copy of a block."""
        block = Block([value.type for value in source.arguments], [value.name for value in source.arguments])
        self.values.update(zip(source.arguments, block.arguments))
        with self.filling(block):
            for op in source.operations:
                if rules:
                    self.operation(op)
                else:
                    self.copy(op, False)
        return Region([block])


def pure(op: Operation) -> bool:
    """Whether an operation does nothing but give its results; what it reads is in SRAM."""
    if op.name in ("alloc", "dma_done"):
        return False
    if op.name in BODIES:
        return bool(op.results) and all(pure(inner) or inner.name == "yield" for inner in list(op.walk())[1:])
    return bool(op.results) and not op.regions and (op.name == "read" or not MACHINE[op.name].effects)


def prune(block: Block) -> None:
    """Removes what nobody uses."""
    for op in block.operations:
        for region in op.regions:
            prune(region.block)
    uses = Counter(value for op in block.operations for inner in op.walk() for value in inner.operands)
    kept = []
    for op in reversed(block.operations):
        if pure(op) and not any(uses[value] for value in op.results):
            uses.subtract(value for inner in op.walk() for value in inner.operands)
        else:
            kept.append(op)
    block.operations = kept[::-1]
