"""Affine forms: an index tile, or an address tile, as offset + sum of stride * index over its dimensions.

Offsets and strides are polynomials of the function's scalars, exact in integers without limit. The tile's own arithmetic wraps at its
width, so that a form holds under its ``conditions``: where an index is widened to 64 bits, all its elements must fit its width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from ..ir.core import Operation, Value
from ..ir.ops import attribute
from ..ir.types import Ptr, Scalar, Tile, element, shape

LIMIT = 1 << 63  # what bounds of an index stay below, so that 64 bits hold it


@dataclass(frozen=True)
class Poly:
    """A sum of products: ``terms`` maps the factors, sorted, to their number. The product of nothing is 1."""

    terms: tuple[tuple[tuple[Value, ...], int], ...] = ()

    @staticmethod
    def of(terms: dict[tuple[Value, ...], int]) -> Poly:
        """Of the terms that are not 0."""
        kept = ((key, number) for key, number in terms.items() if number)
        return Poly(tuple(sorted(kept, key=lambda item: tuple(map(id, item[0])))))

    def __add__(self, other: Poly) -> Poly:
        total = dict(self.terms)
        for key, number in other.terms:
            total[key] = total.get(key, 0) + number
        return Poly.of(total)

    def __mul__(self, other: Poly) -> Poly:
        total: dict[tuple[Value, ...], int] = {}
        for a, x in self.terms:
            for b, y in other.terms:
                key = tuple(sorted((*a, *b), key=id))
                total[key] = total.get(key, 0) + x * y
        return Poly.of(total)

    @property
    def number(self) -> int | None:
        """Its value, if that is known."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def bound(self) -> int:
        """What its size is at most."""
        return sum(abs(number) << sum(_width(value) - 1 for value in key) for key, number in self.terms)


def constant(number: int) -> Poly:
    """The polynomial of a number."""
    return Poly.of({(): number})


def wide(poly: Poly) -> bool:
    """Whether it has a factor of more than 32 bits, so that its value may wrap in 64."""
    return any(_width(value) > 32 for factors, _ in poly.terms for value in factors)


def _width(value: Value) -> int:
    assert isinstance(value.type, Scalar)
    return max(value.type.width, 2)


@dataclass(frozen=True)
class Fits:
    """A condition: offset + sum of stride * index, over all indices below ``sizes``, is a signed integer of ``width`` bits."""

    offset: Poly
    strides: tuple[Poly, ...]
    sizes: tuple[int, ...]
    width: int

    @property
    def always(self) -> bool:
        """Whether it is known to hold."""
        numbers = [poly.number for poly in (self.offset, *self.strides)]
        if any(number is None for number in numbers):
            return False
        start, *steps = (number or 0 for number in numbers)
        ends = [step * (size - 1) for step, size in zip(steps, self.sizes)]
        least, most = start + sum(min(0, end) for end in ends), start + sum(max(0, end) for end in ends)
        return -(1 << self.width - 1) <= least and most < 1 << self.width - 1


@dataclass(frozen=True)
class Period:
    """A condition: no element of offset + sum of stride * index is negative, and all have one quotient by ``divisor``, which is
    positive. ``rest`` stands for the remainder of the one at index 0, the least."""

    offset: Poly
    strides: tuple[Poly, ...]
    sizes: tuple[int, ...]
    divisor: Value
    rest: Value = field(compare=False)


@dataclass(frozen=True)
class Affine:
    """``base`` is the pointer (a scalar) of an address, in elements of which the numbers are; None of an index."""

    offset: Poly
    strides: tuple[Poly, ...]
    base: Value | None = None
    conditions: tuple[Fits | Period, ...] = ()


@dataclass
class Axes:
    """``of(value)``: the affine form of an integer or address tile, or None."""

    known: dict[Value, Affine | None] = field(default_factory=dict)
    periods: dict[Value, Period] = field(default_factory=dict)

    def of(self, value: Value) -> Affine | None:
        """The form of a tile, or of a scalar integer or pointer, which is its own offset or base."""
        if value not in self.known:
            self.known[value] = None  # of a value that depends on itself
            self.known[value] = self._find(value)
        return self.known[value]

    def _find(self, value: Value) -> Affine | None:
        type, op = value.type, value.owner
        elem = element(type)
        if not isinstance(type, Tile):
            if isinstance(elem, Ptr):
                return Affine(Poly(), (), value)
            if isinstance(elem, Scalar) and elem.is_int and elem.width > 1:
                number = _literal(value)
                return Affine(Poly.of({(value,): 1}) if number is None else constant(number), ())
            return None
        return _RULES[op.name](self, op, value) if isinstance(op, Operation) and op.name in _RULES else None

    def widened(self, form: Affine, value: Value) -> Affine | None:
        """An index as an integer of 64 bits: it fits its width, or nothing is known."""
        elem = element(value.type)
        assert isinstance(elem, Scalar)
        if elem.width == 64:
            return form
        sizes = shape(value.type)
        ends = [poly.bound * max(size, 1) for poly, size in zip(form.strides, sizes)]
        if form.offset.bound + sum(ends) >= LIMIT:
            return None
        fits = Fits(form.offset, form.strides, sizes, elem.width)
        more = () if fits.always else (fits,)
        return Affine(form.offset, form.strides, form.base, (*form.conditions, *more))

    def remainder(self, op: Operation, value: Value) -> Affine | None:
        """Of numbers that ascend by known steps: the same numbers less a multiple of the divisor, while they stay in one period."""
        form, by = (self.of(operand) for operand in op.operands)
        form = form and self.widened(form, op.operands[0])
        if form is None or by is None or any(stride.terms for stride in by.strides):
            return None
        terms = by.offset.terms
        if len(terms) != 1 or len(terms[0][0]) != 1 or terms[0][1] != 1:
            return None
        if any(stride.number is None or stride.number < 0 for stride in form.strides):
            return None
        elem = element(value.type)
        assert isinstance(elem, Scalar)
        rest = Value(elem, op)
        period = Period(form.offset, form.strides, shape(value.type), terms[0][0][0], rest)
        self.periods[rest] = period
        return Affine(Poly.of({(rest,): 1}), form.strides, None, (*form.conditions, period))


def _literal(value: Value) -> int | None:
    """The number of a constant."""
    if not isinstance(value.owner, Operation) or value.owner.name != "const":
        return None
    bits, width = value.owner.attributes["value"].bits[0], _width(value)
    return bits - (1 << width) if bits >> (width - 1) and width > 2 else bits


def _const(axes: Axes, op: Operation, value: Value) -> Affine | None:
    elem, bits = element(value.type), op.attributes["value"].bits
    if not isinstance(elem, Scalar) or not elem.is_int or len(bits) != 1:
        return None
    number = bits[0] - (1 << elem.width) if elem.width > 1 and bits[0] >> (elem.width - 1) else bits[0]
    return Affine(constant(number), (Poly(),) * len(shape(value.type)))


def _iota(axes: Axes, op: Operation, value: Value) -> Affine | None:
    return Affine(constant(attribute(op, "start")), (constant(1),))


def _splat(axes: Axes, op: Operation, value: Value) -> Affine | None:
    form = axes.of(op.operands[0])
    return form and Affine(form.offset, (Poly(),) * len(shape(value.type)), form.base, form.conditions)


def _arranged(strides: Callable[[Operation, Value, tuple[Poly, ...]], tuple[Poly, ...] | None]) -> _Rule:
    def rule(axes: Axes, op: Operation, value: Value) -> Affine | None:
        form = axes.of(op.operands[0])
        if form is None:
            return None
        made = strides(op, value, form.strides)
        return None if made is None else Affine(form.offset, made, form.base, form.conditions)

    return rule


def _broadcast(op: Operation, value: Value, old: tuple[Poly, ...]) -> tuple[Poly, ...]:
    return tuple(Poly() if size == 1 else stride for stride, size in zip(old, shape(op.operands[0].type)))


def _reshape(op: Operation, value: Value, old: tuple[Poly, ...]) -> tuple[Poly, ...] | None:
    source = shape(op.operands[0].type)
    kept = [(size, stride) for size, stride in zip(source, old) if size != 1]
    if [size for size, _ in kept] != [size for size in shape(value.type) if size != 1]:
        return None
    rest = iter(stride for _, stride in kept)
    return tuple(Poly() if size == 1 else next(rest) for size in shape(value.type))


def _elementwise(axes: Axes, op: Operation, value: Value) -> Affine | None:
    opcode = op.attributes["opcode"]
    if opcode == "remsi":
        return axes.remainder(op, value)
    if opcode not in ("addi", "subi", "muli", "shli", "addptr"):
        return None
    a, b = (axes.of(operand) for operand in op.operands)
    if a is None or b is None:
        return None
    if opcode == "addptr":
        b = axes.widened(b, op.operands[1])
        if b is None:
            return None
    conditions = (*a.conditions, *(one for one in b.conditions if one not in a.conditions))
    if opcode in ("muli", "shli"):
        if opcode == "shli":
            amount = b.offset.number
            if amount is None or not 0 <= amount < _width_of(value) or any(stride.terms for stride in b.strides):
                return None
            b = Affine(constant(1 << amount), b.strides)
        if any(stride.terms for stride in b.strides):
            a, b = b, a
        if any(stride.terms for stride in b.strides):
            return None
        return Affine(a.offset * b.offset, tuple(stride * b.offset for stride in a.strides), None, conditions)
    sign = constant(-1 if opcode == "subi" else 1)
    strides = tuple(x + y * sign for x, y in zip(a.strides, b.strides))
    return Affine(a.offset + b.offset * sign, strides, a.base, conditions)


def _width_of(value: Value) -> int:
    elem = element(value.type)
    return elem.width if isinstance(elem, Scalar) else 64


def _cast(axes: Axes, op: Operation, value: Value) -> Affine | None:
    form = axes.of(op.operands[0]) if op.attributes["kind"] == "extsi" and _width_of(op.operands[0]) > 1 else None
    return form and axes.widened(form, op.operands[0])


_Rule = Callable[[Axes, Operation, Value], Affine | None]
_RULES: dict[str, _Rule] = {
    "const": _const,
    "iota": _iota,
    "splat": _splat,
    "broadcast": _arranged(_broadcast),
    "expand": _arranged(lambda op, value, old: (*old[: op.attributes["axis"]], Poly(), *old[op.attributes["axis"] :])),
    "trans": _arranged(lambda op, value, old: tuple(old[axis] for axis in op.attributes["order"])),
    "reshape": _arranged(_reshape),
    "elementwise": _elementwise,
    "cast": _cast,
}


def divisor(value: Value, arguments: dict[Value, int]) -> int:
    """A number that divides a scalar: of an argument what its attribute says, 1 if nothing is known."""
    op = value.owner
    if value in arguments or not isinstance(op, Operation):
        return arguments.get(value, 1)
    if op.name == "const":
        return abs(_literal(value) or 0)
    if op.name == "elementwise" and op.attributes["opcode"] in ("muli", "addi", "subi", "addptr"):
        a, b = (divisor(operand, arguments) for operand in op.operands)
        return math.gcd(a * b, 1 << 20) if op.attributes["opcode"] == "muli" else math.gcd(a, b)
    return 1
