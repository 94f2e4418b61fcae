"""Passes from the tile IR to the machine IR. ``machine_ir`` runs them all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from ..ir import verify as tile_verify
from ..ir.core import Operation
from ..machine import verify
from ..target import CPU, Target
from . import buffers, carried, full, lower, npu, widen
from . import fuse as fusion

Pass = Callable[[Operation], Operation]


def pipeline(*, sram: int | None = None, fuse: bool = True, target: Target = CPU) -> list[tuple[str, Pass, bool]]:
    """The passes in their order: name, pass, whether it gives the machine IR. Without ``fuse`` each tile is a buffer."""
    planner = fusion.plan if fuse else lambda function: fusion.Plan()
    limit = target.sram if sram is None else sram
    return [
        ("carried", carried.carried, False),
        ("lower", lambda module: buffers.free(lower.lower(module, planner)), True),
        *(_for_lanes(limit) if target.direct_hbm else npu.passes(target, limit)),
        ("plan", lambda module: buffers.plan(module, limit), True),
    ]


def _for_lanes(sram: int) -> list[tuple[str, Pass, bool]]:
    """Of targets whose lanes have HBM: the bounds of a DMA need no version without masks, and it copies elements as they are."""
    return [("full", full.full, True), ("widen", widen.within(sram), True)]


def machine_ir(module: Operation, *, sram: int | None = None, fuse: bool = True, target: Target = CPU) -> Operation:
    """The machine IR of a verified module of the tile IR: verified for ``target``, with all buffers placed in ``sram`` bytes, by default the target's.

    With ``TRITON_ACCEL_VERIFY=each``, the verifier looks at what each pass gives. Raises IRError with the kernel's line for what the machine
    IR does not have, Triton's OutOfResources when SRAM is too small.
    """
    each = os.environ.get("TRITON_ACCEL_VERIFY") == "each"
    for _, made, of_machine in steps(module, sram=sram, fuse=fuse, target=target):
        module = made
        if each:
            (verify.verify if of_machine else tile_verify.verify)(module)
    verify.verify(module, target)
    return module


def steps(
    module: Operation, *, sram: int | None = None, fuse: bool = True, target: Target = CPU
) -> Iterator[tuple[str, Operation, bool]]:
    """Name of each pass, the module that it gives, and whether that is the machine IR. A pass may change what it is given."""
    for name, one, of_machine in pipeline(sram=sram, fuse=fuse, target=target):
        module = one(module)
        yield name, module, of_machine
