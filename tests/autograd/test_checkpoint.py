"""Activation checkpointing in both modes: random numbers, autocast, nesting, early stop, selective recomputation."""

import collections
import contextlib

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import (
    CheckpointError,
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

from tests.autograd.forked import forked
from tests.memory import settled
from torch_accel.testing import hold_stream

MODES = pytest.mark.parametrize("use_reentrant", [False, True], ids=["non-reentrant", "reentrant"])
N = 1000


def noisy(t):
    return torch.dropout(t, 0.5, True) * 3


def ones():
    return torch.ones(N, device="accel", requires_grad=True)


@MODES
def test_the_recomputation_draws_the_same_numbers(use_reentrant):
    torch.manual_seed(3)
    x = ones()
    y = checkpoint(noisy, x, use_reentrant=use_reentrant)
    drawn = torch.rand(4, device="accel")
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())  # both are 6 where kept, else 0
    after = torch.rand(4, device="accel")
    torch.manual_seed(3)
    noisy(ones())
    assert torch.equal(drawn, torch.rand(4, device="accel")) and torch.equal(after, torch.rand(4, device="accel"))


@MODES
def test_without_preserving_it_draws_new_numbers(use_reentrant):
    torch.manual_seed(3)
    x = ones()
    y = checkpoint(noisy, x, use_reentrant=use_reentrant, preserve_rng_state=False)
    y.sum().backward()
    assert not torch.equal(x.grad, y.detach()) and set(x.grad.tolist()) == {0.0, 6.0}
    torch.manual_seed(3)
    noisy(ones())
    assert torch.equal(noisy(torch.ones(N, device="accel")), x.grad)  # the next numbers


def build(dropout=0.3):
    torch.manual_seed(1)
    blocks = [nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(dropout)) for _ in range(4)]
    return nn.Sequential(*blocks, nn.Linear(8, 3))


def data(device):
    return torch.arange(32.0).reshape(4, 8).div(10).sin().to(device).requires_grad_()


def plain(net, x):
    return net(x)


WAYS = {
    "reentrant": lambda net, x: net[4](checkpoint(net[:4], x, use_reentrant=True)),
    "non-reentrant": lambda net, x: net[4](checkpoint(net[:4], x, use_reentrant=False)),
    "without early stop": lambda net, x: net[4](checkpoint(net[:4], x, use_reentrant=False, early_stop=False)),
    "each block": lambda net, x: net[4](
        checkpoint(net[3], checkpoint(net[:3], x, use_reentrant=False), use_reentrant=False)
    ),
    "nested": lambda net, x: checkpoint(
        lambda t: net[4](net[3](checkpoint(lambda u: net[2](checkpoint(net[:2], u, use_reentrant=False)), t, use_reentrant=False))),
        x,
        use_reentrant=False,
    ),
    "nested, reentrant inside": lambda net, x: checkpoint(
        lambda t: net[4](net[3](checkpoint(net[:3], t, use_reentrant=True))), x, use_reentrant=False
    ),
    "sequential, reentrant": lambda net, x: checkpoint_sequential(net, 2, x, use_reentrant=True),
    "sequential": lambda net, x: checkpoint_sequential(net, 3, x, use_reentrant=False),
    "selective": lambda net, x: checkpoint(net, x, use_reentrant=False, context_fn=selective),
}  # fmt: skip


def policy(ctx, op, *args, **kwargs):
    kept = (torch.ops.aten.addmm.default, torch.ops.aten.native_dropout.default)
    return CheckpointPolicy.MUST_SAVE if op in kept else CheckpointPolicy.PREFER_RECOMPUTE


def selective():
    return create_selective_checkpoint_contexts(policy)


def gradients(way, stream=None, cast=False):
    """Gradients of a training step with dropout; a second draw shows where the generator stands."""
    net, x = build().to("accel"), data("accel")
    torch.manual_seed(7)
    with forked(stream) if stream is not None else contextlib.nullcontext():
        torch.accel.synchronize()
        # All of it is queued: the generator's state is the host's, and recomputing waits for nothing.
        with (
            hold_stream(stream),
            torch.autocast("accel", torch.bfloat16) if cast else contextlib.nullcontext(),
        ):
            loss = way(net, x).float().square().sum()
            loss.backward()
            drawn = torch.rand(4, device="accel")
    return [loss.detach(), drawn, x.grad, *(p.grad for p in net.parameters())]


@pytest.mark.parametrize("cast", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("where", ["main", "side"])
@pytest.mark.parametrize("way", WAYS)
def test_equals_the_run_without(way, where, cast, queued):
    stream = torch.accel.Stream() if where == "side" else None
    expected, actual = gradients(plain, stream, cast), gradients(WAYS[way], stream, cast)
    for mine, theirs in zip(actual, expected, strict=True):
        assert torch.equal(mine.cpu(), theirs.cpu())


def test_a_side_streams_recomputation_runs_there():
    side, main = torch.accel.Stream(), torch.accel.current_stream()
    streams = []

    def block(t):
        streams.append(torch.accel.current_stream())
        return t.exp()

    x = ones()
    with forked(side):
        y = checkpoint(block, x, use_reentrant=False)
    y.sum().backward()
    assert streams == [side, side] and torch.accel.current_stream() == main


@pytest.mark.parametrize("way", ["argument", "context"])
def test_early_stop(way):
    runs = []

    def block(t):
        t = t.exp()
        runs.append("saved")
        t = t + 1  # saves nothing: recomputing may stop before it
        runs.append("rest")
        return t

    for stop in (True, False):
        runs.clear()
        x = ones()
        if way == "argument":
            y = checkpoint(block, x, use_reentrant=False, early_stop=stop)
        else:
            with set_checkpoint_early_stop(stop):
                y = checkpoint(block, x, use_reentrant=False)
        y.sum().backward()
        # exp saves its result: the recomputation ends within exp.
        assert runs == ["saved", "rest"] + ([] if stop else ["saved", "rest"])
        torch.testing.assert_close(x.grad.cpu(), torch.ones(N).exp())


def test_memory_is_saved():
    def held(way):
        x = torch.full((1 << 18,), 0.5, device="accel", requires_grad=True)
        before = settled()
        y = way(lambda t: t.exp().sin().exp().sin(), x)
        kept = torch.accel.memory_allocated() - before
        y.backward(torch.ones_like(y))
        return kept, x.grad.cpu()

    size = 4 << 18
    all_of_it, expected = held(lambda f, x: f(x))
    some, actual = held(lambda f, x: checkpoint(f, x, use_reentrant=False))
    assert all_of_it == 3 * size and some == size and torch.equal(actual, expected)


class Count(TorchDispatchMode):
    """Counts the operators that are run."""

    def __init__(self):
        super().__init__()
        self.counts = collections.Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("keep", [[], [torch.ops.aten.mm.default], [torch.ops.aten.exp.default]], ids=str)
def test_selective_recomputation_runs_again_what_was_not_kept(keep):
    x = torch.eye(3, device="accel", requires_grad=True)
    y = checkpoint(
        lambda t: (t @ t).exp().exp(),
        x,
        use_reentrant=False,
        context_fn=lambda: create_selective_checkpoint_contexts(keep),
    )
    with Count() as mode:
        y.backward(torch.ones_like(y))
    # The backward of a product is two products.
    assert mode.counts["mm"] == 2 + (torch.ops.aten.mm.default not in keep)
    assert mode.counts["exp"] == 2 * (torch.ops.aten.exp.default not in keep)
    v = torch.eye(3, requires_grad=True)
    (v @ v).exp().exp().sum().backward()
    assert torch.equal(x.grad.cpu(), v.grad)


def test_another_recomputation_is_noticed():
    shapes = iter([3, 4])

    def block(t):
        return t.sum() * torch.ones(next(shapes), device="accel").exp() * t.exp().sum()

    x = torch.ones(3, device="accel", requires_grad=True)
    y = checkpoint(block, x, use_reentrant=False)
    with pytest.raises(CheckpointError, match="have different metadata") as raised:
        y.sum().backward()
    assert "device(type='accel', index=0)" in str(raised.value)


@MODES
def test_the_backward_of_an_error(use_reentrant):
    calls = []

    def block(t):
        calls.append(1)
        if len(calls) == 2:
            raise ValueError("the second time")
        return torch.dropout(t, 0.5, True).exp()

    x = ones()
    y = checkpoint(block, x, use_reentrant=use_reentrant)
    state = torch.accel.get_rng_state()
    with pytest.raises(ValueError, match="the second time"):
        y.sum().backward()
    assert torch.equal(torch.accel.get_rng_state(), state)  # given back


def test_it_gives_gradients_of_gradients():
    x = torch.full((3,), 0.5, dtype=torch.float64, device="accel", requires_grad=True)

    def f(t):
        return checkpoint(lambda u: u.exp().sin(), t, use_reentrant=False)

    assert torch.autograd.gradcheck(f, (x,)) and torch.autograd.gradgradcheck(f, (x,))


def test_first_use_of_the_device_inside(script):
    # As with torch.cuda: its generator's state could not be kept.
    done = script(
        """
        import torch
        from torch.utils.checkpoint import checkpoint

        x = torch.ones(3, requires_grad=True)
        assert not torch.accel.is_initialized()
        checkpoint(lambda t: t.to("accel"), x, use_reentrant=False)
        """,
        check=False,
    )
    assert "device state was initialized in the forward pass" in done.stderr
