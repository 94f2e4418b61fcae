"""Host waits of a test: which of them the test asked for, and which hide in the code under test."""

from __future__ import annotations

import fnmatch
import os
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from torch_accel.testing import HostWait


class Place(NamedTuple):
    """A line of the code under test that made the host wait, and in which operation."""

    filename: str
    line: int
    function: str
    operation: str
    source: str

    def __str__(self) -> str:
        return f"{self.filename}:{self.line} in {self.function}, by {self.operation}: {self.source}"


def is_test_code(filename: str, patterns: Iterable[str]) -> bool:
    """Whether a file holds tests: a test reads results, which waits for them."""
    name = os.path.basename(filename)
    return name == "conftest.py" or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def hidden(waits: Iterable[HostWait], config: pytest.Config) -> Counter[Place]:
    """The waits of code outside the tests, by line.

    The line is the innermost that is neither torch's nor torch_accel's; a wait without Python code counts for no line.
    """
    patterns = config.getini("python_files")
    places: Counter[Place] = Counter()
    for wait in waits:
        frame = wait.frame
        if frame is None or is_test_code(frame.filename, patterns):
            continue
        name = wait.operation if wait.operation == wait.caller else f"{wait.operation} ({wait.caller})"
        relative = os.path.relpath(frame.filename, config.rootpath)
        shown = frame.filename if relative.startswith("..") else relative
        places[Place(shown, frame.lineno or 0, frame.name, name, frame.line or "")] += 1
    return places


def most(item: pytest.Item, strict: bool) -> int | None:
    """The waits that a line may make in a test: of its mark, or in strict mode of the ini file; None: any number."""
    mark = item.get_closest_marker("accel_waits")
    if mark is not None:
        if len(mark.args) != 1 or mark.kwargs or not isinstance(mark.args[0], int) or mark.args[0] < 0:
            raise pytest.UsageError(f"{item.nodeid}: accel_waits takes one number, as in @pytest.mark.accel_waits(10)")
        return mark.args[0]
    if not strict:
        return None
    text = item.config.getini("accel_waits")
    if not text.isdecimal():
        raise pytest.UsageError(f"accel_waits = {text!r} in the ini file: expected a number")
    return int(text)


def complaint(places: Counter[Place], allowed: int) -> str:
    """Why a test fails for its waits, or ''."""
    over = [(place, count) for place, count in places.most_common() if count > allowed]
    if not over:
        return ""
    rows = "\n".join(f"  {count} times at {place}" for place, count in over)
    return (
        f"accel: code under test made the host wait for the device more than {allowed} times at one line. On a GPU each "
        f"wait leaves the device idle:\n{rows}\n"
        "Keep the values on the device, or allow it: @pytest.mark.accel_waits(n), or accel_waits = n in the ini file."
    )
