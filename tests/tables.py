"""Tables of docstrings that name the tests of something: ``what it is -> folder/file.py::test, folder/file.py::test``.

A row may go on in the next lines; its references begin after the arrow. ``file.py::test[case]`` names one case of a
parametrized test: a text that the file has as a literal.
"""

import ast
import functools
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parent
REFERENCE = re.compile(r"(\w+/\w+\.py)::(\w+)(?:\[([^\]]+)\])?")


def rows(text: str) -> list[tuple[str, list[str]]]:
    """The rows of a table: what it is about, and the tests that it names. Headings and other lines are left out."""
    lines = [" ".join(row.split()) for row in re.findall(r"^    \S.*(?:\n {8}.*)*", text, re.M)]
    assert all(" -> " in line for line in lines), [line for line in lines if " -> " not in line]
    pairs = [line.split(" -> ") for line in lines]
    return [(what, [match.group(0) for match in REFERENCE.finditer(tests)]) for what, tests in pairs]


def references(text: str) -> list[str]:
    """Every test that the rows of a table name, once."""
    return sorted({test for _, tests in rows(text) for test in tests})


@functools.cache
def _contents(path: str) -> tuple[set[str], set[str]]:
    """Names of the functions of a file, and its literal texts."""
    nodes = list(ast.walk(ast.parse((TESTS / path).read_text())))
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    literals = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return functions, literals


def exists(reference: str) -> bool:
    """Whether the test that a row names is there, and its case."""
    match = REFERENCE.fullmatch(reference)
    assert match, reference
    path, name, case = match.groups()
    if not name.startswith("test_") or not (TESTS / path).exists():
        return False
    functions, literals = _contents(path)
    return name in functions and (case is None or case in literals)
