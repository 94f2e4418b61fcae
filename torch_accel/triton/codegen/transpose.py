"""Writes of a loop whose lanes lie apart in a buffer, and their neighbours in the rows: square blocks of them are turned in registers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from ..ir.core import Operation, Value
from ..ir.types import Buf
from ..machine.ops import attribute
from . import access
from .emit import Function
from .memory import memory_base
from .scalars import size
from .values import Code, elem_of

_BYTES = {"i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4}
SIDE = 16  # of a block, which is as many lanes


def writes(op: Operation, vec: int, width: int) -> tuple[int, list[Operation]]:
    """The other dimension of the blocks that a loop's lanes are turned in, and the writes that are: -1 and none of most loops."""
    dims, block = attribute(op, "dims"), op.regions[0].block
    if vec < 0 or width != SIDE:
        return -1, []
    inner = [one for one in op.walk() if one is not op]
    fixed = {value for one in inner for value in one.results}
    read = {one.operands[0] for one in inner if one.name == "read"}
    if any(one.regions for one in inner) or any(_moved(value) for value in read):
        return -1, []
    for across, index in enumerate(block.arguments):
        found = [
            one
            for one in block.operations
            if one.name == "write" and across != vec and dims[across] % SIDE == 0
            if one.operands[-1] is index and one.operands[2:].count(block.arguments[vec]) == 1
            if one.operands.count(index) == 1 and not fixed & set(one.operands[2:])
            if one.operands[0] not in read and not _moved(one.operands[0]) and size(_type(one.operands[0]).elem) <= 4
        ]
        if found and len({one.operands[0] for one in found}) == len(found):
            return across, found
    return -1, []


def _type(buf: Value) -> Buf:
    assert isinstance(buf.type, Buf)
    return buf.type


def _moved(buf: Value) -> bool:
    """Whether a buffer is another one's storage."""
    return isinstance(buf.owner, Operation) and buf.owner.name == "recast"


@contextlib.contextmanager
def collected(code: Code, op: Operation, turned: Sequence[Operation], firsts: Sequence[str]) -> Iterator[str]:
    """A loop over the rows of a block, which gives their numbers; then the blocks are turned into their buffers."""
    function, places = code.function, {}
    for one in turned:
        name = memory_base(elem_of(one.operands[1].type))
        places[one] = function.alloca(f"[{SIDE} x <{SIDE} x {name}>], align 64")
    with function.loop("0", str(SIDE)) as row:
        for one, place in places.items():
            name = memory_base(elem_of(one.operands[1].type))
            code.turned[one] = function.op(f"getelementptr <{SIDE} x {name}>, ptr {place}, i64 {row}")
        yield row
    arguments = op.regions[0].block.arguments
    code.values.update(zip(arguments, (code.index(first, False) for first in firsts)))
    for one, place in places.items():
        del code.turned[one]
        target, _ = access.element(code, one.operands[0], one.operands[2:])
        buf, axis = _type(one.operands[0]), one.operands[2:].index(arguments[attribute(op, "vec")])
        apart = 1
        for extent in buf.shape[axis + 1 :]:
            apart *= extent
        name = memory_base(buf.elem)
        helper = f"accel_transpose.{name}"
        code.module.helper(helper, lambda name=name, helper=helper: _helper(code, helper, name))  # type: ignore[misc]
        function.do(f"call void @{helper}(ptr {place}, ptr {target}, i64 {apart})")


def _helper(code: Code, helper: str, name: str) -> str:
    """Turns a block (whose rows follow each other) into rows that are ``%apart`` elements apart: a function, as it is long."""
    parameters = [("ptr", "%from"), ("ptr", "%to"), ("i64", "%apart")]
    function = Function(code.module, helper, parameters, "void", "internal", "noinline")
    type = f"<{SIDE} x {name}>"

    def shuffled(a: str, b: str, lanes: Sequence[int]) -> str:
        order = ", ".join(f"i32 {lane}" for lane in lanes)
        return function.op(f"shufflevector {type} {a}, {type} {b}, <{SIDE} x i32> <{order}>")

    rows = []
    for row in range(SIDE):
        place = function.op(f"getelementptr {type}, ptr %from, i64 {row}")
        rows.append(function.op(f"load {type}, ptr {place}, align 64"))
    half = SIDE // 2
    while half:  # halves of pairs of rows are exchanged, then halves of these
        for row in range(SIDE):
            if row & half:
                continue
            a, b = rows[row], rows[row + half]
            rows[row] = shuffled(a, b, [SIDE + lane - half if lane & half else lane for lane in range(SIDE)])
            rows[row + half] = shuffled(a, b, [SIDE + lane if lane & half else lane + half for lane in range(SIDE)])
        half //= 2
    for number, turned in enumerate(rows):
        start = function.op(f"mul i64 %apart, {number}")
        place = function.op(f"getelementptr {name}, ptr %to, i64 {start}")
        function.do(f"store {type} {turned}, ptr {place}, align {_BYTES[name]}")
    function.do("ret void")
    return function.text()
