"""docs/variables.md lists exactly the variables that the sources read."""

import re

from tests.docs.markdown import PAGES, ROOT, first_cells

SOURCES = [
    *(ROOT / "csrc").rglob("*.cpp"),
    *(ROOT / "csrc").rglob("*.h"),
    *(ROOT / "torch_accel").rglob("*.py"),
    ROOT / "_torch_accel_autoload.py",
]


def listed() -> list[str]:
    return [name for name in first_cells(ROOT / "docs/variables.md") if name.startswith(("ACCEL_", "TRITON_ACCEL_"))]


def test_table_is_what_the_sources_read():
    read = {name for path in SOURCES for name in re.findall(r'"((?:TRITON_)?ACCEL_[A-Z_]+)"', path.read_text())}
    assert sorted(listed()) == sorted(read)


def test_only_listed_variables_are_mentioned():
    """No page and no message recommends a variable that does not exist."""
    mentioned = {
        (name, path.name)
        for path in [*PAGES, *SOURCES]
        for name in re.findall(r"\b((?:TRITON_)?ACCEL_[A-Z_]+)=", path.read_text())
    }
    assert not {(name, path) for name, path in mentioned if name not in listed()}
