"""Convolutions and their gradients, bit for bit the CPU's at equal thread counts."""

import os

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from torch_accel.testing.held import check_held, check_refused

CONV = {1: (F.conv1d, F.conv_transpose1d), 2: (F.conv2d, F.conv_transpose2d), 3: (F.conv3d, F.conv_transpose3d)}
OPTIONS = {
    "plain": {},
    "stride": {"stride": 2},
    "padding": {"padding": 1},
    "dilation": {"dilation": 2, "padding": 2},
    "groups": {"groups": 2, "padding": 1},
    "depthwise": {"groups": 4},
    "all": {"stride": 2, "padding": 1, "dilation": 2, "groups": 2},
}
TRANSPOSED_OPTIONS = {**OPTIONS, "output_padding": {"stride": 2, "output_padding": 1, "padding": 1}}
CASES = [(n, False, name, o) for n in CONV for name, o in OPTIONS.items()]
CASES += [(n, True, name, o) for n in CONV for name, o in TRANSPOSED_OPTIONS.items()]


def run(device, call, x, weight, bias, options, formats=None):
    leaves = []
    for tensor in (x, weight, bias):
        if tensor is None:
            leaves.append(None)
            continue
        moved = tensor.to(device)
        if formats and tensor.dim() == 4:
            moved = moved.to(memory_format=formats)
        leaves.append(moved.detach().requires_grad_())
    y = call(*leaves, **options)
    y.backward(torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape).to(device))
    return [y.detach(), *(leaf.grad for leaf in leaves if leaf is not None)]


def check(results, expected):
    assert len(results) == len(expected)
    for mine, theirs in zip(results, expected):
        assert mine.is_accel and mine.stride() == theirs.stride() and mine.dtype == theirs.dtype
        assert torch.equal(mine.cpu(), theirs)


def operands(dim, transposed, groups, dtype=torch.float32, size=7):
    torch.manual_seed(dim)
    x = torch.randn(2, 4, *[size] * dim).to(dtype)
    weight = (
        torch.randn(4, 4 // groups, *[3] * dim).to(dtype)
        if transposed
        else torch.randn(8, 4 // groups, *[3] * dim).to(dtype)
    )
    return x, weight, torch.randn(4 if transposed else 8).to(dtype)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(
    "dim, transposed, options",
    [(n, t, o) for n, t, _, o in CASES],
    ids=[f"{n}d-{'transposed-' * t}{name}" for n, t, name, _ in CASES],
)
def test_equals_the_cpu(dim, transposed, options, bias):
    x, weight, b = operands(dim, transposed, options.get("groups", 1))
    call = CONV[dim][transposed]
    arguments = (call, x, weight, b if bias else None, options)
    if bias and transposed:
        arguments = (call, x, weight, torch.randn(weight.shape[1] * options.get("groups", 1)), options)
    check(run("accel", *arguments), run("cpu", *arguments))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_dtypes(dtype, transposed):
    x, weight, b = operands(2, transposed, 1, dtype)
    arguments = (CONV[2][transposed], x, weight, b, {"padding": 1})
    check(run("accel", *arguments), run("cpu", *arguments))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_channels_last(transposed, groups):
    x, weight, b = operands(2, transposed, groups)
    b = b[: weight.shape[1] * groups] if transposed else b
    arguments = (CONV[2][transposed], x, weight, b, {"padding": 1, "groups": groups}, torch.channels_last)
    expected = run("cpu", *arguments)
    assert expected[0].is_contiguous(memory_format=torch.channels_last)
    check(run("accel", *arguments), expected)


@pytest.mark.skipif("ACCEL_THREADS" in os.environ, reason="ACCEL_THREADS overrides torch.set_num_threads")
@pytest.mark.parametrize("threads", [1, 2])
def test_thread_counts(threads):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        arguments = (F.conv2d, torch.randn(16, 3, 32, 32), torch.randn(8, 3, 5, 5), torch.randn(8), {"padding": 2})
        check(run("accel", *arguments), run("cpu", *arguments))
    finally:
        torch.set_num_threads(before)


def test_against_numpy():
    torch.manual_seed(0)
    x, weight = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)
    windows = np.lib.stride_tricks.sliding_window_view(x.numpy(), (3, 3), axis=(2, 3))
    expected = np.einsum("bchwij,ocij->bohw", windows, weight.numpy())
    actual = F.conv2d(x.to("accel"), weight.to("accel"))
    np.testing.assert_allclose(actual.cpu().numpy(), expected, rtol=1e-4, atol=1e-4)


SPECIAL = {
    "padding same": lambda d, x, w: F.conv2d(x, w, padding="same"),
    "padding valid": lambda d, x, w: F.conv2d(x, w, padding="valid"),
    "padding same, uneven": lambda d, x, w: F.conv2d(x, w[:, :, :2, :2], padding="same"),
    "no batch dimension": lambda d, x, w: F.conv2d(x[0], w),
    "empty batch": lambda d, x, w: F.conv2d(x[:0], w),
    "strided input": lambda d, x, w: F.conv2d(x[:, :, ::2, 1:], w),
    "expanded weight": lambda d, x, w: F.conv2d(x, w[:1].expand(5, 4, 3, 3)),
    "expanded input": lambda d, x, w: F.conv2d(x[:1].expand(3, 4, 7, 7), w),
    "complex": lambda d, x, w: F.conv2d(torch.complex(x, x), torch.complex(w, -w)),
    "integers": lambda d, x, w: F.conv2d((x * 4).long(), (w * 4).long()),
    "circular": lambda d, x, w: F.conv2d(F.pad(x, (1, 1, 1, 1), mode="circular"), w),
    "unfold": lambda d, x, w: F.unfold(x, 3),
    "1x1": lambda d, x, w: F.conv2d(x, w[:, :, :1, :1]),
}


@pytest.mark.parametrize("call", SPECIAL.values(), ids=SPECIAL.keys())
def test_special(call):
    x, weight, _ = operands(2, False, 1)
    expected = call("cpu", x, weight)
    check([call("accel", x.to("accel"), weight.to("accel"))], [expected])


def test_gradients_on_demand():
    x, weight, bias = operands(2, False, 1)
    for wanted in range(1, 8):
        grads = []
        for device in ("cpu", "accel"):
            leaves = [
                t.to(device).detach().requires_grad_(bool(wanted >> i & 1)) for i, t in enumerate((x, weight, bias))
            ]
            F.conv2d(*leaves).sum().backward()
            grads.append([leaf.grad for leaf in leaves])
        for mine, theirs in zip(grads[1], grads[0]):
            assert (mine is None) == (theirs is None)
            assert mine is None or torch.equal(mine.cpu(), theirs)


def test_empty_batch_gradients():
    for device in ("cpu", "accel"):
        conv = torch.nn.Conv2d(3, 4, 3).to(device)
        conv(torch.ones(0, 3, 8, 8, device=device)).sum().backward()
        assert torch.equal(conv.weight.grad.cpu(), torch.zeros(4, 3, 3, 3))
        assert torch.equal(conv.bias.grad.cpu(), torch.zeros(4))


@pytest.mark.parametrize("transposed", [False, True])
def test_double_backward(transposed):
    x = torch.randn(1, 2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weight = torch.randn(2, 2, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    results = []
    for device in ("cpu", "accel"):
        a, w = (t.to(device).detach().requires_grad_() for t in (x, weight))
        y = CONV[2][transposed](a, w)
        (g,) = torch.autograd.grad((y**3).sum(), a, create_graph=True)
        results.append([g.detach(), *torch.autograd.grad((g**2).sum(), (a, w))])
    for mine, theirs in zip(results[1], results[0]):
        assert torch.equal(mine.cpu(), theirs)


aten = torch.ops.aten


def arguments(x, weight, bias, transposed, options):
    n = x.dim() - 2
    each = [[options.get(name, default)] * n for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))]
    output_padding = [options.get("output_padding", 0)] * n
    return x, weight, bias, *each, transposed, output_padding, options.get("groups", 1)


# convolution on accel, convolution on the CPU: what is registered takes the other's arguments.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("formats", ["contiguous", "input", "weight", "strided", "empty batch"])
@pytest.mark.parametrize(
    "dim, transposed, options",
    [(n, t, o) for n, t, _, o in CASES],
    ids=[f"{n}d-{'transposed-' * t}{name}" for n, t, name, _ in CASES],
)
def test_queued(dim, transposed, options, formats, dtype):
    x, weight, _ = operands(dim, transposed, options.get("groups", 1), dtype)
    last = {1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d}[dim]
    if formats == "input":
        x = x.to(memory_format=last)
    elif formats == "weight":
        weight = weight.to(memory_format=last)
    elif formats == "strided":
        x = torch.stack([x, x], -1)[..., 0]
    elif formats == "empty batch":
        x = x[:0]
    channels = weight.shape[1] * options.get("groups", 1) if transposed else weight.shape[0]
    bias = torch.randn(channels).to(dtype)
    call = arguments(x, weight, bias, transposed, options)
    check_held(aten.convolution, *call)
    y = aten.convolution(*call)
    for mask in ([True] * 3, [False, True, False], [True, False, True]):
        check_held(aten.convolution_backward, y + 1, x, weight, [channels], *call[3:], mask)


def test_queued_without_a_batch_dimension():
    x, weight, _ = operands(2, False, 1)
    check_held(F.conv2d, x[0], weight)


def test_refused():
    x, weight, bias = operands(2, False, 1)
    for options in ({"stride": 0}, {"padding": -1}, {"groups": 3}, {"dilation": 9}):
        check_refused(F.conv2d, x, weight, bias, **options)
    check_refused(F.conv2d, x[:, :3], weight)
    check_refused(F.conv2d, x, weight, bias[:3])
    check_refused(F.conv2d, x, weight.double())
    check_refused(F.conv_transpose2d, x, weight[:4], output_padding=1)
    check_refused(F.unfold, x, 9)
    check_refused(F.fold, x[:, :, 0], (4, 4), 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64], ids=str)
@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1, "dilation": 2}], ids=["plain", "all"])
def test_unfold_and_fold(options, dtype):
    x = torch.randn(2, 4, 7, 7).to(dtype)
    pairs = [[options.get(name, default)] * 2 for name, default in (("dilation", 1), ("padding", 0), ("stride", 1))]
    for image in (x, x.to(memory_format=torch.channels_last), x[0], x[:0]):
        check_held(aten.im2col, image, [3, 3], *pairs)
        columns = aten.im2col(image, [3, 3], *pairs)
        away = int(image.numel() > 0)  # the kernel makes its result in a tensor of the input's size
        check_held(aten.col2im, columns, [7, 7], [3, 3], *pairs, misplaced=away)
        check_held(aten.col2im, columns.mT.contiguous().mT, [7, 7], [3, 3], *pairs, misplaced=away)
        check_held(aten.col2im.out, columns, [7, 7], [3, 3], *pairs, out=torch.empty(0, dtype=dtype))
        check_held(aten.im2col.out, image, [3, 3], *pairs, out=torch.empty(0, dtype=dtype))
