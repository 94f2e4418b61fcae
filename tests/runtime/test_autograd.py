"""Autograd over the device: gradients, hooks, streams held by construction, recomputation."""

import os
import threading
import warnings

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint

from torch_accel.testing import hold_stream


def test_hooks():
    seen = []
    x = torch.ones(3, device="accel", requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: seen.append(("y", g.device, g.cpu().tolist())) or g * 10)
    x.register_hook(lambda g: seen.append(("x", g.device, g.cpu().tolist())))
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append(("post", leaf.device, leaf.grad.cpu().tolist())))
    y.grad_fn.register_prehook(lambda grads: seen.append(("pre", grads[0].device, grads[0].cpu().tolist())))
    y.sum().backward()
    device = torch.device("accel:0")
    assert sorted(seen) == [
        ("post", device, [20, 20, 20]),
        ("pre", device, [10, 10, 10]),
        ("x", device, [20, 20, 20]),
        ("y", device, [1, 1, 1]),
    ]
    assert y.grad.tolist() == [10, 10, 10]


def test_saved_tensor_hooks():
    packed = []

    def pack(t):
        packed.append(t.device.type)
        return t.cpu()

    x = torch.arange(3.0, device="accel", requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.to("accel")):
        y = x * x
    y.sum().backward()
    assert packed == ["accel", "accel"] and x.grad.tolist() == [0, 2, 4]
    x.grad = None
    with torch.autograd.graph.save_on_cpu(pin_memory=True, device_type="accel"):
        y = x * x
    y.sum().backward()
    assert x.grad.tolist() == [0, 2, 4]


def test_retain_graph_accumulates():
    x = torch.ones(3, device="accel", requires_grad=True)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4, 4, 4]
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


def test_in_place_change_of_a_saved_tensor_is_noticed():
    for write in (lambda y: y.add_(1), lambda y: y.fill_(0), lambda y: y.copy_(torch.ones(3)), lambda y: y.uniform_()):
        x = torch.ones(3, device="accel", requires_grad=True)
        y = x.exp()
        with torch.no_grad():
            write(y)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_grad_modes():
    x = torch.ones(3, device="accel", requires_grad=True)
    with torch.no_grad():
        assert not (x * 2).requires_grad
    with torch.inference_mode():
        y = x * 2
        y.add_(1)
        assert y.is_inference() and y[1:].is_inference()
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
        (x * y).sum().backward()
    assert torch.equal(y.cpu(), torch.full((3,), 3.0))


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


def test_forward_mode():
    import torch.autograd.forward_ad as fwAD

    x = torch.arange(3.0).to("accel")
    with fwAD.dual_level():
        dual = fwAD.make_dual(x, torch.ones_like(x))
        tangent = fwAD.unpack_dual(dual.sin() * 2).tangent
    assert torch.equal(tangent.cpu(), torch.arange(3.0).cos() * 2)


def test_functional_transforms():
    x = torch.arange(6.0).reshape(2, 3)

    def f(v):
        return (v**3).sum()

    for transform in (torch.func.grad(f), torch.func.vmap(torch.func.grad(f)), torch.func.hessian(f)):
        torch.testing.assert_close(transform(x.to("accel")).cpu(), transform(x))


def test_across_devices():
    x = torch.ones(3, requires_grad=True)
    y = x.to("accel") * torch.arange(3.0, device="accel", requires_grad=True)
    y.cpu().sum().backward()
    assert x.grad.device.type == "cpu" and x.grad.tolist() == [0, 1, 2]


def test_leaf_gradients_are_safe_on_the_callers_stream():
    # The forward ran on a side stream, so its backward does too; the leaf's gradient is used on the main stream at once.
    side = torch.accel.Stream()
    x = torch.ones(1000, device="accel", requires_grad=True)
    side.wait_stream(torch.accel.current_stream())
    with torch.accel.stream(side):
        y = torch.zeros_like(x).copy_(x)  # its backward is a copy: queued
    torch.accel.current_stream().wait_stream(side)
    grad = torch.full((1000,), 3.0, device="accel")
    torch.accel.synchronize()
    with hold_stream(side):
        y.backward(grad)
        copied = torch.empty_like(x).copy_(x.grad)  # on the main stream
        assert not torch.accel.current_stream().query()  # it waits for the side stream
    assert torch.equal(copied.cpu(), torch.full((1000,), 3.0))


def test_backward_runs_on_the_forwards_stream():
    side = torch.accel.Stream()
    streams = []

    class Note(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            streams.append((torch.accel.current_stream(), torch.accel.current_device()))
            return grad

    x = torch.ones(3, device="accel", requires_grad=True)
    with torch.accel.stream(side):
        y = Note.apply(x)
    torch.accel.current_stream().wait_stream(side)
    Note.apply(y).sum().backward()
    assert streams == [(torch.accel.current_stream(), 0), (side, 0)]
    assert torch.accel.current_stream() == torch.accel.default_stream()


def test_accumulation_from_several_streams():
    streams = [torch.accel.Stream() for _ in range(3)]
    x = torch.ones(1000, device="accel", requires_grad=True)
    parts = []
    for factor, stream in enumerate(streams, 1):
        stream.wait_stream(torch.accel.current_stream())
        with torch.accel.stream(stream):
            torch.accel._sleep(3_000_000)
            parts.append((x * factor).sum())
    for stream in streams:
        torch.accel.current_stream().wait_stream(stream)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sum(parts).backward()
    assert len(caught) <= 1  # torch's word on an AccumulateGrad of another stream
    assert torch.equal(x.grad.cpu(), torch.full((1000,), 6.0))


def test_several_threads():
    results = [None] * 4

    def work(i):
        x = torch.full((100,), float(i), device="accel", requires_grad=True)
        (x**2).sum().backward()
        results[i] = x.grad.cpu()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, grad in enumerate(results):
        assert torch.equal(grad, torch.full((100,), 2.0 * i))


def test_error_in_a_backward():
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad @ grad @ torch.ones(7, device="accel")

    x = torch.ones(2, 2, device="accel", requires_grad=True)
    with pytest.raises(RuntimeError, match="size mismatch"):
        Broken.apply(x).sum().backward()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [[2, 2], [2, 2]]


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_with_dropout(use_reentrant):
    # The recomputation draws the numbers of the first run.
    torch.manual_seed(3)
    x = torch.ones(1000, device="accel", requires_grad=True)
    y = checkpoint(lambda t: torch.dropout(t, 0.5, True) * 3, x, use_reentrant=use_reentrant)
    drawn = torch.rand(4, device="accel")
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())  # both are 6 where kept, else 0
    after = torch.rand(4, device="accel")
    torch.manual_seed(3)
    torch.dropout(torch.ones(1000, device="accel"), 0.5, True)
    assert torch.equal(drawn, torch.rand(4, device="accel")) and torch.equal(after, torch.rand(4, device="accel"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64], ids=str)
def test_dropout_backward_takes_what_the_cpu_takes(dtype):
    grad = torch.ones(2, 3).to(dtype)
    for mask in (torch.tensor([True, False, True]).expand(2, 3), torch.tensor([1, 0, 2]), torch.tensor([[True]])):
        op = torch.ops.aten.native_dropout_backward
        expected, actual = op(grad, mask, 2.0), op(grad.to("accel"), mask.to("accel"), 2.0)
        assert actual.dtype == expected.dtype and torch.equal(actual.cpu(), expected)


@pytest.mark.skipif("ACCEL_THREADS" in os.environ, reason="ACCEL_THREADS overrides torch.set_num_threads")
@pytest.mark.parametrize("threads", [1, 2])
def test_thread_count_reaches_a_backward(threads):
    # The engine's thread has a count of its own, which torch.set_num_threads does not change.
    (torch.ones(3, device="accel", requires_grad=True) * 2).sum().backward()  # the thread exists
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        x, grad = torch.randn(300_001), torch.randn(300_001)
        grads = []
        for device in ("cpu", "accel"):
            scale = torch.ones(1, device=device, requires_grad=True)
            (x.to(device) * scale).backward(grad.to(device))  # sums 300001 products
            grads.append(scale.grad.cpu())
        assert torch.equal(*grads)
    finally:
        torch.set_num_threads(before)


def test_anomaly_mode():
    x = torch.zeros(2, device="accel", requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True), pytest.raises(RuntimeError, match="returned nan values"):
        (x.sqrt() * 0).sum().backward()
    x.grad = None
    (x * 1).sum().backward()
    assert x.grad.tolist() == [1, 1]
