"""The tile IR to the machine IR: each tile that is not computed where it is used becomes a buffer, filled by a loop nest of its own.

A plan says which tiles are computed in the nests that use them; without one, every tile is a buffer. Control flow carries scalars; a tile that it carries has a buffer that is made before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..ir.core import Block, IRError, Operation, Region, Value
from ..ir.ops import attribute, groups
from ..ir.types import I32, Buf, Tile, Type, element, shape
from . import guards
from .fuse import Plan
from .lanes import ELEMENTS, Emitter, serial, unit_reshape

_Rule = Callable[["_Function", Operation], None]


def lower(module: Operation, planner: Callable[[Operation], Plan] = lambda function: Plan()) -> Operation:
    """The machine IR of a verified module of the tile IR. Frees and places of buffers are the next passes' work.

    Raises IRError, with the kernel's line, for what the machine IR does not have.
    """
    block = Block()
    for function in module.regions[0].block.operations:
        block.append(_Function(planner(function)).function(function))
    return Operation("module", regions=[Region([block])], location=module.location)


def storage(type: Type) -> Buf:
    """The buffer of a tile."""
    assert isinstance(type, Tile)
    return Buf(type.shape, type.elem)


class _Function(Emitter):
    def function(self, op: Operation) -> Operation:
        """A `func` of a `func`: its tiles' arguments are buffers, and those that it returns are buffers among its last arguments."""
        source = op.regions[0].block
        given = [storage(value.type) if isinstance(value.type, Tile) else value.type for value in source.arguments]
        returns = list(attribute(op, "returns"))
        given += [storage(type) for type in returns if isinstance(type, Tile)]
        block = Block(given, [value.name for value in source.arguments])
        attributes = {key: value for key, value in op.attributes.items() if key not in ("returns", "arguments")}
        if any(not isinstance(type, Tile) for type in returns):
            attributes["returns"] = [type for type in returns if not isinstance(type, Tile)]
        if attribute(op, "arguments"):
            attributes["arguments"] = [*attribute(op, "arguments"), *({} for _ in given[len(source.arguments) :])]
        with self.scope(block, core=True):
            for old, new in zip(source.arguments, block.arguments):
                (self.buffers if isinstance(old.type, Tile) else self.scalars)[old] = new
            self.operations(source)
            end = source.terminator
            targets = block.arguments[len(source.arguments) :]
            self.location = end.location
            self.fill(targets, [value for value in end.operands if isinstance(value.type, Tile)])
            self.append(Operation("return", self.plain(end.operands), location=end.location))
        return Operation("func", attributes=attributes, regions=[Region([block])], location=op.location)

    # values

    def plain(self, values: Sequence[Value]) -> list[Value]:
        """The scalars among values."""
        return [self.scalars[value] for value in values if not isinstance(value.type, Tile)]

    def alloc(self, type: Type, name: str = "") -> Value:
        """A new buffer for a tile."""
        buf = self.append(Operation("alloc", results=[storage(type)], location=self.location)).result
        buf.name = name
        return buf

    def recast(self, buf: Value, dims: tuple[int, ...]) -> Value:
        """The same storage with another shape."""
        assert isinstance(buf.type, Buf)
        type = replace(buf.type, shape=dims)
        return (
            buf
            if type == buf.type
            else self.append(Operation("recast", (buf,), (type,), location=self.location)).result
        )

    def made(self, value: Value) -> Value:
        """The buffer that a tile goes into: a new one, or the one that it takes over."""
        old = self.plan.reuse.get(value)
        return self.alloc(value.type, value.name) if old is None else self.buffers[old]

    def nest(self, value: Value, buf: Value) -> None:
        """Fills a buffer with a tile."""
        self.each(shape(value.type), lambda at: self.write(buf, self.at(value, at), at))

    def each(self, dims: tuple[int, ...], fill: Callable[[tuple[Value, ...]], None], **attributes: Any) -> None:
        """A loop over lanes, in two versions if it needs a test."""

        def build() -> Sequence[Value]:
            self.loop(dims, fill, **attributes)
            return ()

        self.versions(build)

    def versions(self, build: Callable[[], Sequence[Value]]) -> Sequence[Value]:
        """A nest with affine addresses. Where these, or loads beside its store, need a test, an `if` has it without them too."""
        if not self.plan.fused or self.accesses is not None or self.slow:
            return build()
        self.accesses = []
        fast = Block()
        with self.scope(fast, core=True):
            results = build()
        accesses, self.accesses = self.accesses, None
        tests = guards.conditions(self, accesses)
        if not tests:
            for op in fast.operations:
                self.append(op)
            return results
        slow = Block()
        location = self.location
        with self.scope(slow, core=True):
            self.slow = True
            exposed = [load for load in guards.exposed(self, accesses) if load not in self.buffers]
            for load in exposed:
                self.materialise(load)
            others = build()
            self.slow = False
            for load in exposed:
                del self.buffers[load]
        for block, given in ((fast, results), (slow, others)):
            block.append(Operation("yield", given, location=location))
        types = [value.type for value in results]
        go = guards.both(self, tests)
        regions = [Region([fast]), Region([slow])]
        return self.append(Operation("if", (go,), types, regions=regions, location=location)).results

    def materialise(self, value: Value) -> Value:
        """The buffer of a tile, filled here if it has none."""
        if value not in self.buffers:
            buf = self.made(value)
            self.nest(value, buf)
            self.buffers[value] = buf
        return self.buffers[value]

    def keep(self, op: Operation) -> dict[Value, Value]:
        """New buffers for the operands that an operation computes for later uses."""
        return {value: self.alloc(value.type, value.name) for value in op.operands if self.plan.kept.get(value) is op}

    def elements(self, op: Operation, kept: dict[Value, Value], at: tuple[Value, ...]) -> list[Value]:
        """The operands of a reduction or scan at some indices, those in ``kept`` written to their buffers too."""
        values = [self.at(value, at) for value in op.operands]
        for operand, value in zip(op.operands, values):
            if operand in kept:
                self.write(kept[operand], value, at)
        return values

    def fill(self, targets: Sequence[Value], values: Sequence[Value]) -> None:
        """Tiles to buffers: a copy of one that is a buffer, else a nest."""
        for target, value in zip(targets, values):
            if value not in self.buffers:
                self.nest(value, target)
            elif self.buffers[value] is not target:
                self.append(Operation("copy", (target, self.buffers[value]), location=self.location))

    # operations

    def operations(self, block: Block) -> None:
        """The operations of a block but its terminator."""
        for op in block.operations[:-1]:
            self.location = op.location
            if op.name in CONTROL:
                CONTROL[op.name](self, op)
            elif not tiles((*op.operands, *op.results)):
                self.clone(op)
            elif op.name in RULES:
                RULES[op.name](self, op)
            elif op.name in ELEMENTS:
                for value in op.results:
                    self.element(value)
            else:
                raise IRError(f"the machine IR has no '{op.name}'", op.location)

    def element(self, value: Value) -> None:
        """A result that may be computed where it is used."""
        if not isinstance(value.type, Tile):
            self.scalars[value] = ELEMENTS["reshape"](self, value.owner, value, ())  # type: ignore[arg-type]
        elif value not in self.plan.inline and value not in self.plan.kept:
            self.materialise(value)

    def core(self, block: Block, source: Block, finish: Callable[[], Sequence[Value]], end: str = "yield") -> Region:
        """A region of the core: the operations of a block, then ``finish``, which gives the scalars of the terminator."""
        with self.scope(block, core=True):
            self.operations(source)
            self.location = source.terminator.location
            self.append(Operation(end, finish(), location=self.location))
        return Region([block])

    def enter(self, source: Sequence[Value], buffers: Sequence[Value]) -> Block:
        """A block for one of the tile IR's: tiles among its arguments are the buffers, the others are its own arguments."""
        scalars = [value for value in source if not isinstance(value.type, Tile)]
        block = Block([value.type for value in scalars], [value.name for value in scalars])
        self.scalars.update(zip(scalars, block.arguments))
        self.buffers.update(zip(tiles(source), buffers))
        return block

    def assign(self, targets: Sequence[Value], values: Sequence[Value]) -> None:
        """Tiles to the buffers that a loop carries, all at once: each is a buffer of its own before the first target changes."""
        for value in values:
            self.materialise(value)
        moved = [(t, v) for t, v in zip(targets, values) if self.buffers[v] is not t]
        held = {}
        for _, value in moved[1:]:  # a tile that another target holds is saved
            if root(self.buffers[value]) in targets:
                held[value] = self.alloc(value.type, value.name)
                self.append(Operation("copy", (held[value], self.buffers[value]), location=self.location))
        for target, value in moved:
            self.append(Operation("copy", (target, held.get(value, self.buffers[value])), location=self.location))

    def finish(self, op: Operation, source: Operation) -> None:
        """Adds an operation with the scalars among the results of the tile IR's, and names them."""
        self.location = source.location
        scalars = [value for value in source.results if not isinstance(value.type, Tile)]
        for old, new in zip(scalars, self.append(op).results):
            new.name = old.name
            self.scalars[old] = new


def root(buf: Value) -> Value:
    """The buffer whose storage a buffer is."""
    while isinstance(buf.owner, Operation) and buf.owner.name == "recast":
        buf = buf.owner.operands[0]
    return buf


def tiles(values: Sequence[Value]) -> list[Value]:
    """The tiles among values."""
    return [value for value in values if isinstance(value.type, Tile)]


def _scalar_types(values: Sequence[Value]) -> list[Type]:
    return [value.type for value in values if not isinstance(value.type, Tile)]


def _for(fn: _Function, op: Operation) -> None:
    source = op.regions[0].block
    carried = [fn.alloc(value.type, value.name) for value in tiles(op.results)]
    fn.fill(carried, tiles(op.operands))
    block = fn.enter(source.arguments, carried)

    def finish() -> list[Value]:
        fn.assign(carried, tiles(source.terminator.operands))
        return fn.plain(source.terminator.operands)

    region = fn.core(block, source, finish)
    attributes = {**op.attributes}
    made = Operation("for", fn.plain(op.operands), _scalar_types(op.results), attributes, [region], op.location)
    fn.finish(made, op)
    fn.buffers.update(zip(tiles(op.results), carried))


def _while(fn: _Function, op: Operation) -> None:
    """What the condition passes on has buffers of its own, unless it is what the loop carries."""
    before, after = (region.block for region in op.regions)
    carried = [fn.alloc(value.type, value.name) for value in tiles(before.arguments)]
    fn.fill(carried, tiles(op.operands))
    block = fn.enter(before.arguments, carried)
    sources = tiles(before.terminator.operands)
    passed = [fn.buffers[value] if value in before.arguments else fn.alloc(value.type, value.name) for value in sources]

    def condition() -> list[Value]:
        fn.fill(passed, sources)
        return fn.plain(before.terminator.operands)

    regions = [fn.core(block, before, condition, "condition")]

    def finish() -> list[Value]:
        fn.assign(carried, tiles(after.terminator.operands))
        return fn.plain(after.terminator.operands)

    regions.append(fn.core(fn.enter(after.arguments, passed), after, finish))
    made = Operation("while", fn.plain(op.operands), _scalar_types(op.results), op.attributes, regions, op.location)
    fn.finish(made, op)
    fn.buffers.update(zip(tiles(op.results), passed))


def _if(fn: _Function, op: Operation) -> None:
    given = [fn.alloc(value.type, value.name) for value in tiles(op.results)]
    regions = []
    for region in op.regions:
        source = region.block

        def finish(source: Block = source) -> list[Value]:
            fn.fill(given, tiles(source.terminator.operands))
            return fn.plain(source.terminator.operands)

        regions.append(fn.core(Block(), source, finish))
    made = Operation("if", fn.plain(op.operands), _scalar_types(op.results), op.attributes, regions, op.location)
    fn.finish(made, op)
    fn.buffers.update(zip(tiles(op.results), given))


def _call(fn: _Function, op: Operation) -> None:
    operands = [fn.materialise(value) if isinstance(value.type, Tile) else fn.scalars[value] for value in op.operands]
    given = [fn.alloc(value.type, value.name) for value in tiles(op.results)]
    made = Operation("call", [*operands, *given], _scalar_types(op.results), op.attributes, location=op.location)
    fn.finish(made, op)
    fn.buffers.update(zip(tiles(op.results), given))


def _combine(fn: _Function, op: Operation) -> Region:
    """The region that combines elements."""
    source = op.regions[0].block
    return fn.body([value.type for value in source.arguments], lambda block: fn.inline(source, block.arguments))


def _reduce(fn: _Function, op: Operation) -> None:
    """A `vreduce` in a loop over the other dimensions, or one at core level."""
    size, axis = shape(op.operands[0].type), attribute(op, "axis")
    rest = (*size[:axis], *size[axis + 1 :])
    last = axis == len(size) - 1
    elems = [element(value.type) for value in op.operands]
    kept = fn.keep(op)

    def fold(at: tuple[Any, ...]) -> Sequence[Value]:
        first = fn.body(
            [I32],
            lambda block: fn.elements(op, kept, (*at[:axis], block.arguments[0], *at[axis:])),
            (size[axis],),
        )
        regions = [first, _combine(fn, op)]
        how: dict[str, Any] = {name: op.attributes[name] for name in ("lanes", "accumulators") if name in op.attributes}
        if not last or fn.slow or any(map(serial, regions)):
            how["vector"] = False
        return fn.append(Operation("vreduce", (), elems, {"count": size[axis], **how}, regions, op.location)).results

    if not rest:
        fn.scalars.update(zip(op.results, fn.versions(lambda: fold(()))))
        fn.buffers.update(kept)
        return
    bufs = [fn.alloc(value.type, value.name) for value in op.results]

    def fill(at: tuple[Value, ...]) -> None:
        for buf, value in zip(bufs, fold(at)):
            fn.write(buf, value, at)

    fn.each(rest, fill, **({"vec": -1} if last else {}))
    fn.buffers.update({**dict(zip(op.results, bufs)), **kept})


def _scan(fn: _Function, op: Operation) -> None:
    size, axis = shape(op.operands[0].type), attribute(op, "axis")
    rest = (*size[:axis], *size[axis + 1 :])
    last = axis == len(size) - 1
    kept = fn.keep(op)
    bufs = [fn.alloc(value.type, value.name) for value in op.results]

    def fill(at: tuple[Value, ...]) -> None:
        def place(index: Value) -> tuple[Value, ...]:
            return (*at[:axis], index, *at[axis:])

        count = (size[axis],)
        first = fn.body([I32], lambda block: fn.elements(op, kept, place(block.arguments[0])), count)

        def consume(block: Block) -> Sequence[Value]:
            for buf, value in zip(bufs, block.arguments[1:]):
                fn.write(buf, value, place(block.arguments[0]))
            return ()

        elems = [element(value.type) for value in op.results]
        regions = [first, _combine(fn, op), fn.body([I32, *elems], consume, count)]
        attributes: dict[str, Any] = {"count": size[axis]} | ({"reverse": True} if attribute(op, "reverse") else {})
        if not last or fn.slow or any(map(serial, regions)):
            attributes["vector"] = False
        fn.append(Operation("vscan", attributes=attributes, regions=regions, location=op.location))

    if rest:
        fn.each(rest, fill, **({"vec": -1} if last else {}))
    else:

        def build() -> Sequence[Value]:
            fill(())
            return ()

        fn.versions(build)
    fn.buffers.update({**dict(zip(op.results, bufs)), **kept})


def _map(fn: _Function, op: Operation) -> None:
    """A function of scalars, applied to ``pack`` neighbours of each operand at a time."""
    pack, source = attribute(op, "pack"), op.regions[0].block
    bufs = [fn.alloc(value.type, value.name) for value in op.results]
    dims = shape(op.results[0].type)
    if pack == 1:

        def fill(at: tuple[Value, ...]) -> None:
            for buf, value in zip(bufs, fn.inline(source, [fn.at(operand, at) for operand in op.operands])):
                fn.write(buf, value, at)

    else:
        dims = (bufs[0].type.count // pack, pack)  # type: ignore[union-attr]
        given = [fn.recast(fn.materialise(operand), dims) for operand in op.operands]
        taken = [fn.recast(buf, dims) for buf in bufs]

        def fill(at: tuple[Value, ...]) -> None:
            values = [fn.read(buf, (at[0], place)) for buf in given for place in range(pack)]
            for number, value in enumerate(fn.inline(source, values)):
                fn.write(taken[number // pack], value, (at[0], number % pack))

        dims = dims[:1]
    fn.each(dims, fill)
    fn.buffers.update(zip(op.results, bufs))


def _reshape(fn: _Function, op: Operation) -> None:
    """Another shape of the same storage; of a tile without one only where dimensions of size 1 come or go."""
    source, result = op.operands[0], op.result
    whole = isinstance(source.type, Tile) and isinstance(result.type, Tile)
    if whole and (source in fn.buffers or not unit_reshape(shape(source.type), shape(result.type))):
        fn.buffers[result] = fn.recast(fn.materialise(source), shape(result.type))
    else:
        fn.element(result)


def _cat(fn: _Function, op: Operation) -> None:
    buf, first = fn.alloc(op.result.type, op.result.name), shape(op.operands[0].type)[0]
    for value, start in zip(op.operands, (0, first)):

        def fill(at: tuple[Value, ...], value: Value = value, start: int = start) -> None:
            place = fn.compute("addi", at[0], fn.constant(start)) if start else at[0]
            fn.write(buf, fn.at(value, at), (place, *at[1:]))

        fn.each(shape(value.type), fill)
    fn.buffers[op.result] = buf


def _join(fn: _Function, op: Operation) -> None:
    buf = fn.alloc(op.result.type, op.result.name)

    def fill(at: tuple[Value, ...]) -> None:
        for place, value in enumerate(op.operands):
            fn.write(buf, fn.at(value, at), (*at, place))

    fn.each(shape(op.operands[0].type), fill)
    fn.buffers[op.result] = buf


def _lanes(fn: _Function, op: Operation) -> None:
    """An operation with an effect, once for each lane; its result is a buffer."""
    bufs = [fn.alloc(value.type, value.name) for value in op.results]

    def fill(at: tuple[Value, ...]) -> None:
        first, *rest = op.operands
        operands = [fn.address(first, at, None) if op.name == "store" else fn.at(first, at)]
        operands += [fn.at(value, at) for value in rest]
        types = [element(value.type) for value in op.results]
        made = fn.append(Operation(op.name, operands, types, op.attributes, (), op.location, op.segments))
        for buf, value in zip(bufs, made.results):
            fn.write(buf, value, at)

    fn.each(shape(op.operands[0].type), fill)
    fn.buffers.update(zip(op.results, bufs))


def _print(fn: _Function, op: Operation) -> None:
    operands = [fn.materialise(value) if isinstance(value.type, Tile) else fn.scalars[value] for value in op.operands]
    fn.append(Operation("print", operands, (), op.attributes, location=op.location))


def _histogram(fn: _Function, op: Operation) -> None:
    operands = [fn.materialise(value) for value in op.operands]
    buf = fn.alloc(op.result.type, op.result.name)
    fn.append(Operation("histogram", (buf, *operands), location=op.location, segments=(1, 1, len(operands) - 1)))
    fn.buffers[op.result] = buf


def _dot(fn: _Function, op: Operation) -> None:
    named = groups(op)
    operands = [fn.materialise(value) for name, group in named.items() if name != "acc" for value in group]
    buf = fn.made(op.result)
    fn.fill([buf], named["acc"])
    name, segments = "mma", None
    if op.name == "dot_scaled":
        name, segments = "mma_scaled", (1, 1, 1, len(named["a_scale"]), len(named["b_scale"]))
    fn.append(Operation(name, (buf, *operands), (), op.attributes, location=op.location, segments=segments))
    fn.buffers[op.result] = buf


def _nothing(fn: _Function, op: Operation) -> None:
    """An assumption about a tile is dropped."""


CONTROL: dict[str, _Rule] = {"for": _for, "while": _while, "if": _if, "call": _call}
RULES: dict[str, _Rule] = {
    "reduce": _reduce,
    "scan": _scan,
    "map": _map,
    "reshape": _reshape,
    "cat": _cat,
    "join": _join,
    **dict.fromkeys(("store", "atomic_rmw", "atomic_cas", "assert"), _lanes),
    "print": _print,
    "histogram": _histogram,
    **dict.fromkeys(("dot", "dot_scaled"), _dot),
    "assume": _nothing,
}
