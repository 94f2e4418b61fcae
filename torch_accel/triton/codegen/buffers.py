"""Buffers of a core's scratch memory, and what is done to whole ones."""

from __future__ import annotations

from ..ir.core import Operation
from ..ir.types import Buf, Constant
from ..machine.ops import attribute
from .emit import Lanes
from .memory import memory_base
from .scalars import size
from .values import Code, elem_of

_CHUNKS = (64, 32, 16, 8, 4, 2, 1)


def type_of(type: object) -> Buf:
    """The type of a buffer."""
    assert isinstance(type, Buf)
    return type


def alloc(code: Code, op: Operation) -> None:
    """Its place in the function's frame."""
    offset = attribute(op, "offset")
    assert offset >= 0, "SRAM is not planned"
    code.set(op, code.function.op(f"getelementptr i8, ptr %frame, i64 {offset}"), False)


def recast(code: Code, op: Operation) -> None:
    """The same bytes by another type: no instruction."""
    code.set(op, code.values[op.operands[0]].text, False)


def data(code: Code, op: Operation) -> None:
    """A constant of the object."""
    type = type_of(op.result.type)
    value: Constant = attribute(op, "value")
    bits = value.bits * (type.count if len(value.bits) == 1 else 1)
    width = 8 * size(type.elem)
    name = f"accel_data{len(code.module.parts)}"
    numbers = ", ".join(f"i{width} {one}" for one in bits)
    code.module.helper(
        name, lambda: f"@{name} = private constant [{type.count} x i{width}] [{numbers}], align {max(type.align, 64)}"
    )
    code.set(op, f"@{name}", False)


def copy(code: Code, op: Operation) -> None:
    """All bytes, in the widest pieces that fit."""
    function, left = code.function, type_of(op.operands[0].type).bytes
    target, source = (code.values[value].text for value in op.operands)
    start = 0
    for chunk in _CHUNKS:
        count = left // chunk * chunk
        if not count:
            continue
        with function.loop(str(start), str(start + count), str(chunk)) as at:
            places = [function.op(f"getelementptr i8, ptr {buf}, i64 {at}") for buf in (source, target)]
            value = function.op(f"load <{chunk} x i8>, ptr {places[0]}, align 1")
            function.do(f"store <{chunk} x i8> {value}, ptr {places[1]}, align 1")
        start, left = start + count, left - count


def histogram(code: Code, op: Operation) -> None:
    """Counts the values that are a bin's number, one after the other."""
    function, e = code.function, Lanes(code.function, 0)
    target, values, *mask = op.operands
    bins, kind = type_of(target.type), elem_of(type_of(values.type).elem)
    texts = [code.values[value].text for value in op.operands]
    counter, name = memory_base(bins.elem), memory_base(kind)
    with function.loop("0", str(bins.count)) as index:
        function.do(f"store {counter} 0, ptr {function.op(f'getelementptr {counter}, ptr {texts[0]}, i64 {index}')}")
    with function.loop("0", str(type_of(values.type).count)) as index:
        value = function.op(f"load {name}, ptr {function.op(f'getelementptr {name}, ptr {texts[1]}, i64 {index}')}")
        number = e.convert("zext", name, "i64", value)
        good = function.op(f"icmp ult i64 {number}, {bins.count}")
        if mask:
            flag = function.op(f"load i8, ptr {function.op(f'getelementptr i8, ptr {texts[2]}, i64 {index}')}")
            good = function.op(f"and i1 {good}, {function.op(f'icmp ne i8 {flag}, 0')}")
        with function.when(good):
            place = function.op(f"getelementptr {counter}, ptr {texts[0]}, i64 {number}")
            more = function.op(f"add {counter} {function.op(f'load {counter}, ptr {place}')}, 1")
            function.do(f"store {counter} {more}, ptr {place}")
