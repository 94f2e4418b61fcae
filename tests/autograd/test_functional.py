"""Functional transforms beyond tests/aten/test_functorch.py: what they compose to, behind a held stream, by formula."""

import contextlib

import pytest
import torch
from torch import nn
from torch.autograd import functional as AF
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils._pytree import tree_leaves

from torch_accel.testing import hold_stream

X = torch.tensor([[0.3, -0.7, 1.1], [0.9, 0.2, -0.4]], dtype=torch.float64)
A = torch.tensor([[0.5, 1.0, -1.5], [2.0, -0.3, 0.7], [0.1, 0.4, 0.6]], dtype=torch.float64)


def quadratic(x):
    """x'Ax for each row; the gradient is (A + A')x, the Hessian A + A'."""
    return ((x @ A.to(x.device)) * x).sum(-1)


def cubes(x):
    return x**3


S = A + A.t()
#: transform of accel's X -> its value by formula
FORMULAS = {
    "grad": (lambda x: grad(lambda t: quadratic(t).sum())(x), X @ S),
    "vmap of grad": (lambda x: vmap(grad(quadratic))(x), X @ S),
    "vjp": (lambda x: vjp(quadratic, x)[1](torch.full_like(x[:, 0], 2))[0], 2 * X @ S),
    "jvp": (lambda x: jvp(quadratic, (x,), (x,))[1], ((X @ S) * X).sum(1)),
    "vmap of vjp": (lambda x: vmap(vjp(cubes, x[0])[1])(torch.eye(3, dtype=x.dtype, device=x.device))[0], torch.diag(3 * X[0] ** 2)),
    "vmap of jvp": (
        lambda x: vmap(lambda v: jvp(cubes, (x[0],), (v,))[1])(torch.eye(3, dtype=x.dtype, device=x.device)),
        torch.diag(3 * X[0] ** 2),
    ),
    "jacrev": (lambda x: jacrev(cubes)(x[0]), torch.diag(3 * X[0] ** 2)),
    "jacfwd": (lambda x: jacfwd(cubes)(x[0]), torch.diag(3 * X[0] ** 2)),
    "jacrev of two arguments": (lambda x: jacrev(lambda a, b: a @ b, argnums=1)(x[0], x[1]), X[0]),
    "jacrev with aux": (lambda x: jacrev(lambda t: (cubes(t), t), has_aux=True)(x[0])[0], torch.diag(3 * X[0] ** 2)),
    "hessian": (lambda x: hessian(quadratic)(x[0]), S),
    "vmap of hessian": (lambda x: vmap(hessian(quadratic))(x), S.expand(2, 3, 3)),
    "jacrev of jacfwd": (lambda x: jacrev(jacfwd(quadratic))(x[0]), S),
    "jacfwd of jacrev": (lambda x: jacfwd(jacrev(quadratic))(x[0]), S),
    "jacfwd of jacfwd": (lambda x: jacfwd(jacfwd(quadratic))(x[0]), S),
    "hvp, forward over reverse": (lambda x: jvp(grad(quadratic), (x[0],), (x[1],))[1], S @ X[1]),
    "hvp, reverse over reverse": (lambda x: grad(lambda t: grad(quadratic)(t) @ x[1])(x[0]), S @ X[1]),
    "hvp, reverse over forward": (lambda x: grad(lambda t: jvp(quadratic, (t,), (x[1],))[1])(x[0]), S @ X[1]),
    "grad of grad of grad": (lambda x: grad(grad(grad(lambda t: t**4)))(x[0, 0]), 24 * X[0, 0]),
    "laplacian": (lambda x: vmap(lambda t: hessian(quadratic)(t).diagonal().sum())(x), S.trace().expand(2)),
    "functional.vjp": (lambda x: AF.vjp(quadratic, x, torch.ones_like(x[:, 0]))[1], X @ S),
    "functional.jvp": (lambda x: AF.jvp(cubes, x, torch.full_like(x, 2))[1], 6 * X**2),
    "functional.jacobian": (lambda x: AF.jacobian(cubes, x[0]), torch.diag(3 * X[0] ** 2)),
    "functional.jacobian, vectorized": (lambda x: AF.jacobian(cubes, x[0], vectorize=True), torch.diag(3 * X[0] ** 2)),
    "functional.hessian": (lambda x: AF.hessian(quadratic, x[0]), S),
    "functional.hessian, vectorized": (
        # mv: torch's forward mode of matmul does not take the older vmap that this is made of, on the CPU neither
        lambda x: AF.hessian(lambda t: A.to(x.device).mv(t).dot(t), x[0], vectorize=True, outer_jacobian_strategy="forward-mode"),
        S,
    ),
    "functional.hvp": (lambda x: AF.hvp(quadratic, x[0], x[1])[1], S @ X[1]),
    "functional.vhp": (lambda x: AF.vhp(quadratic, x[0], x[1])[1], S @ X[1]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMULAS)
def test_by_formula_and_without_a_wait(name, queued):
    transform, expected = FORMULAS[name]
    x = X.to("accel")
    transform(x)  # decompositions are imported at the first use
    torch.accel.fallback_report(reset=True)
    with hold_stream():
        actual = transform(x)
    assert torch.accel.fallback_report() == {} and actual.is_accel
    torch.testing.assert_close(actual.cpu(), expected.contiguous())


def test_strict_functional_transforms_name_what_is_independent():
    x = X[0].to("accel")
    with pytest.raises(RuntimeError, match="Output 0 of the user-provided function does not require gradients"):
        AF.jacobian(lambda t: torch.ones(2, device="accel"), x, strict=True)
    independent = AF.jacobian(lambda t: torch.ones(2, device="accel"), x)
    assert independent.device == x.device and torch.equal(independent.cpu(), torch.zeros(2, 3, dtype=x.dtype))
    with pytest.raises(RuntimeError, match="is independent of the input"):
        AF.hessian(lambda t: t.sum(), x, strict=True)


def test_functional_transforms_of_several_inputs():
    a, b = X[0].to("accel"), X[1].to("accel")
    first, second = AF.jacobian(lambda s, t: s * t, (a, b))
    assert torch.equal(first.cpu(), torch.diag(X[1])) and torch.equal(second.cpu(), torch.diag(X[0]))
    blocks = AF.hessian(lambda s, t: (s * t).sum(), (a, b))
    assert [[bool(block.any()) for block in row] for row in blocks] == [[False, True], [True, False]]
    assert torch.equal(blocks[0][1].cpu(), torch.eye(3, dtype=X.dtype))


def net(device):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double().to(device)


def test_functional_call_leaves_the_module_alone():
    module = net("accel")
    before = {name: p.detach().clone() for name, p in module.named_parameters()}

    def loss(parameters, x):
        return functional_call(module, parameters, (x,)).square().sum()

    gradients = grad(loss)(dict(module.named_parameters()), X.to("accel"))
    module(X.to("accel")).square().sum().backward()
    for name, p in module.named_parameters():
        assert torch.equal(p, before[name])
        torch.testing.assert_close(gradients[name], p.grad)


def test_gradients_of_each_sample_behind_a_held_stream(queued):
    module, x = net("accel"), X.to("accel")
    parameters = {name: p.detach() for name, p in module.named_parameters()}

    def loss(values, row):
        return functional_call(module, values, (row,)).square().sum()

    with hold_stream():
        each = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
        clipped = {
            name: g / vmap(torch.linalg.vector_norm)(g).view(-1, *[1] * (g.dim() - 1)) for name, g in each.items()
        }
    host = net("cpu")
    for i, row in enumerate(X):
        host.zero_grad()
        host(row).square().sum().backward()
        for name, p in host.named_parameters():
            torch.testing.assert_close(each[name][i].cpu(), p.grad)
            torch.testing.assert_close(clipped[name][i].cpu(), p.grad / p.grad.norm())


def test_a_tangent_kernel_by_two_ways():
    module, x = net("accel"), X.to("accel")
    parameters = {name: p.detach() for name, p in module.named_parameters()}

    def f(values, row):
        return functional_call(module, values, (row,))

    jacobians = tree_leaves(vmap(jacrev(f), in_dims=(None, 0))(parameters, x))
    flat = torch.cat([j.flatten(2) for j in jacobians], 2)
    kernel = torch.einsum("nap,mbp->nmab", flat, flat)

    def product(row, other):
        def through(tangent):
            (cotangent,) = vjp(lambda p: f(p, other), parameters)[1](tangent)
            return jvp(lambda p: f(p, row), (parameters,), (cotangent,))[1]

        return vmap(through)(torch.eye(2, dtype=x.dtype, device="accel")).t()

    for i, row in enumerate(x):
        for j, other in enumerate(x):
            torch.testing.assert_close(product(row, other), kernel[i, j])


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_dropout_in_vmap_of_grad(randomness):
    x = torch.ones(4, 64, device="accel")
    torch.manual_seed(0)
    masks = vmap(grad(lambda row: torch.dropout(row, 0.5, True).sum()), randomness=randomness)(x)
    assert set(masks.flatten().tolist()) == {0.0, 2.0}
    assert all(torch.equal(mask, masks[0]) for mask in masks) == (randomness == "same")


def test_a_step_by_hand_of_a_model_in_function_form(queued):
    # Reverse over the inner steps of an optimiser, as meta-learning does.
    def meta(device):
        module, x = net(device), X.to(device)
        parameters = {name: p.detach() for name, p in module.named_parameters()}

        def loss(values):
            return functional_call(module, values, (x,)).square().mean()

        def outer(rate):
            values = parameters
            for _ in range(3):
                gradients = grad(loss)(values)
                values = {name: values[name] - rate * gradients[name] for name in values}
            return loss(values)

        rate = torch.tensor(0.1, dtype=torch.float64).to(device)
        with hold_stream() if device == "accel" else contextlib.nullcontext():
            return grad(outer)(rate)

    torch.testing.assert_close(meta("accel").cpu(), meta("cpu"))
    assert meta("cpu").abs() > 1e-4
