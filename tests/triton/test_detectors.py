"""The programs of ``detectors``: 34 planted faults and their right twins."""

import collections

import numpy as np
import pytest

from tests.triton.detectors.chip import PROGRAMS, Interpreter, faulty_lines

pytestmark = pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated")  # old kernels have it
EACH = pytest.mark.parametrize(
    ("kind", "program", "argument"), [pytest.param(*row, id=f"{row[0]}-{row[1].__name__}") for row in PROGRAMS]
)


def test_there_are_enough_of_each_kind():
    kinds = collections.Counter(kind for kind, _, _ in PROGRAMS)
    assert len(PROGRAMS) >= 30 and all(count >= 8 for count in kinds.values())


@EACH
def test_the_right_twin_is_right(kind, program, argument):
    chip = Interpreter()
    result, expected = program(chip, False)
    np.testing.assert_allclose(chip.read(result), expected, rtol=1e-6)
    assert faulty_lines(program)
