"""Tiles go through SRAM: what lanes load and store in HBM becomes a buffer and a DMA.

A nest of lanes is copied with reads and writes of buffers in the place of its loads and stores. Before it, each load's buffer is filled by a
DMA, and waited for; behind it, what it stores is moved. An affine address is a `window`, whose bounds are those conjuncts of the mask that
compare an index; the others are a buffer of bits. Any other address is an element of a buffer of addresses, computed by a nest of its own.
Atomics are run by the core, one after the other in the order of the lanes.

A `loop` whose buffers do not fit into what is left of SRAM is cut into tiles, along its first dimensions, so that the order of lanes stays.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..ir.core import Block, Operation, Region, Value
from ..ir.types import I1, I64, Buf, Ptr, Scalar, Token, Type, element
from ..machine.ops import attribute, groups
from ..target import Target
from .nests import Nest, Place
from .rewrite import Copier, prune


def stage(module: Operation, target: Target, budget: int, double: bool = True) -> Operation:
    """A copy of a module of the machine IR without accesses of HBM in lanes.

    ``budget``: bytes of SRAM that tiles are made for; ``double``: whether those of a tiled nest are there twice.
    """
    return _Stage(target, budget, double).module(module)


class _Stage(Copier):
    def __init__(self, target: Target, budget: int, double: bool) -> None:
        super().__init__()
        self.target, self.budget, self.double = target, budget, double
        self.live = 0  # bytes of the buffers that are alive
        self.started = 0  # transfers
        self.tiled = 0  # nests cut into tiles
        self.independent = 0  # the number of the tiled nest that is being made
        self.starts: dict[Value, Value] = {}  # of indices: where the tile begins
        self.sizes: dict[Value, int] = {}  # of indices: of the tile
        self.local: dict[Value, Value] = {}  # of indices: the place in the tile
        self.staged: dict[Operation, tuple[Value, tuple[Value, ...]]] = {}
        self.kept: list[Value] = []  # buffers to be freed

    # buffers and transfers

    def alloc(self, shape: Sequence[int], elem: Type, name: str = "") -> Value:
        """A new buffer, freed behind the nest."""
        assert isinstance(elem, (Scalar, Ptr))
        buf = self.add("alloc", (), Buf(tuple(shape), elem))
        buf.name = name
        self.live += buf.type.bytes  # type: ignore[union-attr]
        self.kept.append(buf)
        return buf

    def shape(self, place: Place) -> tuple[int, ...]:
        """The size of a tile of an access."""
        return tuple(self.sizes[index] for index in place.indices)

    def start(self, target: Value, source: Value, place: Place, mask: Sequence[Value]) -> Value:
        """Starts a transfer in the next of the queues: gives its token."""
        flags = [self.value(flag) for flag in place.flags]
        for flag in flags[1:]:
            flags[0] = self.compute("andi", flags[0], flag)
        more: dict[str, Any] = {"queue": self.started % self.target.queues}
        more |= {"independent": self.independent} if self.independent else {}
        more |= {"volatile": True} if place.op.attributes.get("volatile") else {}
        self.started += 1
        segments = (1, 1, len(flags[:1]), len(mask))
        return self.add("dma_start", (target, source, *flags[:1], *mask), Token(), segments=segments, **more)

    def far(self, place: Place, addresses: Sequence[Value]) -> Value:
        """What an access's transfer moves in HBM."""
        shape, elem = self.shape(place), place.element.type
        if place.access is None:
            return self.add("indexed", addresses, Buf(shape, elem, "hbm", "indexed", 1))  # type: ignore[arg-type]
        known = groups(place.access)
        of = {index: self.value(stride) for index, stride in zip(known["indices"], known["strides"])}
        offset = self.value(known["offset"][0])
        for index in of:
            if index in self.starts:
                begin = self.compute("muli", of[index], self.wide(self.starts[index]))
                offset = self.compute("addi", offset, begin)
        strides = [of[index] if index in of else self.constant(0, I64) for index in place.indices]
        starts: list[Value] = []
        limits: list[Value] = []
        for bound in place.bounds:
            limit = self.value(bound.limit)
            first = [] if bound.start is None else [self.value(bound.start)]
            if bound.index in self.starts:
                at = self.starts[bound.index]
                first.append(self.wide(at) if limit.type == I64 else at)
            assert isinstance(limit.type, Scalar)
            first = first or [self.constant(0, limit.type)]
            starts.append(functools.reduce(lambda a, b: self.compute("addi", a, b), first))
            limits.append(limit)
        align = attribute(place.access, "align") if not self.starts else 1
        more: dict[str, Any] = {}
        if starts:
            more["bounds"] = [place.indices.index(bound.index) for bound in place.bounds]
            more["compare"] = [bound.compare for bound in place.bounds]
        operands = [self.value(known["base"][0]), offset, *strides, *starts, *limits]
        segments = (1, 1, len(strides), len(starts), len(limits))
        type = Buf(shape, elem, "hbm", "strided", align)  # type: ignore[arg-type]
        return self.add("window", operands, type, segments=segments, **more)

    # nests

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """A copy of lanes, whose values are known in it only."""
        values, local = self.values, self.local
        self.values, self.local = ChainMap({}, values), dict(local)
        try:
            yield
        finally:
            self.values, self.local = values, local

    def enter(self, indices: Sequence[Value], arguments: Sequence[Value]) -> None:
        """Indices of the old nest are arguments of the new one, behind the tile's start."""
        for index, argument in zip(indices, arguments):
            self.local[index] = argument
            begins = index in self.starts
            self.values[index] = self.compute("addi", self.starts[index], argument) if begins else argument

    def nest(self, op: Operation) -> None:
        """A nest at core level."""
        nest = Nest(op)
        if not nest.places:
            self.copy(op)
            return
        self.sizes = dict(nest.sizes)
        self.tile(nest)
        if all(self.sizes[index] == nest.sizes[index] for index in nest.own):
            self.piece(nest)
            return
        self.tiled += 1
        self.independent = self.tiled
        self.cut(nest, 0)
        self.independent, self.starts = 0, {}

    def tile(self, nest: Nest) -> None:
        """Halves the first dimensions, or divides them by what divides them, until the buffers fit."""
        room = self.budget - self.live
        if nest.bytes(self.sizes) <= room:
            return
        room //= 2 if self.double else 1
        for index in nest.own:
            while nest.bytes(self.sizes) > room and self.sizes[index] > 1:
                size = self.sizes[index]
                self.sizes[index] = size // next(by for by in range(2, size + 1) if size % by == 0)

    def cut(self, nest: Nest, axis: int) -> None:
        """Loops over tiles, the first dimension outermost."""
        while axis < len(nest.own) and self.sizes[nest.own[axis]] == nest.sizes[nest.own[axis]]:
            axis += 1
        if axis == len(nest.own):
            self.piece(nest)
            return
        index = nest.own[axis]

        def fill(at: Value) -> None:
            self.starts[index] = at
            self.cut(nest, axis + 1)

        self.turns(nest.sizes[index], self.sizes[index], fill)

    def piece(self, nest: Nest) -> None:
        """A nest, or a tile of one, between its transfers."""
        outer, self.kept = self.kept, []
        waiting: list[Value] = []

        def wait() -> None:
            for token in waiting:
                self.effect("dma_wait", (token,))
            waiting.clear()

        for place in nest.places:
            self.location = place.op.location
            if place.op.name == "store":
                continue
            if place.atomic:
                wait()
                self.atomic(nest, place)
                continue
            if place.buffers:
                wait()
            told = self.fill(nest, place, place.buffers, place.rest)
            buf = self.alloc(self.shape(place), place.element.type, place.op.result.name)
            addresses, mask = (told[:0], told) if place.access else (told[:1], told[1:])
            waiting.append(self.start(buf, self.far(place, addresses), place, mask))
            self.staged[place.op] = (buf, place.indices)
        wait()
        stores = [self.store(place) for place in nest.places if place.op.name == "store"]
        self.lanes(nest)
        for place, (buf, addresses, mask) in stores:
            self.location = place.op.location
            waiting.append(self.start(self.far(place, addresses), buf, place, mask))
        wait()
        for buf in self.kept:
            self.live -= buf.type.bytes  # type: ignore[union-attr]
            self.effect("free", (buf,))
        self.kept = outer

    def lanes(self, nest: Nest) -> None:
        """The nest itself, without what is moved."""
        op = nest.op
        with self.scope():
            made = self.lane(op) if op.name != "loop" else self.loop_of(nest)
        assert made is not None
        self.results(op, made)
        for region in made.regions:
            prune(region.block)
        if op.name == "loop" and len(made.regions[0].block.operations) == 1:
            self.blocks[-1].operations.remove(made)

    def loop_of(self, nest: Nest) -> Operation:
        """A `loop` of a tile's size."""
        op = nest.op

        def fill(arguments: list[Value]) -> None:
            self.enter(nest.own, arguments)
            for inner in op.regions[0].block.operations[:-1]:
                self.lane(inner)

        region = self.region([index.type for index in nest.own], fill)
        attributes = op.attributes | {"dims": [self.sizes[index] for index in nest.own]}
        return self.append(Operation("loop", (), (), attributes, [region], op.location))

    def fill(self, nest: Nest, place: Place, values: Sequence[Value], conjuncts: Sequence[Value] = ()) -> list[Value]:
        """Buffers of lanes' values, filled by a nest of their own; the last one of ``values`` that is among ``conjuncts`` is all of them."""
        if not values:
            return []
        bufs = [self.alloc(self.shape(place), element(value.type)) for value in values]
        needed = nest.needed([*values, *conjuncts])

        def body(arguments: list[Value]) -> None:
            at = arguments[: len(place.indices)]
            self.enter(place.indices, at)
            for op in needed:
                self.lane(op)
            for buf, value in zip(bufs, values):
                given = self.both(conjuncts) if value in conjuncts else self.value(value)
                self.effect("write", (buf, given, *at))

        with self.scope():
            self.loop(self.shape(place) or (1,), body)
        prune(self.blocks[-1].operations[-1].regions[0].block)
        return bufs

    def both(self, conjuncts: Sequence[Value]) -> Value:
        """A conjunction."""
        result = self.value(conjuncts[0])
        for one in conjuncts[1:]:
            result = self.compute("andi", result, self.value(one))
        return result

    def store(self, place: Place) -> tuple[Place, tuple[Value, list[Value], list[Value]]]:
        """The buffers of a store: of what it stores, of its addresses, and of its mask, where it needs them."""
        shape = self.shape(place)
        buf = self.alloc(shape, place.element.type)
        addresses = [] if place.access else [self.alloc(shape, place.op.operands[0].type)]
        mask = [self.alloc(shape, I1)] if place.rest else []
        self.storing = (place, (buf, addresses, mask))
        return self.storing

    def flat(self, buf: Value, count: int) -> Value:
        """A buffer in one dimension."""
        assert isinstance(buf.type, Buf)
        return self.add("recast", (buf,), replace(buf.type, shape=(count,)))

    def atomic(self, nest: Nest, place: Place) -> None:
        """The core does one atomic after the other."""
        op, count = place.op, math.prod(self.shape(place))
        flat = [self.flat(buf, count) for buf in self.fill(nest, place, op.operands)]
        old: list[Value] = []
        if op.result in nest.used:
            buf = self.alloc(self.shape(place), op.result.type)
            self.staged[op] = (buf, place.indices)
            old.append(self.flat(buf, count))

        def turn(at: Value) -> None:
            given = [self.add("read", (buf, at), element(buf.type)) for buf in flat]
            made = self.add(op.name, given, op.result.type, segments=op.segments, **op.attributes)
            for buf in old:
                self.effect("write", (buf, made, at))

        self.turns(count, 1, turn)

    # operations of lanes

    def lane(self, op: Operation) -> Operation | None:
        """An operation of a lane, with buffers for HBM."""
        self.location = op.location
        if op in self.staged:
            self.values[op.result] = self.loaded(op)
            return None
        if op.name.startswith("atomic"):
            return None
        if op.name == "store":
            self.stored(op)
            return None
        operands = [self.value(value) for value in op.operands]
        if op.name == "access":
            operands = self.shifted(op)
        regions = [self.lane_block(region.block) for region in op.regions]
        types = [value.type for value in op.results]
        made = self.append(Operation(op.name, operands, types, op.attributes, regions, op.location, op.segments))
        self.results(op, made)
        return made

    def lane_block(self, source: Block) -> Region:
        """A block of lanes."""
        block = Block([value.type for value in source.arguments], [value.name for value in source.arguments])
        self.values.update(zip(source.arguments, block.arguments))
        self.local.update(zip(source.arguments, block.arguments))
        with self.filling(block):
            for op in source.operations:
                self.lane(op)
        return Region([block])

    def loaded(self, op: Operation) -> Value:
        """A load's element, or what an atomic gave: masked lanes have what the kernel says."""
        buf, indices = self.staged[op]
        value = self.add("read", (buf, *(self.local[index] for index in indices)), op.result.type)
        named = groups(op)
        if op.name != "load" or not named["mask"]:
            return value
        if named["other"]:
            other = self.value(named["other"][0])
        else:
            type = op.result.type
            other = self.constant(0, type if isinstance(type, Scalar) else I64)
            other = other if isinstance(type, Scalar) else self.add("bitcast", (other,), type)
        return self.add("select", (self.value(named["mask"][0]), value, other), op.result.type)

    def stored(self, op: Operation) -> None:
        """What a store's lane moves later."""
        place, (buf, addresses, mask) = self.storing
        at = [self.local[index] for index in place.indices]
        self.effect("write", (buf, self.value(op.operands[1]), *at))
        for one in addresses:
            self.effect("write", (one, self.value(op.operands[0]), *at))
        for one in mask:
            self.effect("write", (one, self.both(place.rest), *at))

    def shifted(self, op: Operation) -> list[Value]:
        """The operands of an access whose indices begin at a tile's start."""
        named = {name: [self.value(value) for value in group] for name, group in groups(op).items()}
        offset = named["offset"][0]
        for stride, index in zip(named["strides"], groups(op)["indices"]):
            if index in self.starts:
                offset = self.compute("addi", offset, self.compute("muli", stride, self.wide(self.starts[index])))
        indices = [self.local[index] for index in groups(op)["indices"]]
        return [named["base"][0], offset, *named["strides"], *indices]

    def allocated(self, op: Operation) -> None:
        """Counts what is alive."""
        self.live += op.result.type.bytes  # type: ignore[union-attr]
        self.copy(op)

    def freed(self, op: Operation) -> None:
        """Counts what is alive."""
        self.live -= op.operands[0].type.bytes  # type: ignore[union-attr]
        self.copy(op)

    rules: dict[str, Callable[[Any, Operation], None]] = {
        **dict.fromkeys(("loop", "vreduce", "vscan"), nest),
        "alloc": allocated,
        "free": freed,
    }
