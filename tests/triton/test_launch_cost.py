"""A launch's record has what the kernel's cost function says: bytes and operations, known when it is enqueued."""

import pytest
import torch
import triton
import triton.language as tl

from torch_accel._native import _C

HBM, SRAM, LINK, HOST = range(4)
F64, F32, F16, F8, INT = range(5)

pytestmark = pytest.mark.usefixtures("accel")


@triton.jit
def scaled(x, out, n, factor, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


@triton.jit
def counted_down(x, n):
    while n > 0:
        tl.store(x + n - 1, n.to(tl.float32))
        n -= 1


@triton.jit
def squared(x, out, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    a = tl.load(x + at)
    tl.store(out + at, tl.dot(a, a))


def costs(launch):
    """Of the one kernel that ``launch`` enqueues."""
    log = _C._log_launches()
    launch()
    (found,) = log.costs()
    log.stop()
    return found


@pytest.mark.parametrize("size", [1000, 3])
def test_known_at_the_launch(size):
    """By the arguments and the grid of this launch: the same kernel, another size."""
    x = torch.ones(1024, device="accel")
    out = torch.empty_like(x)
    programs = triton.cdiv(size, 128)
    name, bytes, flops = costs(lambda: scaled[(programs,)](x, out, size, 2.0, B=128))
    assert name == "scaled"
    assert bytes[HBM] == programs * 128 * (4 + 4)
    assert bytes[LINK] == bytes[HOST] == -1
    assert (flops[F64], flops[F32], flops[F16], flops[F8]) == (0, programs * 128, 0, 0)


def test_products():
    x = torch.ones(32, 32, device="accel", dtype=torch.bfloat16)
    out = torch.empty(32, 32, device="accel")
    _, bytes, flops = costs(lambda: squared[(1,)](x, out, N=32))
    assert bytes[HBM] == 32 * 32 * (2 + 4)
    assert bytes[SRAM] > 0
    assert flops[F16] == 2 * 32**3


def test_unknown_is_not_zero():
    x = torch.zeros(4, device="accel")
    _, bytes, flops = costs(lambda: counted_down[(1,)](x, 4))
    assert (bytes[HBM], bytes[SRAM], flops[INT], flops[F32]) == (-1, 0, -1, 0)
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0]
