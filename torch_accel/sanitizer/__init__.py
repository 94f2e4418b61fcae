"""The stream sanitizer: finds work on streams, and host reads of pinned memory, that nothing orders.

``ACCEL_SANITIZER=1`` turns it on for a process. docs/sanitizer.md says what it sees.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from .._native import _C
from ._mode import set_mode

__all__ = ["Access", "Frame", "Race", "Report", "disable", "enable", "enabled", "mode", "report"]


@dataclass(frozen=True)
class Frame:
    """A line of Python."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class Access:
    """One of the two accesses of a race.

    ``operator`` names the launch, or what the host did; ``stream`` is ``"host"`` for the host itself; ``access`` is
    ``"read"`` or ``"write"``; ``backward`` names the autograd node that asked for it, if one did: ``stack`` is then where
    the node was made. The innermost frame of ``stack`` is the last.
    """

    operator: str
    stream: str
    access: str
    backward: str
    stack: tuple[Frame, ...]

    @classmethod
    def _of(cls, told: _C._SanitizerAccess) -> Access:
        stack = tuple(Frame(frame.file, frame.line, frame.function) for frame in told.stack)
        return cls(told.name, told.stream, told.access, told.backward, stack)


@dataclass(frozen=True)
class Race:
    """Two accesses to the same bytes that nothing orders; at least one writes.

    ``remedy`` is ``"wait_stream"`` (or an event), ``"record_stream"`` or ``"synchronize"``. ``address`` and ``bytes`` are
    those of the second access, ``storage`` identifies its tensor's storage. ``str(race)`` is the text that was raised.
    """

    first: Access
    second: Access
    remedy: str
    address: int
    bytes: int
    storage: int
    text: str

    def __str__(self) -> str:
        return self.text


class Report(list[Race]):
    """The races found, the oldest first. ``print`` shows them."""

    def __str__(self) -> str:
        return "\n\n".join(map(str, self)) if self else "accel sanitizer: no race found"


def enable(mode: str = "raise") -> None:
    """Starts to watch all streams, devices and threads, or changes the mode. What was enqueued before is not known.

    Args:
        mode: ``"raise"``: the call that would race raises a RuntimeError and enqueues nothing. ``"warn"``: it warns, once
            per pair of lines, and goes on.

    Raises:
        ValueError: another mode.
    """
    if mode not in ("raise", "warn"):
        raise ValueError(f"torch.accel.sanitizer.enable expects the mode 'raise' or 'warn', but got {mode!r}")
    set_mode(mode)


def disable() -> None:
    """Stops watching; nothing of it is left subscribed. The report stays."""
    set_mode("off")


def mode() -> str:
    """``"off"``, ``"raise"`` or ``"warn"``."""
    return _C._sanitizer_mode()


@contextlib.contextmanager
def enabled(mode: str = "raise") -> Iterator[None]:
    """Watches in that mode while active, then restores the mode before; ``"off"`` stops watching meanwhile.

    Raises:
        ValueError: an unknown mode.
    """
    before = _C._sanitizer_mode()
    set_mode(mode)
    try:
        yield
    finally:
        set_mode(before)


def report(*, reset: bool = False) -> Report:
    """The races found so far in this process, at most 1000; in mode ``"warn"`` one for each pair of lines.

    Args:
        reset: start again with none.
    """
    return Report(
        Race(
            Access._of(found.first),
            Access._of(found.second),
            found.remedy,
            found.address,
            found.bytes,
            found.storage,
            found.text,
        )
        for found in _C._sanitizer_reports(reset)
    )
