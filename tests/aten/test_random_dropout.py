"""Dropout and rrelu: their masks and slopes by the oracle, forward and backward."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.aten.random_oracle import FLOATING, KEY, SEED, layouts, philox_only, rand

pytestmark = philox_only


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_definition(p: float, dtype: torch.dtype) -> None:
    torch.accel.manual_seed(SEED)
    x = torch.linspace(-3, 3, 5003, dtype=dtype)
    device_x = x.to("accel").requires_grad_()
    out = torch.nn.functional.dropout(device_x, p)
    keep = torch.from_numpy(rand(KEY, 5003) < np.float32(1 - p))
    factor = torch.ones((), dtype=dtype).div_(1 - p)
    assert torch.equal(out.detach().cpu(), x * (keep * factor))
    out.backward(torch.full_like(out, 3.0))
    assert torch.equal(device_x.grad.cpu(), torch.full_like(x, 3.0) * (keep * factor))


def test_dropout_layouts() -> None:
    drawn = []
    for x in layouts(20):
        torch.accel.manual_seed(1)
        out, mask = torch.native_dropout(x.fill_(1.0), 0.5, True)
        assert out.stride() == torch.empty_like(x).stride()
        assert torch.equal(out.cpu(), mask.cpu() * 2.0)
        drawn.append(out.cpu().reshape(-1))
    for other in drawn[1:]:
        assert torch.equal(drawn[0], other)


def test_dropout_edges() -> None:
    x = torch.ones(5, device="accel")
    torch.accel.manual_seed(1)
    for p, train in ((0.0, True), (0.7, False)):
        out, mask = torch.native_dropout(x, p, train)
        assert out.eq(1).all() and mask.all() and out.data_ptr() != x.data_ptr()
    out, mask = torch.native_dropout(x, 1.0, True)
    assert out.eq(0).all() and not mask.any() and mask.dtype == torch.bool
    out, mask = torch.native_dropout(x[:0], 0.5, True)
    assert out.numel() == 0 and mask.dtype == torch.bool
    assert torch.accel.get_rng_state()[8] == 0  # nothing was drawn


def test_dropout_under_checkpoint() -> None:
    x = torch.randn(64, device="accel", requires_grad=True)

    def block(y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(y, 0.5).square()

    grads = []
    for run in (block, lambda y: torch.utils.checkpoint.checkpoint(block, y, use_reentrant=False)):
        torch.manual_seed(9)
        x.grad = None
        run(x).sum().backward()
        grads.append(x.grad.clone())
    assert torch.equal(grads[0], grads[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_rrelu_draws_a_slope_for_each_negative_element(dtype: torch.dtype) -> None:
    x = torch.linspace(-2, 2, 24).reshape(4, 6).to(dtype)
    torch.accel.manual_seed(3)
    uniform = torch.rand(4, 6, device="accel").cpu().double()
    slopes = torch.where(x <= 0, uniform * 0.4 + 0.1, 1.0).to(dtype)
    expected = (x.float() * slopes.float()).to(dtype) if dtype != torch.float64 else x * slopes
    for strided in (x, x.t().contiguous().t()):
        torch.accel.manual_seed(3)
        noise = torch.empty(4, 6, dtype=dtype, device="accel")
        ours = torch.ops.aten.rrelu_with_noise(strided.to("accel"), noise, 0.1, 0.5, True)
        assert torch.equal(ours.cpu(), expected) and torch.equal(noise.cpu(), slopes)
        torch.accel.manual_seed(3)
        leaf = strided.to("accel").requires_grad_()
        torch.nn.functional.rrelu(leaf, 0.1, 0.5, training=True).sum().backward()
        assert torch.equal(leaf.grad.cpu(), slopes)
