"""The figures of a run, added up over the workers of pytest-xdist."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

#: rows of a table
MOST_ROWS = 10


def size(count: int) -> str:
    """Bytes as people write them."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} bytes"


def _counted() -> tuple[Counter[str], Counter[str]]:
    """Host waits by caller and fallbacks by operator, of this process so far."""
    torch_accel = sys.modules.get("torch_accel")
    if torch_accel is None or not torch_accel.is_initialized():
        return Counter(), Counter()
    return Counter(torch_accel.testing.wait_report()), Counter(torch_accel.fallback_report())


@dataclass
class Figures:
    """What the summary tells; empty until a test has used the device."""

    #: peak of the allocated bytes of each device, the largest of all processes
    peak: dict[str, int] = field(default_factory=dict)
    total: int = 0
    #: caller -> waits that found unfinished work
    waits: Counter[str] = field(default_factory=Counter)
    #: line of the code under test -> waits, whether or not there was something to wait for
    hidden: Counter[str] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)

    def measure(self, torch_accel: Any) -> None:
        """Notes the peaks so far: a test may reset them."""
        if not torch_accel.is_initialized():
            return
        for index in range(torch_accel.device_count()):
            name = f"accel:{index}"
            self.peak[name] = max(self.peak.get(name, 0), torch_accel.max_memory_allocated(index))
        self.total = torch_accel.get_device_properties(0).total_memory

    def finish(self) -> None:
        """Notes what torch_accel has counted in this process."""
        waits, fallbacks = _counted()
        self.waits.update(waits)
        self.fallbacks.update(fallbacks)

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """What is done meanwhile is pytest's, and no part of the figures."""
        before = _counted()
        try:
            yield
        finally:
            after = _counted()
            self.waits.subtract(after[0] - before[0])
            self.fallbacks.subtract(after[1] - before[1])

    def add(self, other: Figures) -> None:
        """Adds another process's figures."""
        for name, peak in other.peak.items():
            self.peak[name] = max(self.peak.get(name, 0), peak)
        self.total = max(self.total, other.total)
        for mine, theirs in ((self.waits, other.waits), (self.hidden, other.hidden), (self.fallbacks, other.fallbacks)):
            mine.update(theirs)

    def to_dict(self) -> dict[str, Any]:
        """As execnet can send it."""
        return {name: dict(value) if isinstance(value, dict) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, sent: dict[str, Any]) -> Figures:
        """What :meth:`to_dict` has made."""
        counted = {name: Counter(sent[name]) for name in ("waits", "hidden", "fallbacks")}
        return cls(peak=sent["peak"], total=sent["total"], **counted)

    def lines(self, strict: bool) -> Iterator[str]:
        """The summary."""
        if not self.peak:
            yield "no test has used accel: take the device from the fixture `device`, or say torch.device('accel')"
            return
        for name, peak in self.peak.items():
            yield f"peak memory of {name}: {size(peak)} of {size(self.total)}"
        yield from _table("host waits", self.waits)
        if strict:
            yield from _table("host waits of code outside the tests", self.hidden)
        yield from _table("fallbacks", self.fallbacks)


def _table(title: str, counts: Counter[str]) -> Iterator[str]:
    counts = +counts  # without what came to nothing
    if not counts:
        yield f"{title}: none"
        return
    yield f"{title}: {sum(counts.values())}"
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    for name, count in rows[:MOST_ROWS]:
        yield f"  {count:>6} {name}"
    if len(rows) > MOST_ROWS:
        yield f"  {sum(count for _, count in rows[MOST_ROWS:]):>6} others"
