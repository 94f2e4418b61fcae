"""The numbers that a program is made of: drawn by a seed, or given, so that a shorter list makes a smaller program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Choices:
    """Draws and writes down. What is given comes first; behind its end a seed draws on, and without a seed all is 0.

    0 is always the smallest choice: nothing more, no mask, contiguous.
    """

    def __init__(self, seed: int | None = None, given: Sequence[int] = ()) -> None:
        self.rng = None if seed is None else np.random.default_rng(seed)
        self.given, self.drawn = given, list[int]()

    def draw(self, count: int) -> int:
        """A number below ``count``."""
        at = len(self.drawn)
        if at < len(self.given):
            number = min(self.given[at], count - 1)
        else:
            number = int(self.rng.integers(count)) if self.rng is not None else 0
        self.drawn.append(number)
        return number

    def pick(self, options: Sequence[T]) -> T:
        """One of the options; the first is the smallest."""
        return options[self.draw(len(options))]

    def chance(self, of: int, times: int = 1) -> bool:
        """True ``times`` times out of ``of``."""
        return self.draw(of) >= of - times
