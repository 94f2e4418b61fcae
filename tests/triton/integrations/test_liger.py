"""Every operator that Liger-Kernel exports, forward and backward, on accel tensors, against torch on the CPU in float64.

Needs ``pip install --no-deps liger-kernel==0.8.5``.
"""

import inspect

import pytest
import torch

from .liger_cases import CASES

ops = pytest.importorskip("liger_kernel.ops", reason="liger_kernel is not installed: see docs/integrations.md")

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("accel")]

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 3e-2}

# Faults of theirs, by what they raise.
REFUSED = {
    "LigerDyTFunction": (UnboundLocalError, "theirs: backward knows the cores of cuda, xpu and npu alone"),
    "LigerMLPFunction": (AssertionError, "theirs: asserts that its tensors are CUDA's"),
    "LigerFusedLinearScaledCrossEntropyTPFunction": (Exception, "theirs: asks for CUDA tensors and a process group"),
}


def parameters():
    for case in CASES:
        for dtype in case.dtypes:
            marks = []
            if case.function in REFUSED:
                error, cause = REFUSED[case.function]
                marks = [pytest.mark.xfail(strict=True, raises=error, reason=cause)]
            name = "-".join(filter(None, [case.function.removesuffix("Function"), case.note, str(dtype)[6:]]))
            yield pytest.param(case, dtype, id=name, marks=marks)


def outputs(result):
    return [out for out in (result if isinstance(result, tuple) else (result,)) if out is not None]


def gradients(outs, leaves):
    """The leaves' gradients of a sum of the outputs with fixed random factors."""
    torch.manual_seed(1)
    outs = [out for out in outs if out.requires_grad]
    factors = [torch.randn(out.shape, dtype=torch.float64) for out in outs]
    given = [factor.to(out.dtype).to(out.device) for factor, out in zip(factors, outs)]
    return torch.autograd.grad(outs, leaves, given, allow_unused=True) if outs else []


def moved(value, dtype, device):
    if not isinstance(value, torch.Tensor):
        return value
    # Some operators write into their argument: each side gets its own.
    kept = value.detach().to(dtype, copy=True) if value.is_floating_point() else value
    if device == "cpu" and value.is_floating_point():
        kept = kept.double()
    return kept.to(device).requires_grad_(value.requires_grad)


@pytest.mark.parametrize(("case", "dtype"), parameters())
def test_operator(case, dtype):
    torch.manual_seed(0)
    made = case.make()
    given = [moved(value, dtype, "accel") for value in made]
    wanted = [moved(value, dtype, "cpu") for value in made]

    expected = outputs(case.reference(*wanted))
    got = outputs(getattr(ops, case.function).apply(*given))[: len(expected)]
    leaves = [[value for value in values if getattr(value, "requires_grad", False)] for values in (given, wanted)]
    for out, reference in zip(got, expected, strict=True):
        close(out.detach(), reference.detach(), dtype)
    for out, reference in zip(gradients(got, leaves[0]), gradients(expected, leaves[1]), strict=True):
        close(out, reference, dtype)


def close(out, reference, dtype):
    """Equal in the tolerance of ``dtype``, which is of the largest value: a sum's error is of its terms' size."""
    assert out.device.type == "accel"
    assert out.shape == reference.shape or out.numel() == reference.numel() == 1
    scale = max(1.0, reference.abs().max().item())
    torch.testing.assert_close(
        out.cpu().double().view_as(reference), reference.double(), rtol=0, atol=TOLERANCE[dtype] * scale
    )


def test_every_exported_operator_has_a_case():
    exported = {name for name, value in vars(ops).items() if name.endswith("Function") and inspect.isclass(value)}
    assert len(exported) > 30
    assert exported == {case.function for case in CASES}
