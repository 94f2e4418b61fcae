"""Loops that may wait for another program."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.core import Operation

_ATOMICS = ("atomic_rmw", "atomic_cas")


def polls(loop: Operation) -> bool:
    """Whether a `while` of the tile or machine IR may end by what another program does.

    It has an atomic or a volatile load, there or in a function that it calls. (A loop that waits by plain loads is none: Triton takes
    the load out of it.)
    """
    if loop.name != "while":
        return False
    return any(
        op.name in _ATOMICS or (op.name == "load" and op.attributes.get("volatile", False))
        for op in _reached(loop, set())
    )


def _reached(op: Operation, seen: set[str]) -> Iterator[Operation]:
    """What is inside, and inside of functions that are called there."""
    for inner in op.walk():
        yield inner
        if inner.name == "call" and inner.attributes["callee"] not in seen:
            seen.add(inner.attributes["callee"])
            for function in _module(op).regions[0].block.operations:
                if function.attributes["name"] == inner.attributes["callee"]:
                    yield from _reached(function, seen)


def _module(op: Operation) -> Operation:
    while op.parent is not None and op.parent.parent is not None and op.parent.parent.parent is not None:
        op = op.parent.parent.parent
    return op
