"""What a launch did, counted while the machine IR's interpreter runs it: the exact numbers that ``analysis.cost`` computes beforehand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..analysis.cost import COUNTERS, own
from ..ir.core import Operation
from ..machine.ops import groups
from .engine import Array, Engine, argument
from .machine import HANDLERS, _Core
from .memory import Memory


def count(
    module: Operation, kernel: str, grid: tuple[int, ...], arguments: Sequence[Any], memory: Memory, say: Callable[[str], None] = print
) -> dict[str, int]:  # fmt: skip
    """Runs a kernel as ``machine.run`` does, and gives what it cost by COUNTERS: a lane that is masked moves nothing."""
    total = dict.fromkeys(COUNTERS, 0)

    def watch(engine: Engine, op: Operation, args: list[Array]) -> None:
        assert isinstance(engine, _Core)
        lanes = math.prod(engine.lanes)
        if op.name in ("load", "store", "atomic_rmw") and groups(op)["mask"]:
            mask = args[op.operands.index(groups(op)["mask"][0])]
            lanes = int(np.count_nonzero(engine.whole(mask)))
        for counter, number in own(op):
            total[counter] += number * lanes

    functions = {op.attributes["name"]: op for op in module.regions[0].block.operations}
    core = _Core(functions, HANDLERS, memory, grid, say, 0, "late")
    core.watch = watch
    core.programs(kernel, arguments)
    return total


def predicted(cost: Operation, grid: tuple[int, ...], arguments: Sequence[Any]) -> dict[str, int]:
    """What a function of ``analysis.cost`` gives for a launch: addresses and numbers, as a kernel gets them. -1 is unknown."""
    (function,) = cost.regions[0].block.operations
    core = _Core({}, HANDLERS, Memory(), grid, print, 0, "late")
    types = [value.type for value in function.regions[0].block.arguments]
    with np.errstate(all="ignore"):
        results = core.function(function, [argument(type, value) for type, value in zip(types, arguments)])
    return {counter: int(value) for counter, value in zip(COUNTERS, results)}
