"""The programs of ``detectors``: 34 planted faults and their right twins."""

import collections
import re

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from expecttest import assert_expected_inline

from tests.triton.detectors.bounds import _scale, load_without_a_mask
from tests.triton.detectors.chip import PROGRAMS, Accel, Interpreter, faulty_lines
from tests.triton.detectors.nans import two_sums_of_nothing
from tests.triton.detectors.races import a_lock_opened_too_weakly
from tests.triton.detectors.unwritten import the_upper_triangle
from torch_accel.triton.interpret.checks import Checks
from torch_accel.triton.interpret.engine import KernelFault
from torch_accel.triton.interpret.launch import launch

pytestmark = pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated")  # old kernels have it
EACH = pytest.mark.parametrize(
    ("kind", "program", "argument"), [pytest.param(*row, id=f"{row[0]}-{row[1].__name__}") for row in PROGRAMS]
)


def test_there_are_enough_of_each_kind():
    kinds = collections.Counter(kind for kind, _, _ in PROGRAMS)
    assert len(PROGRAMS) >= 30 and all(count >= 8 for count in kinds.values())


@EACH
def test_the_right_twin_is_right_and_silent(kind, program, argument):
    chip = Interpreter("nan, race, uninit")
    result, expected = program(chip, False)
    np.testing.assert_allclose(chip.read(result), expected, rtol=1e-6)


@EACH
def test_the_fault_is_found_at_its_line(kind, program, argument):
    with pytest.raises(KernelFault) as raised:
        program(Interpreter("nan, race, uninit"), True)
    assert raised.value.location.line in faulty_lines(program)
    assert (raised.value.kind, raised.value.argument) == (kind, argument)


@pytest.mark.parametrize("kind", ["uninit", "race", "nan"])
def test_without_its_check_nothing_is_said(kind):
    others = ",".join({"uninit", "race", "nan"} - {kind})
    for program in (program for other, program, _ in PROGRAMS if other == kind):
        program(Interpreter(others), True)


def report(program):
    with pytest.raises(KernelFault) as raised:
        program(Interpreter("nan, race, uninit"), True)
    return re.sub(r"[^\s(]*/(\w+\.py):\d+:\d+", r"\1", str(raised.value))


def test_reports():
    assert_expected_inline(
        "\n".join(
            map(report, (load_without_a_mask, the_upper_triangle, two_sums_of_nothing, a_lock_opened_too_weakly))
        ),
        """\
accel: kernel '_scale', program (3, 0, 0), bounds.py: out of bounds: 4 bytes at 0x10000000190 (lane 4): byte 400 of 'x', which has 400; mask the lane, or mend its index
accel: kernel '_column_sums', program (0, 0, 0), unwritten.py: unwritten: lane 1 reads element 1 of 'x', which nothing has written; write it first, or mask the lane
accel: kernel '_merge', program (0, 0, 0), nans.py: NaN: subf makes one of numbers here, and it is stored in 'out' (nans.py)
accel: kernel '_locked', program (1, 0, 0), races.py: race: reads element 0 of 'out', which program (0, 0, 0) wrote (races.py), and nothing orders the two; use an atomic that releases and acquires, or give each program elements of its own""",
    )


@EACH
def test_on_accel_the_right_twin_is_right_and_silent(accel, kind, program, argument):
    chip = Accel("oob" if kind == "oob" else "nan, oob, race, uninit")
    result, expected = program(chip, False)
    np.testing.assert_allclose(chip.read(result), expected, rtol=1e-6)


@EACH
def test_on_accel_the_fault_is_found_at_its_line(accel, kind, program, argument):
    program(Accel(kind), True)
    with pytest.raises(torch.AcceleratorError) as raised:
        torch.accel.synchronize()
    text = str(raised.value)
    line = int(re.search(r"program \(\d+, \d+, \d+\)(?: at|,) \S+\.py:(\d+)", text)[1])
    assert line in faulty_lines(program)
    assert f"'{argument}'" in text


def test_wrong_arguments():
    with pytest.raises(ValueError, match="accel: there is no check 'leak', expected some of nan, race, uninit"):
        Checks("race, leak")
    with pytest.raises(ValueError, match="accel: the check 'nan' follows values through the tile IR; level is 'ttir'"):
        launch(_scale, (1,), np.zeros(1), np.zeros(1), 1, B=1, WRONG=False, level="ttir", check=Checks("nan"))


def test_parts_of_one_array_share_memory():
    x, out = np.arange(8, dtype=np.float32), np.zeros(4, np.float32)
    with pytest.raises(KernelFault, match="race: reads element 1 of 'x'"):
        launch(_shift, (4,), x, x[1:], check=Checks("race"))
    launch(_shift, (4,), x, out, check=Checks("race"))


@triton.jit
def _shift(x, out):
    k = tl.program_id(0)
    tl.store(out + k, tl.load(x + k))
