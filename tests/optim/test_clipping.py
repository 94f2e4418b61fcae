"""Clipping of gradients and their accumulation, against NumPy and the CPU."""

import numpy as np
import pytest
import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm

VALUES = [np.linspace(-3, 2, 12).reshape(3, 4), np.array(1.5), np.zeros(0), np.array([4.0, -7.0])]


def parameters(device="accel", dtype=torch.float32):
    made = []
    for value in VALUES:
        parameter = torch.zeros(value.shape, device=device, dtype=dtype, requires_grad=True)
        parameter.grad = torch.from_numpy(value).to(device, dtype)
        made.append(parameter)
    return made


def norm_of(kind):
    return np.linalg.norm(np.concatenate([v.ravel() for v in VALUES]), kind)


@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize("kind", [2.0, 1.0, float("inf"), 0.5])
@pytest.mark.parametrize("limit", [0.5, 1e6])
def test_norm(kind, limit, foreach):
    values = parameters(dtype=torch.float64)
    if np.isinf(kind):  # the maximum of nothing is refused, as on the CPU
        values = [p for p in values if p.numel()]
    total = clip_grad_norm_(values, limit, norm_type=kind, foreach=foreach)
    expected = norm_of(kind)
    assert total.device.type == "accel" and total.item() == pytest.approx(expected, rel=1e-12)
    factor = min(limit / (expected + 1e-6), 1.0)
    for p, value in zip(values, [v for v in VALUES if v.size or not np.isinf(kind)], strict=True):
        np.testing.assert_allclose(p.grad.cpu().numpy(), value * factor, rtol=1e-12)


@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_clipped_gradients_are_the_cpus(dtype, foreach):
    here, there = parameters("accel", dtype), parameters("cpu", dtype)
    totals = [clip_grad_norm_(values, 2.0, foreach=foreach) for values in (here, there)]
    assert torch.equal(totals[0].cpu(), totals[1])
    for values in (here, there):
        clip_grad_value_(values, 0.25, foreach=foreach)
    for mine, theirs in zip(here, there, strict=True):
        assert torch.equal(mine.grad.cpu(), theirs.grad)
        assert mine.grad.numel() == 0 or mine.grad.abs().max().item() <= 0.25


def test_the_two_halves_of_clipping_by_norm():
    values = parameters()
    total = get_total_norm([p.grad for p in values], foreach=True)
    assert total.item() == pytest.approx(norm_of(2), rel=1e-6)
    clip_grads_with_norm_(values, 1.0, total, foreach=True)
    assert get_total_norm([p.grad for p in values]).item() == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_norms_that_are_not_finite_are_refused_when_asked(bad):
    values = parameters()
    values[0].grad[0, 0] = bad
    with pytest.raises(
        RuntimeError, match=r"The total norm of order 2\.0 for gradients from `parameters` is non-finite"
    ):
        clip_grad_norm_(values, 1.0, error_if_nonfinite=True)
    assert not torch.isfinite(clip_grad_norm_(values, 1.0)).item()


def test_gradients_of_several_backwards_add_up():
    p = torch.tensor([1.0, 2.0], device="accel", requires_grad=True)
    own = torch.optim.SGD([p], lr=0.5)
    for factor in (1.0, 10.0, 100.0):
        (p * factor).sum().backward()
    first = p.grad
    assert first.tolist() == [111.0, 111.0]
    own.step()
    assert p.tolist() == [1 - 55.5, 2 - 55.5]
    own.zero_grad(set_to_none=False)
    (p * 3).sum().backward()
    assert p.grad is first and first.tolist() == [3.0, 3.0]  # into the same memory
    own.zero_grad()
    assert p.grad is None
    (p * 4).sum().backward()
    assert p.grad is not first and p.grad.tolist() == [4.0, 4.0]


def test_accumulated_parts_equal_the_whole_batch():
    def run(device, parts):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3, dtype=torch.float64).to(device)
        own = torch.optim.AdamW(model.parameters(), lr=0.1)
        x = torch.linspace(-1, 1, 32, dtype=torch.float64).view(8, 4).to(device)
        for _ in range(3):
            for part in x.chunk(parts):
                (model(part).square().sum() / 8).backward()
            own.step()
            own.zero_grad()
        return [p.detach().cpu() for p in model.parameters()]

    for mine, whole, theirs in zip(run("accel", 4), run("accel", 1), run("cpu", 4), strict=True):
        assert torch.equal(mine, theirs)
        torch.testing.assert_close(mine, whole)
