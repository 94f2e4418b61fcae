"""Tests before a nest of loops: that its affine addresses are what the kernel's own arithmetic gives, and that what it loads is not
what it stores."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

from ..analysis.axis import Fits, Period, Poly, wide
from ..ir.core import Value
from ..ir.types import I1, I64, Ptr, Scalar
from .lanes import Access, Emitter, injective


def conditions(em: Emitter, accesses: Sequence[Access]) -> list[Value]:
    """What must hold for a nest with these accesses, as values of the core; those that are known to hold are left out."""
    fits = dict.fromkeys(one for access in accesses for one in access.form.conditions)
    found = [value for one in fits for value in (_fits(em, one) if isinstance(one, Fits) else _period(em, one))]
    stores = [access for access in accesses if access.load is None]
    for store, load in itertools.product(stores, accesses):
        if load.load is not None:
            found += _apart(em, store, load)
    return list(dict.fromkeys(found))


def exposed(em: Emitter, accesses: Sequence[Access]) -> list[Value]:
    """The tiles that are loaded where the nest's own stores might have changed them."""
    stores = [access.address for access in accesses if access.load is None]
    loads = {a.load: a.address for a in accesses if a.load is not None}
    return [load for load, address in loads.items() if any(em.plan.may_alias(one, address) for one in stores)]


def _bounds(em: Emitter, offset: Poly, strides: Sequence[tuple[Poly, int]]) -> tuple[Value, Value]:
    """The least and the largest of offset + sum of stride * index."""
    least = most = em.poly(offset)
    for stride, size in strides:
        if size == 1 or stride.number == 0:
            continue
        end = em.poly(stride * Poly.of({(): size - 1}))
        number = stride.number
        if number is None or number < 0:
            low = end if number is not None else em.compute("minsi", end, em.constant(0, I64))
            least = em.compute("addi", least, low)
        if number is None or number > 0:
            high = end if number is not None else em.compute("maxsi", end, em.constant(0, I64))
            most = em.compute("addi", most, high)
    return least, most


def _compare(em: Emitter, predicate: str, a: Value, b: Value) -> Value:
    return em.add("cmp", (a, b), I1, predicate=predicate)


def _fits(em: Emitter, one: Fits) -> list[Value]:
    least, most = _bounds(em, one.offset, list(zip(one.strides, one.sizes)))
    half = 1 << one.width - 1
    return [
        _compare(em, "sge", least, em.constant(-half, I64)),
        _compare(em, "sle", most, em.constant(half - 1, I64)),
    ]


def _period(em: Emitter, one: Period) -> list[Value]:
    least, most = _bounds(em, one.offset, list(zip(one.strides, one.sizes)))
    by, zero = em.wide(one.divisor), em.constant(0, I64)
    first, last = (em.compute("divsi", bound, by) for bound in (least, most))
    return [_compare(em, "sge", least, zero), _compare(em, "sgt", by, zero), _compare(em, "eq", first, last)]


def _apart(em: Emitter, store: Access, load: Access) -> list[Value]:
    """That a load reads nothing that the store writes in another iteration."""
    if not em.plan.may_alias(store.address, load.address):
        return []
    same = store.offset == load.offset and store.strides == load.strides and store.address.type == load.address.type
    same = same and injective(store.strides, em.sizes)
    if same and store.form.base is load.form.base:
        return []
    first, second = (_range(em, access) for access in (store, load))
    apart = em.compute("ori", _compare(em, "sle", first[1], second[0]), _compare(em, "sle", second[1], first[0]))
    if same:
        bases = [em.scalars[access.form.base] for access in (store, load) if access.form.base is not None]
        apart = em.compute("ori", apart, _compare(em, "eq", *(em.add("bitcast", (base,), I64) for base in bases)))
    ordered = [range for range, access in ((first, store), (second, load)) if wide(access.offset)]
    return [apart, *(_compare(em, "sle", *range) for range in ordered)]


def _range(em: Emitter, access: Access) -> tuple[Value, Value]:
    """The first address and the one behind the last."""
    assert access.form.base is not None
    base = em.scalars[access.form.base]
    assert isinstance(base.type, Ptr)
    elem = base.type.elem
    size = em.constant(max(1, elem.width // 8) if isinstance(elem, Scalar) else 8, I64)
    least, most = _bounds(em, access.offset, [(stride, em.sizes[index]) for index, stride in access.strides.items()])
    start = em.add("bitcast", (base,), I64)
    most = em.compute("addi", most, em.constant(1, I64))
    begin, end = (em.compute("addi", start, em.compute("muli", bound, size)) for bound in (least, most))
    return begin, end


def both(em: Emitter, values: Sequence[Value]) -> Value:
    """The conjunction of conditions."""
    return functools.reduce(lambda a, b: em.compute("andi", a, b), values)
