"""The checks of compiled kernels: what they say, what turns them on and off, and what they leave alone."""

import re

import pytest
import torch
import triton
import triton.language as tl
from expecttest import assert_expected_inline

from tests.conftest import ROOT
from tests.triton.test_order import BEGIN
from torch_accel._native import _C
from torch_accel.testing import hold_stream

pytestmark = pytest.mark.usefixtures("accel")


@triton.jit
def add(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def fill(out, first, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + first + i, 7, mask=i < n)


def fault():
    with pytest.raises(torch.AcceleratorError) as raised:
        torch.accel.synchronize()
    text = str(raised.value).splitlines()[0]
    return re.sub(r"[^ (]*/test_checks.py:[\d:]*\d", "test_checks.py", re.sub("0x[0-9a-f]+", "ADDRESS", text))


def test_the_report():
    x, y, out = torch.ones(3, 1000, device="accel").clone().unbind()
    x = x.clone()
    add[(4,)](x, y, out, 1000, B=256)
    assert_expected_inline(
        fault(),
        """accel kernel failed: add: accel: program (3, 0, 0) at test_checks.py: out of bounds: 4 bytes at ADDRESS: byte 4000 of 'x', which has 4000 (element 1000); mask the access, or pass a larger tensor""",
    )
    assert out[:768].eq(2).all() and out[992:].eq(1).all()  # 1000 is in the last vector


def test_a_view_may_reach_its_whole_storage():
    x = torch.zeros(30, dtype=torch.int32, device="accel")
    fill[(1,)](x[10:20], -10, 30, B=32)
    assert x.eq(7).all()
    fill[(1,)](x[10:20], -11, 1, B=32)
    assert "byte -4 of 'out', which has 120 (element -11)" in fault()
    fill[(1,)](x[10:20], 0, 21, B=32)
    assert "byte 120 of 'out', which has 120 (element 20)" in fault()


def test_addresses_that_are_no_tensors_are_not_checked():
    x = torch.zeros(30, dtype=torch.int32, device="accel")

    class At:
        dtype = torch.int32

        def data_ptr(self):
            return x.data_ptr() + 40

    fill[(1,)](At(), -10, 30, B=32)
    assert x.eq(7).all()


def test_a_captured_launch_is_checked_at_each_replay():
    x = torch.zeros(64, dtype=torch.int32, device="accel")
    first = torch.zeros(1, dtype=torch.int32, device="accel")
    fill_from[(1,)](x, first, B=32)
    graph = torch.accel.AccelGraph()
    with torch.accel.graph(graph):
        fill_from[(1,)](x, first, B=32)
    first.fill_(32)
    graph.replay()
    torch.accel.synchronize()
    first.fill_(33)
    graph.replay()
    assert "byte 256 of 'out', which has 256" in fault()


@triton.jit
def fill_from(out, first, B: tl.constexpr):
    tl.store(out + tl.load(first) + tl.arange(0, B), 7)


@triton.jit
def fill_too(out, first, n, B: tl.constexpr):
    tl.store(out + first + tl.arange(0, B), 7, mask=tl.arange(0, B) < n)


@triton.jit
def root(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.sqrt(tl.load(x + i, mask=i < n)), mask=i < n)


def test_an_interpreted_launch_waits_for_its_turn():
    """It is queued behind what its stream does, and the host goes on meanwhile."""
    x, out = torch.full((100,), -4.0, device="accel"), torch.zeros(100, device="accel")
    with hold_stream():
        x.abs_()
        root[(4,)](x, out, 100, B=32, check="nan")
        y = out + 1
        x.fill_(-1)
    assert y.tolist() == [3.0] * 100
    x.fill_(4)
    x[70] = -1
    root[(4,)](x, out, 100, B=32, check="nan")
    assert_expected_inline(
        fault(),
        """accel kernel failed: root: accel: kernel 'root', program (2, 0, 0), test_checks.py: NaN: sqrt makes one of numbers here, and it is stored in 'out' (test_checks.py)""",
    )
    torch.accel.synchronize()


def test_an_interpreted_kernel_may_follow_pointers_in_memory():
    parts = [torch.arange(4.0, device="accel"), torch.arange(4.0, 8.0, device="accel")]
    table = torch.tensor([part.data_ptr() for part in parts], device="accel")
    out = torch.zeros(8, device="accel")
    follow[(2,)](table, out, B=4, check="race")
    assert out.tolist() == list(range(8))
    table[1] = 64
    follow[(2,)](table, out, B=4, check="race")
    assert "out of bounds: 4 bytes at ADDRESS (lane 0)" in fault()


@triton.jit
def follow(table, out, B: tl.constexpr):
    i = tl.arange(0, B)
    part = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.store(out + tl.program_id(0) * B + i, tl.load(part + i))


@triton.jit
def scalars(out, a, b, c, d, e, f):
    at = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
    tl.store(out + at, (a + b + c + e + f + tl.num_programs(0)).to(tl.float64) + d)


def test_an_interpreted_kernel_has_all_kinds_of_arguments():
    out = torch.zeros(6, dtype=torch.float64, device="accel")
    scalars[(1, 2, 3)](out, True, 7, -(1 << 40), 2.5, 1, 3, check="race")
    assert out.tolist() == [1 + 7 - (1 << 40) + 2.5 + 1 + 3 + 1] * 6
    scalars[(1, 0, 3)](out, True, 7, -(1 << 40), 2.5, 1, 4, check="race")
    assert out[0].item() == 15.5 - (1 << 40)


def test_a_captured_launch_is_interpreted_at_each_replay():
    x, out = torch.ones(32, device="accel"), torch.zeros(32, device="accel")
    graph = torch.accel.AccelGraph()
    root[(1,)](x, out, 32, B=32, check="nan")
    with torch.accel.graph(graph):
        root[(1,)](x, out, 32, B=32, check="nan")
    x.fill_(9)
    graph.replay()
    assert out.tolist() == [3.0] * 32
    x.fill_(-9)
    graph.replay()
    assert "NaN: sqrt" in fault()


@pytest.fixture
def uninit():
    _C._track_unwritten()
    return {"check": "uninit", "B": 32}


@triton.jit
def copy(x, out, first, stride, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + first + i * stride, mask=i < n), mask=i < n)


def test_what_operators_and_copies_write_counts(uninit):
    out, x = torch.zeros(32, device="accel"), torch.empty(4, 8, device="accel")
    copy[(1,)](x, out, 0, 1, 1, **uninit)
    assert "unwritten: lane 0 reads element 0 of 'x'" in fault()
    x[:, :3] = 5  # columns of each row
    copy[(1,)](x, out, 2, 8, 4, **uninit)
    assert out[:4].tolist() == [5.0] * 4
    copy[(1,)](x, out, 3, 8, 4, **uninit)
    assert "unwritten: lane 0 reads element 3 of 'x'" in fault()
    x[1].copy_(torch.arange(8.0))
    copy[(1,)](x, out, 8, 1, 8, **uninit)
    assert out[:8].tolist() == list(range(8))
    copy[(1,)](x, out, 8, 1, 12, **uninit)
    assert "unwritten: lane 11 reads element 19 of 'x'" in fault()


def test_what_an_interpreted_kernel_leaves_out_stays_unwritten(uninit):
    out, x = torch.zeros(32, device="accel"), torch.empty(32, device="accel")
    copy[(1,)](out, x, 0, 1, 20, **uninit)
    copy[(1,)](x, out, 0, 1, 20, **uninit)
    torch.accel.synchronize()
    copy[(1,)](x, out, 0, 1, 21, **uninit)
    assert "unwritten: lane 20 reads element 20 of 'x'" in fault()
    copy[(1,)](out, x, 0, 1, 32, B=32, check="oob")  # compiled code writes all that its list of accesses says
    copy[(1,)](x, out, 0, 1, 32, **uninit)
    torch.accel.synchronize()


def test_memory_that_is_given_out_again_is_unwritten_from_its_place_in_the_stream_on(uninit):
    out = torch.zeros(32, device="accel")
    x = torch.full((32,), 3.0, device="accel")
    torch.accel.synchronize()
    with hold_stream():
        copy[(1,)](x, out, 0, 1, 32, **uninit)  # of the first owner
        address = x.data_ptr()
        del x
        y = torch.empty(32, device="accel")
    assert y.data_ptr() == address and out.tolist() == [3.0] * 32
    copy[(1,)](y, out, 0, 1, 32, **uninit)
    assert "unwritten: lane 0 reads element 0 of 'x'" in fault()


def test_an_allocation_on_another_stream_is_unwritten_there_too(uninit):
    out = torch.zeros(32, device="accel")
    y = torch.empty(32, device="accel")
    side = torch.accel.Stream()
    side.wait_stream(torch.accel.current_stream())
    with torch.accel.stream(side):
        copy[(1,)](out, y, 0, 1, 8, **uninit)
        copy[(1,)](y, out, 0, 1, 8, **uninit)
    torch.accel.current_stream().wait_stream(side)
    y.record_stream(side)
    torch.accel.synchronize()
    copy[(1,)](y, out, 0, 1, 9, **uninit)
    assert "unwritten: lane 8" in fault()


def test_the_variable_knows_memory_from_the_beginning(script, cache):
    source = """
    x, out = torch.empty(32, device="accel"), torch.zeros(32, device="accel")
    x[:5] = 1
    from tests.triton.test_checks import copy
    for n in (5, 6):
        copy[(1,)](x, out, 0, 1, n, B=32)
        try:
            torch.accel.synchronize()
        except torch.AcceleratorError as error:
            print(n, "unwritten: lane 5 reads element 5 of 'x'" in str(error))
    """
    environment = {"TRITON_ACCEL_CHECK": "race, uninit", "TRITON_CACHE_DIR": cache, "PYTHONPATH": ROOT}
    assert script(BEGIN + source, **environment).stdout == "6 True\n"


def test_cooperative_launches_are_not_interpreted():
    x = torch.ones(32, device="accel")
    with pytest.raises(ValueError, match="accel: kernel 'root': programs of a cooperative launch wait for one another"):
        root[(1,)](x, x, 32, B=32, check="nan", launch_cooperative_grid=True)


def test_on_by_default_and_off_on_demand(monkeypatch):
    x = torch.zeros(32, dtype=torch.int32, device="accel")  # in a block of 512 bytes
    fill[(1,)](x, 0, 33, B=64)
    assert "out of bounds" in fault()
    fill[(1,)](x, 0, 33, B=64, check="none")
    torch.accel.synchronize()
    monkeypatch.setenv("TRITON_ACCEL_CHECK", "none")
    fill_too[(1,)](x, 0, 33, B=64)
    torch.accel.synchronize()
    fill_too[(1,)](x, 0, 33, B=64, check="oob")
    assert "out of bounds" in fault()


def test_unknown_checks_are_refused(monkeypatch):
    x = torch.zeros(64, dtype=torch.int32, device="accel")
    with pytest.raises(
        ValueError, match=r"accel: check is 'leak', expected 'none' or a list of nan, oob, race, uninit"
    ):
        fill[(1,)](x, 0, 64, B=64, check="oob, leak")
    monkeypatch.setenv("TRITON_ACCEL_CHECK", "bounds")
    with pytest.raises(
        ValueError, match=r"accel: TRITON_ACCEL_CHECK is 'bounds', expected 'none' or a list of nan, oob, race, uninit"
    ):
        fill[(1,)](x, 0, 64, B=128)
