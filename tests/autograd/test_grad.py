"""torch.autograd.grad and backward: what they take, what they return, what they refuse."""

import contextlib

import pytest
import torch
from torch.autograd import grad, gradcheck, gradgradcheck

from torch_accel.testing import hold_stream


def leaf(values=(1.0, 2.0, 3.0), device="accel"):
    return torch.tensor(values, device=device, requires_grad=True)


def test_retain_graph_accumulates():
    x = leaf()
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4, 8, 12]
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


def test_an_unused_input():
    x, unused, host = leaf(), leaf(), torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        grad((x * x).sum(), [x, unused])
    first, second, third = grad((x * x).sum(), [x, unused, host], allow_unused=True)
    assert first.tolist() == [2, 4, 6] and second is None and third is None
    first, second, third = grad((x * x).sum(), [x, unused, host], materialize_grads=True)
    assert first.tolist() == [2, 4, 6] and third.is_cpu
    assert second.device == x.device and second.tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="Expected allow_unused to be True or not passed when materialize_grads=True"):
        grad((x * x).sum(), [x], allow_unused=False, materialize_grads=True)


def test_batches_of_gradients():
    x = leaf()
    y = x.exp() * x
    basis = torch.eye(3, device="accel")
    (rows,) = grad(y, x, basis, is_grads_batched=True, retain_graph=True)
    for row, vector in zip(rows, basis, strict=True):
        assert torch.equal(row, grad(y, x, vector, retain_graph=True)[0])
    v = torch.tensor([1.0, 2.0, 3.0])
    torch.testing.assert_close(rows.cpu(), torch.diag(v.exp() * (1 + v)))
    (second,) = grad(grad(y, x, basis, is_grads_batched=True, create_graph=True)[0].sum(), x)
    torch.testing.assert_close(second.cpu(), v.exp() * (2 + v))


def test_some_inputs_only():
    a, b = leaf(), leaf()
    c = a * b
    d = c.exp()
    d.sum().backward(inputs=[a], retain_graph=True)
    assert a.grad is not None and b.grad is None
    d.sum().backward(inputs=[c, b])
    torch.testing.assert_close(c.grad, d.detach())
    torch.testing.assert_close(b.grad, (d * a).detach())
    with pytest.raises(RuntimeError, match="`inputs` argument to `backward\\(\\)` cannot be empty"):
        (a * 1).sum().backward(inputs=[])


def test_several_outputs():
    x, y = leaf(), leaf()
    torch.autograd.backward([x * y, (x * 2).sum()], [torch.full((3,), 10.0, device="accel"), None])
    assert x.grad.tolist() == [12, 22, 32] and y.grad.tolist() == [10, 20, 30]


REFUSED = {
    "no scalar": lambda x: (x * 1).backward(),
    "another shape": lambda x: (x * 1).backward(torch.ones(2, device=x.device)),
    "no gradient": lambda x: x.detach().sum().backward(),
    "an integer": lambda x: torch.ones(3, dtype=torch.int64, device=x.device).requires_grad_(),
    "complex": lambda x: (x * 1j).sum().backward(),
    "a written leaf": lambda x: x.add_(1),
    "a written view of a leaf": lambda x: x[0].add_(1),
    "an inference tensor": lambda x: torch.inference_mode()(lambda: x.new_ones(3))().requires_grad_() * x,
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_torchs_words(case):
    errors = []
    for device in ("cpu", "accel"):
        with pytest.raises(RuntimeError) as raised:
            REFUSED[case](leaf(device=device))
        errors.append(str(raised.value))
    assert errors[1] == errors[0]


def test_a_gradient_of_another_device_is_refused():
    with pytest.raises(RuntimeError, match="expected device accel:0 but got cpu"):
        (leaf() * 1).backward(torch.ones(3))
    x = leaf()
    with pytest.raises(
        RuntimeError, match="assign a gradient with device type 'cpu' to a tensor with device type 'accel'"
    ):
        x.grad = torch.ones(3)


def test_a_gradients_layout():
    # What AccumulateGrad promises: the gradient of a dense parameter has the parameter's strides.
    for w in (
        torch.ones(2, 3, device="accel").t(),
        torch.ones(2, 3, 4, 5, device="accel").to(memory_format=torch.channels_last),
    ):
        w.requires_grad_()
        (w * w).sum().backward()
        (w.contiguous() * 2).sum().backward()
        assert w.grad.stride() == w.stride()
        assert torch.equal(w.grad.cpu(), torch.full(w.shape, 4.0))


def test_a_gradient_is_not_shared():
    # A gradient that something else refers to is copied, not stolen.
    x, given = leaf(), torch.full((3,), 2.0, device="accel")
    y = x * 1
    (x + 0).backward(given)
    x.grad.add_(1)
    assert given.tolist() == [2, 2, 2]
    y.backward(given)
    assert x.grad.tolist() == [5, 5, 5]


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True will create a reference cycle")
def test_accumulation_in_place_and_out_of_place():
    x = leaf()
    (x * 2).sum().backward()
    kept, address = x.grad, x.grad.data_ptr()
    (x * 3).sum().backward()
    assert x.grad is kept and x.grad.data_ptr() == address and kept.tolist() == [5, 5, 5]
    (x * x).sum().backward(create_graph=True)  # with a graph the sum is a new tensor
    assert x.grad.data_ptr() != address and x.grad.requires_grad
    assert x.grad.tolist() == [7, 9, 11] and kept.tolist() == [5, 5, 5]


@pytest.mark.parametrize("device", ["accel", "cpu"])
def test_grad_modes(device):
    x = leaf(device=device)
    with torch.no_grad():
        assert not (x * 2).requires_grad
        with torch.enable_grad():
            assert (x * 2).requires_grad
    with torch.set_grad_enabled(False):
        assert not (x * 2).requires_grad
    with torch.inference_mode():
        y = x * 2
        y.add_(1)
        assert y.is_inference() and y[1:].is_inference()
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
        (x * y).sum().backward()
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
        y.add_(1)
    assert y.tolist() == [4, 6, 8]  # torch writes first


def test_versions_are_counted():
    x = torch.zeros(3, device="accel")
    view = x[1:]
    for count, write in enumerate((lambda: x.add_(1), lambda: view.zero_(), lambda: x.copy_(torch.ones(3))), 1):
        write()
        assert x._version == view._version == count
    torch.autograd.graph.increment_version(view)
    assert x._version == 4 and x.data._version == 0 and x.detach()._version == 4


def test_10_in_place_on_a_view_of_a_view():
    def run(device):
        x = leaf((1.0, 2.0, 3.0, 4.0), device)
        base = x * 1
        inner = base.view(2, 2)[1:].t()[0]
        inner.mul_(10).add_(x[0])
        (base * torch.arange(1.0, 5.0, device=device)).sum().backward()
        return base.detach(), inner.detach(), x.grad, base._version

    base, inner, gradient, version = run("accel")
    expected = run("cpu")
    assert base.tolist() == [1, 2, 31, 4] and inner.tolist() == [31] and version == expected[3] == 2
    assert gradient.tolist() == expected[2].tolist() == [1 + 3, 2, 30, 4]


FUNCTIONS = {
    "mul": lambda x: x * x,
    "matmul": lambda x: x @ x.t(),
    "view chain": lambda x: (x.t()[1:] * x.reshape(3, 2)[:2].sum()).unsqueeze(0),
    "index": lambda x: x[:, torch.tensor([0, 2, 0], device=x.device)] ** 2,
    "softmax": lambda x: torch.softmax(x, 1),
    "layer_norm": lambda x: torch.layer_norm(x, (3,)),
    "cumsum": lambda x: (x**2).cumsum(1),
    "expand": lambda x: x.unsqueeze(0).expand(2, 2, 3) * x,
    "copy": lambda x: torch.zeros_like(x).copy_(x) ** 2,
    "to CPU and back": lambda x: (x.cpu() * 2).to("accel") * x,
    "conv": lambda x: torch.nn.functional.conv1d(x[None], x.reshape(1, 2, 3)),
    "as_strided": lambda x: x.as_strided((2, 2), (1, 2)) ** 2,
    "complex": lambda x: torch.view_as_real(torch.complex(x, x * x).conj() * 2j),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_gradients_by_differences(function):
    x = torch.tensor([[0.3, -0.7, 1.1], [0.9, 0.2, -0.4]], dtype=torch.float64).to("accel").requires_grad_()
    assert gradcheck(function, (x,))
    assert gradgradcheck(function, (x,))


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_gradients_equal_the_cpus(function):
    grads = []
    for device in ("cpu", "accel"):
        x = torch.tensor([[0.3, -0.7, 1.1], [0.9, 0.2, -0.4]]).to(device).requires_grad_()
        y = function(x) if device == "accel" or "accel" not in function.__code__.co_consts else (x * 2) * x
        (g,) = torch.autograd.grad((y**2).sum(), x, create_graph=True)
        g.sum().backward()
        grads.append((g.detach(), x.grad))
    for mine, theirs in zip(grads[1], grads[0]):
        assert mine.is_accel and torch.equal(mine.cpu(), theirs)


def test_a_gradient_penalty_is_queued(queued):
    # A double backward through a model, as in training with a penalty on the gradient.
    def train(device):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Softplus(), torch.nn.Linear(8, 1)).to(device)
        x = torch.linspace(-1, 1, 20, device=device).reshape(5, 4).requires_grad_()
        with hold_stream() if device == "accel" else contextlib.nullcontext():
            (slope,) = grad(net(x).sum(), x, create_graph=True)
            ((slope.norm(dim=1) - 1) ** 2).mean().backward()
        # The last bias does not reach the slope.
        return [p.grad.cpu() for p in net.parameters() if p.grad is not None]

    mine, theirs = train("accel"), train("cpu")
    assert len(mine) == len(theirs) == 3
    for a, b in zip(mine, theirs):
        torch.testing.assert_close(a, b)


def test_through_the_host_and_back():
    x, y = torch.ones(3, requires_grad=True), torch.arange(3.0, device="accel", requires_grad=True)
    (x.to("accel") * y).cpu().sum().backward()
    assert x.grad.is_cpu and x.grad.tolist() == [0, 1, 2] and y.grad.is_accel and y.grad.tolist() == [1, 1, 1]


def test_a_graph_that_is_deep():
    # The engine's thread frees a chain of nodes without recursion, and backward walks it without one.
    x = leaf((1.0,))
    y = x
    for _ in range(20_000):
        y = y + 1
    y.backward()
    assert x.grad.item() == 1
    del y


def test_dropout_backward_follows_the_mask():
    grad_out = torch.ones(2, 3)
    op = torch.ops.aten.native_dropout_backward
    for dtype in (torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64):
        for mask in (torch.tensor([True, False, True]).expand(2, 3), torch.tensor([1, 0, 2]), torch.tensor([[True]])):
            expected = op(grad_out.to(dtype), mask, 2.0)
            actual = op(grad_out.to(dtype).to("accel"), mask.to("accel"), 2.0)
            assert actual.dtype == expected.dtype and torch.equal(actual.cpu(), expected)
