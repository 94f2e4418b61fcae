"""Strict mode: what a kernel must not count on if it is to run on GPUs too."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from expecttest import assert_expected_inline

from torch_accel.triton.interpret.launch import launch


@pytest.fixture(params=["tile", "machine", "device"])
def run(request, monkeypatch):
    """Launches one program on arrays in one of the interpreters, or on the device; strict or not."""

    if request.param == "device":
        request.getfixturevalue("accel")

    def on_device(kernel, *arguments, strict, **constants):
        tensors = [torch.from_numpy(array).to("accel") for array in arguments]
        kernel[(1,)](*tensors, **constants, strict=strict)
        for array, tensor in zip(arguments, tensors):
            array[...] = tensor.cpu().numpy()

    def interpreted(kernel, *arguments, strict, **constants):
        monkeypatch.setenv("TRITON_ACCEL_STRICT", str(int(strict)))
        launch(kernel, (1,), *arguments, level=request.param, **constants)

    return on_device if request.param == "device" else interpreted


@triton.jit
def total(x, out, n: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out, tl.sum(tl.load(x + i, mask=i < n), 0))


@triton.jit
def total_of_zeros(x, out, n: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out, tl.sum(tl.load(x + i, mask=i < n, other=0), 0))


def test_a_sum_that_counts_on_zeros_is_nan(run):
    x, out = np.ones(5, np.float32), np.zeros(1, np.float32)
    for kernel, strict, expected in (
        (total, False, 5.0),
        (total, True, np.nan),
        (total_of_zeros, True, 5.0),
    ):
        run(kernel, x, out, n=5, B=8, strict=strict)
        np.testing.assert_array_equal(out, [expected])


@triton.jit
def copy(x, out, n: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n))


POISON = {
    "float64": 0xFFFF_FFFF_FFFF_FFFF,
    "float16": 0xFFFF,
    "int64": 0xA5A5_A5A5_A5A5_A5A5,
    "int32": 0xA5A5_A5A5,
    "int8": 0xA5,
}


@pytest.mark.parametrize("dtype", POISON)
def test_masked_lanes_are_poison(run, dtype):
    x, out = np.arange(8).astype(dtype), np.zeros(8, dtype)
    run(copy, x, out, n=3, B=8, strict=True)
    np.testing.assert_array_equal(out[:3], x[:3])
    assert set(out[3:].view(f"uint{8 * out.itemsize}").tolist()) == {POISON[dtype]}


@triton.jit
def product(x, y, out, precision: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(out + at, tl.dot(tl.load(x + at), tl.load(y + at), input_precision=precision))


def to_tf32(x):
    """By the definition: 11 significant bits, ties away from zero."""
    part, exponent = np.frexp(x.astype(np.float64))
    scaled = part * 2**11
    return np.ldexp(np.sign(scaled) * np.floor(np.abs(scaled) + 0.5), exponent - 11).astype(np.float32)


@pytest.mark.parametrize("precision", [None, "tf32", "ieee", "tf32x3"])
def test_products_in_tf32_round_their_operands(run, precision):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 16, 16)).astype(np.float32)
    # Ties: away from zero, which is not to even.
    x[0, 0], x[0, 1] = 1 + 2.0**-11, -1 - 2.0**-11
    # By products that are exact in float64, and added in the order of the rules.
    rounded = precision in (None, "tf32")
    a, b = (to_tf32(x), to_tf32(y)) if rounded else (x, y)
    assert not rounded or (a[0, 0], a[0, 1]) == (1 + 2.0**-10, -1 - 2.0**-10)
    expected = np.zeros((16, 16), np.float32)
    for k in range(16):
        expected = (a[:, k, None].astype(np.float64) * b[k] + expected).astype(np.float32)
    out = np.zeros((16, 16), np.float32)
    run(product, x, y, out, precision=precision, N=16, strict=True)
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6)
    exact = (x.astype(np.float64) @ y.astype(np.float64)).astype(np.float32)
    assert np.allclose(out, exact, rtol=1e-6, atol=1e-6) == (not rounded)


def test_infinities_and_nans_stay(run):
    x = np.eye(16, dtype=np.float32)
    y = np.full((16, 16), 2.0, np.float32)
    largest = np.uint32(0x7FFF_FFFF).view(np.float32)  # a NaN that rounding as a number would make -0
    x[0, 0], x[1, 1], x[2, 2] = np.inf, largest, np.finfo(np.float32).max
    out = np.zeros((16, 16), np.float32)
    run(product, x, y, out, precision="tf32", N=16, strict=True)
    assert np.isinf(out[0]).all() and np.isnan(out[1]).all() and np.isinf(out[2]).all()
    np.testing.assert_array_equal(out[3:], 2.0)


def test_small_products_are_refused_as_on_cuda(run):
    x, y, out = np.ones((3, 8, 8), np.float32)
    run(product, x, y, out, precision="ieee", N=8, strict=False)
    np.testing.assert_array_equal(out, 8.0)
    with pytest.raises(triton.CompilationError) as caught:
        run(product, x, y, out, precision="ieee", N=8, strict=True)
    assert_expected_inline(
        str(caught.value.__cause__),
        """Input shapes should have M >= 1, N >= 1 and K >= 16""",
    )


def test_levels_are_compared_from_the_tile_ir_on(monkeypatch):
    monkeypatch.setenv("TRITON_ACCEL_STRICT", "1")
    monkeypatch.setenv("TRITON_ACCEL_VERIFY", "each")
    x, out = np.ones(5, np.float32), np.zeros(1, np.float32)
    launch(total, (1,), x, out, n=5, B=8)
    assert np.isnan(out[0])


def test_another_word_in_the_environment(monkeypatch):
    monkeypatch.setenv("TRITON_ACCEL_STRICT", "yes")
    with pytest.raises(ValueError, match=r"^accel: TRITON_ACCEL_STRICT is 'yes', expected 0 or 1$"):
        launch(total, (1,), np.ones(5, np.float32), np.zeros(1, np.float32), n=5, B=8)
