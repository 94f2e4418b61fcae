"""Runs a program at every level and as native code: what it writes must have the same bits, but for the payload of a NaN.

Functions that compiled code may compute with another last bit are compared within their bounds; the generator lets nothing else use their results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.triton.codegen.native import Kernel
from torch_accel.triton.interpret.memory import Memory
from torch_accel.triton.interpret.validate import levels
from torch_accel.triton.ir import lower_ttir
from torch_accel.triton.ir.core import Operation
from torch_accel.triton.ir.floats import decode
from torch_accel.triton.ir.types import Scalar

from .program import Program

# docs/semantics.md: at most 1.3 of float32 and 2 of float64, against a number that is itself rounded
ULPS = {"f32": 2, "f64": 4}
Arrays = list[np.ndarray[Any, Any]]


class Different(AssertionError):
    """Two levels give something else. ``level`` is the later one."""

    def __init__(self, level: str, message: str) -> None:
        super().__init__(f"{level}: {message}")
        self.level = level


def interpreted(program: Program, entry: Callable[..., None], module: Operation) -> Arrays:
    """The memories after an interpreter."""
    memory, arrays = Memory(), program.data()
    starts = [memory.add(array, f"memory {at}") for at, array in enumerate(arrays)]
    places = [starts[one.memory] + one.offset * program.size(one) for one in program.pointers]
    entry(module, "kernel", program.grid, [*places, *program.scalars.values()], memory)
    return arrays


def compiled(program: Program, kernel: Kernel) -> Arrays:
    """The memories after native code."""
    arrays = program.data()
    places = [arrays[one.memory].ctypes.data + one.offset * program.size(one) for one in program.pointers]
    _, fault = kernel.run(program.grid, [*places, *program.scalars.values()])
    assert fault is None
    return arrays


def results(program: Program, native: bool = True) -> Iterator[tuple[str, Arrays]]:
    """The memories after every level, from Triton's IR on."""
    module = program.module
    for name, entry, made in levels(module):
        yield name, interpreted(program, entry, made)
    if program.seed % 4 == 0:
        for name, entry, made in levels(module, fuse=False):
            if name == "lower":
                yield f"{name}, no fusion", interpreted(program, entry, made)
    if native:
        lowered = lower_ttir.lower(module)
        yield "native code", compiled(program, Kernel(lowered, "kernel"))


def check(program: Program, native: bool = True) -> None:
    """Raises Different at the first level that gives something else."""
    want: Arrays = []
    for level, got in results(program, native):
        want = want or got
        for at, (one, other) in enumerate(zip(want, got)):
            type = program.memories[at]
            approximate = any(pointer.kind == "approx" for pointer in program.pointers if pointer.memory == at)
            wrong = np.flatnonzero(
                ~_same(type, one, other, ULPS[type] if approximate and level == "native code" else 0)
            )
            if wrong.size:
                names = " or ".join(pointer.name for pointer in program.pointers if pointer.memory == at)
                raise Different(
                    level,
                    f"element {wrong[0]} behind {names} is {other[wrong[0]]}, expected {one[wrong[0]]} ({wrong.size} differ)",
                )


def _same(type: str, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], ulps: int) -> np.ndarray[Any, Any]:
    bits = [array.view(f"int{array.itemsize * 8}") for array in (a, b)]
    same = bits[0] == bits[1]
    if Scalar(type).is_float:
        x, y = (decode(Scalar(type), array) for array in (a, b))
        same |= np.isnan(x) & np.isnan(y)
        if ulps:
            # As integers that count the floats from the least to the largest.
            number = [np.where(one < 0, np.iinfo(one.dtype).min - one, one) for one in bits]
            with np.errstate(over="ignore"):
                same |= ~np.isnan(x) & ~np.isnan(y) & (np.abs(number[0] - number[1]) <= ulps)
    return same
