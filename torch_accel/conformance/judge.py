"""Turns a tally into the verdict of a test, and hands the figures to whoever collects them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from .compare import Tally
from .known_failures import cause_of

#: called with (kind, name, dtype, tally) after each test, whatever its verdict
collectors: list[Callable[[str, str, str, Tally], None]] = []


def judge(kind: str, name: str, dtype: torch.dtype | None, check: Callable[[Tally], None]) -> None:
    """Runs a check. What ``known_failures`` lists must fail; everything else must not."""
    tally = Tally()
    try:
        check(tally)
    except Exception as error:
        tally.fail("-", error)
    label = str(dtype).removeprefix("torch.")
    for collect in collectors:
        collect(kind, name, label, tally)
    cause = cause_of(name, label, kind)
    text = "\n".join(tally.failures)
    if cause is None and tally.failures:
        raise AssertionError(f"{len(tally.failures)} of {tally.samples} differ:\n{text}") from tally.first_error
    if cause is not None and not tally.failures:
        pytest.fail(f"{name} {label} {kind} passes: take it out of known_failures.py", pytrace=False)
    if cause is not None:
        pytest.xfail(f"{cause}\n{text}")
