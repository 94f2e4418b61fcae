"""What differs from the CPU for a cause inside torch. Every entry is run and must fail; at most 60."""

from __future__ import annotations

from typing import NamedTuple


class Known(NamedTuple):
    """One test that differs."""

    #: operator or module, with its variant
    name: str
    #: dtype without ``torch.``; ``*``: every dtype that the kind of test has
    dtype: str
    #: kind of test
    kind: str
    #: what torch does
    cause: str


KNOWN: tuple[Known, ...] = ()


def cause_of(name: str, dtype: str, kind: str) -> str | None:
    """The cause of the entry for a test, or None."""
    for entry in KNOWN:
        if (entry.name, entry.kind) == (name, kind) and entry.dtype in ("*", dtype):
            return entry.cause
    return None
