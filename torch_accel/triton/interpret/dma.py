"""DMA in the interpreter of the machine IR. Nothing but a token says when a transfer's elements move, and here they move when it hurts.

A transfer may move its elements at its start, at its wait, or some at each. A program that waits where it must computes the same
under every ``Schedule``; one that does not reads, at its latest, what was there before.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.core import Operation
from ..ir.types import Buf, Ptr, Scalar, element
from ..machine.ops import attribute, groups
from . import arithmetic
from .engine import Array
from .memory import Memory, MemoryFault

_SIGNED = {"slt": np.less, "sle": np.less_equal, "sgt": np.greater, "sge": np.greater_equal}


class Schedule:
    """When elements move: "early" (at the start), "late" (at the wait), or by a seed, each transfer by itself.

    Elements move in row-major order, so that of those that go to one address the last stays: what moves early is the first part.
    """

    def __init__(self, when: str | int = "late") -> None:
        if not isinstance(when, int) and when not in ("early", "late"):
            raise ValueError(f"accel: dma is '{when}', expected 'early', 'late' or a seed")
        self.when = when
        self.random = random.Random(when)

    def early(self, count: int) -> Array:
        """Which of a transfer's elements move at its start."""
        if isinstance(self.when, str):
            return np.full(count, self.when == "early")
        return np.arange(count) < self.random.choice((0, self.random.randint(0, count), count))


class Dma:
    """The transfers of a program that are under way, by token."""

    def __init__(self, memory: Memory, schedule: Schedule) -> None:
        self.memory, self.schedule = memory, schedule
        self.moves: dict[int, tuple[Callable[[Array], None], Array]] = {}
        self.count = 0

    def start(self, move: Callable[[Array], None], count: int) -> Array:
        """A token; ``move`` moves those of the elements that it is told to."""
        self.count += 1
        early = self.schedule.early(count)
        move(early)
        self.moves[self.count] = (move, ~early)
        return np.array(self.count, np.int64)

    def wait(self, token: Array) -> None:
        """Moves what has not moved yet. The token 0 is that of no transfer."""
        if token:
            if int(token) not in self.moves:
                raise MemoryFault("a DMA is waited for twice")
            move, late = self.moves.pop(int(token))
            move(late)

    def end(self) -> None:
        """At the end of a program nothing is under way."""
        if self.moves:
            raise MemoryFault(f"{len(self.moves)} DMA of the program are not waited for")


def _inside(op: Operation, args: list[Array], shape: tuple[int, ...]) -> Array:
    """Which elements a window's bounds let through. Coordinates wrap in the width of their start, as the kernel's own do."""
    inside = np.ones(shape, np.bool_)
    bounds = attribute(op, "bounds")
    starts, limits = args[: len(bounds)], args[len(bounds) :]
    for axis, compare, start, limit in zip(bounds, attribute(op, "compare"), starts, limits):
        index = np.arange(shape[axis]).reshape([-1 if other == axis else 1 for other in range(len(shape))])
        at = start + index.astype(start.dtype)
        if compare.startswith("u"):
            at, limit, compare = arithmetic.unsigned(at), arithmetic.unsigned(limit), f"s{compare[1:]}"
        inside &= _SIGNED[compare](at, limit)
    return inside


def _size(type: Buf) -> int:
    assert isinstance(type.elem, (Scalar, Ptr))
    return arithmetic.size(type.elem)


def window(engine: Any, op: Operation, args: list[Array]) -> list[Array]:
    """Addresses of the elements, and which of them are inside of the bounds."""
    type = op.results[0].type
    assert isinstance(type, Buf)
    base, offset, *rest = args
    rank = len(type.shape)
    for axis, stride in enumerate(rest[:rank]):
        index = np.arange(type.shape[axis], dtype=np.int64)
        offset = offset + stride * index.reshape([-1 if other == axis else 1 for other in range(rank)])
    result = np.empty((), object)
    result[()] = (np.broadcast_to(base + offset * _size(type), type.shape), _inside(op, rest[rank:], type.shape))
    return [result]


def indexed(engine: Any, op: Operation, args: list[Array]) -> list[Array]:
    """The same, by the addresses in a buffer: they are read when the elements move."""
    result = np.empty((), object)
    result[()] = (args[0], np.ones(args[0].shape, np.bool_))
    return [result]


def start(engine: Any, op: Operation, args: list[Array]) -> list[Array]:
    """Scalars are what they are now; buffers are read and written when the elements move."""
    named = dict(zip((name for name, group in groups(op).items() if group), args))
    if not bool(named.get("go", True)):
        return [np.array(0, np.int64)]
    into = op.operands[1].type.space == "hbm"  # type: ignore[union-attr]
    far, buffer = (named["source"], named["target"]) if into else (named["target"], named["source"])
    addresses, inside = far[()]
    dtype = arithmetic.array_dtype(element(op.operands[0].type))

    def move(some: Array) -> None:
        mask = inside & some.reshape(buffer.shape)
        if "mask" in named:
            mask = mask & named["mask"].astype(np.bool_)
        if not mask.any():
            return
        if into:
            moved = engine.memory.load(addresses, dtype, mask)
            buffer[mask] = moved[mask]
        else:
            engine.memory.store(addresses, buffer, mask)

    return [engine.dma.start(move, buffer.size)]


HANDLERS: dict[str, Any] = {
    "window": window,
    "indexed": indexed,
    "dma_start": start,
    "dma_done": lambda engine, op, args: [np.array(0, np.int64)],
    "dma_wait": lambda engine, op, args: engine.dma.wait(args[0]),
    "slot": lambda engine, op, args: [args[0][int(args[1])]],
}
