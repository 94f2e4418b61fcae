"""Nests as functions of their own, where a kernel has many: LLVM's time grows faster than a function, and equal nests are written once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ..ir.core import Block, Operation, Value
from ..machine.ops import BODIES
from . import bounds, context
from .control import leave
from .emit import Function
from .values import Code, parameter

MANY = 16  # nests of a function that is divided
_LEAVES = ("assert", "while", "call")  # what may end the program

_Handler = Callable[[Code, Operation], None]


def nests(block: Block) -> Iterator[Operation]:
    """The nests of the core, in control flow too."""
    for op in block.operations:
        if op.name in BODIES:
            yield op
        else:
            for region in op.regions:
                yield from nests(region.block)


def divided(handler: _Handler) -> _Handler:
    """The handler of an operation without results that writes a function and a call where that is wanted."""

    def write(code: Code, op: Operation) -> None:
        if not code.divided:
            handler(code, op)
            return
        code.divided = False
        _call(code, op, handler)
        code.divided = True

    return write


def _call(code: Code, op: Operation, handler: _Handler) -> None:
    outer, known = code.function, code.values
    given = [value for value in _free(op) if known[value].text.startswith("%")]
    head = [("ptr", "%context"), ("ptr", "%arguments"), ("ptr", "%frame")]
    parameters = [*head, *((parameter(value.type), f"%a{index}") for index, value in enumerate(given))]
    function = Function(code.module, "", parameters, "i32", "internal", "noinline")
    context.read(function)
    code.function = function
    code.values = known | {value: replace(known[value], text=f"%a{index}") for index, value in enumerate(given)}
    handler(code, op)
    function.do("ret i32 0")
    code.function, code.values = outer, known
    name = code.module.shared("accel_nest", function)
    arguments = ", ".join(
        [*(f"{type} {name}" for type, name in head), *(f"{parameter(v.type)} {known[v].text}" for v in given)]
    )
    status = outer.op(f"call i32 @{name}({arguments})")
    if any(inner.name in _LEAVES or bounds.checked(code, inner) for inner in op.walk()):
        with outer.when(outer.op(f"icmp ne i32 {status}, 0")):
            leave(code, status)


def _free(op: Operation) -> list[Value]:
    """What an operation uses of that around it."""
    inside: set[Value] = set()
    used: dict[Value, None] = {}
    for inner in op.walk():
        used.update(dict.fromkeys(inner.operands))
        inside.update(inner.results)
        for region in inner.regions:
            inside.update(region.block.arguments)
    return [value for value in used if value not in inside]
