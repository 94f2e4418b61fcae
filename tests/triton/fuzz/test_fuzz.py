"""Generated kernels: all levels and native code agree, the grammar reaches its cells, and faults that are planted are found."""

import functools

import pytest
from expecttest import assert_expected_inline

from tests.triton import test_planted_passes
from tests.triton.fuzz.__main__ import command, explained, fuzz
from tests.triton.fuzz.cells import GROUPS, Cell, Coverage
from tests.triton.fuzz.generator import generate
from tests.triton.fuzz.grammar import PAIRS
from tests.triton.fuzz.minimise import failure, minimised
from torch_accel.triton.ir import lower_ttir
from torch_accel.triton.ir.types import element
from torch_accel.triton.passes import lower

SAMPLE = range(16)
LONG = range(1000, 4000)
program = functools.cache(generate)


@pytest.mark.parametrize("seed", SAMPLE)
def test_sample(seed):
    how = failure(program(seed))
    assert not how, explained(program(seed), how)


@pytest.mark.full
def test_long():
    """Also that what has been run, not only generated, reaches all pairs."""
    coverage, said = Coverage(), []
    failed = fuzz(LONG, coverage, say=said.append)
    print(coverage.report())
    assert not failed, "\n\n".join(said)
    for group in GROUPS:
        assert coverage.share(group) >= 0.95 or group == "all together", group


@pytest.mark.full
def test_grammar_reaches_its_cells():
    coverage = Coverage()
    for seed in range(16000):
        coverage.add(generate(seed).cells)
    print(coverage.report())
    for group in GROUPS:
        assert coverage.share(group) >= 0.95, group


def test_operators_are_in_the_ir():
    """A cell is counted where the kernel is written: Triton's passes must have left its operator, of its type."""
    known = {(one.name, type): one for one, type in PAIRS}
    there = total = 0
    for seed in SAMPLE:
        lowered = lower_ttir.lower(program(seed).module)
        seen = {
            (op.name, str(op.attributes.get(name, "")), str(element(value.type)))
            for op in lowered.walk()
            for name in ("opcode", "predicate", "kind", "")
            for value in op.operands
        }
        for key in {(cell.operator, cell.type) for cell in program(seed).cells}:
            if key in known:
                name, attribute = known[key].ir
                total += 1
                there += (name, known[key].seen() if attribute else "", key[1]) in seen
    assert total > 40
    assert there >= 0.95 * total


def test_report():
    coverage = Coverage()
    coverage.add([Cell("addi", "i32", "strided", "prefix", "in place", "for")])
    coverage.add(
        Cell("mulf", "f32", access, "no mask", "may alias", control)
        for access in ("contiguous", "gathered")
        for control in ("for", "while")
    )
    assert_expected_inline(
        coverage.report(),
        """\
2 programs
cells                            there are   reached   share
operator x type x access              2510         3    0.1%
operator x type x mask                1506         2    0.1%
operator x type x alias               1004         2    0.2%
operator x type x control             2008         3    0.1%
access x mask x alias x control        120         5    4.2%
all together                         60240         5    0.0%
missing:  30119 cells with alias in place
missing:  30116 cells with alias may alias
missing:  20080 cells with mask arbitrary
missing:  20079 cells with mask prefix
missing:  20076 cells with mask no mask""",
    )
    coverage.add([Cell("addi", "f32", "strided", "prefix", "in place", "for")])
    with pytest.raises(ValueError, match="accel: addi, f32, strided is no cell of the grammar"):
        coverage.share("operator x type x access")


def test_a_failing_program_is_made_smaller(monkeypatch):
    """The store without its mask; what is printed makes the same program again."""
    change = test_planted_passes.changed(lower.RULES["store"], test_planted_passes.cut(2))
    monkeypatch.setitem(lower.RULES, "store", change)
    longest = sorted(map(program, SAMPLE), key=lambda one: -len(one.lines))
    large = next(one for one in longest if failure(one, native=False))
    how = failure(large, native=False)
    small = minimised(large, lambda one: failure(one, native=False) == how, tries=30)
    assert len(small.lines) < len(large.lines) / 2 and "mask=" in small.kernel()
    said = explained(small, how)
    assert small.kernel() in said and said.endswith(command(small))
    again = [int(number) for number in command(small).split()[-1].split(",")]
    assert generate(small.seed, again).kernel() == small.kernel()
