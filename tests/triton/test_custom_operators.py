"""Operators of one's own that launch Triton kernels: ``torch.library.triton_op``, with gradients, traced and compiled."""

import pytest
import torch
import triton
import triton.language as tl
from torch.library import register_autograd, triton_op, wrap_triton

from torch_accel.testing import launches

pytestmark = pytest.mark.usefixtures("accel")


@triton.jit
def cube_kernel(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, mask=i < n)
    tl.store(out + i, value * value * value, mask=i < n)


@triton.jit
def cube_backward_kernel(x, grad, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, mask=i < n)
    tl.store(out + i, 3.0 * value * value * tl.load(grad + i, mask=i < n), mask=i < n)


def grid(meta):
    return (triton.cdiv(meta["n"], meta["B"]),)


@triton_op("accel_tests::cube", mutates_args={})
def cube(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(cube_kernel)[grid](x, out, x.numel(), B=64)
    return out


@triton_op("accel_tests::cube_backward", mutates_args={})
def cube_backward(x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(cube_backward_kernel)[grid](x, grad.contiguous(), out, x.numel(), B=64)
    return out


register_autograd(
    "accel_tests::cube",
    lambda ctx, grad: cube_backward(ctx.saved_tensors[0], grad),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


@triton_op("accel_tests::cube_", mutates_args={"x"})
def cube_(x: torch.Tensor) -> None:
    wrap_triton(cube_kernel)[grid](x, x, x.numel(), B=64)


def numbers(dtype=torch.float32):
    return torch.linspace(-2, 2, 100, dtype=dtype)


def test_it_runs_and_has_a_gradient():
    x = numbers().to("accel").requires_grad_()
    with launches() as names:
        out = torch.ops.accel_tests.cube(x)
        out.sum().backward()
    assert [name for name in names if "cube" in name] == ["cube_kernel", "cube_backward_kernel"]
    torch.testing.assert_close(out.cpu(), numbers() ** 3)
    torch.testing.assert_close(x.grad.cpu(), 3 * numbers() ** 2)


def test_its_gradient_is_the_derivative():
    x = numbers(torch.float64)[::10].contiguous().to("accel").requires_grad_()
    assert torch.autograd.gradcheck(cube, (x,))


@pytest.mark.full
def test_torch_checks_the_operator():
    # torch's fourth check, test_autograd_registration, knows CPU, CUDA and XPU only.
    checks = ["test_schema", "test_faketensor", "test_aot_dispatch_dynamic"]
    torch.library.opcheck(cube, (numbers().to("accel").requires_grad_(),), test_utils=checks)
    torch.library.opcheck(cube_, (numbers().to("accel"),), test_utils=checks)


def test_it_changes_its_argument():
    x = numbers().to("accel")
    version = x._version
    cube_(x)
    assert x._version > version
    torch.testing.assert_close(x.cpu(), numbers() ** 3)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_function_launches_it(backend):
    def function(x):
        return cube(x + 1).sum()

    x = numbers().to("accel").requires_grad_()
    out = torch.compile(function, backend=backend, fullgraph=True)(x)
    out.backward()
    torch.testing.assert_close(out.detach().cpu(), ((numbers() + 1) ** 3).sum())
    torch.testing.assert_close(x.grad.cpu(), 3 * (numbers() + 1) ** 2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_function_launches_a_kernel(backend):
    """Without an operator around it: Dynamo's ``triton_kernel_wrapper``."""

    def function(x):
        out = torch.zeros_like(x)
        cube_kernel[grid](x + 1, out, x.numel(), B=64)
        return out * 2

    x = numbers().to("accel")
    out = torch.compile(function, backend=backend, fullgraph=True)(x)
    torch.testing.assert_close(out.cpu(), 2 * (numbers() + 1) ** 3)


def test_a_compiled_function_launches_a_tuned_kernel():
    tuned = triton.autotune([triton.Config({"B": size}) for size in (32, 64)], key=["n"])(cube_kernel)

    def function(x):
        out = torch.zeros_like(x)
        tuned[grid](x, out, x.numel())
        return out

    out = torch.compile(function, backend="aot_eager", fullgraph=True)(numbers().to("accel"))
    torch.testing.assert_close(out.cpu(), numbers() ** 3)
