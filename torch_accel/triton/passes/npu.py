"""The passes of a target whose lanes have no HBM: products of its shape, staging, double buffering."""

from __future__ import annotations

from collections.abc import Callable

from ..ir.core import Operation
from ..target import Target
from . import buffers
from .double import double
from .products import products
from .stage import stage

_HALVINGS = 8


def passes(target: Target, limit: int) -> list[tuple[str, Callable[[Operation], Operation], bool]]:
    """Name, pass, and that it gives the machine IR. Tiles are as large as SRAM allows: they are halved until all buffers have a place.

    Each size is tried with the buffers of transfers twice first, then with one of each.
    """
    twice = [True]

    def staged(module: Operation) -> Operation:
        """Raises Triton's OutOfResources when nothing fits."""
        from triton.runtime.errors import OutOfResources

        failed = None
        for number in range(_HALVINGS):
            for twice[0] in (True, False):
                made = stage(module, target, limit >> number, twice[0])
                try:
                    buffers.plan(double(made) if twice[0] else made, limit)
                    return made
                except OutOfResources as error:
                    failed = failed or error
        assert failed is not None
        raise failed

    return [
        ("products", lambda module: products(module, target), True),
        ("stage", staged, True),
        ("double", lambda module: double(module) if twice[0] else module, True),
    ]
