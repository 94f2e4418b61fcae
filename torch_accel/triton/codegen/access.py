"""Memory: addresses of lanes, loads and stores of device memory, reads and writes of a core's buffers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ..ir.core import Operation, Value
from ..ir.types import I1, Buf, Ptr, Scalar
from ..machine.ops import attribute, groups
from . import bounds, memory
from .formats import base
from .scalars import size
from .values import Code, Lane, constant, elem_of


def access(code: Code, op: Operation) -> None:
    """base + size * (offset + sum of stride * index)."""
    named, type = groups(op), op.results[0].type
    assert isinstance(type, Ptr) and isinstance(type.elem, (Scalar, Ptr))
    bytes = size(type.elem)
    indices = [code.values[value] for value in named["indices"]]
    fixed = [code.values[value] for value in (*named["base"], *named["offset"], *named["strides"])]
    vector = any(lane.vector for lane in fixed)
    e = code.lanes(vector)
    parts = [code.spread(lane, value.type, vector) for lane, value in zip(fixed, op.operands)]
    total, step = parts[1], None
    for stride, text, index in zip(named["strides"], parts[2:], indices):
        if vector:
            here = e.convert("sext", "i32", "i64", code.spread(index, named["indices"][0].type))
        else:
            here = index.first or e.convert("sext", "i32", "i64", index.text)
            step = (stride, text) if index.vector else step
        total = e.binary("add", "i64", total, e.binary("mul", "i64", text, here))
    address = e.binary("add", "i64", parts[0], e.binary("mul", "i64", total, e.const("i64", bytes)))
    if vector or step is None or constant(step[0]) == 0:
        code.values[op.result] = Lane(address, vector)
        return
    known, e = constant(step[0]), code.lanes()
    if known is not None:
        apart = code.iota("i64", known * bytes)
    else:
        apart = e.binary("mul", "i64", e.splat("i64", step[1]), code.iota("i64", bytes))
    all = e.binary("add", "i64", e.splat("i64", address), apart)
    code.values[op.result] = Lane(all, True, address if known == 1 else "")


def pointer(code: Code, address: str, vector: bool = False) -> str:
    """Where a core reaches a device address: the only place that adds D."""
    e = code.lanes(vector)
    moved = e.binary("add", "i64", address, e.splat("i64", "%offset") if vector else "%offset")
    return e.op(f"inttoptr {e.type('i64')} {moved} to {e.type('ptr')}")


def load(code: Code, op: Operation) -> None:
    """In one of three forms: one element for all lanes, neighbours, or a gather."""
    named, elem = groups(op), elem_of(op.results[0].type)
    place = code.values[named["address"][0]]
    mask = code.values[named["mask"][0]] if named["mask"] else None
    other = code.values[named["other"][0]] if named["other"] else None
    volatile = bool(attribute(op, "volatile"))
    if not place.vector:
        value = _load_one(code, op, elem, mask, volatile)
        vector = bool(mask and mask.vector)
    else:
        given = code.spread(mask, I1) if mask else ""
        bounds.check(code, op, place, given)
        if place.first:
            value = memory.load(code.lanes(), elem, pointer(code, place.first), given, volatile)
        else:
            value = memory.gather(code.lanes(), elem, pointer(code, place.text, True), given)
        vector = True
    if mask and other:
        spread = vector or other.vector
        e = code.lanes(spread)
        parts = [
            code.spread(lane, type, spread) for lane, type in ((mask, I1), (Lane(value, vector), elem), (other, elem))
        ]
        value, vector = e.select(parts[0], base(elem), *parts[1:]), spread
    code.values[op.result] = Lane(value, vector)


def _load_one(code: Code, op: Operation, elem: Scalar | Ptr, mask: Lane | None, volatile: bool) -> str:
    """An element that is the same for all lanes, read if a lane wants it."""
    e, function = code.lanes(False), code.function
    place = code.values[op.operands[0]]
    if mask is None:
        bounds.check(code, op, place)
        return memory.load(e, elem, pointer(code, place.text), volatile=volatile)
    name = base(elem)
    held = function.alloca(name)
    function.do(f"store {name} zeroinitializer, ptr {held}")
    with function.when(code.lanes(mask.vector).any(mask.text)):
        bounds.check(code, op, place)
        function.do(f"store {name} {memory.load(e, elem, pointer(code, place.text), volatile=volatile)}, ptr {held}")
    value = e.op(f"load {name}, ptr {held}")
    if not mask.vector:
        return value
    wide = code.lanes()
    return wide.select(mask.text, name, wide.splat(name, value), "zeroinitializer")


def store(code: Code, op: Operation) -> None:
    """Of lanes that write one element the last one wins, as it does in LLVM's scatter."""
    named = groups(op)
    place, value = code.values[named["address"][0]], code.values[named["value"][0]]
    elem = elem_of(named["value"][0].type)
    mask = code.values[named["mask"][0]] if named["mask"] else None
    if not (place.vector or value.vector or (mask and mask.vector)):
        with code.function.when(mask.text) if mask else contextlib.nullcontext():
            bounds.check(code, op, place)
            memory.store(code.lanes(False), elem, value.text, pointer(code, place.text))
        return
    text, given = code.spread(value, elem), code.spread(mask, I1) if mask else ""
    if place.first:
        bounds.check(code, op, place, given)
        memory.store(code.lanes(), elem, text, pointer(code, place.first), given)
    else:
        address = code.spread(place, Ptr(elem))
        bounds.check(code, op, Lane(address, True), given)
        memory.scatter(code.lanes(), elem, text, pointer(code, address, True), given)


def element(code: Code, buf: Value, indices: Sequence[Value]) -> tuple[str, str]:
    """Where an element of a buffer is: its pointer in lane 0 and "one", "many" or "next" to it; "each" has a vector of pointers."""
    type = buf.type
    assert isinstance(type, Buf)
    e = code.lanes(False)
    strides = [1]
    for extent in type.shape[:0:-1]:
        strides.insert(0, strides[0] * extent)
    start, name = code.values[buf].text, memory.memory_base(type.elem)
    found = [code.values[index] for index in indices]
    step = sum(stride for lane, stride in zip(found, strides) if lane.vector)
    if all(lane.first or not lane.vector for lane in found):
        total = "0"
        for lane, stride in zip(found, strides):
            index = lane.first or e.convert("sext", "i32", "i64", lane.text)
            total = e.binary("add", "i64", total, e.binary("mul", "i64", index, str(stride)))
        first = e.op(f"getelementptr {name}, ptr {start}, i64 {total}")
        if not any(lane.vector for lane in found):
            return first, "one"
        if step == 1:
            return first, "next"
        wide = code.lanes()
        return wide.op(f"getelementptr {name}, ptr {first}, {wide.type('i64')} {code.iota('i64', step)}"), "each"
    wide, total = code.lanes(), "zeroinitializer"
    for lane, place, stride in zip(found, indices, strides):
        part = wide.binary("mul", "i32", code.spread(lane, place.type), wide.const("i32", stride))
        total = wide.binary("add", "i32", total, part)
    return wide.op(f"getelementptr {name}, ptr {start}, {wide.type('i32')} {total}"), "each"


def read(code: Code, op: Operation) -> None:
    """An element of a buffer."""
    elem = elem_of(op.results[0].type)
    place, form = element(code, op.operands[0], op.operands[1:])
    e = code.lanes(form != "one")
    value = memory.gather(e, elem, place, "") if form == "each" else memory.load(e, elem, place)
    code.values[op.result] = Lane(value, form != "one")


def write(code: Code, op: Operation) -> None:
    """An element of a buffer: of lanes that write the same the last one wins."""
    buf, value, *indices = op.operands
    elem, lane = elem_of(value.type), code.values[value]
    if op in code.turned:
        memory.store(code.lanes(), elem, code.spread(lane, elem), code.turned[op])
        return
    place, form = element(code, buf, indices)
    if form == "one":
        text = lane.text
        if lane.vector:
            name = base(elem)
            text = code.function.op(f"extractelement {code.lanes().type(name)} {text}, i64 {code.width - 1}")
        memory.store(code.lanes(False), elem, text, place)
    elif form == "next":
        memory.store(code.lanes(), elem, code.spread(lane, elem), place)
    else:
        memory.scatter(code.lanes(), elem, code.spread(lane, elem), place, "")
