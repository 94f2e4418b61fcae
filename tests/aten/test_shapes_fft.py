"""Fourier transforms are queued, and laid out as the CPU's library leaves them."""

import numpy as np
import pytest
import torch

from tests.aten.strides import layouts
from torch_accel.testing.held import check_held, check_refused

SIZES = [(8,), (4, 6), (3, 4, 5), (2, 3, 4, 6), (1, 3, 1, 4)]


def dims_of(rank):
    """A few choices of dimensions, in and out of order."""
    return {(rank - 1,), (0,), tuple(range(rank)), tuple(reversed(range(rank))), (rank - 1, 0)[: min(rank, 2)]}


CASES = [(sizes, dims) for sizes in SIZES for dims in sorted(dims_of(len(sizes)))]


@pytest.mark.parametrize("sizes, dims", CASES)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_to_complex(sizes, dims, dtype):
    for x in layouts(*sizes, dtype=dtype):
        check_held(torch.ops.aten._fft_c2c, x, dims, 1, True)


@pytest.mark.parametrize("sizes, dims", CASES)
@pytest.mark.parametrize("onesided", [True, False])
def test_real_to_complex(sizes, dims, onesided):
    for x in layouts(*sizes, dtype=torch.float64):
        check_held(torch.ops.aten._fft_r2c, x, dims, 0, onesided)


@pytest.mark.parametrize("sizes, dims", CASES)
@pytest.mark.parametrize("odd", [0, 1])
def test_complex_to_real(sizes, dims, odd):
    for x in layouts(*sizes, dtype=torch.complex64):
        size = max(2 * (sizes[dims[-1]] - 1) + odd, 1)
        check_held(torch.ops.aten._fft_c2r, x, dims, 2, size)


@pytest.mark.parametrize(
    "out", [torch.empty(0), torch.empty(3, 4, 5), torch.empty(5, 4, 3).permute(2, 1, 0), torch.empty(3, 8, 5)[:, ::2]]
)
def test_out(out):
    out = torch.zeros_like(out) if out.is_contiguous() else out.zero_()
    for x in layouts(3, 4, 5, dtype=torch.complex64):
        check_held(lambda x, out: torch.ops.aten._fft_c2c(x, [1], 0, True, out=out), x, out.to(torch.complex64))
    for x in layouts(3, 4, 5):
        check_held(lambda x, out: torch.ops.aten._fft_r2c(x, [2, 0], 0, False, out=out), x, out.to(torch.complex64))
    for x in layouts(3, 3, 5, dtype=torch.complex64):
        check_held(lambda x, out: torch.ops.aten._fft_c2r(x, [0, 1], 0, 4, out=out), x, out.clone())


def test_public_functions():
    x = layouts(4, 6)[1]
    for f in (torch.fft.fft2, torch.fft.rfft, torch.fft.hfft, torch.fft.ihfft, torch.fft.irfftn):
        check_held(f, x)
    check_held(lambda x: torch.stft(x, 16, window=torch.ones_like(x[:16]), return_complex=True), torch.arange(64.0))
    check_held(lambda x: torch.fft.fft2(x.conj()), x.to(torch.complex64))


def test_gradient():
    def gradient(x):
        x = x.clone().requires_grad_()
        torch.fft.rfft2(x).abs().sum().backward()
        return x.grad

    check_held(gradient, torch.linspace(-1, 2, 24).reshape(4, 6))


def test_oracle():
    x = np.linspace(-1, 2, 24).reshape(2, 3, 4)
    y = torch.from_numpy(x).to("accel")
    np.testing.assert_allclose(torch.fft.fftn(y).cpu().numpy(), np.fft.fftn(x), atol=1e-12)
    np.testing.assert_allclose(torch.fft.irfft(torch.fft.rfft(y)).cpu().numpy(), x, atol=1e-12)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.fft.fft(x.half()),
        lambda x: torch.fft.fft(x, dim=5),
        lambda x: torch.fft.irfft(x, n=0),
        lambda x: torch.ops.aten._fft_c2c(x, [0], 0, True),
    ],
)
def test_errors(call):
    check_refused(call, torch.ones(3, 4))
