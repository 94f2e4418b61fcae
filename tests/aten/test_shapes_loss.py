"""Rows of csrc/aten/shapes/loss.cpp: queued, and the CPU's results bit for bit."""

import pytest
import torch

from torch_accel.testing.held import check_held, check_refused

aten = torch.ops.aten
NONE, MEAN, SUM = 0, 1, 2
REDUCTIONS = [NONE, MEAN, SUM]
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def gradient(reduction, like):
    return torch.rand_like(like) if reduction == NONE else torch.rand((), dtype=like.dtype)


LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.mT.contiguous().mT,
    "strided": lambda t: torch.stack([t, t], -1)[..., 0],
    "empty": lambda t: t[:0],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_elementwise(reduction, layout, dtype):
    x, target, weight = (LAYOUTS[layout](torch.rand(3, 4, 5).to(dtype)) for _ in range(3))
    grad = gradient(reduction, x)
    # With a reduction the kernel's result is the head of a tensor of the input's size: never in its place.
    away = int(reduction != NONE and x.numel() > 0)
    check_held(aten.binary_cross_entropy, x, target, weight, reduction, misplaced=away)
    check_held(aten.binary_cross_entropy, x, target, None, reduction, misplaced=away)
    check_held(aten.binary_cross_entropy_backward, grad, x, target, weight, reduction)
    check_held(aten.huber_loss, x, target, reduction, 0.3)
    check_held(aten.mse_loss_backward, grad, x, target, reduction)
    for op, options in [
        (aten.mse_loss_backward.grad_input, {}),
        (aten.smooth_l1_loss_backward.grad_input, {"beta": 0.3}),
        (aten.huber_loss_backward.out, {"delta": 0.3}),
    ]:
        check_held(op, grad, x, target, reduction, **options, grad_input=torch.empty_like(x))


def test_into_outputs():
    x, target = torch.rand(3, 4), torch.rand(3, 4)
    for out in (torch.empty(3, 4), torch.empty(4, 3).mT):
        check_held(aten.huber_loss.out, x, target, NONE, 0.3, out=out)
        check_held(aten.binary_cross_entropy.out, x, target, None, NONE, out=out)
    check_held(aten.multi_margin_loss.out, x, torch.tensor([1, 0, 3]), reduction=MEAN, out=torch.empty(0))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll_loss2d(reduction, dtype, weighted):
    x = torch.randn(2, 5, 3, 4).to(dtype)
    target = torch.randint(5, (2, 3, 4))
    target[0, 0, 0] = -100
    weight = torch.rand(5).to(dtype) if weighted else None
    for layout in (x, x.to(memory_format=torch.channels_last), x[..., ::2]):
        y = target[..., : layout.shape[-1]]
        check_held(aten.nll_loss2d_forward, layout, y, weight, reduction, -100)
    out, total = aten.nll_loss2d_forward(x, target, weight, reduction, -100)
    check_held(aten.nll_loss2d_backward, gradient(reduction, out), x, target, weight, reduction, -100, total)
    check_held(
        aten.nll_loss2d_forward.output, x, target, weight, reduction, -100,
        output=torch.empty(0, dtype=dtype), total_weight=torch.empty(0, dtype=dtype),
    )  # fmt: skip


@pytest.mark.parametrize("batch", [None, 1, 3])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_margins(reduction, batch):
    x = torch.randn(4) if batch is None else torch.randn(batch, 4)
    target = torch.randint(4, () if batch is None else (batch,))
    for p in (1, 2):
        for weight in (None, torch.rand(4)):
            check_held(aten.multi_margin_loss, x, target, p, 0.5, weight, reduction)
            loss = aten.multi_margin_loss(x, target, p, 0.5, weight, reduction)
            grad = torch.rand_like(loss)
            check_held(aten.multi_margin_loss_backward, grad, x, target, p, 0.5, weight, reduction)
    labels = torch.tensor([2, 1, -1, 0]) if batch is None else torch.tensor([[2, 1, -1, 0]] * batch)
    check_held(aten.multilabel_margin_loss_forward, x, labels, reduction)
    loss, is_target = aten.multilabel_margin_loss_forward(x, labels, reduction)
    check_held(aten.multilabel_margin_loss_backward, torch.rand_like(loss), x, labels, reduction, is_target)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("rows", [3, 30, 0])
def test_distances(rows, p):
    a, b = torch.randn(2, 1, rows, 4), torch.randn(3, 5, 4)
    check_held(aten._cdist_forward, a, b, p, None)
    check_held(aten._cdist_forward, a.mT.contiguous().mT, b, p, 1)
    x, y = torch.randn(2, rows, 4), torch.randn(2, 5, 4)
    distances = aten._cdist_forward(x, y, p, 2)
    check_held(aten._cdist_backward, distances + 1, x, y, p, distances)
    points = torch.randn(rows, 4)
    check_held(aten._pdist_forward, points, p)
    if rows > 0:  # the CPU's kernel has a division by zero there
        distances = aten._pdist_forward(points, p)
        check_held(aten._pdist_backward, distances + 1, points, p, distances)


def test_against_the_definition():
    a, b = torch.randn(4, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    expected = (a[:, None] - b).pow(2).sum(-1).sqrt()
    torch.testing.assert_close(torch.cdist(a.to("accel"), b.to("accel")).cpu(), expected)
    p, t = torch.rand(6, dtype=torch.float64), torch.rand(6, dtype=torch.float64)
    loss = torch.nn.functional.binary_cross_entropy(p.to("accel"), t.to("accel"))
    torch.testing.assert_close(loss.cpu(), -(t * p.log() + (1 - t) * (1 - p).log()).mean())


def test_targets_out_of_range_rise_at_the_synchronisation(queued):
    x = torch.randn(2, 5, 3, 4, device="accel")
    torch.nn.functional.nll_loss(x, torch.full((2, 3, 4), 7, device="accel"))
    with pytest.raises(torch.AcceleratorError, match="Target 7 is out of bounds"):
        torch.accel.synchronize()


def test_refused():
    x, target = torch.rand(2, 5, 3, 4), torch.randint(5, (2, 3, 4))
    check_refused(aten.nll_loss2d_forward, x, target[:, :2], None, MEAN, -100)
    check_refused(aten.nll_loss2d_forward, x, target, torch.ones(4), MEAN, -100)
    check_refused(aten.nll_loss2d_forward, x, target.int(), None, MEAN, -100)
    check_refused(aten.huber_loss, x, x, MEAN, -1.0)
    check_refused(aten.multi_margin_loss, x[0, :, 0], target[0, 0], 1, 1.0, None, MEAN)
    check_refused(aten._cdist_forward, torch.ones(3, 4), torch.ones(3, 5), 2.0, None)
    check_refused(aten._pdist_forward, torch.ones(3, 4).mT, 2.0)
