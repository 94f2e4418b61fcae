"""Atomics: lane after lane, in ascending order. What CPUs do not have is a loop around compare-and-exchange."""

from __future__ import annotations

import contextlib

from ..ir.core import Operation
from ..ir.types import Ptr, Scalar
from ..machine.ops import attribute, groups
from . import bounds, scalars
from .access import pointer
from .emit import Function, Lanes
from .memory import from_memory, memory_base, to_memory
from .scalars import size
from .values import Code, Lane, elem_of

_ORDERS = {"relaxed": "monotonic", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
# kind: opcode of integers, opcode of floats, LLVM's own instruction on integers
_KINDS = {
    **{kind: (f"{kind}i", "", kind) for kind in ("and", "or", "xor")},
    "add": ("addi", "addf", "add"),
    "fadd": ("", "addf", ""),
    "max": ("maxsi", "maxnumf", "max"),
    "min": ("minsi", "minnumf", "min"),
    "umax": ("maxui", "", "umax"),
    "umin": ("minui", "", "umin"),
    "xchg": ("", "", "xchg"),
}


def rmw(code: Code, op: Operation) -> None:
    """One atomic for the element, or for each lane that takes part, in ascending order; gives the old elements."""
    kind, elem = attribute(op, "kind"), elem_of(op.results[0].type)
    order = _ORDERS[attribute(op, "sem")]
    helper = f"accel_atomic.{kind}.{order}.{'ptr' if isinstance(elem, Ptr) else elem}"
    code.module.helper(helper, lambda: _rmw_function(code, helper, kind, elem, order))
    _each(code, op, helper, elem)


def cas(code: Code, op: Operation) -> None:
    """Compares bits and exchanges, lane after lane; gives the old elements."""
    elem, order = elem_of(op.results[0].type), _ORDERS[attribute(op, "sem")]
    helper = f"accel_cas.{order}.{size(elem)}"
    bits = f"i{8 * size(elem)}"
    weaker = {"release": "monotonic", "acq_rel": "acquire"}.get(order, order)

    def make() -> str:
        parameters = [("ptr", "%place"), (bits, "%compare"), (bits, "%value")]
        function = Function(code.module, helper, parameters, bits, "internal")
        pair = function.op(f"cmpxchg ptr %place, {bits} %compare, {bits} %value {order} {weaker}, align {size(elem)}")
        function.do(f"ret {bits} {function.op(f'extractvalue {{{bits}, i1}} {pair}, 0')}")
        return function.text()

    code.module.helper(helper, make)
    _each(code, op, helper, elem)


def _bits(e: Lanes, elem: Scalar | Ptr, value: str) -> str:
    """A stored element as an integer of its size in memory."""
    return e.convert("bitcast", memory_base(elem), f"i{8 * size(elem)}", to_memory(e, elem, value))


def _value(e: Lanes, elem: Scalar | Ptr, bits: str) -> str:
    return from_memory(e, elem, e.convert("bitcast", f"i{8 * size(elem)}", memory_base(elem), bits))


def _rmw_function(code: Code, name: str, kind: str, elem: Scalar | Ptr, order: str) -> str:
    """(place, bits of the operand) -> bits of the old element."""
    bits = f"i{8 * size(elem)}"
    function = Function(code.module, name, [("ptr", "%place"), (bits, "%value")], bits, "internal")
    of_int, of_float, plain = _KINDS[kind]
    is_float = isinstance(elem, Scalar) and elem.is_float
    if kind == "xchg" or (plain and not is_float and bits == memory_base(elem) and str(elem) != "i1"):
        old = function.op(f"atomicrmw {plain} ptr %place, {bits} %value {order}, align {size(elem)}")
        function.do(f"ret {bits} {old}")
        return function.text()
    e = Lanes(function, 0)
    place = function.alloca(bits)
    first = function.op(f"load atomic {bits}, ptr %place monotonic, align {size(elem)}")
    function.do(f"store {bits} {first}, ptr {place}")
    function.do("br label %again")
    function.label("again")
    old = function.op(f"load {bits}, ptr {place}")
    new = scalars.elementwise(
        e, of_float if is_float else of_int, elem, [_value(e, elem, old), _value(e, elem, "%value")]
    )
    weaker = {"release": "monotonic", "acq_rel": "acquire"}.get(order, order)
    pair = function.op(
        f"cmpxchg weak ptr %place, {bits} {old}, {bits} {_bits(e, elem, new)} {order} {weaker}, align {size(elem)}"
    )
    function.do(f"store {bits} {function.op(f'extractvalue {{{bits}, i1}} {pair}, 0')}, ptr {place}")
    done = function.op(f"extractvalue {{{bits}, i1}} {pair}, 1")
    function.do(f"br i1 {done}, label %end, label %again")
    function.label("end")
    function.do(f"ret {bits} {old}")
    return function.text()


def _each(code: Code, op: Operation, helper: str, elem: Scalar | Ptr) -> None:
    """Calls a helper for the element, or for each lane that takes part; masked lanes give 0."""
    named, function = groups(op), code.function
    operands = [value for name in ("compare", "value") for value in named.get(name, ())]
    mask = named["mask"][0] if named.get("mask") else None
    found = [code.values[value] for value in (*named["address"], *operands, *([mask] if mask else []))]
    vector = any(lane.vector for lane in found) or bool(code.width)
    bits = f"i{8 * size(elem)}"
    e = code.lanes(vector)
    places = code.spread(found[0], Ptr(elem), vector)
    address = pointer(code, places, vector)
    given = [_bits(e, elem, code.spread(lane, elem, vector)) for lane in found[1 : 1 + len(operands)]]
    go = code.spread(found[-1], Scalar("i1"), vector) if mask else ""
    result = function.alloca(e.type(bits))
    function.do(f"store {e.type(bits)} zeroinitializer, ptr {result}")

    if vector:
        bounds.check(code, op, Lane(places, True), go)

    def one(place: str, values: list[str], out: str) -> None:
        arguments = ", ".join([f"ptr {place}", *(f"{bits} {value}" for value in values)])
        function.do(f"store {bits} {function.op(f'call {bits} @{helper}({arguments})')}, ptr {out}")

    if not vector:
        with function.when(go) if go else contextlib.nullcontext():
            bounds.check(code, op, found[0])
            one(address, given, result)
    else:
        columns = [(e.type("ptr"), "ptr", address), *((e.type(bits), bits, value) for value in given)]
        if go:
            columns.append((e.type("i8"), "i8", e.convert("zext", "i1", "i8", go)))
        held = [function.alloca(type) for type, _, _ in columns]
        for (type, _, value), place in zip(columns, held):
            function.do(f"store {type} {value}, ptr {place}")
        with function.loop("0", str(code.width)) as lane:
            row = [
                function.op(f"load {name}, ptr {function.op(f'getelementptr {name}, ptr {place}, i64 {lane}')}")
                for (_, name, _), place in zip(columns, held)
            ]
            out = function.op(f"getelementptr {bits}, ptr {result}, i64 {lane}")
            if go:
                with function.when(function.op(f"icmp ne i8 {row[-1]}, 0")):
                    one(row[0], row[1:-1], out)
            else:
                one(row[0], row[1:], out)
    old = function.op(f"load {e.type(bits)}, ptr {result}")
    code.values[op.result] = Lane(_value(e, elem, old), vector)
