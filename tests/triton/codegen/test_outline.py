"""Kernels of many nests, which are functions of their own: the results, the faults, and what is written once."""

import numpy as np
import pytest
import triton
import triton.language as tl

from tests.triton.codegen.native import Kernel
from torch_accel.triton import frontend
from torch_accel.triton.codegen import outline


@triton.jit
def many(x, out, limit, times: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    for _ in tl.static_range(times):
        v = tl.cumsum(v, 0) & 7
        tl.device_assert(v < limit, "too large")
    tl.store(out + i, v)


def kernel(times):
    signature = {"x": "*i32", "out": "*i32", "limit": "i32", "times": "constexpr", "B": "constexpr"}
    return Kernel(frontend.tile_ir(many, signature, {"times": times, "B": 32}, frontend.Options(debug=True)), "many")


def nests(made):
    return made.compiled.llvm_text.count("define internal i32 @accel_nest")


def test_equal_nests_are_written_once():
    assert nests(kernel(2)) == 0
    few, more = (nests(kernel(times)) for times in (outline.MANY, 2 * outline.MANY))
    assert 0 < few == more < 8


@pytest.mark.parametrize("times", [2, outline.MANY])
def test_results_and_faults(times):
    x, made = np.arange(32, dtype=np.int32) % 3, kernel(times)
    want = x
    for _ in range(times):
        want = np.cumsum(want, dtype=np.int32) & 7
    (_, got, _), fault = made.run((1,), [x, np.zeros(32, np.int32), 8])
    assert fault is None
    np.testing.assert_array_equal(got, want)
    (_, got, _), fault = made.run((1,), [x, np.full(32, -1, np.int32), 7])
    assert fault.text.endswith(b"too large")
    assert (got == -1).all()
