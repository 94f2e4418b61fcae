"""Products of the shape that the target has, in the order of the product that they are made of.

Blocks of the operands are copied into buffers of the unit's shape, padded at the edges: with -0 on the left and +0 on the right, whose product -0
changes no sum, not even one that is -0. A sum narrower than f32 is widened while its products are added, as a whole product would add them.
A scaled product becomes one of f32: its operands are unpacked and scaled before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..interpret.matrix import E2M1, GROUP, SCALED
from ..ir.core import Operation, Value
from ..ir.types import F16, F32, F64, I8, I32, I64, Buf, Constant, Scalar, Tile
from ..machine.ops import attribute, groups
from ..target import Target
from .rewrite import Copier

_NO_MINUS_ZERO = ("f8e4m3fnuz", "f8e5m2fnuz")
_Extent = tuple[Value, int]  # where a block begins, and how much of it there is


def products(module: Operation, target: Target) -> Operation:
    """A copy of a module of the machine IR whose products have a shape of the target."""
    return _Products(target).module(module)


def _buf(value: Value) -> Buf:
    assert isinstance(value.type, Buf)
    return value.type


class _Products(Copier):
    def __init__(self, target: Target) -> None:
        super().__init__()
        self.shape = target.mma[0]

    def alloc(self, shape: Sequence[int], elem: Scalar) -> Value:
        """A new buffer."""
        return self.add("alloc", (), Buf(tuple(shape), elem))

    def cast(self, value: Value, elem: Scalar) -> Value:
        """A float of another width."""
        if value.type == elem:
            return value
        return self.add("cast", (value,), elem, kind="float")

    def mma(self, op: Operation) -> None:
        """A product of any shape."""
        acc, a, b = (self.value(value) for value in op.operands)
        self.product(acc, a, b, attribute(op, "precision"))

    def product(self, acc: Value, a: Value, b: Value, precision: str) -> None:
        """acc += a @ b, in blocks."""
        *batch, rows, columns = _buf(acc).shape
        inner = _buf(a).shape[-1]
        if (*batch, rows, columns, inner) == self.shape:
            self.effect("mma", (acc, a, b), precision=precision)
            return
        m, n, k = self.shape
        elem = _buf(acc).elem
        assert isinstance(elem, Scalar)
        wide = F32 if elem.is_float and elem.width < 32 else elem

        def block(at: list[Value], row: _Extent, column: _Extent) -> None:
            total = self.alloc((m, n), wide)
            self.pack(total, acc, at, (row, column), minus=False)

            def add(depth: _Extent) -> None:
                blocks = []
                for buf, shape, place in ((a, (m, k), (row, depth)), (b, (k, n), (depth, column))):
                    kind = _buf(buf).elem
                    assert isinstance(kind, Scalar)
                    blocks.append(self.alloc(shape, F16 if kind.name in _NO_MINUS_ZERO else kind))
                    self.pack(blocks[-1], buf, at, place, minus=buf is a)
                self.effect("mma", (total, *blocks), precision=precision)
                for made in blocks:
                    self.effect("free", (made,))

            self.along(inner, k, add)
            self.unpack(total, acc, at, (row, column))
            self.effect("free", (total,))

        self.over(
            batch,
            [],
            lambda at: self.along(rows, m, lambda row: self.along(columns, n, lambda column: block(at, row, column))),
        )

    def over(self, sizes: Sequence[int], at: list[Value], fill: Callable[[list[Value]], None]) -> None:
        """Loops of the core over some sizes."""
        if not sizes:
            fill(at)
            return
        self.turns(sizes[0], 1, lambda index: self.over(sizes[1:], [*at, index], fill))

    def along(self, size: int, unit: int, fill: Callable[[_Extent], None]) -> None:
        """The blocks of a dimension in ascending order: whole ones, then what is left."""
        whole = size - size % unit
        if whole > unit:
            self.turns(whole, unit, lambda at: fill((at, unit)))
        elif whole:
            fill((self.constant(0), unit))
        if size % unit:
            fill((self.constant(whole), size % unit))

    def pack(
        self, target: Value, source: Value, batch: list[Value], extents: tuple[_Extent, _Extent], minus: bool
    ) -> None:
        """Copies a block, padded with zeros."""
        shape, elem = _buf(target).shape, _buf(target).elem
        assert isinstance(elem, Scalar)
        zero = self.constant(1 << elem.width - 1 if minus and elem.is_float else 0, elem)
        edges = [(self.constant(extent), self.constant(extent - 1)) for _, extent in extents]

        def fill(at: list[Value]) -> None:
            places, tests = [], []
            for one, unit, (begin, extent), (edge, last) in zip(at, shape, extents, edges):
                if extent < unit:  # past the edge, a place in range
                    tests.append(self.compare("slt", one, edge))
                    one = self.compute("minsi", one, last)
                places.append(self.compute("addi", begin, one))
            value = self.cast(self.add("read", (source, *batch, *places), _buf(source).elem), elem)
            for test in tests:
                value = self.add("select", (test, value, zero), elem)
            self.effect("write", (target, value, *at))

        self.loop(shape, fill)

    def unpack(self, source: Value, target: Value, batch: list[Value], extents: tuple[_Extent, _Extent]) -> None:
        """Copies what a block has of the whole back."""
        elem = _buf(target).elem
        assert isinstance(elem, Scalar)

        def fill(at: list[Value]) -> None:
            places = [self.compute("addi", begin, one) for one, (begin, _) in zip(at, extents)]
            value = self.cast(self.add("read", (source, *at), _buf(source).elem), elem)
            self.effect("write", (target, value, *batch, *places))

        self.loop([extent for _, extent in extents], fill)

    # scaled products

    def mma_scaled(self, op: Operation) -> None:
        """A product of the numbers that its operands stand for."""
        named = {name: [self.value(value) for value in group] for name, group in groups(op).items()}
        acc = named["acc"][0]
        shape, right = _buf(acc).shape, _buf(named["b"][0]).shape
        packed = attribute(op, "b_kind") == "e2m1" and attribute(op, "b_k_pack")
        inner = right[-2] * (2 if packed else 1)
        a, b = self.alloc((*shape[:-1], inner), F32), self.alloc((*shape[:-2], inner, shape[-1]), F32)
        self.numbers(a, named["a"][0], named["a_scale"], attribute(op, "a_kind"), -1, attribute(op, "a_k_pack"))
        self.numbers(b, named["b"][0], named["b_scale"], attribute(op, "b_kind"), -2, attribute(op, "b_k_pack"))
        self.product(acc, a, b, "ieee")
        for buf in (a, b):
            self.effect("free", (buf,))

    def numbers(self, target: Value, source: Value, scales: list[Value], kind: str, depth: int, k_pack: bool) -> None:
        """The numbers of an operand: ``depth`` is its shared dimension, along which pairs are packed if ``k_pack``, else along the other one."""
        other = -3 - depth
        elem = _buf(source).elem
        assert isinstance(elem, Scalar)
        table: list[Value] = []
        if kind == "e2m1":
            type = Tile((16,), F32)
            bits = Constant(type, tuple(int(bits) for bits in E2M1.view(np.uint32)))
            table.append(self.add("data", (), Buf((16,), F32, "const"), value=bits))

        def fill(at: list[Value]) -> None:
            places = list(at)
            if table:
                axis = depth if k_pack else other
                places[axis] = self.compute("shrui", at[axis], self.constant(1))
                byte = self.add("cast", (self.add("read", (source, *places), elem),), I32, kind="extui")
                half = self.compute("andi", at[axis], self.constant(1))
                byte = self.compute("shrui", byte, self.compute("shli", half, self.constant(2)))
                value = self.add("read", (*table, self.compute("andi", byte, self.constant(15))), F32)
            else:
                value = self.add("read", (source, *places), elem)
                number = SCALED.get(kind, elem)
                value = self.cast(value if number == elem else self.add("bitcast", (value,), number), F32)
            for scale in scales:
                group = self.compute("shrui", at[depth], self.constant(GROUP.bit_length() - 1))
                value = self.scaled(value, self.add("read", (scale, *at[:-2], at[other], group), I8))
            self.effect("write", (target, value, *at))

        self.loop(_buf(target).shape, fill)

    def scaled(self, value: Value, exponent: Value) -> Value:
        """A number (f32) times 2 ** (exponent - 127), rounded once; the exponent 255 is NaN."""
        code = self.add("cast", (exponent,), I64, kind="extui")
        bits = self.compute("shli", self.compute("addi", code, self.constant(1023 - 127, I64)), self.constant(52, I64))
        nan = self.constant(0x7FF8 << 48, I64)
        bits = self.add("select", (self.compare("eq", code, self.constant(255, I64)), nan, bits), I64)
        factor = self.add("bitcast", (bits,), F64)
        return self.cast(self.compute("mulf", self.cast(value, F64), factor), F32)

    rules = {"mma": mma, "mma_scaled": mma_scaled}
