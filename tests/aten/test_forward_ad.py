"""Forward-mode and double-backward derivatives: against differences and against the CPU."""

import pytest
import torch
import torch.autograd.forward_ad as fwAD
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

FUNCTIONS = {
    "pointwise": lambda x: torch.sin(x) * x.exp(),
    "division": lambda x: x / (x.square() + 1),
    "matmul": lambda x: x @ x.t(),
    "addmm": lambda x: torch.addmm(x[:, :2], x, x.t()),
    "sum and mean": lambda x: x.sum(1) * x.mean(),
    "max of a dim": lambda x: x.amax(1),
    "sort": lambda x: x.sort(1)[0],
    "gather": lambda x: x.gather(1, torch.tensor([[2, 0], [1, 1]], device=x.device)),
    "index_add": lambda x: x.index_add(0, torch.tensor([1, 1], device=x.device), x * x),
    "index": lambda x: x[:, [0, 0, 2]] ** 2,
    "index_put": lambda x: x.index_put((torch.tensor([0], device=x.device),), x[1] ** 2),
    "where": lambda x: torch.where(x > 0, x**2, x**3),
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.5) * x,
    "cat": lambda x: torch.cat([x, x * x], 1),
    "prod": lambda x: x.prod(1),
    "cumsum and cumprod": lambda x: x.cumsum(1) * x.cumprod(1),
    "logsumexp": lambda x: x.logsumexp(1),
    "softmax": lambda x: x.softmax(1) * x,
    "layer_norm": lambda x: F.layer_norm(x, (3,), x[0], x[1]),
    "batch_norm": lambda x: F.batch_norm(x[None], None, None, training=True),
    "group_norm": lambda x: F.group_norm(x[None], 1),
    "gelu": lambda x: F.gelu(x),
    "silu": lambda x: F.silu(x),
    "linear": lambda x: F.linear(x, x, x[:, 0]),
    "conv2d": lambda x: F.conv2d(x[None, None], x[None, None, :, :2]),
    "avg_pool": lambda x: F.avg_pool1d(x[None], 2),
    "interpolate": lambda x: F.interpolate(x[None], scale_factor=2, mode="linear"),
    "embedding": lambda x: F.embedding(torch.tensor([1, 1, 0], device=x.device), x) ** 2,
    "cross_entropy": lambda x: F.cross_entropy(x, torch.tensor([2, 0], device=x.device)),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None] * x[None]),
    "inv": lambda x: torch.linalg.inv(x @ x.t() + 2 * torch.eye(2, dtype=x.dtype, device=x.device)),
    "view chain in place": lambda x: (x * 1).t()[1:].mul_(2).sum(0) * x[:, 0],
    "complex": lambda x: torch.view_as_real(torch.complex(x, x * x).conj() * 2j),
    "einsum": lambda x: torch.einsum("ij,kj,k->i", x, x, x[:, 0]),
}
NO_FORWARD = {"interpolate"}  #: torch has no forward formula for them


def operand(device, dtype=torch.float64):
    return torch.tensor([[0.3, -0.7, 1.1], [0.9, 0.2, -0.4]], dtype=dtype).to(device)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_by_differences(name):
    x = operand("accel").requires_grad_()
    assert gradcheck(FUNCTIONS[name], (x,), check_forward_ad=name not in NO_FORWARD)
    assert gradgradcheck(FUNCTIONS[name], (x,), check_fwd_over_rev=name not in NO_FORWARD)


def derivatives(function, device):
    """The tangent, the gradient and the gradient of the gradient, in float32."""
    x = operand(device, torch.float32).requires_grad_()
    (first,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    try:
        with fwAD.dual_level():
            dual = fwAD.make_dual(x.detach(), torch.ones_like(x))
            tangent = fwAD.unpack_dual(function(dual)).tangent
    except NotImplementedError as error:
        return str(error), first, second
    return tangent, first, second


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_equal_the_cpus(function):
    names = ("tangent", "gradient", "second gradient")
    for name, mine, theirs in zip(names, derivatives(function, "accel"), derivatives(function, "cpu")):
        if isinstance(theirs, str):
            assert mine == theirs
            continue
        # LAPACK and the CPU's fused attention differ in the last bits. A second backward adds its terms in the order
        # in which the nodes of the first were numbered, and every thread numbers its own: the device's is another.
        loose = name == "second gradient" or function in (FUNCTIONS["inv"], FUNCTIONS["attention"])
        assert mine.is_accel
        torch.testing.assert_close(mine.cpu().detach(), theirs.detach(), **({} if loose else {"rtol": 0, "atol": 0}))


def test_dual_tensors():
    with fwAD.dual_level():
        x = fwAD.make_dual(torch.arange(3.0, device="accel"), torch.ones(3, device="accel"))
        y = (x * x)[1:].clone().add_(x[1:])
        primal, tangent = fwAD.unpack_dual(y)
        assert primal.tolist() == [2, 6] and tangent.tolist() == [3, 5]
