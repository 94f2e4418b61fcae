"""The checks of compiled kernels: what they say, what turns them on and off, and what they leave alone."""

import re

import pytest
import torch
import triton
import triton.language as tl
from expecttest import assert_expected_inline

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
    return re.sub(r"at \S*/test_checks.py:\d+", "at test_checks.py", re.sub("0x[0-9a-f]+", "ADDRESS", text))


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
    with pytest.raises(ValueError, match=r"accel: check is 'leak', expected 'none' or a list of oob"):
        fill[(1,)](x, 0, 64, B=64, check="oob, leak")
    monkeypatch.setenv("TRITON_ACCEL_CHECK", "bounds")
    with pytest.raises(ValueError, match=r"accel: TRITON_ACCEL_CHECK is 'bounds', expected 'none' or a list of oob"):
        fill[(1,)](x, 0, 64, B=128)
