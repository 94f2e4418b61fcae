"""Runs the tile IR: the definition of what its operators compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir import floats
from ..ir.core import Operation
from ..ir.ops import attribute, groups
from ..ir.types import Scalar, Type, View, element, shape
from . import arithmetic, extern, fold, matrix
from .engine import Array, AssertFault, Engine, Handler, shown
from .memory import Memory

# kind of an atomic: opcode of integers, opcode of floats
_ATOMICS = {
    **{kind: (f"{kind}i", "") for kind in ("and", "or", "xor")},
    "add": ("addi", "addf"),
    "fadd": ("", "addf"),
    "max": ("maxsi", "maxnumf"),
    "min": ("minsi", "minnumf"),
    "umax": ("maxui", ""),
    "umin": ("minui", ""),
}


def run(
    module: Operation,
    kernel: str,
    grid: tuple[int, ...],
    arguments: Sequence[Any],
    memory: Memory,
    say: Callable[[str], None] = print,
) -> None:
    """Runs a kernel of a verified module: ``arguments`` are addresses of ``memory`` and numbers. Raises KernelFault."""
    functions = {op.attributes["name"]: op for op in module.regions[0].block.operations}
    Engine(functions, HANDLERS, memory, grid, say).programs(kernel, arguments)


def _elem(op: Operation, operand: int = 0) -> Any:
    return element(op.operands[operand].type)


def _result(op: Operation) -> Type:
    return op.results[0].type


def _const(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    value = op.attributes["value"]
    stored = floats.from_bits(element(value.type), list(value.bits))  # type: ignore[arg-type]
    return [np.resize(stored, shape(value.type))]


def _iota(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    start, end = attribute(op, "start"), attribute(op, "end")
    return [np.arange(start, end, dtype=np.int32)]


def _to_shape(function: Callable[..., Array]) -> Handler:
    return lambda engine, op, args: [function(args[0], shape(_result(op)))]


def _elementwise(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    return [arithmetic.elementwise(attribute(op, "opcode"), element(_result(op)), *args)]


def _cast(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    new = element(_result(op))
    assert isinstance(new, Scalar)
    return [arithmetic.cast(attribute(op, "kind"), _elem(op), new, args[0], attribute(op, "rounding"))]


def _extern_math(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    types = [element(value.type) for value in op.operands]
    return [extern.call(attribute(op, "symbol"), types, element(_result(op)), args)]


def _addresses(op: Operation, operand: Array | tuple[Array, Array], mask: list[Array]) -> tuple[Array, Array | None]:
    """Addresses and mask of an access by pointers or through a view."""
    given = mask[0] if mask else None
    if not isinstance(operand, tuple):
        return operand, given
    addresses, inside = operand
    return addresses, inside if given is None else inside & given


def _named(op: Operation, args: list[Any]) -> dict[str, list[Any]]:
    """Operands by group."""
    values = dict(zip(map(id, op.operands), args))
    return {name: [values[id(value)] for value in group] for name, group in groups(op).items()}


def _view(engine: Engine, op: Operation, args: list[Array]) -> list[Any]:
    """Addresses of the elements, and which lie inside of the bounds."""
    named, type = _named(op, args), _result(op)
    assert isinstance(type, View)
    addresses = np.full(type.shape, named["base"][0])
    inside = np.ones(type.shape, np.bool_)
    for axis, size in enumerate(type.shape):
        index = np.arange(size, dtype=np.int64) + named["offsets"][axis].astype(np.int64)
        index = index.reshape([size if i == axis else 1 for i in range(len(type.shape))])
        addresses = addresses + index * named["strides"][axis].astype(np.int64) * arithmetic.size(type.elem)
        if axis in attribute(op, "bounds"):
            inside = inside & (index >= 0) & (index < named["sizes"][axis].astype(np.int64))
    result = np.empty((), object)
    result[()] = (addresses, inside)
    return [result]


def _place(value: Array) -> Any:
    """What an address operand is: an array of addresses, or a view's pair."""
    return value[()] if value.dtype == object else value


def _load(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    named = _named(op, args)
    addresses, mask = _addresses(op, _place(named["address"][0]), named["mask"])
    value = engine.memory.load(addresses, arithmetic.array_dtype(element(_result(op))), mask)
    if not named["other"] or mask is None:
        return [value]
    return [np.where(mask, value, named["other"][0])]


def _store(engine: Engine, op: Operation, args: list[Array]) -> None:
    named = _named(op, args)
    addresses, mask = _addresses(op, _place(named["address"][0]), named["mask"])
    engine.memory.store(addresses, named["value"][0], mask)


def _rmw(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    named, elem, kind = _named(op, args), element(_result(op)), attribute(op, "kind")
    of_float = isinstance(elem, Scalar) and elem.is_float

    def update(old: Array, new: Array) -> Array:
        return new if kind == "xchg" else arithmetic.elementwise(_ATOMICS[kind][of_float], elem, old, new)

    mask = named["mask"][0] if named["mask"] else None
    return [engine.atomic(named["address"][0], named["value"], mask, update, attribute(op, "sem"))]


def _cas(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    """Compares bits, so that a NaN equals itself and -0 is not 0."""
    bits = [np.ascontiguousarray(arg).view(f"uint{arg.itemsize * 8}").reshape(arg.shape) for arg in args[1:]]
    old = engine.atomic(
        args[0], bits, None, lambda now, compare, new: new if now == compare else now, attribute(op, "sem")
    )
    return [old.view(args[1].dtype)]


def _dot(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    a, b, acc = args
    return [matrix.dot(a, b, acc, _elem(op, 0), _elem(op, 1), _elem(op, 2))]


def _dot_scaled(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    named = _named(op, args)
    a = matrix.unpack(args[0], attribute(op, "a_kind"), _elem(op, 0), -1 if attribute(op, "a_k_pack") else -2)
    b = matrix.unpack(args[1], attribute(op, "b_kind"), _elem(op, 1), -2 if attribute(op, "b_k_pack") else -1)
    a = matrix.scale(a, *(named["a_scale"] or [None]))
    b = matrix.scale(b.swapaxes(-1, -2), *(named["b_scale"] or [None])).swapaxes(-1, -2)
    return [matrix.accumulate(a, b, args[2], _elem(op, 2))]


def _reduce(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    how = (attribute(op, name) for name in ("axis", "lanes", "accumulators"))
    return fold.reduce(engine.combine(op), args, *how)


def _scan(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    return fold.scan(engine.combine(op), args, attribute(op, "axis"), attribute(op, "reverse"))


def _histogram(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    """Elements have no sign; those that are no bin's number, or masked, do not count."""
    counts = np.zeros(shape(_result(op)), arithmetic.array_dtype(element(_result(op))))
    number = arithmetic.unsigned(args[0])
    good = (number < counts.size) & (args[1] if len(args) > 1 else True)
    np.add.at(counts, number[good].astype(np.int64), 1)
    return [counts]


def _if(engine: Engine, op: Operation, args: list[Array]) -> list[Array]:
    return engine.region(op.regions[0] if args[0] else op.regions[1])


def _assert(engine: Engine, op: Operation, args: list[Array]) -> None:
    if not args[0].all():
        raise AssertFault(f"device_assert: {attribute(op, 'message')}")


def _print(engine: Engine, op: Operation, args: list[Array]) -> None:
    prefix, hexadecimal, signs = (attribute(op, name) for name in ("prefix", "hex", "signed"))
    types = [value.type for value in op.operands]
    for line in shown(prefix, hexadecimal, signs, args, types, engine.program):
        engine.say(line)


def _nothing(engine: Engine, op: Operation, args: list[Array]) -> None:
    return None


HANDLERS: dict[str, Handler] = {
    "call": lambda engine, op, args: engine.function(engine.functions[attribute(op, "callee")], args),
    "for": lambda engine, op, args: engine.for_loop(op, args, attribute(op, "unsigned")),
    "while": lambda engine, op, args: engine.while_loop(op, args),
    "if": _if,
    "program_id": lambda engine, op, args: [np.array(engine.program[attribute(op, "axis")], np.int32)],
    "num_programs": lambda engine, op, args: [np.array(engine.grid[attribute(op, "axis")], np.int32)],
    "const": _const,
    "iota": _iota,
    "splat": _to_shape(np.broadcast_to),
    "broadcast": _to_shape(np.broadcast_to),
    "expand": _to_shape(np.reshape),
    "reshape": _to_shape(np.reshape),
    "trans": lambda engine, op, args: [np.transpose(args[0], attribute(op, "order"))],
    "join": lambda engine, op, args: [np.stack(args, axis=-1)],
    "split": lambda engine, op, args: [args[0][..., 0], args[0][..., 1]],
    "cat": lambda engine, op, args: [np.concatenate(args)],
    "gather": lambda engine, op, args: [np.take_along_axis(args[0], args[1].astype(np.int64), attribute(op, "axis"))],
    "map": lambda engine, op, args: engine.mapped(op, args, attribute(op, "pack")),
    "elementwise": _elementwise,
    "cast": _cast,
    "bitcast": lambda engine, op, args: [arithmetic.bitcast(element(_result(op)), args[0])],
    "extern_math": _extern_math,
    "select": lambda engine, op, args: [np.where(args[0], args[1], args[2])],
    "cmp": lambda engine, op, args: [arithmetic.compare(attribute(op, "predicate"), _elem(op), *args)],
    "reduce": _reduce,
    "scan": _scan,
    "histogram": _histogram,
    "view": _view,
    "load": _load,
    "store": _store,
    "atomic_rmw": _rmw,
    "atomic_cas": _cas,
    "barrier": _nothing,
    "dot": _dot,
    "dot_scaled": _dot_scaled,
    "assert": _assert,
    "print": _print,
    "assume": _nothing,
    "poison": lambda engine, op, args: [np.zeros(shape(_result(op)), arithmetic.array_dtype(element(_result(op))))],
}
