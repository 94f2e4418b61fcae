"""Triton's IR, as ``reader.read`` gives it, to the tile IR. Attributes that a version of Triton leaves out get their defaults here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import extern, lower_cfg
from .core import Block, IRError, Operation, Region, Value
from .floats import bits_of, encode
from .opcodes import (
    ATOMICS,
    CACHES,
    EVICTIONS,
    FLOAT_PREDICATES,
    INT_PREDICATES,
    PRECISIONS,
    ROUNDINGS,
    SCALED_KINDS,
    SCOPES,
    SEMANTICS,
)
from .types import I1, Constant, Function, Opaque, Scalar, Type, element

_Rule = Callable[["Lowering", Operation], None]

# Triton's name: (ours, attributes)
_ELEMENTWISE = (
    *("addi", "subi", "muli", "divsi", "divui", "remsi", "remui", "andi", "ori", "xori", "shli", "shrsi", "shrui"),
    *("minsi", "minui", "maxsi", "maxui", "addf", "subf", "mulf", "divf", "remf", "negf"),
    *("maximumf", "minimumf", "maxnumf", "minnumf"),
)
_MATH = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "erf", "floor", "ceil", "absf", "absi", "fma")
SIMPLE: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"arith.{name}": ("elementwise", {"opcode": name}) for name in _ELEMENTWISE},
    **{f"math.{name}": ("elementwise", {"opcode": name}) for name in _MATH},
    "tt.mulhiui": ("elementwise", {"opcode": "mulhiui"}),
    "tt.addptr": ("elementwise", {"opcode": "addptr"}),
    # Division and square root are always correctly rounded.
    "tt.precise_divf": ("elementwise", {"opcode": "divf"}),
    "tt.precise_sqrt": ("elementwise", {"opcode": "sqrt"}),
    **{
        f"arith.{kind}": ("cast", {"kind": kind})
        for kind in ("extsi", "extui", "trunci", "sitofp", "uitofp", "fptosi", "fptoui")
    },
    "arith.extf": ("cast", {"kind": "float"}),
    "arith.truncf": ("cast", {"kind": "float"}),
    **dict.fromkeys(("arith.bitcast", "tt.bitcast", "tt.ptr_to_int", "tt.int_to_ptr"), ("bitcast", {})),
    "arith.select": ("select", {}),
    "tt.splat": ("splat", {}),
    "tt.broadcast": ("broadcast", {}),
    # Triton lets the elements of these two come in any order; here it is the row-major one.
    "tt.reshape": ("reshape", {}),
    "tt.unsplat": ("reshape", {}),
    "tt.cat": ("cat", {}),
    "tt.join": ("join", {}),
    "tt.split": ("split", {}),
    "tt.return": ("return", {}),
    "tt.reduce.return": ("yield", {}),
    "tt.scan.return": ("yield", {}),
    "tt.map_elementwise.return": ("yield", {}),
    "scf.yield": ("yield", {}),
    "scf.condition": ("condition", {}),
    "scf.while": ("while", {}),
    "llvm.intr.assume": ("assume", {}),
    "ub.poison": ("poison", {}),
    "gpu.barrier": ("barrier", {}),
    "ttg.barrier": ("barrier", {}),
}
# Triton's name: (ours, Triton's attributes under our names)
RENAMED: dict[str, tuple[str, dict[str, str]]] = {
    "tt.get_program_id": ("program_id", {"axis": "axis"}),
    "tt.get_num_programs": ("num_programs", {"axis": "axis"}),
    "tt.make_range": ("iota", {"start": "start", "end": "end"}),
    "tt.expand_dims": ("expand", {"axis": "axis"}),
    "tt.trans": ("trans", {"order": "order"}),
    "tt.gather": ("gather", {"axis": "axis"}),
    "tt.map_elementwise": ("map", {"pack": "pack"}),
    "tt.reduce": ("reduce", {"axis": "axis"}),
    "tt.scan": ("scan", {"axis": "axis", "reverse": "reverse"}),
    "tt.histogram": ("histogram", {}),
    "tt.assert": ("assert", {"message": "message"}),
    "tt.print": ("print", {"prefix": "prefix", "hex": "hex", "isSigned": "signed"}),
    "tt.call": ("call", {"callee": "callee"}),
}
# What the tile IR does not take, and what a user can do about it.
REFUSED = {
    "tt.elementwise_inline_asm": "inline assembly is for one GPU; write it in Triton's language",
    **dict.fromkeys(
        ("tt.make_tensor_ptr", "tt.advance", "tt.make_tensor_descriptor"),
        "run Triton's passes before (frontend.run_passes)",
    ),
    **{
        f"tt.descriptor_{name}": "a tensor descriptor must be made in the kernel, or be rewritten by Triton's passes before"
        for name in ("load", "store", "gather", "scatter", "reduce")
    },
}


def lower(module: Operation) -> Operation:
    """The tile IR of a module of Triton's. Raises IRError, with the kernel's line, for what the tile IR does not have."""
    block = Block()
    for operation in module.regions[0].block.operations:
        if operation.name != "tt.func":
            raise IRError(f"'{operation.name}' stands outside of functions", operation.location)
        block.append(Lowering().function(operation))
    return Operation("module", regions=[Region([block])], location=module.location)


class Lowering:
    """Lowers one function: ``values`` maps Triton's values to ours, ``block`` is where operations go."""

    def __init__(self) -> None:
        self.values: dict[Value, Value] = {}
        self.block = Block()

    def function(self, op: Operation) -> Operation:
        """A `func` of a `tt.func`."""
        known = op.attributes
        signature = known["function_type"]
        assert isinstance(signature, Function)
        if not op.regions or not op.regions[0].blocks:
            raise IRError(f"function '{known['sym_name']}' has no body", op.location)
        for type in signature.inputs:
            if isinstance(type, Opaque):
                raise IRError(
                    f"an argument of type {type} is not supported; pass its base, shape and strides", op.location
                )
        attributes: dict[str, Any] = {"name": known["sym_name"]}
        if signature.results:
            attributes["returns"] = list(signature.results)
        arguments = [
            {key.removeprefix("tt."): value for key, value in one.items()} for one in known.get("arg_attrs", ())
        ]
        if known.get("sym_visibility", "public") != "public":
            attributes["public"] = False
        if known.get("noinline", False):
            attributes["noinline"] = True
        body = self.enter(op.regions[0].blocks[0])
        for index, one in enumerate(arguments):
            if rank := one.pop("descriptor", 0):
                self.contiguous(op.regions[0].blocks[0].arguments[index:], rank)
        if any(arguments):
            attributes["arguments"] = arguments
        lower_cfg.structure(self, op.regions[0], list(signature.results))
        return Operation("func", attributes=attributes, regions=[Region([body])], location=op.location)

    def contiguous(self, parts: list[Value], rank: int) -> None:
        """Of a descriptor's arguments (address, sizes, strides, flags, sizes, strides), both last strides are 1: so Triton wants it."""
        first = 2 * rank
        flags = sum(part.type == I1 for part in parts[first + 1 : first + 3])  # two; one before Triton 3.7
        for stride in (parts[first], parts[first + flags + 2 * rank]):
            one = Operation("const", [], [stride.type], {"value": Constant(stride.type, (1,))})
            self.values[stride] = self.block.append(one).result

    def enter(self, source: Block) -> Block:
        """A new block with the arguments of a block of Triton's; operations go there from now on."""
        self.block = Block()
        for value in source.arguments:
            new = Value(value.type, self.block, value.name)
            self.block.arguments.append(new)
            self.values[value] = new
        return self.block

    def region(self, source: Region) -> Region:
        """A region, lowered to one block."""
        outer = self.block
        if not source.blocks:  # an `if` without `else`
            block = Block()
            block.append(Operation("yield"))
        elif len(source.blocks) > 1:  # `map`, whose function may return early
            ends = [one.terminator for one in source.blocks if not one.terminator.successors]
            block = self.enter(source.blocks[0])
            lower_cfg.structure(self, source, [value.type for value in ends[0].operands], "yield")
        else:
            block = self.enter(source.block)
            for operation in source.block.operations:
                self.operation(operation)
        self.block = outer
        return Region([block])

    def operation(self, op: Operation) -> None:
        """Adds what an operation of Triton's becomes."""
        rule = RULES.get(op.name)
        if rule is not None:
            rule(self, op)
        elif op.name in SIMPLE:
            name, attributes = SIMPLE[op.name]
            self.emit(op, name, attributes)
        elif op.name in RENAMED:
            name, renamed = RENAMED[op.name]
            self.emit(
                op, name, {ours: op.attributes[theirs] for theirs, ours in renamed.items() if theirs in op.attributes}
            )
        else:
            why = REFUSED.get(op.name, "the tile IR has no such operator")
            raise IRError(f"'{op.name}' is not supported: {why}", op.location)

    def emit(
        self,
        op: Operation,
        name: str,
        attributes: dict[str, Any],
        operands: list[Value] | None = None,
        segments: tuple[int, ...] | None = None,
    ) -> Operation:
        """Adds an operation with the results, regions and place of Triton's ``op``."""
        uses = [self.values[value] for value in op.operands] if operands is None else operands
        regions = [self.region(region) for region in op.regions]
        types = [value.type for value in op.results]
        new = Operation(name, uses, types, attributes, regions, op.location, segments)
        for old, value in zip(op.results, new.results):
            value.name = old.name
            self.values[old] = value
        return self.block.append(new)

    def add(self, op: Operation, name: str, operands: list[Value], type: Type, **attributes: Any) -> Value:
        """Adds an operation of ours with one result."""
        return self.block.append(Operation(name, operands, [type], attributes, location=op.location)).result


def _constant(low: Lowering, op: Operation) -> None:
    value, type = op.attributes["value"], op.results[0].type
    if not isinstance(value, Constant):
        elem = element(type)
        assert isinstance(elem, Scalar)
        bits = int(value) & ((1 << elem.width) - 1) if elem.is_int else bits_of(elem, encode(elem, value))[0]
        value = Constant(type, (bits,))
    if len(set(value.bits)) == 1:
        value = Constant(type, value.bits[:1])
    low.emit(op, "const", {"value": value})


def _compare(low: Lowering, op: Operation) -> None:
    names = FLOAT_PREDICATES if op.name == "arith.cmpf" else INT_PREDICATES
    low.emit(op, "cmp", {"predicate": names[op.attributes["predicate"]]})


def _fp_to_fp(low: Lowering, op: Operation) -> None:
    rounding = ROUNDINGS[op.attributes.get("rounding", 1)]
    low.emit(op, "cast", {"kind": "float"} | ({"rounding": rounding} if rounding != "rtne" else {}))


def _clamp(low: Lowering, op: Operation) -> None:
    """min(max(x, low), high), where a NaN x stays NaN if asked for."""
    up, down = ("maximumf", "minimumf") if op.attributes.get("propagateNan", 0) else ("maxnumf", "minnumf")
    x, least, most = (low.values[value] for value in op.operands)
    raised = low.add(op, "elementwise", [x, least], x.type, opcode=up)
    low.emit(op, "elementwise", {"opcode": down}, [raised, most])


def _hints(op: Operation) -> dict[str, Any]:
    hints = {"cache": CACHES[op.attributes.get("cache", 1)], "evict": EVICTIONS[op.attributes.get("evict", 1)]}
    return {name: value for name, value in hints.items() if value}


def _load(low: Lowering, op: Operation) -> None:
    volatile = {"volatile": True} if op.attributes.get("isVolatile", False) else {}
    low.emit(op, "load", _hints(op) | volatile, segments=op.segments)


def _store(low: Lowering, op: Operation) -> None:
    low.emit(op, "store", _hints(op))


def _order(op: Operation) -> dict[str, Any]:
    sem, scope = SEMANTICS[op.attributes.get("sem", 4)], SCOPES[op.attributes.get("scope", 1)]
    return ({"sem": sem} if sem != "acq_rel" else {}) | ({"scope": scope} if scope != "device" else {})


def _atomic_rmw(low: Lowering, op: Operation) -> None:
    low.emit(op, "atomic_rmw", {"kind": ATOMICS[op.attributes["atomic_rmw_op"]], **_order(op)})


def _atomic_cas(low: Lowering, op: Operation) -> None:
    low.emit(op, "atomic_cas", _order(op))


def _dot(low: Lowering, op: Operation) -> None:
    precision = PRECISIONS[op.attributes.get("inputPrecision", 2)]
    low.emit(op, "dot", {"precision": precision} if precision != "ieee" else {})


def _dot_scaled(low: Lowering, op: Operation) -> None:
    known = op.attributes
    attributes: dict[str, Any] = {
        "a_kind": SCALED_KINDS[known["a_elem_type"]],
        "b_kind": SCALED_KINDS[known["b_elem_type"]],
        "fast": bool(known.get("fastMath", False)),
        "a_k_pack": bool(known.get("lhs_k_pack", True)),
        "b_k_pack": bool(known.get("rhs_k_pack", True)),
    }
    low.emit(op, "dot_scaled", attributes, segments=op.segments)


def _for(low: Lowering, op: Operation) -> None:
    attributes: dict[str, Any] = {"unsigned": True} if op.attributes.get("unsignedCmp", False) else {}
    hints = {key.removeprefix("tt."): value for key, value in op.attributes.items() if key.startswith("tt.")}
    low.emit(op, "for", attributes | ({"hints": hints} if hints else {}))


def _if(low: Lowering, op: Operation) -> None:
    low.emit(op, "if", {})


def _histogram(low: Lowering, op: Operation) -> None:
    low.emit(op, "histogram", {}, segments=(1, len(op.operands) - 1))


def _print(low: Lowering, op: Operation) -> None:
    known = op.attributes
    low.emit(
        op,
        "print",
        {"prefix": known.get("prefix", ""), "hex": bool(known.get("hex", False)), "signed": known.get("isSigned", [])},
    )


def _extern(low: Lowering, op: Operation) -> None:
    symbol = op.attributes["symbol"]
    name = symbol.removeprefix(extern.PREFIX)
    if name == symbol or name not in extern.FUNCTIONS:
        raise IRError(f"external function '{symbol}' is not known; known are those of docs/semantics.md", op.location)
    low.emit(op, "extern_math", {"symbol": name})


RULES: dict[str, _Rule] = {
    "tt.extern_elementwise": _extern,
    "arith.constant": _constant,
    "arith.cmpi": _compare,
    "arith.cmpf": _compare,
    "tt.fp_to_fp": _fp_to_fp,
    "tt.clampf": _clamp,
    "tt.load": _load,
    "tt.store": _store,
    "tt.atomic_rmw": _atomic_rmw,
    "tt.atomic_cas": _atomic_cas,
    "tt.dot": _dot,
    "tt.dot_scaled": _dot_scaled,
    "tt.histogram": _histogram,
    "tt.print": _print,
    "scf.for": _for,
    "scf.if": _if,
}
# All names of Triton's IR that have a meaning here.
LOWERED = {*RULES, *SIMPLE, *RENAMED, "tt.func", "cf.br", "cf.cond_br", "builtin.module"}
