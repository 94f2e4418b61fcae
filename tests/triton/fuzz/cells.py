"""What the generated kernels reach: the cells of a table, and a report of it.

A cell is an operator with the type of its operand, how the kernel accesses a load that feeds it or the store that takes its result,
that access's mask, where that store goes, and the control flow around. In place: to the argument that the load is of. May alias: to another one,
which at run time is apart, the same, or overlaps.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .grammar import ACCESSES, ALIASES, ANY, ATOMICS, CONTROLS, MASKS, PAIRS


class Cell(NamedTuple):
    """One combination."""

    operator: str
    type: str
    access: str
    mask: str
    alias: str
    control: str


OPERATORS = sorted(
    {(one.name, type) for one, type in PAIRS}
    | {(f"atomic-{kind}", type) for kind, types in ATOMICS.items() for type in types}
    | {(name, type) for name in ("load", "store") for type in ANY}
)
NAMES = Cell._fields
_SIDES = (ACCESSES, MASKS, ALIASES, CONTROLS)
# All pairs of columns, an operator and its type being one; and those of three that the aliasing rule of fusion is about.
GROUPS = {
    "operator x type x access": ("operator", "type", "access"),
    "operator x type x mask": ("operator", "type", "mask"),
    "operator x type x alias": ("operator", "type", "alias"),
    "operator x type x control": ("operator", "type", "control"),
    "access x mask x alias x control": ("access", "mask", "alias", "control"),
    "all together": NAMES,
}


def cells() -> Iterator[Cell]:
    """All that there are."""
    for (name, type), *rest in itertools.product(OPERATORS, *_SIDES):
        yield Cell(name, type, *rest)  # type: ignore[arg-type]


@functools.cache
def parts(group: str) -> frozenset[tuple[str, ...]]:
    """What a group has."""
    take = operator.itemgetter(*(NAMES.index(name) for name in GROUPS[group]))
    return frozenset(map(take, cells()))


class Coverage:
    """Which cells have been reached."""

    def __init__(self) -> None:
        self.reached: set[Cell] = set()
        self.programs = 0

    def add(self, found: Iterable[Cell]) -> None:
        """A program's cells."""
        self.programs += 1
        self.reached.update(found)

    def found(self, group: str) -> set[tuple[str, ...]]:
        """The parts of a group that are reached. Raises ValueError for a cell that is none."""
        take = operator.itemgetter(*(NAMES.index(name) for name in GROUPS[group]))
        found = set(map(take, self.reached))
        if not found <= parts(group):
            raise ValueError(f"accel: {', '.join(min(found - parts(group)))} is no cell of the grammar")
        return found

    def share(self, group: str) -> float:
        """Reached, of all that there are."""
        return len(self.found(group)) / len(parts(group))

    def report(self, limit: int = 5) -> str:
        """The table, and the values that miss most."""
        lines = [f"{self.programs} programs", f"{'cells':32} {'there are':>9} {'reached':>9} {'share':>7}"]
        for group in GROUPS:
            found, every = self.found(group), parts(group)
            lines.append(f"{group:32} {len(every):9} {len(found):9} {100 * self.share(group):6.1f}%")
        left = parts("all together") - self.found("all together")
        counts = Counter((name, value) for cell in left for name, value in zip(NAMES, cell))
        for (name, value), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[
            : limit if left else 0
        ]:
            lines.append(f"missing: {count:6} cells with {name} {value}")
        return "\n".join(lines)
