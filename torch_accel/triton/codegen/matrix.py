"""Products of matrices: blocks of rows times vectors of columns in registers; along the shared dimension an fma each, ascending."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass

from ..ir.core import Operation, Value
from ..ir.types import F32, F64, Buf, Ptr, Scalar
from ..machine.ops import attribute, groups
from . import memory
from .buffers import type_of
from .emit import Lanes
from .formats import base, decode, encode
from .loops import width_of
from .values import Code, elem_of

# A number of the left operand at (row, k), and numbers of the right one at (k, first column): (batch, two places) -> text.
_Single = Callable[[str, str, str], str]
_Vector = Callable[[Lanes, str, str, str], str]


def _scalar(elem: Scalar | Ptr) -> Scalar:
    assert isinstance(elem, Scalar)
    return elem


@dataclass(frozen=True)
class _Shape:
    batch: int
    rows: int
    columns: int
    depth: int


def mma(code: Code, op: Operation) -> None:
    """acc += a @ b."""
    acc, a, b = (type_of(value.type) for value in op.operands)
    texts = [code.values[value].text for value in op.operands]
    inner = _inner(_scalar(acc.elem))
    batch, depth = math.prod(acc.shape[:-2]), a.shape[-1]
    size = _Shape(batch, acc.shape[-2], acc.shape[-1], depth)

    def left(batch: str, row: str, k: str) -> str:
        e = code.lanes(False)
        return _widen(e, a, inner, _load(code, e, a, texts[1], (batch, row, k)))

    def right(e: Lanes, batch: str, k: str, column: str) -> str:
        return _widen(e, b, inner, _load(code, e, b, texts[2], (batch, k, column)))

    _product(code, acc, texts[0], size, inner, left, right)


def _inner(acc: Scalar) -> Scalar:
    """What is added up: an integer of the accumulator's, float64, or float32."""
    return acc if acc.is_int or acc == F64 else F32


def _widen(e: Lanes, buf: Buf, inner: Scalar, value: str) -> str:
    elem = _scalar(buf.elem)
    if inner.is_int:
        return e.convert("sext" if elem.width < inner.width else "trunc", elem.name, inner.name, value)
    number = decode(e, elem, value)
    return e.convert("fpext", "float", "double", number) if inner == F64 and elem != F64 else number


def _place(code: Code, buf: Buf, start: str, at: tuple[str, str, str]) -> str:
    """Pointer to an element of a matrix of a batch."""
    function, (_, columns) = code.function, buf.shape[-2:]
    index = function.op(f"mul i64 {at[0]}, {buf.shape[-2]}")
    index = function.op(f"mul i64 {function.op(f'add i64 {index}, {at[1]}')}, {columns}")
    index = function.op(f"add i64 {index}, {at[2]}")
    return function.op(f"getelementptr {memory.memory_base(buf.elem)}, ptr {start}, i64 {index}")


def _load(code: Code, e: Lanes, buf: Buf, start: str, at: tuple[str, str, str]) -> str:
    return memory.load(e, elem_of(buf.elem), _place(code, buf, start, at))


def _product(code: Code, acc: Buf, start: str, size: _Shape, inner: Scalar, left: _Single, right: _Vector) -> None:
    function, elem = code.function, _scalar(acc.elem)
    width = width_of(size.columns)
    wide = code.module.target.vector_bits == 512
    vectors = 2 if wide and size.columns % (2 * width) == 0 and width > 1 else 1
    rows = min(8 if wide else 4, size.rows & -size.rows)
    name = base(inner)
    with contextlib.ExitStack() as stack:
        batch = stack.enter_context(function.loop("0", str(size.batch)))
        row = stack.enter_context(function.loop("0", str(size.rows), str(rows)))
        column = stack.enter_context(function.loop("0", str(size.columns), str(vectors * width)))
        stack.enter_context(code.vectors(width))
        e = code.lanes()
        type = e.type(name)
        block = [
            (function.op(f"add i64 {row}, {r}"), function.op(f"add i64 {column}, {v * width}"))
            for r in range(rows)
            for v in range(vectors)
        ]
        sums = [function.alloca(type) for _ in block]
        places = [_place(code, acc, start, (batch, *at)) for at in block]
        for place, total in zip(places, sums):
            value = memory.load(e, elem, place)
            function.do(f"store {type} {value if elem == inner else decode(e, elem, value)}, ptr {total}")
        with function.loop("0", str(size.depth)) as k:
            columns = [right(e, batch, k, at) for _, at in block[:vectors]]
            for r in range(rows):
                one = e.splat(name, left(batch, block[r * vectors][0], k))
                for v in range(vectors):
                    total = sums[r * vectors + v]
                    old = function.op(f"load {type}, ptr {total}")
                    function.do(f"store {type} {_add(e, inner, one, columns[v], old)}, ptr {total}")
        for place, total in zip(places, sums):
            value = function.op(f"load {type}, ptr {total}")
            memory.store(e, elem, value if elem == inner else encode(e, elem, value), place)


def _add(e: Lanes, inner: Scalar, a: str, b: str, total: str) -> str:
    if inner.is_int:
        return e.binary("add", inner.name, total, e.binary("mul", inner.name, a, b))
    return e.call("fma", base(inner), a, b, total)


GROUP = 32  # elements of the shared dimension that have one scale
_SCALED = {"e4m3": "f8e4m3fn", "e5m2": "f8e5m2", "bf16": "bf16", "fp16": "f16"}


def mma_scaled(code: Code, op: Operation) -> None:
    """acc += (a * a_scale) @ (b * b_scale), where each 32 elements of the shared dimension have a scale 2 ** (e - 127)."""
    named = groups(op)
    acc, a, b = (type_of(value.type) for value in op.operands[:3])
    texts = {name: code.values[values[0]].text for name, values in named.items() if values}
    inner = _inner(_scalar(acc.elem))
    packed = attribute(op, "a_kind") == "e2m1"
    depth = a.shape[-1] * (2 if packed and attribute(op, "a_k_pack") else 1)
    size = _Shape(math.prod(acc.shape[:-2]), acc.shape[-2], acc.shape[-1], depth)

    def left(batch: str, row: str, k: str) -> str:
        e = code.lanes(False)
        number = _unpacked(
            code, e, a, texts["a"], attribute(op, "a_kind"), (batch, row, k), 2 if attribute(op, "a_k_pack") else 1
        )
        return _scaled_by(code, e, number, named["a_scale"], texts.get("a_scale", ""), batch, row, k, inner)

    def right(e: Lanes, batch: str, k: str, column: str) -> str:
        number = _unpacked(
            code, e, b, texts["b"], attribute(op, "b_kind"), (batch, k, column), 1 if attribute(op, "b_k_pack") else 2
        )
        return _scaled_by(code, e, number, named["b_scale"], texts.get("b_scale", ""), batch, column, k, inner)

    _product(code, acc, texts["acc"], size, inner, left, right)


def _unpacked(code: Code, e: Lanes, buf: Buf, start: str, kind: str, at: tuple[str, str, str], axis: int) -> str:
    """Numbers (float32) of a scaled product's operand; e2m1 has two in a byte along an axis of the matrix, the lower half first."""
    if kind != "e2m1":
        elem = _scalar(buf.elem)
        name = _SCALED.get(kind, elem.name)
        value = _load(code, e, buf, start, at)
        return decode(e, Scalar(name), e.convert("bitcast", base(elem), base(Scalar(name)), value))
    function = code.function
    half = function.op(f"lshr i64 {at[axis]}, 1")
    place = _place(code, buf, start, (*at[:axis], half, *at[axis + 1 :]))  # type: ignore[arg-type]
    if axis == 2 and e.count:  # neighbours share bytes
        few = Lanes(function, e.count // 2)
        bytes = memory.load(few if few.count > 1 else Lanes(function, 1), Scalar("i8"), place)
        order = ", ".join(f"i32 {lane // 2}" for lane in range(e.count))
        short = f"<{max(1, e.count // 2)} x i8>"
        value = function.op(f"shufflevector {short} {bytes}, {short} poison, <{e.count} x i32> <{order}>")
        shift = f"<{', '.join(f'i8 {lane % 2 * 4}' for lane in range(e.count))}>"
    else:
        value = memory.load(e, Scalar("i8"), place)
        odd = function.op(f"and i64 {at[axis]}, 1")
        amount = function.op(f"mul i8 {function.op(f'trunc i64 {odd} to i8')}, 4")
        shift = e.splat("i8", amount)
    code_of = e.convert("zext", "i8", "i32", e.binary("lshr", "i8", value, shift))
    magnitude = e.binary("shl", "i32", e.binary("and", "i32", code_of, e.const("i32", 7)), e.const("i32", 22))
    number = e.binary("fmul", "float", e.convert("bitcast", "i32", "float", magnitude), e.const("float", 2.0**126))
    sign = e.binary("shl", "i32", e.binary("and", "i32", code_of, e.const("i32", 8)), e.const("i32", 28))
    return e.convert(
        "bitcast", "i32", "float", e.binary("or", "i32", e.convert("bitcast", "float", "i32", number), sign)
    )


def _scaled_by(
    code: Code, e: Lanes, number: str, scale: list[Value], start: str, batch: str, line: str, k: str, inner: Scalar
) -> str:
    """Numbers times the scale of their group; the scales' matrix is [lines, groups]. The exponent 255 is NaN."""
    if scale:
        buf = type_of(scale[0].type)
        place = _place(code, buf, start, (batch, line, code.function.op(f"udiv i64 {k}, {GROUP}")))
        if e.count:
            offsets = f"<{', '.join(f'i64 {lane * buf.shape[-1]}' for lane in range(e.count))}>"
            places = e.op(f"getelementptr i8, ptr {place}, {e.type('i64')} {offsets}")
            exponent = memory.gather(e, Scalar("i8"), places, "")
        else:
            exponent = memory.load(e, Scalar("i8"), place)
        wide = e.convert("zext", "i8", "i32", exponent)
        bits = e.binary("shl", "i32", wide, e.const("i32", 23))
        least = e.compare("icmp eq", "i32", wide, e.const("i32", 0))
        bits = e.select(least, "i32", e.const("i32", 1 << 22), bits)  # 2 ** -127 is a denormal
        nan = e.compare("icmp eq", "i32", wide, e.const("i32", 255))
        bits = e.select(nan, "i32", e.const("i32", 0x7FC00000), bits)
        number = e.binary("fmul", "float", number, e.convert("bitcast", "i32", "float", bits))
    return e.convert("fpext", "float", "double", number) if inner == F64 else number
