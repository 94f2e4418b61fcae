"""Fused optimizer steps and gradient scaling: queued, with the CPU's bits."""

import pytest
import torch

from torch_accel.testing import fallback_mode, hold_stream


def parameters(device, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    result = []
    for size in [(3, 4), (5,), (), (0,)]:
        parameter = torch.rand(size, generator=generator).to(device, dtype).requires_grad_()
        parameter.grad = torch.rand(size, generator=generator).to(device, dtype)
        result.append(parameter)
    return result


@pytest.mark.parametrize("how", ["fused", "foreach"])
@pytest.mark.parametrize(
    "optimizer, keywords",
    [
        (torch.optim.Adam, {}),
        (torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.1, "maximize": True}),
        (torch.optim.Adam, {"lr": "tensor"}),
        (torch.optim.AdamW, {"amsgrad": True}),
        (torch.optim.SGD, {"lr": 0.1}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
        (torch.optim.Adagrad, {"lr_decay": 0.1}),
    ],
)
def test_steps_are_queued_and_the_cpus(optimizer, keywords, how, queued):
    if how == "foreach" and "lr" in keywords and keywords["lr"] == "tensor":
        keywords = {"lr": 0.01}

    def run(device):
        options = dict(keywords)
        if options.get("lr") == "tensor":
            options["lr"] = torch.tensor(0.01)
        own = optimizer(values := parameters(device), **options, **{how: True})
        own.step()
        own.step()
        return own, values

    there, expected = run("cpu")
    there.step()
    here, actual = run("accel")
    with fallback_mode("error"), hold_stream():
        here.step()
    for a, e in zip(actual, expected, strict=True):
        assert torch.equal(a.cpu(), e)
    for a, e in zip(here.state.values(), there.state.values(), strict=True):
        assert all(torch.equal(torch.as_tensor(a[k]).cpu(), torch.as_tensor(e[k])) for k in e if e[k] is not None)


def test_a_fused_step_obeys_found_inf(queued):
    def run(device):
        p = parameters(device)
        own = torch.optim.SGD(p, lr=0.1, fused=True)
        own.grad_scale, own.found_inf = torch.full((), 4.0, device=device), torch.zeros((), device=device)
        own.step()
        own.found_inf = torch.ones((), device=device)
        own.step()
        return p

    for a, e in zip(run("accel"), run("cpu"), strict=True):
        assert torch.equal(a.cpu(), e)


@pytest.mark.parametrize("infinite", [False, True])
def test_gradient_scaling_is_queued(infinite, queued):
    def run(device, hold):
        gradients = [p.grad for p in parameters(device)]
        if infinite:
            gradients[1][2] = float("inf")
        found, inverse = torch.zeros(1, device=device), torch.full((1,), 0.25, device=device)
        scale = torch.full((1,), 4.0, device=device)
        tracker = torch.zeros(1, dtype=torch.int32, device=device)
        with hold():
            torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse)
            torch._amp_update_scale_(scale, tracker, found, 2.0, 0.5, 1)
        return [t.cpu() for t in [*gradients, found, scale, tracker]]

    run("accel", lambda: fallback_mode("error"))
    for a, e in zip(run("accel", hold_stream), run("cpu", lambda: fallback_mode("error")), strict=True):
        assert torch.equal(a, e)


def test_errors_come_at_the_call():
    gradients = [p.grad for p in parameters("accel")]
    one = torch.ones(1, device="accel")
    with pytest.raises(RuntimeError, match="found_inf must be a 1-element tensor"):
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, torch.ones(2, device="accel"), one)
    with pytest.raises(RuntimeError, match="growth_tracker must be an int tensor"):
        torch._amp_update_scale_(one, one.clone(), one.clone(), 2.0, 0.5, 1)
    with pytest.raises(RuntimeError, match=r"grads\.size"):
        torch.ops.aten._fused_sgd_(
            gradients, gradients[:1], [], weight_decay=0, momentum=0, lr=0.1, dampening=0, nesterov=False,
            maximize=False, is_first_step=True,
        )  # fmt: skip
