"""What is looked for while a kernel runs, and the order of its programs: launch options, and the environment for launches without."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ..analysis.polling import polls
from ..ir.core import IRError, Operation

KINDS = ("nan", "oob", "race", "uninit")
DEFAULT = "oob"
#: for these the interpreter runs the kernel
INTERPRETED = frozenset({"nan", "race", "uninit"})
#: accelGridAscending and so on
ORDERS = ("ascending", "reverse", "shuffled")


def wanted(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """The kinds of a list as ``"nan, oob"``, sorted; "none" is no check, None what TRITON_ACCEL_CHECK says. ValueError names another word."""
    name = "check"
    if given is None:
        name, given = "TRITON_ACCEL_CHECK", os.environ.get("TRITON_ACCEL_CHECK") or DEFAULT
    words = given.split(",") if isinstance(given, str) else given
    kinds = {word.strip() for word in words} - {"none", ""}
    if unknown := sorted(kinds.difference(KINDS)):
        raise ValueError(f"accel: {name} is '{unknown[0]}', expected 'none' or a list of {', '.join(KINDS)}")
    return tuple(sorted(kinds))


def order(given: str | None) -> str:
    """One of ``ORDERS``; None is what TRITON_ACCEL_ORDER says. ValueError names another word."""
    name = "order"
    if given is None:
        name, given = "TRITON_ACCEL_ORDER", os.environ.get("TRITON_ACCEL_ORDER") or ORDERS[0]
    if given not in ORDERS:
        raise ValueError(f"accel: {name} is '{given}', expected {', '.join(ORDERS[:-1])} or {ORDERS[-1]}")
    return given


def refuse_waiting(module: Operation, order: str) -> None:
    """Raises IRError at a loop that may wait for an earlier program, if programs are not claimed in ascending order."""
    waiting = next(filter(polls, module.walk()), None)
    if waiting is not None and order != ORDERS[0]:
        raise IRError(
            f"order is '{order}', and this loop may wait for another program, which comes first only in ascending order; "
            "launch this kernel with order='ascending'",
            waiting.location,
        )
