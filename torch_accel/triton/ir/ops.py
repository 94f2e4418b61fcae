"""The one table of the tile IR's operators: operands, results, regions, attributes with defaults, effects, rule of types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import rules
from .core import Operation, Value

REQUIRED = object()


@dataclass(frozen=True)
class Operator:
    """``operands`` names the groups: ``a`` one value, ``a?`` none or one, ``a*`` any number. ``results`` None is any number.

    ``effects``: of read, write, sync, host. An operator without any is pure. ``primary`` is the attribute printed with the name.
    """

    operands: str = ""
    results: int | None = 1
    regions: int = 0
    attributes: dict[str, Any] = field(default_factory=dict)
    effects: frozenset[str] = frozenset()
    rule: Callable[[Operation], Iterator[str]] | None = None
    terminator: bool = False
    primary: str = ""

    @property
    def groups(self) -> list[tuple[str, str]]:
        """Name and kind ("", "?", "*") of each group."""
        return [(name.rstrip("?*"), name[-1] if name[-1] in "?*" else "") for name in self.operands.split()]


def operator(operands: str = "", results: int | None = 1, effects: str = "", **more: Any) -> Operator:
    """An entry of a table; what is no field of Operator is an attribute, with its default."""
    known = {"rule", "regions", "terminator", "primary"}
    attributes = {name: value for name, value in more.items() if name not in known}
    fields = {name: value for name, value in more.items() if name in known}
    return Operator(operands, results, attributes=attributes, effects=frozenset(effects.split()), **fields)


_MEMORY_ORDER: dict[str, Any] = {"sem": "acq_rel", "scope": "device"}
_HINTS: dict[str, Any] = {"volatile": False, "cache": "", "evict": ""}

OPERATORS: dict[str, Operator] = {
    # program
    "module": operator(results=0, regions=1),
    "func": operator(
        results=0, regions=1, name=REQUIRED, returns=(), arguments=(), public=True, noinline=False, rule=rules.func
    ),
    "call": operator("args*", None, "read write sync host", callee=REQUIRED),
    "return": operator("values*", 0, terminator=True, rule=rules.returns),
    "for": operator("lower upper step inits*", None, regions=1, unsigned=False, hints={}, rule=rules.for_),
    "while": operator("inits*", None, regions=2, rule=rules.while_),
    "condition": operator("go args*", 0, terminator=True, rule=rules.flag),
    "if": operator("go", None, regions=2, rule=rules.if_),
    "yield": operator("values*", 0, terminator=True),
    "program_id": operator(axis=0, rule=rules.index),
    "num_programs": operator(axis=0, rule=rules.index),
    # shape
    "const": operator(value=REQUIRED, rule=rules.const),
    "iota": operator(start=0, end=REQUIRED, rule=rules.iota),
    "splat": operator("value", rule=rules.splat),
    "broadcast": operator("value", rule=rules.broadcast),
    "expand": operator("value", axis=REQUIRED, rule=rules.expand),
    "reshape": operator("value", rule=rules.reshape),
    "trans": operator("value", order=REQUIRED, rule=rules.trans),
    "join": operator("a b", rule=rules.join),
    "split": operator("value", 2, rule=rules.split),
    "cat": operator("a b", rule=rules.cat),
    "gather": operator("source indices", axis=REQUIRED, rule=rules.gather),
    "map": operator("values*", None, regions=1, pack=1, rule=rules.map_),
    # math
    "elementwise": operator("args*", opcode=REQUIRED, contract=False, primary="opcode", rule=rules.elementwise),
    "cast": operator("value", kind=REQUIRED, rounding="rtne", primary="kind", rule=rules.cast),
    "bitcast": operator("value", rule=rules.bitcast),
    "select": operator("go a b", rule=rules.select),
    "cmp": operator("a b", predicate=REQUIRED, primary="predicate", rule=rules.cmp),
    "extern_math": operator("args*", symbol=REQUIRED, primary="symbol", rule=rules.extern_math),
    # reduce: slot i % (lanes * accumulators) takes element i in ascending order, then the slots are paired, half with half
    "reduce": operator("values*", None, regions=1, axis=REQUIRED, lanes=16, accumulators=4, rule=rules.reduce),
    "scan": operator(
        "values*", None, regions=1, axis=REQUIRED, reverse=False, order="sequential", rule=rules.scan
    ),
    "histogram": operator("value mask?", rule=rules.histogram),
    # memory
    "view": operator("base sizes* strides* offsets*", bounds=(), padding="zero", rule=rules.view),
    "load": operator("address mask? other?", effects="read", **_HINTS, rule=rules.load),
    "store": operator("address value mask?", 0, "write", cache="", evict="", rule=rules.store),
    "atomic_rmw": operator(
        "address value mask?", 1, "read write sync", kind=REQUIRED, primary="kind", **_MEMORY_ORDER, rule=rules.atomic_rmw
    ),
    "atomic_cas": operator("address compare value", 1, "read write sync", **_MEMORY_ORDER, rule=rules.atomic_cas),
    "barrier": operator(results=0, effects="sync"),
    # matrix
    "dot": operator("a b acc", precision="ieee", rule=rules.dot),
    "dot_scaled": operator(
        "a b acc a_scale? b_scale?", a_kind=REQUIRED, b_kind=REQUIRED, fast=False, a_k_pack=True, b_k_pack=True,
        rule=rules.dot_scaled,
    ),
    # debug
    "assert": operator("go", 0, "host", message="", rule=rules.flag),
    "print": operator("args*", 0, "host", prefix="", hex=False, signed=()),
    "assume": operator("go", 0, rule=rules.flag),
    "poison": operator(),
}  # fmt: skip


def attribute(operation: Operation, name: str, operators: Mapping[str, Operator] = OPERATORS) -> Any:
    """An attribute of an operation, or its default in the table."""
    value = operation.attributes.get(name, REQUIRED)
    return operators[operation.name].attributes[name] if value is REQUIRED else value


def groups(operation: Operation, operators: Mapping[str, Operator] = OPERATORS) -> dict[str, list[Value]]:
    """The operands by the names of their groups. Raises ValueError when they do not fit the table."""
    found = operators[operation.name].groups
    sizes = operation.segments or _sizes([kind for _, kind in found], len(operation.operands))
    if sizes is None or len(sizes) != len(found) or sum(sizes) != len(operation.operands):
        raise ValueError(f"{len(operation.operands)} operands do not fit '{operators[operation.name].operands}'")
    for (name, kind), size in zip(found, sizes):
        if (kind == "" and size != 1) or (kind == "?" and size > 1):
            raise ValueError(f"{size} operands for '{name}'")
    result, at = {}, 0
    for (name, _), size in zip(found, sizes):
        result[name] = operation.operands[at : at + size]
        at += size
    return result


def _sizes(kinds: list[str], count: int) -> tuple[int, ...] | None:
    """Sizes of the groups where the count alone decides: optional ones are given from the left."""
    left = count - kinds.count("")
    if left < 0:
        return None
    sizes = []
    for kind in kinds:
        size = {"": 1, "?": min(left, 1), "*": left}[kind]
        left -= size if kind else 0
        sizes.append(size)
    return tuple(sizes) if left == 0 else None
