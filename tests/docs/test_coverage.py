"""docs/coverage.md is what torch_accel.testing.coverage writes, in all that needs no operator to run."""

import re

import pytest

from tests.docs.markdown import ROOT
from torch_accel._compat import derivative_names
from torch_accel.conformance.waiting import WAITING
from torch_accel.testing.coverage import backward_text, fixed_sections, layer_text
from torch_accel.testing.layers import operators

AGAIN = "run: python -m torch_accel.testing.coverage docs/coverage.md"


@pytest.fixture(scope="module")
def page():
    return (ROOT / "docs/coverage.md").read_text()


@pytest.fixture(scope="module")
def table():
    return operators()


def rows(page):
    section = page.split("## Operators\n")[1].split("\n## ")[0]
    return {
        r[0].strip("` "): [cell.strip() for cell in r[1:]]
        for r in re.findall(r"^\| (`.*?) \|(.*?)\|(.*?)\|(.*?)\|(.*?)\|$", section, re.M)
    }


def test_totals_waiting_operators_and_comparison(page, table):
    assert "\n".join(fixed_sections(table)) in page, AGAIN


def test_operators_layers_and_backward(page, table):
    formulas = derivative_names()
    expected = {
        name: (layer_text(overloads), backward_text(name, overloads, formulas))
        for name, overloads in table.items()
        if set(overloads.values()) != {"error"}
    }
    assert {name: (cells[0], cells[3]) for name, cells in rows(page).items()} == expected, AGAIN


def test_whoever_waits_is_allowed_to(page, table):
    """An operator that was seen waiting is on the list with a reason, or falls back, or is made of one that does."""
    waits = {name: set(cells[2].split(", ")) for name, cells in rows(page).items() if cells[2] not in ("", "no")}
    assert waits["_local_scalar_dense"] == {"item"}
    queued = {"generated", "shape function", "hand-written"}
    unexplained = {
        name
        for name, callers in waits.items()
        if name not in WAITING and (callers != {"fallback"} or set(table[name].values()) <= queued)
    }
    assert not unexplained
