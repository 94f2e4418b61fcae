"""Reads README.md and docs/*.md for the tests of this folder."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@dataclass(frozen=True)
class Block:
    """A fenced block: its language with options, its text, and the line of its first line."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found = []
    opened = None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if opened is None and line.startswith("```"):
            opened = (line[3:].strip(), [], number + 1)
        elif opened is not None and line == "```":
            language, lines, first = opened
            found.append(Block(language, "\n".join(lines) + "\n", first))
            opened = None
        elif opened is not None:
            opened[1].append(line)
    assert opened is None, f"{page.name}: a block is not closed"
    return found


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)


def first_cells(page: Path) -> list[str]:
    """What stands in backticks in the first cell of each table row."""
    rows = (re.match(r"\| (.+?) \|", line) for line in page.read_text().splitlines())
    return [name for row in rows if row for name in re.findall(r"`([^`]+)`", row[1])]
