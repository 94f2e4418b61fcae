"""Which operators had no kernel of accel's own and ran the CPU's on device bytes while the caller waited."""

from ._native import _C

__all__ = ["FallbackReport", "fallback_report"]


class FallbackReport(dict[str, int]):
    """Operator (with its overload) -> number of times it fell back, most frequent first. ``print`` shows a table."""

    @property
    def total(self) -> int:
        """The number of fallbacks in all."""
        return sum(self.values())

    def __str__(self) -> str:
        if not self:
            return "accel: no operator fell back"
        width = max(len(name) for name in self)
        rows = [f"{name:<{width}}  {count:>8d}" for name, count in self.items()]
        return "\n".join([f"{'operator':<{width}}  {'times':>8}", *rows, f"{'total':<{width}}  {self.total:>8d}"])


def fallback_report(*, reset: bool = False) -> FallbackReport:
    """The fallbacks of this process since the start or the last reset.

    Args:
        reset: start again from zero after this report.
    """
    report = FallbackReport(_C._fallback_counts())
    if reset:
        _C._reset_fallback_counts()
    return report
