"""What a launch costs, before it runs: bytes moved and operations done, as a function of the arguments and the grid.

``function`` makes a function of the machine IR of a kernel's: its own arguments, and a number for each of COUNTERS. It goes through the
kernel's scalars only: a loop's trips are computed, and multiplied by what its body costs. A masked element counts as moved, and of
two branches the dearer one counts where the condition depends on memory: an upper bound. Of two versions of a nest the first one
counts, whose accesses are affine. -1 is unknown: a `while` has no count.

What counts: loads, stores and atomics (a read and a write) by the bytes of their elements; reads and writes of buffers in SRAM, of which a
product reads each operand once; an operation of arithmetic or a function as one, an fma as two, a product of matrices as two for each
multiplication. Comparisons, selections, casts and addresses cost nothing.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..ir.core import Block, Operation, Region, Value
from ..ir.types import I1, I32, I64, Buf, Constant, Ptr, Scalar, Type, element
from ..machine.ops import attribute, groups

COUNTERS = ("hbm read", "hbm written", "sram read", "sram written", "f64", "f32", "f16", "f8", "int")
"""Bytes by memory space; then operations, by what they compute with: bf16 is counted under f16."""

LIMIT = 1 << 14
"""Programs that a cost goes through one by one, where it depends on their number; of more it is unknown."""

_PURE = ("const", "poison", "elementwise", "cast", "bitcast", "select", "cmp")


def size(type: Type) -> int:
    """Bytes of an element in memory."""
    elem = element(type)
    return 8 if isinstance(elem, Ptr) else max(1, elem.width // 8) if isinstance(elem, Scalar) else 0


def unit(type: Type) -> str:
    """The counter of operations on elements of a type."""
    elem = element(type)
    assert isinstance(elem, Scalar)
    return "int" if elem.is_int else f"f{elem.width}"


def own(op: Operation) -> Iterator[tuple[str, int]]:
    """Counters of one operation, without its regions, each time that it runs; a masked one as if it were not."""
    if op.name in ("load", "atomic_rmw", "atomic_cas"):
        yield "hbm read", size(op.result.type)
    if op.name in ("store", "atomic_rmw", "atomic_cas"):
        yield "hbm written", size(groups(op)["value"][0].type)
    if op.name == "elementwise" and attribute(op, "opcode") != "addptr":
        yield unit(op.operands[0].type), 2 if attribute(op, "opcode") == "fma" else 1
    if op.name == "extern_math":
        yield unit(op.operands[0].type), 1
    if op.name in ("read", "write"):
        yield from _buffer(op.operands[0], "read" if op.name == "read" else "written", size(op.operands[0].type))
    if op.name in ("copy", "histogram"):
        target, *sources = op.operands
        yield from _buffer(target, "written")
        for value in sources:
            yield from _buffer(value, "read")
    if op.name in ("mma", "mma_scaled"):
        for value in op.operands:
            yield from _buffer(value, "read")
        acc, a, b = (value.type for value in op.operands[:3])
        yield from _buffer(op.operands[0], "written")
        assert isinstance(acc, Buf) and isinstance(a, Buf) and isinstance(b, Buf)
        shared = a.shape[-1] if op.name == "mma" else _shared(op, a)
        yield unit(a) if op.name == "mma" else "f8", 2 * acc.count * shared


def _shared(op: Operation, a: Buf) -> int:
    """The shared dimension of a scaled product: two numbers of four bits may lie in a byte."""
    packed = attribute(op, "a_kind") == "e2m1" and attribute(op, "a_k_pack")
    return a.shape[-1] * (2 if packed else 1)


def _buffer(value: Value, how: str, bytes: int | None = None) -> Iterator[tuple[str, int]]:
    """The bytes of a buffer in SRAM, or of one of its elements; constants are part of the code."""
    assert isinstance(value.type, Buf)
    if value.type.space == "sram":
        yield f"sram {how}", value.type.bytes if bytes is None else bytes


def function(module: Operation, name: str) -> Operation:
    """A module with the function "``name``.cost": its arguments are the kernel's, its results are i64s in the order of COUNTERS.

    ``module`` is a verified one of the machine IR. The sum is over all programs of the grid, whose sizes `num_programs` gives.
    """
    functions = {attribute(op, "name"): op for op in module.regions[0].block.operations}
    kernel, axes = functions[name].regions[0].block, set[int]()
    while True:
        block = Block([value.type for value in kernel.arguments], [value.name for value in kernel.arguments])
        counting = _Counting(functions, block)
        counting.known.update(zip(kernel.arguments, block.arguments))
        total = counting.programs(kernel, sorted(axes, reverse=True))
        if counting.axes <= axes:
            break
        axes |= counting.axes  # the cost depends on a program's number: once more, program by program
    results = [counting.value(total.get(counter, {})) for counter in COUNTERS]
    block.append(Operation("return", results))
    attributes = {"name": f"{name}.cost", "returns": [I64] * len(COUNTERS)}
    whole = Block()
    whole.append(Operation("func", attributes=attributes, regions=[Region([block])]))
    return Operation("module", regions=[Region([whole])])


Sum = dict["Value | None", int]  # of values times numbers; None stands for 1
Costs = dict[str, "Sum | None"]  # by counter; None is unknown, and what is not there is 0


class _Counting:
    """Writes a function of costs. ``known`` has the kernel's scalars in it, ``axes`` what it needed of a program's number."""

    def __init__(self, functions: Mapping[str, Operation], block: Block) -> None:
        self.functions, self.block = functions, block
        self.known: dict[Value, Value | None] = {}
        self.passed: dict[Value, Value] = {}  # arguments of the function that is called
        self.made: dict[Any, Value] = {}
        self.numbers: dict[int, Value] = {}
        self.axes: set[int] = set()

    # operations

    @contextlib.contextmanager
    def within(self, block: Block) -> Iterator[None]:
        """Adds operations to a block, and forgets them at its end."""
        outer = self.block, self.known, self.made
        self.block, self.known, self.made = block, dict(self.known), dict(self.made)
        try:
            yield
        finally:
            self.block, self.known, self.made = outer

    def add(self, name: str, operands: Sequence[Value], type: Type, **attributes: Any) -> Value:
        """An operation without effects, once in its block."""
        key = (name, tuple(operands), type, repr(sorted(attributes.items())))
        if key not in self.made:
            self.made[key] = self.block.append(Operation(name, operands, [type], attributes)).result
        return self.made[key]

    def number(self, number: int) -> Value:
        """A constant."""
        return self.add("const", (), I64, value=Constant(I64, (number & (1 << 64) - 1,)))

    def binary(self, opcode: str, a: Value, b: Value) -> Value:
        """Of i64s."""
        return self.add("elementwise", (a, b), I64, opcode=opcode)

    def copy(self, value: Value) -> Value | None:
        """A scalar of the kernel's, computed again; None of what depends on memory, on lanes, or on what a loop carries."""
        if value not in self.known:
            self.known[value] = self.copy(self.passed[value]) if value in self.passed else self._copied(value)
        return self.known[value]

    def _copied(self, value: Value) -> Value | None:
        op = value.owner
        if isinstance(op, Operation) and op.name == "if":
            at = op.results.index(value)
            yes, no = (self.copy(region.block.terminator.operands[at]) for region in op.regions)
            if yes is None or no is None or yes is no:
                return yes if yes is no else None
            go = self.copy(op.operands[0])
            return None if go is None else self.add("select", (go, yes, no), value.type)
        if not isinstance(op, Operation) or op.name not in (*_PURE, "program_id", "num_programs"):
            return None
        if op.name == "program_id":
            axis = attribute(op, "axis")
            self.axes.add(axis)
            if axis in self.numbers:
                return self.numbers[axis]
        operands = [self.copy(one) for one in op.operands]
        given = [one for one in operands if one is not None]
        return self.add(op.name, given, value.type, **op.attributes) if len(given) == len(operands) else None

    # sums

    def value(self, total: Sum | None) -> Value:
        """A sum as a value; -1 if it is unknown."""
        if total is None:
            return self.number(-1)
        result = None
        for value, factor in total.items():
            if value is None:
                one = self.number(factor)
            else:
                one = value if factor == 1 else self.binary("muli", value, self.number(factor))
            result = one if result is None else self.binary("addi", result, one)
        return self.number(0) if result is None else result

    def times(self, costs: Costs, factor: Sum) -> Costs:
        """All costs times a sum."""
        return {counter: None if one is None else self._product(one, factor) for counter, one in costs.items()}

    def _product(self, a: Sum, b: Sum) -> Sum:
        for one, other in ((a, b), (b, a)):
            if set(one) <= {None}:
                number = one.get(None, 0)
                return {value: factor * number for value, factor in other.items() if number}
        return {self.binary("muli", self.value(a), self.value(b)): 1}

    def lift(self, value: Value, unsigned: bool = False) -> Sum:
        """An integer of the function as a sum."""
        op, type = value.owner, value.type
        assert isinstance(type, Scalar)
        if isinstance(op, Operation) and op.name == "const":
            bits = attribute(op, "value").bits[0]
            return {None: bits if unsigned else bits - (bits >> (type.width - 1) << type.width)}
        return {value if type == I64 else self.add("cast", (value,), I64, kind="extui" if unsigned else "extsi"): 1}

    def trips(self, bounds: Sequence[Value], unsigned: bool) -> Sum:
        """How often a `for` runs: the distance divided by the step, rounded up; 0 if there is none."""
        lower, upper, step = (self.lift(value, unsigned) for value in bounds)
        distance = _total([upper, {value: -factor for value, factor in lower.items()}, step, {None: -1}])
        if set(distance) | set(step) <= {None}:
            return {None: max(distance.get(None, 0) // step[None], 0)}
        count = self.binary("divsi", self.value(distance), self.value(step))
        return {self.binary("maxsi", count, self.number(0)): 1}

    # costs

    def programs(self, kernel: Block, axes: Sequence[int]) -> Costs:
        """Of all programs: those along ``axes`` one by one, unless they are too many; the other ones are alike."""
        sizes = [self.value(self.lift(self.add("num_programs", (), I32, axis=axis))) for axis in range(3)]
        few: Value | None = None
        if axes:
            count = functools.reduce(functools.partial(self.binary, "muli"), [sizes[axis] for axis in axes])
            few = self.add("cmp", (count, self.number(LIMIT)), I1, predicate="ule")

        def along(left: Sequence[int]) -> Costs:
            if not left or few is None:
                return self.costs(kernel)

            def one(index: Value) -> Costs:
                self.numbers[left[0]] = self.add("cast", (index,), I32, kind="trunci")
                return along(left[1:])

            end = self.add("select", (few, sizes[left[0]], self.number(0)), I64)
            return self.loop((self.number(0), end, self.number(1)), False, one)

        costs, others = along(axes), [sizes[axis] for axis in range(3) if axis not in axes]
        if others:
            costs = self.times(costs, {functools.reduce(functools.partial(self.binary, "muli"), others): 1})
        if few is None:
            return costs
        return {
            counter: None if one is None else {self.add("select", (few, self.value(one), self.number(-1)), I64): 1}
            for counter, one in costs.items()
        }

    def costs(self, block: Block) -> Costs:
        """Of a block, each time that it runs."""
        found: list[Costs] = []
        for op in block.operations:
            found.extend({counter: {None: number}} for counter, number in own(op) if number)
            if op.name in _REGIONS:
                found.append(_REGIONS[op.name](self, op))
        return _sum(found)

    def tried(self, block: Block) -> tuple[Costs, Block]:
        """The costs of a block, written to one that is thrown away."""
        scratch = Block([value.type for value in block.arguments])
        with self.within(scratch):
            self.known[block.arguments[0]] = scratch.arguments[0]
            return self.costs(block), scratch

    def loop(self, bounds: Sequence[Value], unsigned: bool, fill: Callable[[Value], Costs]) -> Costs:
        """A `for` that adds up what each turn costs; ``fill`` writes the costs of one, given its index."""
        body = Block([bounds[0].type])
        with self.within(body):
            each = fill(body.arguments[0])
            carried = {counter: one for counter, one in each.items() if one is not None and set(one) - {None}}
            body.arguments += [Value(I64, body) for _ in carried]
            ends = [
                self.binary("addi", so_far, self.value(one))
                for so_far, one in zip(body.arguments[1:], carried.values())
            ]
            body.append(Operation("yield", ends))
        same = {counter: one for counter, one in each.items() if counter not in carried}
        costs = self.times(same, self.trips(bounds, unsigned))
        if carried:
            inits = [self.number(0)] * len(carried)
            attributes = {"unsigned": True} if unsigned else {}
            op = Operation("for", [*bounds, *inits], [I64] * len(carried), attributes, [Region([body])])
            costs.update({counter: {value: 1} for counter, value in zip(carried, self.block.append(op).results)})
        return costs

    def for_(self, op: Operation) -> Costs:
        """The trips times the body, or a loop where the body's cost depends on the index."""
        body, unsigned = op.regions[0].block, attribute(op, "unsigned")
        costs, scratch = self.tried(body)
        if not costs:
            return {}
        bounds = [bound for bound in map(self.copy, op.operands[:3]) if bound is not None]
        if len(bounds) < 3:
            return dict.fromkeys(costs)
        if not any(scratch.arguments[0] in inner.operands for one in scratch.operations for inner in one.walk()):
            return self.times(self.costs(body), self.trips(bounds, unsigned))

        def fill(index: Value) -> Costs:
            self.known[body.arguments[0]] = index
            return self.costs(body)

        return self.loop(bounds, unsigned, fill)

    def while_(self, op: Operation) -> Costs:
        """Unknown."""
        return _sum([dict.fromkeys(self.costs(region.block)) for region in op.regions])

    def if_(self, op: Operation) -> Costs:
        """The branch that is taken, if that is known; else the dearer one. Of the two versions of a nest (``passes.guards``), the first."""
        yes, no = (self.costs(region.block) for region in op.regions)
        nests = all(any(inner.name == "loop" for inner in region.block.operations) for region in op.regions)
        if nests and all(yes.get(counter) == no.get(counter) for counter in COUNTERS if counter not in _OF_A_VERSION):
            return yes
        if yes == no:
            return yes
        go, result = self.copy(op.operands[0]), Costs()
        for counter in {**yes, **no}:
            a, b = yes.get(counter, {}), no.get(counter, {})
            if a is None or b is None or a == b:
                result[counter] = a if a == b else None
            elif go is None and set(a) | set(b) <= {None}:
                result[counter] = {None: max(a.get(None, 0), b.get(None, 0))}
            elif go is None:
                result[counter] = {self.binary("maxsi", self.value(a), self.value(b)): 1}
            else:
                result[counter] = {self.add("select", (go, self.value(a), self.value(b)), I64): 1}
        return result

    def lanes(self, op: Operation) -> Costs:
        """A `loop`, `vreduce` or `vscan`: each region as often as it runs."""
        counts = [math.prod(attribute(op, "dims"))] if op.name == "loop" else [attribute(op, "count")] * 3
        if op.name != "loop":
            counts[1] -= 1  # one element is the first
        return _sum([self.times(self.costs(region.block), {None: count}) for region, count in zip(op.regions, counts)])

    def call(self, op: Operation) -> Costs:
        """The callee with these arguments."""
        body = self.functions[attribute(op, "callee")].regions[0].block
        outer = self.known, self.passed
        self.known, self.passed = dict(self.known), {**self.passed, **dict(zip(body.arguments, op.operands))}
        costs = self.costs(body)
        self.known, self.passed = outer
        return costs


_OF_A_VERSION = ("sram read", "sram written", "int")
_REGIONS: dict[str, Callable[[_Counting, Operation], Costs]] = {
    "for": _Counting.for_,
    "while": _Counting.while_,
    "if": _Counting.if_,
    "call": _Counting.call,
    **dict.fromkeys(("loop", "vreduce", "vscan"), _Counting.lanes),
}


def _total(sums: Iterable[Sum]) -> Sum:
    total: Sum = {}
    for one in sums:
        for value, factor in one.items():
            total[value] = total.get(value, 0) + factor
    return {value: factor for value, factor in total.items() if factor}


def _sum(costs: Sequence[Costs]) -> Costs:
    counters = dict.fromkeys(counter for one in costs for counter in one)
    found = {counter: [one[counter] for one in costs if counter in one] for counter in counters}
    return {
        counter: None if None in sums else _total(one for one in sums if one is not None)
        for counter, sums in found.items()
    }
