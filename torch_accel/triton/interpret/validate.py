"""Translation validation: a kernel runs at every level of the compiler, and each must give the bits of Triton's own IR."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .. import frontend, passes
from ..ir import verify
from ..ir.core import Operation
from ..machine import verify as machine_verify
from . import machine, raw, tile
from .memory import Memory

GROUP = 5  # lanes at a time, beside all at once: in loops that are wrong, other elements are
Entry = Callable[..., None]


class Miscompiled(AssertionError):
    """A pass after which a kernel computes something else."""


def levels(module: Operation, strict: bool = False, **options: Any) -> Iterator[tuple[str, Entry, Operation]]:
    """Name, interpreter and module of each level, from Triton's IR on, or from the tile IR on where that is to be ``strict`` and
    thereby another kernel; ``options`` are ``passes.pipeline``'s. Each is verified.

    A pass changes the module that came before: run one before taking the next.
    """
    if not strict:
        yield "ttir", raw.run, module
    module = frontend.lowered(module, strict=strict)
    yield "tile", tile.run, module
    for name, made, of_machine in passes.steps(module, **options):
        module = made
        if not of_machine:
            verify.verify(module)
            yield name, tile.run, module
            continue
        machine_verify.verify(module)
        yield name, machine.run, module
    for schedule in ("early", 1) if any(op.name == "dma_start" for op in module.walk()) else ():
        yield f"dma {schedule}", functools.partial(machine.run, schedule=schedule), module
    yield f"{GROUP} lanes at a time", functools.partial(machine.run, group=GROUP), module


def validate(
    module: Operation,
    kernel: str,
    grid: tuple[int, ...],
    arguments: Sequence[Any],
    say: Callable[[str], None] = print,
    **options: Any,
) -> None:
    """Runs all levels of a module of Triton's IR: arrays among the arguments are written in place, once. ``options`` are ``levels``'.

    Raises Miscompiled, which names the pass, the argument and the element, and KernelFault as the first level does.
    """
    first: list[Any] = []
    said: list[str] = []
    for name, entry, made in levels(module, **options):
        lines: list[str] = []
        given, memory = copied(arguments), Memory()
        passed = list(given)
        for number in _larger_first(given):
            passed[number] = memory.add(given[number], f"argument {number}")
        entry(made, kernel, grid, passed, memory, lines.append)
        if not first:
            first, said = given, lines
        for number, (one, other) in enumerate(zip(first, given)):
            if isinstance(one, np.ndarray) and one.tobytes() != other.tobytes():
                raise Miscompiled(f"accel: kernel '{kernel}' after '{name}': {difference(number, one, other)}")
        if lines != said:
            raise Miscompiled(f"accel: kernel '{kernel}' after '{name}': it prints {lines}, expected {said}")
    for value, result in zip(arguments, first):
        if isinstance(value, np.ndarray):
            value[...] = result
    for line in said:
        say(line)


def _larger_first(arguments: Sequence[Any]) -> list[int]:
    """The numbers of the arrays; the smaller may be a part of a larger one."""
    arrays = [number for number, value in enumerate(arguments) if isinstance(value, np.ndarray)]
    return sorted(arrays, key=lambda number: -arguments[number].nbytes)


def copied(arguments: Sequence[Any]) -> list[Any]:
    """Copies of arrays: one that is a part of another is the same part of its copy."""
    given = list(arguments)
    wholes: list[int] = []
    for number in _larger_first(arguments):
        array = arguments[number]
        for whole in wholes:
            at = array.ctypes.data - arguments[whole].ctypes.data
            if 0 <= at <= arguments[whole].nbytes - array.nbytes:
                part = given[whole].reshape(-1).view(np.uint8)[at : at + array.nbytes]
                given[number] = part.view(array.dtype).reshape(array.shape)
                break
        else:
            given[number] = array.copy()
            wholes.append(number)
    return given


def difference(number: int, one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> str:
    """The first element of an argument that differs, in words."""
    a, b = (array.reshape(-1).view(np.uint8).reshape(array.size, -1) for array in (one, other))
    wrong = np.flatnonzero((a != b).any(axis=1))
    place = tuple(int(at) for at in np.unravel_index(wrong[0], one.shape))
    return (
        f"argument {number}{list(place)} is {other[place]}, expected {one[place]} ({wrong.size} of {one.size} differ)"
    )
