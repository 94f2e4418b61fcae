"""Seeded faults: right programs of programs/, each with one synchronisation taken out.

A program is a function without arguments that returns whether it computed the right numbers. Comments mark its lines:
``# fault: NAME`` a statement whose removal is a fault, ``# [NAME]`` a line that a report must point to. A row of FAULTS
names the two accesses that then race, the older one first, each by its launch and its line, and what would order them.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fault:
    """``program`` without the statement marked ``tag``."""

    program: Callable[[], bool]
    tag: str
    first: tuple[str, str]  # name of the launch, mark of its line
    second: tuple[str, str]
    remedy: str
    devices: int = 1  # that the program needs

    def __str__(self) -> str:
        return f"{self.program.__name__}-{self.tag}"

    def line(self, mark: str) -> int:
        """The line of the file that is marked so."""
        return self._find(rf"# \[{mark}\]")

    def _find(self, pattern: str) -> int:
        lines, first = inspect.getsourcelines(self.program)
        found = [number for number, text in enumerate(lines, first) if re.search(pattern + "$", text.rstrip())]
        assert len(found) == 1, f"{self}: {len(found)} lines are marked {pattern}"
        return found[0]

    def faulty(self) -> Callable[[], bool]:
        """The program with ``pass`` in the statement's place; all other lines are where they were."""
        path = Path(inspect.getfile(self.program))
        lines = path.read_text().splitlines()
        tagged = self._find(rf"# fault: {self.tag}")
        statement = next(
            node
            for node in ast.walk(ast.parse("\n".join(lines)))
            if isinstance(node, ast.stmt) and node.lineno == tagged
        )
        for number in range(statement.lineno, statement.end_lineno + 1):
            lines[number - 1] = ""
        lines[tagged - 1] = " " * statement.col_offset + "pass"
        lines = [*lines[: self._end()], ""]
        start = inspect.getsourcelines(self.program)[1]
        source = "\n" * (start - 1) + "\n".join(lines[start - 1 :])
        names = dict(inspect.getmodule(self.program).__dict__)
        exec(compile(textwrap.dedent(source), str(path), "exec"), names)
        return names[self.program.__name__]

    def _end(self) -> int:
        lines, first = inspect.getsourcelines(self.program)
        return first + len(lines) - 1


def tags(program: Callable[[], bool]) -> list[str]:
    """The marked faults of a program, in order."""
    return re.findall(r"# fault: (\w+)$", inspect.getsource(program), flags=re.M)
