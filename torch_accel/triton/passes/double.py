"""Double buffering: while a turn of a `for` computes, the next one's loads are under way, and the last one's stores.

A load's buffer gets two slots, which alternate from turn to turn; the loop carries its token, and the slot's number. The address must follow
from what the loop carries by scalar arithmetic, and nothing in the loop may write what the load reads: what may alias keeps its order. Stores
are left under way only in loops over tiles, whose turns touch no memory of each other. Loads that stand in an `if` of a turn come before it, and
move nothing where its condition does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..analysis.alias import Roots
from ..ir.core import Block, Operation, Value
from ..ir.types import I1, I32, Buf, Constant, Token, Type
from ..machine.ops import attribute, groups
from .rewrite import Copier, prune

_SCALARS = ("const", "elementwise", "cast", "bitcast", "select", "cmp", "program_id", "num_programs")


def double(module: Operation) -> Operation:
    """A copy of a module of the machine IR whose loops have their transfers under way while they compute."""
    made = Copier().module(module)
    for function in made.regions[0].block.operations:
        _blocks(function, Roots(function))
    return made


def _blocks(op: Operation, roots: Roots) -> None:
    """The loops inside of an operation, the innermost first."""
    for region in op.regions:
        for inner in list(region.block.operations):
            _blocks(inner, roots)
            if inner.name == "for":
                _loop(inner, roots)


def _loop(loop: Operation, roots: Roots) -> None:
    block = loop.regions[0].block
    _lift(block, block, roots)
    pipeline = _Pipeline(loop)
    for load in transfers(block, stores=False):
        if not clobbers(block, roots, load.start):
            pipeline.load(load)
    for store in transfers(block, stores=True):
        if attribute(store.start, "independent"):
            pipeline.store(store)
    pipeline.finish()


def clobbers(block: Block, roots: Roots, load: Operation) -> bool:
    """Whether something in a block, or inside of it, may write what a load reads, or orders it."""
    base = load.operands[1].owner.operands[0]  # type: ignore[union-attr]
    for outer in block.operations:
        for op in outer.walk():
            if op.name in ("barrier", "call", "atomic_rmw", "atomic_cas"):
                return True
            if op.name == "store" and roots.may_alias(op.operands[0], base):
                return True
            if op.name == "dma_start" and _stores(op):
                number = attribute(op, "independent")
                if number and number == attribute(load, "independent"):
                    continue
                far = op.operands[0].owner
                assert isinstance(far, Operation)
                if far.name != "window" or roots.may_alias(far.operands[0], base):
                    return True
    return False


def _stores(start: Operation) -> bool:
    type = start.operands[0].type
    return isinstance(type, Buf) and type.space == "hbm"


def _slice(block: Block, values: Sequence[Value]) -> list[Operation] | None:
    """The operations of a block that give some values, in order; None if one of them is more than scalar arithmetic."""
    defined = {value: op for op in block.operations for value in op.results}
    found: set[Operation] = set()
    todo = list(values)
    while todo:
        op = defined.get(todo.pop())
        if op is not None and op not in found:
            if op.name not in (*_SCALARS, "window"):
                return None
            found.add(op)
            todo += op.operands
    return [op for op in block.operations if op in found]


@dataclass
class Transfer:
    """A transfer of a block: its buffer's `alloc`, its `dma_start` and `dma_wait`, the buffer's `free`, and the scalars of its window."""

    alloc: Operation
    start: Operation
    wait: Operation
    free: Operation
    slice: list[Operation]


def transfers(block: Block, stores: bool) -> list[Transfer]:
    """The transfers of a block that go by a window and no mask, from or to a buffer of the block."""
    found = []
    for start in block.operations:
        if (
            start.name != "dma_start"
            or _stores(start) is not stores
            or groups(start)["mask"]
            or attribute(start, "volatile")
        ):
            continue
        near, far = start.operands[1 if stores else 0], start.operands[0 if stores else 1]
        alloc, window = near.owner, far.owner
        waits = [op for op in block.operations if op.name == "dma_wait" and op.operands[0] is start.result]
        frees = [op for op in block.operations if op.name == "free" and op.operands[0] is near]
        if not isinstance(window, Operation) or window.name != "window" or not waits or not frees:
            continue
        if not isinstance(alloc, Operation) or alloc.name != "alloc" or alloc.parent is not block:
            continue
        scalars = _slice(block, [far, *groups(start)["go"]])
        if scalars is not None:
            found.append(Transfer(alloc, start, waits[0], frees[0], scalars))
    return found


def _lift(block: Block, turn: Block, roots: Roots) -> None:
    """Moves loads of an `if` before it, under its condition, in the block of a loop's turn."""
    for op in list(block.operations):
        if op.name != "if":
            continue
        for way, region in enumerate(op.regions):
            _lift(region.block, turn, roots)
            for load in transfers(region.block, stores=False):
                if not clobbers(turn, roots, load.start):
                    _before(block, op, way, load)


def _before(block: Block, branch: Operation, way: int, load: Transfer) -> None:
    """Moves a load of an `if` before it: it moves nothing if the other way is taken."""
    inner = branch.regions[way].block
    made = _Maker(load.start)
    go = branch.operands[0]
    if way == 1:
        go = made.add("elementwise", (go, made.constant(1, I1)), I1, opcode="xori")
    before = [load.alloc, *load.slice]
    named = groups(load.start)
    go = made.add("elementwise", (*named["go"], go), I1, opcode="andi") if named["go"] else go
    load.start.operands, load.start.segments = [*load.start.operands[:2], go], (1, 1, 1, 0)
    before += [*made.operations, load.start, load.wait]
    gone = {load.alloc, *load.slice, load.start, load.wait, load.free}
    inner.operations = [op for op in inner.operations if op not in gone]
    at = block.operations.index(branch)
    block.operations[at : at + 1] = [*before, branch, load.free]
    for op in (*before, load.free):
        op.parent = block


class _Maker:
    """Makes operations where another one is."""

    def __init__(self, like: Operation) -> None:
        self.location = like.location
        self.operations: list[Operation] = []

    def add(self, name: str, operands: Sequence[Value], type: Type, **attributes: object) -> Value:
        """An operation with one result."""
        op = Operation(name, operands, [type], attributes, location=self.location)
        self.operations.append(op)
        return op.result

    def constant(self, number: int, type: Type = I32) -> Value:
        """A constant's value."""
        return self.add("const", (), type, value=Constant(type, (number,)))

    def clone(self, operations: Sequence[Operation], values: Mapping[Value, Value]) -> dict[Value, Value]:
        """Copies of scalar operations, with other values: what values became."""
        known = dict(values)
        for op in operations:
            operands = [known.get(value, value) for value in op.operands]
            types = [value.type for value in op.results]
            made = Operation(op.name, operands, types, op.attributes, (), op.location, op.segments)
            self.operations.append(made)
            known.update(zip(op.results, made.results))
        return known


class _Pipeline:
    """A `for` whose turns begin with the transfers of the next one: ``before``, at the turn's ``top``, and ``after`` it are operations."""

    def __init__(self, loop: Operation) -> None:
        self.loop, self.block = loop, loop.regions[0].block
        self.inits, self.arguments = loop.operands[3:], self.block.arguments[1:]
        self.given = list(self.block.terminator.operands)
        self.before, self.top, self.after = (_Maker(loop) for _ in range(3))
        self.slots: list[Value] = []  # this turn's and the other one's, before the loop, then in a turn
        self.next: dict[Value, Value] = {}  # of the index and of carried values: the next turn's
        self.more: Value | None = None  # whether there is a next turn

    def carry(self, init: Value) -> Value:
        """Adds a value that the loop carries; what it is in the next turn is added to the terminator by itself."""
        value = Value(init.type, self.block)
        self.block.arguments.append(value)
        self.loop.operands.append(init)
        self.loop.results.append(Value(init.type, self.loop))
        return value

    def give(self, value: Value) -> None:
        """The next turn's value of the last one that `carry` added."""
        self.block.terminator.operands.append(value)

    def slot(self, transfer: Transfer) -> tuple[Value, Value]:
        """The buffer of a transfer, twice: gives it whole, and the slot of this turn, which takes its place."""
        if not self.slots:
            self.slots = [self.before.constant(0), self.before.constant(1)]
            self.slots += map(self.carry, self.slots[:2])
            self.give(self.slots[3])
            self.give(self.slots[2])
        buf = transfer.alloc.result
        assert isinstance(buf.type, Buf)
        whole = self.before.add("alloc", (), replace(buf.type, shape=(2, *buf.type.shape)))
        whole.name = buf.name
        now = self.top.add("slot", (whole, self.slots[2]), buf.type)
        for op in self.block.operations:
            for inner in op.walk():
                inner.operands = [now if value is buf else value for value in inner.operands]
        gone = (transfer.alloc, transfer.free)
        self.block.operations = [op for op in self.block.operations if op not in gone]
        return whole, now

    def turn(self, values: set[Value]) -> bool:
        """Computes the next turn's values early; False if that cannot be."""
        index, (lower, upper, step) = self.block.arguments[0], self.loop.operands[:3]
        wanted = [value for value in self.arguments if value in values and value not in self.next]
        operations = _slice(self.block, [self.given[self.arguments.index(value)] for value in wanted])
        if operations is None or any(isinstance(value.type, Buf) for value in wanted):
            return False
        if self.more is None:
            self.next[index] = self.top.add("elementwise", (index, step), index.type, opcode="addi")
            left = self.top.add("elementwise", (upper, index), index.type, opcode="subi")
            self.more = self.top.add("cmp", (left, step), I1, predicate="ugt")
            compare = "ult" if attribute(self.loop, "unsigned") else "slt"
            self.any = self.before.add("cmp", (lower, upper), I1, predicate=compare)
        known = self.top.clone(operations, {})
        for value in wanted:
            given = self.given[self.arguments.index(value)]
            self.next[value] = known.get(given, given)
        return True

    def load(self, load: Transfer) -> None:
        """Starts a load before the loop, and in each turn that of the next one."""
        used = {value for op in load.slice for value in op.operands}
        if not self.turn(used & set(self.arguments)):
            return
        whole, _ = self.slot(load)
        index, lower = self.block.arguments[0], self.loop.operands[0]
        first = {index: lower, **dict(zip(self.arguments, self.inits))}
        assert self.more is not None
        begun = self.start(self.before, load, whole, self.slots[0], first, self.any)
        token = self.carry(begun)
        self.give(self.start(self.top, load, whole, self.slots[3], self.next, self.more))
        load.wait.operands = [token]
        self.block.operations.remove(load.start)
        self.end(whole)

    def start(
        self, made: _Maker, load: Transfer, whole: Value, slot: Value, values: Mapping[Value, Value], go: Value
    ) -> Value:
        """A load into a slot, of another turn: its token."""
        known = made.clone(load.slice, values)
        window = known[load.start.operands[1]]
        for flag in groups(load.start)["go"]:
            go = made.add("elementwise", (go, known.get(flag, flag)), I1, opcode="andi")
        target = made.add("slot", (whole, slot), load.alloc.result.type)
        operands = (target, window, go)
        op = Operation("dma_start", operands, [Token()], load.start.attributes, (), load.start.location, (1, 1, 1, 0))
        made.operations.append(op)
        return op.result

    def store(self, store: Transfer) -> None:
        """Leaves a store under way until the next turn starts its own."""
        whole, _ = self.slot(store)
        token = self.carry(self.before.add("dma_done", (), Token()))
        self.give(store.start.result)
        operations = self.block.operations
        operations.remove(store.wait)
        store.wait.operands = [token]
        operations.insert(operations.index(store.start), store.wait)
        self.end(whole)

    def end(self, whole: Value) -> None:
        """Waits for the last transfer behind the loop."""
        token = self.loop.results[-1]
        location = self.loop.location
        self.after.operations += [
            Operation("dma_wait", (token,), location=location),
            Operation("free", (whole,), location=location),
        ]

    def finish(self) -> None:
        """Puts what was made where it belongs."""
        outer, block = self.loop.parent, self.block
        assert outer is not None
        at = outer.operations.index(self.loop)
        outer.operations[at : at + 1] = [*self.before.operations, self.loop, *self.after.operations]
        block.operations = [*self.top.operations, *block.operations]
        for owner, operations in (
            (outer, (*self.before.operations, *self.after.operations)),
            (block, self.top.operations),
        ):
            for op in operations:
                op.parent = owner
        prune(block)
