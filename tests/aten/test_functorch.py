"""torch.func on accel: each transform of the same function gives the CPU's values; a few by formula."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from torch.utils._pytree import tree_flatten, tree_map

X = torch.tensor([[0.3, -0.7, 1.1], [0.9, 0.2, -0.4]])
W = torch.tensor([[0.5, 1.0, -1.5], [2.0, -0.3, 0.7], [0.1, 0.4, 0.6]])


def scalar(x):
    return (torch.sin(x) * x).sum() + (x @ x.t()).exp().mean()


def vector(x):
    return torch.tanh(x @ W.to(x.device)) + x.cumsum(-1)


TRANSFORMS = {
    "grad": lambda x: grad(scalar)(x),
    "grad_and_value": lambda x: grad_and_value(scalar)(x),
    "grad of grad": lambda x: grad(lambda y: grad(scalar)(y).square().sum())(x),
    "vjp": lambda x: vjp(vector, x)[1](torch.ones_like(x)),
    "jvp": lambda x: jvp(vector, (x,), (torch.ones_like(x),)),
    "jacrev": lambda x: jacrev(vector)(x),
    "jacrev in chunks": lambda x: jacrev(vector, chunk_size=2)(x),
    "jacfwd": lambda x: jacfwd(vector)(x),
    "hessian": lambda x: hessian(scalar)(x),
    "jacrev of jacrev": lambda x: jacrev(jacrev(scalar))(x),
    "linearize": lambda x: linearize(vector, x)[1](torch.ones_like(x)),
    "vmap": lambda x: vmap(lambda row: row * row.sum())(x),
    "vmap over columns": lambda x: vmap(lambda column: column.softmax(0), in_dims=1, out_dims=1)(x),
    "vmap of vmap": lambda x: vmap(vmap(torch.sin))(x),
    "vmap of matmul": lambda x: vmap(lambda row: W.to(x.device) @ row)(x),
    "vmap of index": lambda x: vmap(lambda row: row[torch.tensor([2, 0], device=x.device)])(x),
    "vmap of where": lambda x: vmap(lambda row: torch.where(row > 0, row, row * 2))(x),
    "vmap of sort": lambda x: vmap(torch.sort)(x),
    "vmap of masked_fill": lambda x: vmap(lambda row: row.masked_fill(row > 0, 7.0))(x),
    "vmap of cat": lambda x: vmap(lambda row: torch.cat([row, row]))(x),
    "vmap of in-place": lambda x: vmap(lambda row: row.clone().add_(1).mul_(row))(x),
    "vmap of linalg": lambda x: vmap(lambda row: torch.linalg.vector_norm(row))(x),
    "vmap of layer_norm": lambda x: vmap(lambda row: nn.functional.layer_norm(row, (3,)))(x),
    "vmap in chunks": lambda x: vmap(torch.cos, chunk_size=1)(x),
    "vmap of grad": lambda x: vmap(grad(lambda row: row.square().sum()))(x),
    "grad of vmap": lambda x: grad(lambda y: vmap(lambda row: row.prod())(y).sum())(x),
    "vmap with a CPU scalar": lambda x: vmap(lambda row: row * torch.tensor(2.0))(x),
    "vmap of conv": lambda x: vmap(lambda row: nn.functional.conv1d(row[None, None], W.to(x.device)[None, :1, :2]))(x),
    "vmap by the loop fallback": lambda x: vmap(lambda row: torch.histc(row, 3, -1, 1))(x),
    "functionalize": lambda x: torch.func.functionalize(lambda y: y.clone().add_(1).view(-1))(x),
    "autograd.functional.jacobian": lambda x: torch.autograd.functional.jacobian(vector, x),
    "autograd.functional.hvp": lambda x: torch.autograd.functional.hvp(scalar, x, torch.ones_like(x)),
    "autograd.functional.jacobian, vectorized forward": lambda x: torch.autograd.functional.jacobian(
        vector, x, vectorize=True, strategy="forward-mode"
    ),
}


#: A second backward adds its terms in the order in which the nodes of the first were numbered, and every thread numbers
#: its own: the device's thread is another, so the last bits differ, as on CUDA.
REORDERED = {"grad of grad", "jacrev of jacrev", "autograd.functional.hvp"}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_equals_the_cpu(name):
    transform, tolerance = TRANSFORMS[name], {} if name in REORDERED else {"rtol": 0, "atol": 0}
    expected, actual = tree_flatten(transform(X))[0], tree_flatten(transform(X.accel()))[0]
    assert len(actual) == len(expected)
    for mine, theirs in zip(actual, expected):
        assert mine.is_accel and mine.stride() == theirs.stride()
        torch.testing.assert_close(mine.cpu(), theirs, **tolerance)


def test_by_formula():
    x = X.accel()
    torch.testing.assert_close(grad(lambda y: (y**3).sum())(x).cpu(), 3 * X**2)
    torch.testing.assert_close(hessian(lambda y: (y**3).sum())(x[0]).cpu(), torch.diag(6 * X[0]))
    torch.testing.assert_close(jacrev(lambda y: W.accel() @ y)(x[0]).cpu(), W)
    torch.testing.assert_close(jacfwd(lambda y: W.accel() @ y)(x[0]).cpu(), W)
    torch.testing.assert_close(vmap(torch.dot)(x, x).cpu(), (X * X).sum(1))


def test_randomness():
    x = X.accel()
    same = vmap(lambda row: row + torch.rand(3, device="accel"), randomness="same")(torch.zeros_like(x))
    assert torch.equal(same[0], same[1])
    different = vmap(lambda row: row + torch.rand(3, device="accel"), randomness="different")(torch.zeros_like(x))
    assert not torch.equal(different[0], different[1])
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(lambda row: row + torch.rand(3, device="accel"))(x)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.LayerNorm(4), nn.Linear(4, 2))


def test_functional_call():
    host, device = model(), model().to("accel")
    doubled = {name: value * 2 for name, value in host.named_parameters()}
    expected = functional_call(host, doubled, (X,))
    actual = functional_call(device, {name: value.accel() for name, value in doubled.items()}, (X.accel(),))
    assert torch.equal(actual.cpu(), expected)
    torch.testing.assert_close(device(X.accel()).cpu(), host(X), rtol=0, atol=0)  # its own parameters are as before


def per_sample_gradients(net, x):
    parameters = {name: value.detach() for name, value in net.named_parameters()}

    def loss(values, row):
        return functional_call(net, values, (row[None],)).square().sum()

    return vmap(grad(loss), in_dims=(None, 0))(parameters, x)


def test_per_sample_gradients():
    expected, actual = per_sample_gradients(model(), X), per_sample_gradients(model().to("accel"), X.accel())
    for name, value in expected.items():
        torch.testing.assert_close(actual[name].cpu(), value)
    # The independent word: one backward for each sample.
    for i in range(2):
        net = model().to("accel")
        net(X.accel()[i : i + 1]).square().sum().backward()
        for name, parameter in net.named_parameters():
            torch.testing.assert_close(actual[name][i], parameter.grad)


def test_ensemble():
    nets = [model().to("accel") for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(nets)
    together = vmap(lambda p, b: functional_call(nets[0], (p, b), (X.accel(),)))(parameters, buffers)
    assert all(value.is_accel for value in tree_map(torch.detach, parameters).values())
    for one, net in zip(together, nets):
        torch.testing.assert_close(one, net(X.accel()))


def test_errors_are_the_cpus():
    for call in (
        lambda x: grad(lambda y: y * 2)(x),
        lambda x: vmap(lambda row: row.item())(x),
        lambda x: vmap(torch.sin, in_dims=5)(x),
        lambda x: vmap(lambda row: row if row.sum() > 0 else -row)(x),
    ):
        with pytest.raises(Exception) as expected:
            call(X)
        with pytest.raises(expected.type) as raised:
            call(X.accel())
        assert str(raised.value) == str(expected.value)
