"""The table of the machine IR's operators: the tile IR's on scalars, and those on buffers and lanes (see the package's text)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..ir import ops, rules
from ..ir.core import Operation, Value
from ..ir.ops import OPERATORS, REQUIRED, Operator, operator
from . import rules as own

# Operators of the tile IR that the machine IR has too; every operand and result is a scalar or pointer.
SCALAR = (
    *("module", "call", "return", "for", "while", "condition", "if", "yield", "program_id", "num_programs"),
    *("const", "elementwise", "cast", "bitcast", "select", "cmp", "extern_math", "poison"),
    *("load", "store", "atomic_rmw", "atomic_cas", "barrier", "assert", "print", "assume"),
)
# Operators whose regions are lane level.
BODIES = ("loop", "vreduce", "vscan")

MACHINE: dict[str, Operator] = {
    **{name: OPERATORS[name] for name in SCALAR},
    "func": operator(
        results=0, regions=1, name=REQUIRED, returns=(), arguments=(), public=True, noinline=False, frame=0, sram=0, rule=rules.func
    ),
    # buffers
    "alloc": operator(offset=-1, rule=own.alloc),
    "free": operator("buf", 0, rule=own.buffers),
    "data": operator(value=REQUIRED, rule=own.data),
    "recast": operator("buf", rule=own.recast),
    "copy": operator("target source", 0, "read write", rule=own.copy),
    "read": operator("buf indices*", effects="read", rule=own.read),
    "write": operator("buf value indices*", 0, "write", rule=own.write),
    "slot": operator("buf index", rule=own.slot),
    "histogram": operator("target values mask?", 0, "read write", rule=own.histogram),
    # between HBM and SRAM
    "window": operator("base offset strides* starts* limits*", bounds=(), compare=(), rule=own.window),
    "indexed": operator("addresses", rule=own.indexed),
    "dma_start": operator(
        "target source go? mask?", 1, "read write", queue=0, independent=0, volatile=False, rule=own.dma_start
    ),
    "dma_done": operator(rule=own.token),
    "dma_wait": operator("token", 0, "read write", rule=own.dma_wait),
    # lanes
    "loop": operator(results=0, regions=1, dims=REQUIRED, vec=-1, unroll=1, rule=own.loop),
    "vreduce": operator(results=None, regions=2, count=REQUIRED, lanes=16, accumulators=4, vector=True, rule=own.vreduce),
    "vscan": operator(results=0, regions=3, count=REQUIRED, reverse=False, vector=True, rule=own.vscan),
    "access": operator("base offset strides* indices*", align=1, rule=own.access),
    # matrix
    "mma": operator("acc a b", 0, "read write", precision="ieee", rule=own.mma),
    "mma_scaled": operator(
        "acc a b a_scale? b_scale?", 0, "read write", a_kind=REQUIRED, b_kind=REQUIRED, fast=False, a_k_pack=True, b_k_pack=True,
        rule=own.buffers,
    ),
}  # fmt: skip


def attribute(operation: Operation, name: str) -> Any:
    """An attribute of an operation of the machine IR, or its default."""
    return ops.attribute(operation, name, MACHINE)


def groups(operation: Operation) -> dict[str, list[Value]]:
    """The operands by the names of their groups."""
    return ops.groups(operation, MACHINE)


def indices(operations: Iterable[Operation]) -> set[Value]:
    """The index arguments of the bodies among operations."""
    found: set[Value] = set()
    for op in operations:
        if op.name in BODIES:
            found.update(op.regions[0].block.arguments)
        if op.name == "vscan":
            found.add(op.regions[2].block.arguments[0])
    return found
