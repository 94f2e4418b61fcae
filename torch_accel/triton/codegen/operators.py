"""What each operator of the machine IR becomes."""

from __future__ import annotations

from collections.abc import Callable

from ..ir.core import Operation
from ..ir.types import F32, F64, Ptr, Scalar, element
from ..machine.ops import attribute
from . import access, atomics, bounds, buffers, control, debug, extern, loops, matrix, outline, reductions, scalars
from .values import Code, elem_of, literal

Handler = Callable[[Code, Operation], None]


def _const(code: Code, op: Operation) -> None:
    (bits,) = attribute(op, "value").bits
    code.set(op, literal(op.result.type, bits), False)


def _elementwise(code: Code, op: Operation) -> None:
    e, args, vector = code.operands(op)
    opcode, elem = attribute(op, "opcode"), op.operands[0].type
    if opcode == "addptr":
        index = op.operands[1].type
        assert isinstance(index, Scalar)
        args[1] = e.convert("sext", index.name, "i64", args[1])
    code.set(op, scalars.elementwise(e, opcode, elem, args, attribute(op, "contract")), vector)


def _cast(code: Code, op: Operation) -> None:
    e, (value,), vector = code.operands(op)
    old, new = element(op.operands[0].type), element(op.result.type)
    assert isinstance(old, Scalar) and isinstance(new, Scalar)
    code.set(op, scalars.cast(e, attribute(op, "kind"), old, new, value, attribute(op, "rounding")), vector)


def _bitcast(code: Code, op: Operation) -> None:
    e, (value,), vector = code.operands(op)
    code.set(op, scalars.bitcast(e, op.operands[0].type, op.result.type, value), vector)


def _compare(code: Code, op: Operation) -> None:
    e, args, vector = code.operands(op)
    code.set(op, scalars.compare(e, attribute(op, "predicate"), op.operands[0].type, *args), vector)


def _select(code: Code, op: Operation) -> None:
    e, args, vector = code.operands(op)
    code.set(op, scalars.select(e, op.result.type, *args), vector)


def _extern(code: Code, op: Operation) -> None:
    e, args, vector = code.operands(op)
    types = [value.type for value in (*op.operands, op.result)]
    code.set(op, extern.call(e, attribute(op, "symbol"), F64 if F64 in types else F32, args), vector)


def _place(name: str) -> Handler:
    """program_id and num_programs: read once, where the function begins."""
    return lambda code, op: code.set(op, f"%{name}{attribute(op, 'axis')}", False)


def _poison(code: Code, op: Operation) -> None:
    type = op.result.type
    code.set(op, "0" if isinstance(type, Ptr) else literal(elem_of(type), 0), False)


def _nothing(code: Code, op: Operation) -> None:
    """One thread runs a program, and all its accesses are in order."""


HANDLERS: dict[str, Handler] = {
    "const": _const,
    "poison": _poison,
    "elementwise": _elementwise,
    "cast": _cast,
    "bitcast": _bitcast,
    "cmp": _compare,
    "select": _select,
    "extern_math": _extern,
    "program_id": _place("program"),
    "num_programs": _place("grid"),
    "if": control.if_,
    "for": control.for_,
    "while": control.while_,
    "call": control.call,
    "assert": control.assert_,
    "print": debug.print_,
    **dict.fromkeys(("assume", "barrier", "free"), _nothing),
    "access": access.access,
    "load": access.load,
    "store": access.store,
    "atomic_rmw": atomics.rmw,
    "atomic_cas": atomics.cas,
    "read": access.read,
    "write": access.write,
    "loop": bounds.versions(outline.divided(loops.loop)),
    "vreduce": bounds.versions(reductions.vreduce),
    "vscan": bounds.versions(outline.divided(loops.vscan)),
    "alloc": buffers.alloc,
    "recast": buffers.recast,
    "data": buffers.data,
    "copy": buffers.copy,
    "histogram": buffers.histogram,
    "mma": matrix.mma,
    "mma_scaled": matrix.mma_scaled,
}
