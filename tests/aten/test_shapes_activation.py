"""Rows of csrc/aten/shapes/activation.cpp: queued, and the CPU's results bit for bit."""

import pytest
import torch

from torch_accel.testing.held import check_held, check_refused

aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


def layouts(dtype):
    torch.manual_seed(0)
    x = torch.randn(2, 4, 6, 3).to(dtype)
    return {
        "contiguous": x,
        "channels_last": x.to(memory_format=torch.channels_last),
        "strided": torch.randn(2, 4, 6, 6).to(dtype)[..., ::2],
        "expanded": x[:, :1].expand(2, 4, 6, 3),
        "empty": x[:0],
        "scalar": torch.tensor(0.25, dtype=dtype),
    }


UNARY = {
    "hardswish": lambda x: [(aten.hardswish, x), (aten.hardswish.out, x, torch.empty(0))],
    "hardtanh": lambda x: [(aten.hardtanh.out, x, -1, 1, torch.empty(0))],
    "log_sigmoid": lambda x: [
        (aten.log_sigmoid_forward, x),
        (aten.log_sigmoid_backward, x + 1, x, x.exp()),
    ],
    "logit": lambda x: [(aten.logit, x, 0.1), (aten.logit, x), (aten.logit.out, x, 0.1, torch.empty(0))],
    "gradients": lambda x: [
        (aten.hardswish_backward, x + 1, x),
        (aten.hardtanh_backward, x + 1, x, -1, 1),
        (aten.hardtanh_backward.grad_input, x + 1, x, -1, 1, torch.empty(0)),
        (aten.mish_backward, x + 1, x),
    ],
    "rrelu": lambda x: [
        (aten.rrelu_with_noise, x, x.clone(), 0.1, 0.3, False),
        (aten.rrelu_with_noise.out, x, x.clone(), 0.1, 0.3, False, torch.empty(0)),
    ],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", layouts(torch.float32))
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, layout, dtype):
    x = layouts(dtype)[layout]
    for op, *arguments in UNARY[name](x):
        if getattr(op, "_overloadname", "") in ("out", "grad_input"):
            key = "grad_input" if op._overloadname == "grad_input" else "out"
            *arguments, out = arguments
            for target in (out.to(dtype), torch.empty_like(x.new_empty(x.shape)).mT if x.dim() else out.to(dtype)):
                if target.shape in (x.shape, (0,)):
                    check_held(op, *arguments, **{key: target})
        else:
            check_held(op, *arguments)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "strided", "empty", "scalar"])
def test_inplace(layout):
    x = layouts(torch.float32)[layout]
    check_held(aten.hardswish_, x)
    check_held(aten.hardtanh_, x, -0.5, 0.5)
    check_held(aten.logit_, x, 0.1)
    check_held(aten.rrelu_with_noise_, x, x.clone(), 0.1, 0.3, False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "strided", "empty"])
def test_prelu(layout, dtype):
    x = layouts(dtype)[layout]
    for weight in (torch.full((1, 4, 1, 1), 0.3), torch.tensor(0.3), torch.rand(4, 1, 1)):
        weight = weight.to(dtype)
        check_held(aten._prelu_kernel, x, weight)
        check_held(aten._prelu_kernel_backward, x + 1, x, weight)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_glu(dim):
    torch.manual_seed(0)
    x = torch.randn(4, 6, 2)
    for layout in (x, x.transpose(0, 2).contiguous().transpose(0, 2)):
        glu = aten.glu(layout, dim)
        check_held(aten.glu_backward, glu + 1, layout, dim)
        check_held(aten.glu_backward.grad_input, glu + 1, layout, dim, grad_input=torch.empty(0))
        check_held(aten.glu_jvp, glu, layout, layout + 1, dim)
        check_held(aten.glu_backward_jvp, layout, glu, layout, glu + 1, layout + 2, dim)


@pytest.mark.parametrize("dim", [None, 1, -1])
def test_masked_softmax(dim):
    torch.manual_seed(0)
    x, mask = torch.randn(2, 3, 4), torch.rand(2, 3, 4) > 0.7
    check_held(aten._masked_softmax, x, mask, dim, 2)
    check_held(aten._masked_softmax, x.transpose(0, 1), mask.transpose(0, 1), dim, 2)
    y = aten._masked_softmax(x, mask, dim, 2)
    check_held(aten._masked_softmax_backward, x, y, mask, dim)


def test_integers_become_floats_in_logit():
    check_held(aten.logit, torch.tensor([0, 1, 1]), 0.1)


def test_against_the_definition():
    x = torch.linspace(-4, 4, 33, dtype=torch.float64).to("accel")
    y = torch.nn.functional.hardswish(x).cpu()
    x = x.cpu()
    torch.testing.assert_close(y, x * (x + 3).clamp(0, 6) / 6)
    torch.testing.assert_close(torch.nn.functional.logsigmoid(x.to("accel")).cpu(), -(1 + (-x).exp()).log())


def test_refused():
    x = torch.randn(3, 4)
    check_refused(aten.hardtanh_, x > 0)
    check_refused(aten.hardtanh_, x.byte(), -1, 1)
    check_refused(aten.logit_, x.long())
    check_refused(aten._prelu_kernel, x, torch.ones(1).double())
    check_refused(aten.glu_backward, x, torch.randn(3, 5), -1)
    check_refused(aten._masked_softmax, x, x, 1, 2)
    check_refused(aten.hardswish, x.long())
