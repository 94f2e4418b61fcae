"""Hooks of saved tensors, save_on_cpu and its pinned memory, and what saved tensors allow."""

import contextlib

import pytest
import torch
from torch.autograd.graph import allow_mutation_on_saved_tensors, disable_saved_tensors_hooks, save_on_cpu
from torch.autograd.graph import saved_tensors_hooks as hooks

from tests.autograd.forked import FRESH, forked
from tests.memory import settled
from torch_accel.testing import hold_stream, wait_report

N = 100_003  # more than what a copy captures by value


def test_pack_and_unpack():
    seen = []

    def pack(t):
        seen.append(("pack", t.device.type))
        return t.cpu()

    def unpack(t):
        seen.append(("unpack", t.device.type))
        return t.to("accel")

    x = torch.arange(3.0, device="accel", requires_grad=True)
    with hooks(pack, unpack):
        y = x * x
        assert torch.equal(y.grad_fn._saved_self.cpu(), torch.arange(3.0))  # unpacks one
        z = y.exp()  # saves its result
    z.sum().backward()
    packs = [("pack", "accel")] * 2
    assert seen == packs + [("unpack", "cpu"), ("pack", "accel")] + [("unpack", "cpu")] * 3
    v = torch.arange(3.0)
    torch.testing.assert_close(x.grad.cpu(), 2 * v * (v * v).exp())


def test_the_innermost_hooks_are_used():
    x = torch.arange(3.0, device="accel", requires_grad=True)
    with hooks(lambda t: t * 2, lambda t: t), hooks(lambda t: t * 10, lambda t: t + 1):
        y = x * x
    y.sum().backward()
    assert x.grad.tolist() == [2, 22, 42]


def test_hooks_of_one_saved_tensor():
    x = torch.arange(3.0, device="accel", requires_grad=True)
    y = x.sin()
    y.grad_fn._raw_saved_self.register_hooks(lambda t: t.cpu(), lambda t: t.to("accel") * 0)
    y.sum().backward()
    assert x.grad.tolist() == [1, 1, 1]
    y = x.sin()
    y.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t)
    with pytest.raises(RuntimeError, match="already been set"):
        y.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t)


def test_a_pack_hook_must_not_change_its_tensor():
    x = torch.ones(3, device="accel", requires_grad=True)
    with (
        pytest.raises(RuntimeError, match="saved tensor pack hook is modifying its input in place"),
        hooks(lambda t: t.mul_(2), lambda t: t),
    ):
        (x * 1).exp()
    with hooks(lambda t: "not a tensor", lambda t: t):
        y = x.exp()
    with pytest.raises(TypeError, match="Output of saved tensor unpack_hook expected to be a Tensor"):
        y.sum().backward()


def test_disabled_hooks():
    x = torch.ones(3, device="accel", requires_grad=True)
    with disable_saved_tensors_hooks("no hooks on accel today"):
        with pytest.raises(RuntimeError, match="no hooks on accel today"), save_on_cpu(device_type="accel"):
            x.exp()
        (x * x).sum().backward()
    with save_on_cpu(device_type="accel"):
        x.exp().sum().backward()
    torch.testing.assert_close(x.grad.cpu(), 2 + torch.ones(3).exp())


@pytest.mark.parametrize("pin", [False, True])
def test_save_on_cpu_frees_the_device(pin):
    def run(context):
        x = torch.full((N,), 0.5, device="accel", requires_grad=True)
        before = settled()
        with context:
            y = x
            for _ in range(4):
                y = y.exp().sin()  # each saves a tensor that nothing else keeps
        held = torch.accel.memory_allocated() - before
        y.backward(torch.ones_like(y))
        return x.grad, held

    expected, all_there = run(contextlib.nullcontext())
    actual, left = run(save_on_cpu(pin_memory=pin, device_type="accel"))
    assert torch.equal(actual, expected)
    size = N * 4
    assert all_there >= 5 * size and size <= left < 2 * size  # y alone is left


@pytest.mark.parametrize("pin", [False, True])
def test_saved_tensors_are_in_pinned_memory(pin):
    context, kept = save_on_cpu(pin_memory=pin, device_type="accel"), []
    x = torch.full((N,), 0.5, device="accel", requires_grad=True)
    with hooks(lambda t: kept.append(context.pack_hook(t)) or kept[-1], context.unpack_hook):
        y = x.exp() * x
    y.backward(torch.ones_like(y))
    assert len(kept) == 3  # the result of exp, and two factors
    assert all(device == x.device and host.is_cpu and host.is_pinned() == pin for device, host in kept)
    v = torch.tensor(0.5)
    torch.testing.assert_close(x.grad.cpu(), (v.exp() * (1 + v)).expand(N))


@pytest.mark.parametrize("where", ["main", "side"])
def test_save_on_cpu_is_queued_both_ways(where, queued):
    # Behind a held stream nothing of this may wait, and the pinned memory must live until the stream has read it.
    value = next(FRESH)
    stream = torch.accel.Stream() if where == "side" else torch.accel.current_stream()
    x = torch.full((N,), float(value), device="accel", requires_grad=True)
    grad = torch.ones_like(x)
    with forked(stream) if where == "side" else contextlib.nullcontext():
        torch.accel.synchronize()
        before = wait_report()
        with hold_stream(stream):
            with save_on_cpu(pin_memory=True, device_type="accel"):
                y = x * x
            y.backward(grad)
            del y
            # The packed tensors are free: whatever is pinned next is written by the host at once.
            others = [torch.full((N,), -1.0, pin_memory=True) for _ in range(4)]
        assert wait_report() == before
    assert torch.equal(x.grad.cpu(), torch.full((N,), 2.0 * value))
    assert all(torch.equal(other, torch.full((N,), -1.0)) for other in others)


def test_a_model_saved_on_cpu_trains_as_without(queued):
    def train(context):
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Linear(16, 32),
            torch.nn.LayerNorm(32),
            torch.nn.GELU(),
            torch.nn.Dropout(0.5),
            torch.nn.Linear(32, 4),
        ).to("accel")
        x = torch.randn(8, 16).to("accel")
        with context:
            loss = torch.nn.functional.cross_entropy(net(x), torch.arange(8, device="accel") % 4)
        loss.backward()
        return [p.grad.cpu() for p in net.parameters()]

    for mine, theirs in zip(train(save_on_cpu(pin_memory=True, device_type="accel")), train(contextlib.nullcontext())):
        assert torch.equal(mine, theirs)


def test_changes_of_saved_tensors_may_be_allowed():
    x = torch.full((3,), 2.0, device="accel", requires_grad=True)
    with allow_mutation_on_saved_tensors():
        y = x * 1
        z = y.square()
        y.add_(100)
        z.sum().backward()
    assert x.grad.tolist() == [4, 4, 4]


def test_a_saved_output_that_was_freed():
    x = torch.ones(3, device="accel", requires_grad=True)
    y = x.exp()
    y.sum().backward()
    with pytest.raises(RuntimeError, match="after they have already been freed"):
        _ = y.grad_fn._saved_result


@pytest.mark.parametrize(
    "write",
    [
        lambda y: y.add_(1),
        lambda y: y.fill_(0),
        lambda y: y.copy_(torch.ones(3)),
        lambda y: y.uniform_(),
        lambda y: y[1:].zero_(),
        lambda y: torch.ones(3, out=y),
        lambda y: torch._foreach_add_([y], 1.0),
    ],
    ids=["add_", "fill_", "copy_", "uniform_", "a view", "out", "foreach"],
)
def test_in_place_change_of_a_saved_tensor_is_noticed(write):
    x = torch.ones(3, device="accel", requires_grad=True)
    y = x.exp()
    with torch.no_grad():
        write(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
