"""torch.autocast("accel"): regions, the weight cache, gradients, custom functions, refusals."""

import pytest
import torch

import torch_accel


@pytest.fixture
def a():
    return torch.linspace(-1, 1, 16).reshape(4, 4).to("accel")


def test_default_dtype_is_float16(a):
    with torch.autocast("accel"):
        assert (a @ a).dtype == torch.float16
    assert torch.get_autocast_dtype("accel") == torch.float16


def test_regions_nest_and_restore(a):
    assert not torch.is_autocast_enabled("accel")
    with torch.autocast("accel", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled("accel")
        assert (a @ a).dtype == torch.bfloat16
        with torch.autocast("accel", enabled=False):
            assert (a @ a).dtype == torch.float32
            with torch.autocast("accel", dtype=torch.float16):
                assert (a @ a).dtype == torch.float16
        assert (a @ a).dtype == torch.bfloat16
    assert (a @ a).dtype == torch.float32
    with pytest.raises(ZeroDivisionError), torch.autocast("accel"):
        raise ZeroDivisionError
    assert not torch.is_autocast_enabled("accel")


def test_only_its_own_device_is_cast(a):
    with torch.autocast("accel"):
        assert (a.cpu() @ a.cpu()).dtype == torch.float32
    with torch.autocast("cpu"):
        assert (a @ a).dtype == torch.float32


def test_in_place_and_out_forms_are_not_cast(a):
    half = a.half()
    with torch.autocast("accel"):
        out = torch.empty(4, 4, device="accel")
        assert torch.mm(a, a, out=out).dtype == torch.float32
        with pytest.raises(RuntimeError, match="dtype"):
            a.addmm_(half, half)
        assert a.exp_().dtype == torch.float32


def test_double_and_integers_are_left_alone(a):
    with torch.autocast("accel"):
        assert (a.double() @ a.double()).dtype == torch.float64
        assert (a.long() @ a.long()).dtype == torch.int64


def count_casts(weight, calls, cache):
    """Casts of `weight` during `calls` products."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        casts = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten._to_copy.default and args[0].data_ptr() == weight.data_ptr():
                Count.casts += 1
            return func(*args, **(kwargs or {}))

    with torch.autocast("accel", cache_enabled=cache), Count():
        for _ in range(calls):
            x = torch.ones(4, 4, device="accel", dtype=torch.float16)
            torch.mm(x, weight)
    return Count.casts


def test_the_cast_of_a_weight_is_cached_in_a_region(a):
    weight = torch.nn.Parameter(a)
    assert count_casts(weight, 3, cache=True) == 1
    assert count_casts(weight, 3, cache=False) == 3
    assert count_casts(a.clone(), 3, cache=True) == 3  # only leaves that need gradients are cached


def test_gradients_have_the_dtype_of_the_parameters(a):
    def grads(device):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2)
        )
        model.to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            out = model(a.to(device))
            assert out.dtype == torch.bfloat16
            loss = torch.nn.functional.cross_entropy(out, torch.tensor([0, 1, 0, 1], device=device))
        assert loss.dtype == torch.float32
        loss.backward()
        return [p.grad for p in model.parameters()]

    for ours, cpus in zip(grads("accel"), grads("cpu"), strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.cpu(), cpus, rtol=2e-2, atol=1e-3)


def test_custom_functions(a):
    class Product(torch.autograd.Function):
        @staticmethod
        @torch_accel.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x, y):
            assert not torch.is_autocast_enabled("accel")
            ctx.save_for_backward(x, y)
            return x @ y

        @staticmethod
        @torch_accel.amp.custom_bwd
        def backward(ctx, grad):
            assert not torch.is_autocast_enabled("accel")
            x, y = ctx.saved_tensors
            return grad @ y.t(), x.t() @ grad

    x = a.half().requires_grad_()
    y = a.half().requires_grad_()
    with torch.autocast("accel"):
        out = Product.apply(x, y)
    assert out.dtype == torch.float32
    out.sum().backward()
    assert x.grad.dtype == torch.float16

    class Plain(torch.autograd.Function):
        @staticmethod
        @torch_accel.amp.custom_fwd
        def forward(ctx, x):
            ctx.enabled = torch.is_autocast_enabled("accel")
            return x.clone()

        @staticmethod
        @torch_accel.amp.custom_bwd
        def backward(ctx, grad):
            assert torch.is_autocast_enabled("accel") == ctx.enabled
            return grad

    for enabled in (True, False):
        with torch.autocast("accel", enabled=enabled):
            out = Plain.apply(x)
        out.sum().backward()


def test_the_shorthand_of_the_device_module(a):
    with torch.accel.amp.autocast():
        assert (a @ a).dtype == torch.float16
    with torch.accel.amp.autocast(dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.bfloat16
    with torch.accel.amp.autocast(enabled=False):
        assert (a @ a).dtype == torch.float32

    @torch.accel.amp.autocast(dtype=torch.bfloat16)
    def product(x):
        return x @ x

    assert product(a).dtype == torch.bfloat16


def test_other_dtypes_are_refused_by_a_warning(a):
    with (
        pytest.warns(UserWarning, match="In accel autocast, but the target dtype"),
        torch.autocast("accel", dtype=torch.float64),
    ):
        assert (a @ a).dtype == torch.float32


def test_a_trace_keeps_the_casts(a):
    with torch.autocast("accel", cache_enabled=False):
        traced = torch.jit.trace(lambda x: x @ x, a, check_trace=False)
    assert traced(a).dtype == torch.float16


def test_grad_scaler_skips_steps_that_overflow():
    """The names of torch.cuda.amp, with the device filled in."""
    weight = torch.nn.Parameter(torch.ones(3, device="accel"))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch_accel.amp.GradScaler(init_scale=4.0, growth_interval=1)
    for factor, scale, value in ((1.0, 8.0, 0.0), (float("inf"), 4.0, 0.0), (1.0, 8.0, -1.0)):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == scale and weight.tolist() == [value] * 3
