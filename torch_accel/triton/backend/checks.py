"""What is looked for while a kernel runs: the launch option ``check``, and TRITON_ACCEL_CHECK for launches that do not have it."""

from __future__ import annotations

import os
from collections.abc import Iterable

KINDS = ("oob",)
DEFAULT = "oob"
VARIABLE = "TRITON_ACCEL_CHECK"


def wanted(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """The kinds of a list as ``"oob"``, sorted; "none" is no check, None what the environment says. ValueError names another word."""
    name = "check" if given is not None else VARIABLE
    if given is None:
        given = os.environ.get(VARIABLE) or DEFAULT
    words = given.split(",") if isinstance(given, str) else given
    kinds = {word.strip() for word in words} - {"none", ""}
    if unknown := sorted(kinds.difference(KINDS)):
        raise ValueError(f"accel: {name} is '{unknown[0]}', expected 'none' or a list of {', '.join(KINDS)}")
    return tuple(sorted(kinds))
