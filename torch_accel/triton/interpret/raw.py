"""Runs Triton's IR as it was read. It decodes Triton's operations by itself, not by way of the tile IR, so that the two check each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir import floats
from ..ir.core import Block, IRError, Operation
from ..ir.extern import FUNCTIONS
from ..ir.types import Constant, Scalar, Type, element, shape
from . import arithmetic, extern, fold, matrix
from .engine import Array, AssertFault, Engine, Handler, shown
from .memory import Memory

_CMPI = ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"]
_CMPF = [
    "false",
    "oeq",
    "ogt",
    "oge",
    "olt",
    "ole",
    "one",
    "ord",
    "ueq",
    "ugt",
    "uge",
    "ult",
    "ule",
    "une",
    "uno",
    "true",
]
_SCALED = ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "bf16", "fp16"]
# Triton's RMWOp, from 1 on: an opcode and whether it is a float's if the elements are.
_ORDERS = {1: "relaxed", 2: "acquire", 3: "release", 4: "acq_rel"}
_RMW = [None, "andi", "ori", "xori", "addi", "addf", "maxsi", "minsi", "maxui", "minui", "xchg"]


def run(
    module: Operation,
    kernel: str,
    grid: tuple[int, ...],
    arguments: Sequence[Any],
    memory: Memory,
    say: Callable[[str], None] = print,
) -> None:
    """Runs a kernel of a module of ``reader.read``: ``arguments`` are addresses of ``memory`` and numbers. Raises KernelFault."""
    functions = {op.attributes["sym_name"]: op for op in module.regions[0].block.operations}
    for op in module.walk():
        if op.name not in HANDLERS and op.name not in _OTHERS:
            raise IRError(f"'{op.name}' cannot be interpreted", op.location)
        if op.name == "tt.extern_elementwise" and op.attributes["symbol"].removeprefix("accel_") not in FUNCTIONS:
            raise IRError(f"external function '{op.attributes['symbol']}' is not known", op.location)
    _Raw(functions, HANDLERS, memory, grid, say).programs(kernel, arguments)


class _Raw(Engine):
    def follow(self, end: Operation, operands: list[Array]) -> tuple[Block, list[Array]]:
        if end.name == "cf.br":
            return end.successors[0], operands
        assert end.segments is not None
        middle = 1 + end.segments[1]
        return (end.successors[0], operands[1:middle]) if operands[0] else (end.successors[1], operands[middle:])


def _type(op: Operation) -> Type:
    return op.results[0].type


def _elem(op: Operation, operand: int = 0) -> Any:
    return element(op.operands[operand].type)


def _constant(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    value, type = op.attributes["value"], _type(op)
    elem = element(type)
    assert isinstance(elem, Scalar)
    if isinstance(value, Constant):
        stored = floats.from_bits(elem, list(value.bits))
    else:
        stored = floats.from_bits(elem, [int(value) & (1 << elem.width) - 1])
    return [np.broadcast_to(stored, shape(type)) if stored.size == 1 and shape(type) else stored.reshape(shape(type))]


def _same(opcode: str) -> Handler:
    return lambda engine, op, args: [arithmetic.elementwise(opcode, _elem(op), *args)]


def _cast(kind: str) -> Handler:
    return lambda engine, op, args: [arithmetic.cast(kind, _elem(op), element(_type(op)), args[0])]  # type: ignore[arg-type]


def _fp_to_fp(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    toward_zero = op.attributes.get("rounding", 1) == 0
    return [arithmetic.cast("float", _elem(op), element(_type(op)), args[0], "rtz" if toward_zero else "rtne")]  # type: ignore[arg-type]


def _bitcast(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    return [arithmetic.bitcast(element(_type(op)), args[0])]


def _compare(names: list[str]) -> Handler:
    return lambda engine, op, args: [arithmetic.compare(names[op.attributes["predicate"]], _elem(op), *args)]


def _extern(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    name = op.attributes["symbol"].removeprefix("accel_")
    return [extern.call(name, [_elem(op, at) for at in range(len(args))], element(_type(op)), args)]


def _clampf(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    names = ("maximumf", "minimumf") if op.attributes.get("propagateNan") else ("maxnumf", "minnumf")
    raised = arithmetic.elementwise(names[0], _elem(op), args[0], args[1])
    return [arithmetic.elementwise(names[1], _elem(op), raised, args[2])]


def _shaped(function: Callable[[Operation, list[Array]], Array]) -> Handler:
    return lambda engine, op, args: [np.asarray(function(op, args))]


def _target(op: Operation) -> tuple[int, ...]:
    return shape(_type(op))


def _load(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    mask = args[1] if len(args) > 1 else None
    value = engine.memory.load(args[0], arithmetic.array_dtype(element(_type(op))), mask)
    return [value if len(args) < 3 or mask is None else np.where(mask, value, args[2])]


def _store(engine: Engine, op: Operation, args: list[Array]) -> None:
    engine.memory.store(args[0], args[1], args[2] if len(args) > 2 else None)


def _rmw(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    opcode, elem = _RMW[op.attributes["atomic_rmw_op"]], element(_type(op))
    if isinstance(elem, Scalar) and elem.is_float and opcode in ("maxsi", "minsi"):
        opcode = {"maxsi": "maxnumf", "minsi": "minnumf"}[opcode]

    def update(old: Array, new: Array) -> Array:
        return new if opcode == "xchg" else arithmetic.elementwise(str(opcode), elem, old, new)

    mask = args[2] if len(args) > 2 else None
    return [engine.atomic(args[0], args[1:2], mask, update, _ORDERS[op.attributes.get("sem", 4)])]


def _cas(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    """Compares bits."""
    raw = [np.ascontiguousarray(arg).view(f"uint{arg.itemsize * 8}").reshape(arg.shape) for arg in args[1:]]

    def update(old: Array, wanted: Array, new: Array) -> Array:
        return np.asarray(np.where(old == wanted, new, old))

    old = engine.atomic(args[0], raw, None, update, _ORDERS[op.attributes.get("sem", 4)])
    return [old.view(args[1].dtype)]


def _dot(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    a, b, acc = args
    return [matrix.dot(a, b, acc, _elem(op, 0), _elem(op, 1), _elem(op, 2))]


def _dot_scaled(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    segments = op.segments or (1, 1, 1, 0, 0)
    rest = list(args[3:])
    scales = [rest.pop(0) if size else None for size in segments[3:5]]
    kinds = [_SCALED[op.attributes[f"{side}_elem_type"]] for side in "ab"]
    a = matrix.unpack(args[0], kinds[0], _elem(op, 0), -1 if op.attributes.get("lhs_k_pack", True) else -2)
    b = matrix.unpack(args[1], kinds[1], _elem(op, 1), -2 if op.attributes.get("rhs_k_pack", True) else -1)
    a, b = matrix.scale(a, scales[0]), np.swapaxes(matrix.scale(np.swapaxes(b, -1, -2), scales[1]), -1, -2)
    return [matrix.accumulate(a, b, args[2], _elem(op, 2))]


def _reduce(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    return fold.reduce(engine.combine(op), args, op.attributes["axis"])


def _scan(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    return fold.scan(engine.combine(op), args, op.attributes["axis"], op.attributes.get("reverse", False))


def _histogram(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    bins = _target(op)[0]
    values = arithmetic.unsigned(args[0])[args[1]] if len(args) > 1 else arithmetic.unsigned(args[0]).reshape(-1)
    counts = np.bincount(values[values < bins].astype(np.int64), minlength=bins)
    return [counts.astype(arithmetic.array_dtype(element(_type(op))))]


def _gather(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    return [np.take_along_axis(args[0], args[1].astype(np.int64), op.attributes["axis"])]


def _if(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    region = op.regions[0 if args[0] else 1]
    return engine.region(region) if region.blocks else []


def _call(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    return engine.function(engine.functions[op.attributes["callee"]], args)


def _assert(engine: Engine, op: Operation, args: list[Array]) -> None:
    if not args[0].all():
        raise AssertFault(f"device_assert: {op.attributes['message']}")


def _print(engine: Engine, op: Operation, args: list[Array]) -> None:
    known = op.attributes
    types = [value.type for value in op.operands]
    for line in shown(known["prefix"], bool(known.get("hex")), known.get("isSigned", ()), args, types, engine.program):
        engine.say(line)


def _poison(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    return [np.zeros(_target(op), arithmetic.array_dtype(element(_type(op))))]


_ARITH = [
    "addi",
    "subi",
    "muli",
    "divsi",
    "divui",
    "remsi",
    "remui",
    "andi",
    "ori",
    "xori",
    "shli",
    "shrsi",
    "shrui",
    "minsi",
    "minui",
    "maxsi",
    "maxui",
    "addf",
    "subf",
    "mulf",
    "divf",
    "remf",
    "negf",
    "maximumf",
    "minimumf",
    "maxnumf",
    "minnumf",
]
_MATH = ["exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "erf", "floor", "ceil", "absf", "absi", "fma"]
_OTHERS = {
    *("builtin.module", "tt.func", "tt.return", "cf.br", "cf.cond_br", "scf.yield", "scf.condition"),
    *("tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return"),
}
HANDLERS: dict[str, Handler] = {
    "arith.constant": _constant,
    **{f"arith.{name}": _same(name) for name in _ARITH},
    **{f"math.{name}": _same(name) for name in _MATH},
    "tt.mulhiui": _same("mulhiui"),
    "tt.precise_divf": _same("divf"),
    "tt.precise_sqrt": _same("sqrt"),
    "tt.addptr": _same("addptr"),
    "tt.extern_elementwise": _extern,
    "tt.clampf": _clampf,
    **{f"arith.{kind}": _cast(kind) for kind in ("extsi", "extui", "trunci", "sitofp", "uitofp", "fptosi", "fptoui")},
    "arith.extf": _cast("float"),
    "arith.truncf": _cast("float"),
    "tt.fp_to_fp": _fp_to_fp,
    **dict.fromkeys(("arith.bitcast", "tt.bitcast", "tt.ptr_to_int", "tt.int_to_ptr"), _bitcast),
    "arith.cmpi": _compare(_CMPI),
    "arith.cmpf": _compare(_CMPF),
    "arith.select": lambda engine, op, args: [np.where(*args)],
    "tt.make_range": _shaped(lambda op, args: np.arange(op.attributes["start"], op.attributes["end"], dtype=np.int32)),
    "tt.splat": _shaped(lambda op, args: np.broadcast_to(args[0], _target(op))),
    "tt.unsplat": _shaped(lambda op, args: args[0].reshape(())),
    "tt.broadcast": _shaped(lambda op, args: np.broadcast_to(args[0], _target(op))),
    "tt.expand_dims": _shaped(lambda op, args: np.expand_dims(args[0], op.attributes["axis"])),
    "tt.reshape": _shaped(lambda op, args: args[0].reshape(_target(op))),
    "tt.trans": _shaped(lambda op, args: args[0].transpose(op.attributes["order"])),
    "tt.join": _shaped(lambda op, args: np.stack(args, axis=-1)),
    "tt.split": lambda engine, op, args: [args[0][..., 0], args[0][..., 1]],
    "tt.cat": _shaped(lambda op, args: np.concatenate(args)),
    "tt.gather": _gather,
    "tt.map_elementwise": lambda engine, op, args: engine.mapped(op, args, op.attributes["pack"]),
    "tt.reduce": _reduce,
    "tt.scan": _scan,
    "tt.histogram": _histogram,
    "tt.load": _load,
    "tt.store": _store,
    "tt.atomic_rmw": _rmw,
    "tt.atomic_cas": _cas,
    "gpu.barrier": lambda engine, op, args: None,
    "ttg.barrier": lambda engine, op, args: None,
    "tt.dot": _dot,
    "tt.dot_scaled": _dot_scaled,
    "tt.get_program_id": lambda engine, op, args: [np.array(engine.program[op.attributes["axis"]], np.int32)],
    "tt.get_num_programs": lambda engine, op, args: [np.array(engine.grid[op.attributes["axis"]], np.int32)],
    "scf.for": lambda engine, op, args: engine.for_loop(op, args, bool(op.attributes.get("unsignedCmp"))),
    "scf.while": lambda engine, op, args: engine.while_loop(op, args),
    "scf.if": _if,
    "tt.call": _call,
    "tt.assert": _assert,
    "tt.print": _print,
    "llvm.intr.assume": lambda engine, op, args: None,
    "ub.poison": _poison,
}
