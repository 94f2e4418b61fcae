"""Runs the machine IR: the definition of what its operators do. Lanes are axes of arrays, so that a loop's operations run once each.

Inside of loops, a lane's value is an array with an axis for each loop around it (of one dimension each, size 1 where it is the
same for all lanes). ``group`` runs as many iterations of a loop at a time instead of all, where it reads what it might write, and
along ``vec`` first: a loop whose iterations touch what others write, or whose order matters, then gives something else.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..ir import floats
from ..ir.core import Operation, Region, Value
from ..ir.types import I1, Buf, Ptr, Scalar, Tile, Type, element
from ..machine.ops import attribute, groups
from . import arithmetic, dma, fold, matrix, tile
from .engine import Array, Engine, Handler, KernelFault, shown
from .memory import Memory, MemoryFault

POISON = 0xA5  # what the bytes of a new buffer are


def run(
    module: Operation,
    kernel: str,
    grid: tuple[int, ...],
    arguments: Sequence[Any],
    memory: Memory,
    say: Callable[[str], None] = print,
    group: int = 0,
    schedule: str | int = "late",
) -> None:
    """Runs a kernel of a verified module: ``arguments`` are addresses of ``memory`` and numbers. Raises KernelFault.

    ``schedule`` says when DMA moves its elements: "early", "late" or a seed (``dma.Schedule``).
    """
    functions = {op.attributes["name"]: op for op in module.regions[0].block.operations}
    _Core(functions, HANDLERS, memory, grid, say, group, schedule).programs(kernel, arguments)


class _Core(Engine):
    """``lanes`` is the shape of the lanes that run together; () at core level. ``sram`` are the bytes of all frames."""

    def __init__(self, *given: Any) -> None:
        *base, self.group, schedule = given
        super().__init__(*base)
        self.dma = dma.Dma(self.memory, dma.Schedule(schedule))
        self.lanes: tuple[int, ...] = ()
        self.sram = np.empty(0, np.uint8)
        self.frame = 0

    def programs(self, kernel: str, arguments: Sequence[Any]) -> None:
        self.sram = np.empty(attribute(self.functions[kernel], "sram"), np.uint8)
        super().programs(kernel, arguments)

    def function(self, function: Operation, arguments: Sequence[Array]) -> list[Array]:
        results = super().function(function, arguments)
        if function.attributes["name"] == self.kernel:
            try:
                self.dma.end()
            except MemoryFault as fault:
                raise KernelFault(self.kernel, self.program, function.location, str(fault), fault.kind, "") from None
        return results

    def operand(self, value: Value) -> Array:
        found = self.values[value]
        missing = len(self.lanes) - found.ndim
        return found if missing <= 0 or isinstance(value.type, Buf) else found.reshape(found.shape + (1,) * missing)

    @contextlib.contextmanager
    def within(self, lanes: tuple[int, ...]) -> Iterator[None]:
        """Runs with these lanes."""
        outer, self.lanes = self.lanes, lanes
        try:
            yield
        finally:
            self.lanes = outer

    def index(self, dims: tuple[int, ...], axis: int = 0) -> Array:
        """The numbers along one of new axes, which are behind the lanes'."""
        shape = (1,) * (len(self.lanes) + axis) + (dims[axis],) + (1,) * (len(dims) - axis - 1)
        return np.arange(dims[axis], dtype=np.int32).reshape(shape)

    def whole(self, array: Array) -> Array:
        """A lane's value with all axes at their size."""
        return np.broadcast_to(array, self.lanes)

    def alloc(self, type: Buf, offset: int) -> Array:
        """A buffer at its place in the frame, or anywhere before SRAM is planned; filled with POISON."""
        if offset < 0:
            raw = np.empty(type.bytes, np.uint8)
        else:
            raw = self.sram[self.frame + offset : self.frame + offset + type.bytes]
            if raw.size != type.bytes:
                raise MemoryFault(f"a buffer at {self.frame + offset} of {type.bytes} bytes is not in the core's SRAM")
        raw[:] = POISON
        dtype = arithmetic.array_dtype(type.elem)
        return raw.view(np.uint8 if dtype == np.bool_ else dtype).reshape(type.shape)


def serial(op: Operation) -> bool:
    """Whether lanes of a body must run one by one: it has control flow or calls."""
    return any(inner.name in ("if", "for", "while", "call") for inner in op.walk())


@functools.lru_cache(4096)
def touches(op: Operation) -> bool:
    """Whether a loop reads what it might write: in memory, or in a buffer."""
    inner = list(op.walk())
    written = {one.operands[0] for one in inner if one.name == "write"}
    stores = any(one.name == "store" or one.name.startswith("atomic") for one in inner)
    return (stores and any(one.name == "load" for one in inner)) or any(
        one.name == "read" and one.operands[0] in written for one in inner
    )


def _loop(engine: _Core, op: Operation, args: list[Array]) -> None:
    dims, body = tuple(attribute(op, "dims")), op.regions[0]
    vec = attribute(op, "vec")
    turned = 0 <= vec < len(dims) - 1
    group = 1 if serial(op) else engine.group if touches(op) or turned else 0
    if not group:
        indices = [engine.index(dims, axis) for axis in range(len(dims))]
        with engine.within((*engine.lanes, *dims)):
            engine.region(body, indices)
        return
    count = int(np.prod(dims))
    axes = [axis for axis in range(len(dims)) if not turned or axis != vec] + [vec] * turned
    for start in range(0, count, group):
        given = np.unravel_index(np.arange(start, min(start + group, count)), [dims[axis] for axis in axes])
        places = [given[axes.index(axis)] for axis in range(len(dims))]
        shape = (1,) * len(engine.lanes) + (min(group, count - start),)
        with engine.within((*engine.lanes, shape[-1])):
            engine.region(body, [place.astype(np.int32).reshape(shape) for place in places])


def _elements(engine: _Core, region: Region, count: int) -> list[Array]:
    index = engine.index((count,))
    with engine.within((*engine.lanes, count)):
        return [engine.whole(array) for array in engine.region(region, [index])]


def _combined(engine: _Core, op: Operation) -> fold.Combine:
    """The function of the second region; it is given an axis of slots before the lanes'."""
    block = op.regions[1].block

    def call(a: fold.Tuple, b: fold.Tuple) -> fold.Tuple:
        with engine.within(a[0].shape):
            return [engine.whole(value) for value in engine.block(block, [*a, *b])[1]]

    return fold.one_by_one(call) if any(inner.regions or inner.name == "call" for inner in block.operations) else call


def _vreduce(engine: _Core, op: Operation, args: list[Array]) -> list[Array]:
    elements = _elements(engine, op.regions[0], attribute(op, "count"))
    return fold.reduce(_combined(engine, op), elements, -1, attribute(op, "lanes"), attribute(op, "accumulators"))


def _vscan(engine: _Core, op: Operation, args: list[Array]) -> None:
    count = attribute(op, "count")
    elements = _elements(engine, op.regions[0], count)
    results = fold.scan(_combined(engine, op), elements, -1, attribute(op, "reverse"))
    index = engine.index((count,))
    with engine.within((*engine.lanes, count)):
        engine.region(op.regions[2], [index, *results])


def _access(engine: _Core, op: Operation, args: list[Array]) -> list[Array]:
    base, offset, *rest = args
    half = len(rest) // 2
    for stride, index in zip(rest[:half], rest[half:]):
        offset = offset + stride * index.astype(np.int64)
    type = op.results[0].type
    assert isinstance(type, Ptr) and isinstance(type.elem, (Scalar, Ptr))
    return [base + offset * arithmetic.size(type.elem)]


def _places(type: Type, indices: list[Array]) -> tuple[Array, ...]:
    assert isinstance(type, Buf)
    for index, size in zip(indices, type.shape):
        if (index < 0).any() or (index >= size).any():
            raise MemoryFault(f"an index of {type} is outside of it: {index.min()} to {index.max()}")
    return tuple(indices)


def _read(engine: _Core, op: Operation, args: list[Array]) -> list[Array]:
    buf, *indices = args
    value = np.asarray(buf[_places(op.operands[0].type, indices)])
    return [value.astype(np.bool_) if element(op.results[0].type) == I1 else value]


def _write(engine: _Core, op: Operation, args: list[Array]) -> None:
    buf, value, *indices = args
    # All lanes, so that of those that write one element the last wins.
    places = tuple(engine.whole(index) for index in _places(op.operands[0].type, indices))
    buf[places] = engine.whole(value)


def _load(engine: _Core, op: Operation, args: list[Array]) -> list[Array]:
    named = groups(op)
    shape = np.broadcast_shapes(*(arg.shape for arg in args))
    wide = [np.broadcast_to(arg, shape) for arg in args]
    mask = wide[1] if named["mask"] else None
    value = engine.memory.load(wide[0], arithmetic.array_dtype(op.results[0].type), mask)
    return [np.where(mask, value, wide[2]) if named["other"] and mask is not None else value]


def _store(engine: _Core, op: Operation, args: list[Array]) -> None:
    wide = [engine.whole(arg) for arg in args]
    engine.memory.store(wide[0], wide[1], wide[2] if len(wide) > 2 else None)


def _every_lane(handler: Handler) -> Handler:
    return lambda engine, op, args: handler(engine, op, [engine.whole(arg) for arg in args])  # type: ignore[attr-defined]


def _content(value: Value, array: Array) -> Array:
    """What a buffer holds, as the tile that it was."""
    return array.astype(np.bool_) if element(value.type) == I1 and array.dtype == np.uint8 else array


def _histogram(engine: _Core, op: Operation, args: list[Array]) -> None:
    target, values, *mask = args
    number = arithmetic.unsigned(_content(op.operands[1], values))
    good = (number < target.size) & (mask[0].astype(np.bool_) if mask else True)
    target[:] = 0
    np.add.at(target, number[good].astype(np.int64), 1)


def _mma(engine: _Core, op: Operation, args: list[Array]) -> None:
    acc, a, b = args
    types = [element(value.type) for value in op.operands]
    acc[...] = matrix.dot(a, b, acc, types[1], types[2], types[0])  # type: ignore[arg-type]


def _mma_scaled(engine: _Core, op: Operation, args: list[Array]) -> None:
    acc, a, b, *scales = args
    named = dict(zip((name for name in ("a_scale", "b_scale") if groups(op)[name]), scales))
    types = [element(value.type) for value in op.operands]
    a = matrix.unpack(a, attribute(op, "a_kind"), types[1], -1 if attribute(op, "a_k_pack") else -2)  # type: ignore[arg-type]
    b = matrix.unpack(b, attribute(op, "b_kind"), types[2], -2 if attribute(op, "b_k_pack") else -1)  # type: ignore[arg-type]
    a = matrix.scale(a, named.get("a_scale"))
    b = matrix.scale(b.swapaxes(-1, -2), named.get("b_scale")).swapaxes(-1, -2)
    acc[...] = matrix.accumulate(a, b, acc, types[0])  # type: ignore[arg-type]


def _call(engine: _Core, op: Operation, args: list[Array]) -> list[Array]:
    """The callee's frame lies behind the caller's."""
    outer, lanes = engine.frame, engine.lanes
    engine.frame, engine.lanes = outer + -(-attribute(_function(op), "frame") // 64) * 64, ()
    given = [arg if isinstance(value.type, Buf) else arg.reshape(()) for arg, value in zip(args, op.operands)]
    results = engine.function(engine.functions[attribute(op, "callee")], given)
    engine.frame, engine.lanes = outer, lanes
    return results


def _function(op: Operation) -> Operation:
    while op.name != "func":
        assert op.parent is not None and op.parent.parent is not None and op.parent.parent.parent is not None
        op = op.parent.parent.parent
    return op


def _print(engine: _Core, op: Operation, args: list[Array]) -> None:
    prefix, hexadecimal, signs = (attribute(op, name) for name in ("prefix", "hex", "signed"))
    types = [value.type for value in op.operands]
    tiles: list[Type] = [Tile(type.shape, type.elem) if isinstance(type, Buf) else type for type in types]
    content = [_content(value, array) for value, array in zip(op.operands, args)]
    for line in shown(prefix, hexadecimal, signs, content, tiles, engine.program):
        engine.say(line)


def _data(engine: _Core, op: Operation, args: list[Array]) -> list[Array]:
    type, value = op.results[0].type, attribute(op, "value")
    assert isinstance(type, Buf)
    return [np.resize(floats.from_bits(type.elem, list(value.bits)), type.shape)]  # type: ignore[arg-type]


_SAME = (
    *("for", "while", "if", "program_id", "num_programs", "const", "elementwise", "cast", "bitcast", "select", "cmp", "extern_math"),
    *("poison", "barrier", "assert", "assume"),
)  # fmt: skip
HANDLERS: dict[str, Any] = {
    **{name: tile.HANDLERS[name] for name in _SAME},
    **{name: _every_lane(tile.HANDLERS[name]) for name in ("atomic_rmw", "atomic_cas")},
    "load": _load,
    "store": _store,
    "call": _call,
    "print": _print,
    "alloc": lambda engine, op, args: [engine.alloc(op.results[0].type, attribute(op, "offset"))],
    "free": lambda engine, op, args: args[0].reshape(-1).view(np.uint8).fill(POISON),
    "data": _data,
    "recast": lambda engine, op, args: [args[0].reshape(op.results[0].type.shape)],
    **dma.HANDLERS,
    "copy": lambda engine, op, args: np.copyto(args[0], args[1]),
    "read": _read,
    "write": _write,
    "histogram": _histogram,
    "loop": _loop,
    "vreduce": _vreduce,
    "vscan": _vscan,
    "access": _access,
    "mma": _mma,
    "mma_scaled": _mma_scaled,
}
