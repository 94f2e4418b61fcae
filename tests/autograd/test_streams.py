"""Backward runs on the forward's streams; gradients are handed over in order, and live until they are used.

Each rule is tested behind a held stream, once as it is and once taken out: then the result must be wrong.
"""

import contextlib

import pytest
import torch

from tests.autograd.forked import FRESH, forked, racing
from torch_accel.testing import hold_stream

pytestmark = pytest.mark.usefixtures("queued")

N = 1000
RULE = pytest.mark.parametrize("rule", [True, False], ids=["as it is", "taken out"])


def without(fault, rule):
    return contextlib.nullcontext() if rule else racing(fault)


def ones():
    return torch.ones(N, device="accel")


def full(value):
    return torch.full((N,), float(value), device="accel")


class Note(torch.autograd.Function):
    """Notes the stream and device of its backward."""

    @staticmethod
    def forward(ctx, x, seen):
        ctx.seen = seen
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.seen.append((torch.accel.current_stream(), torch.accel.current_device()))
        return Note.apply(grad, ctx.seen), None


def test_a_backward_runs_on_its_forwards_stream():
    side, main = torch.accel.Stream(), torch.accel.current_stream()
    seen = []
    x = ones().requires_grad_()
    with forked(side):
        y = Note.apply(x, seen)
    Note.apply(y, seen).sum().backward()
    assert seen == [(main, 0), (side, 0)]
    assert torch.accel.current_stream() == main


def test_a_second_backward_runs_on_the_streams_of_the_first():
    side, main = torch.accel.Stream(), torch.accel.current_stream()
    seen = []
    x = ones().requires_grad_()
    with forked(side):
        y = Note.apply(x * x, seen)
    (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    assert seen == [(side, 0)]
    (second,) = torch.autograd.grad(first.sum(), x)
    # The node of the first backward and the forward's.
    assert seen == [(side, 0)] * 3 and torch.accel.current_stream() == main
    assert torch.equal(second.cpu(), torch.full((N,), 12.0))


def test_a_backward_called_on_a_side_stream_runs_on_the_forwards():
    side, main = torch.accel.Stream(), torch.accel.current_stream()
    seen = []
    x = ones().requires_grad_()
    y = Note.apply(x * 2, seen)
    with forked(side):
        y.backward(full(3))
        assert torch.accel.current_stream() == side
        used = x.grad * 1  # on the side stream, with no word of synchronisation
    assert seen == [(main, 0)]
    assert torch.equal(used.cpu(), torch.full((N,), 6.0))


@RULE
@pytest.mark.parametrize("how", ["backward", "grad"])
def test_leaf_gradients_are_safe_on_the_callers_stream(how, rule):
    side, main, value = torch.accel.Stream(), torch.accel.current_stream(), next(FRESH)
    x = ones().requires_grad_()
    with forked(side):
        y = x * value
    grad = ones()
    torch.accel.synchronize()
    with hold_stream(side):
        with without("stream_wait", rule):
            if how == "backward":
                y.backward(grad)
                result = x.grad
            else:
                (result,) = torch.autograd.grad(y, x, grad)
        used = result * 1  # on the caller's stream, at once
        if rule:
            assert not main.query()
        else:
            main.synchronize()
    assert torch.equal(used.cpu(), torch.full((N,), float(value))) == rule


@RULE
def test_a_leafs_gradient_is_accumulated_after_the_callers_own_use_of_it(rule):
    # x.grad holds the caller's work already: the side stream adds to it, after the caller's fill.
    side, main, value = torch.accel.Stream(), torch.accel.current_stream(), next(FRESH)
    x = ones().requires_grad_()
    with forked(side):
        y = x * value
    grad = ones()
    x.grad = full(0)
    torch.accel.synchronize()
    with hold_stream(main):
        x.grad.fill_(100)
        with without("stream_wait", rule):
            y.backward(grad)
            if rule:
                assert not side.query()
            else:
                side.synchronize()
    # What side added too early is overwritten by the fill.
    assert torch.equal(x.grad.cpu(), torch.full((N,), 100.0 + value)) == rule


@RULE
def test_a_consumer_waits_for_its_producer(rule):
    producer, consumer = torch.accel.Stream(), torch.accel.Stream()
    value = next(FRESH)
    x = ones().requires_grad_()
    with forked(consumer):
        y = x * 2
    with forked(producer):
        z = y * value
    grad = ones()
    torch.accel.synchronize()
    with hold_stream(producer), without("stream_wait", rule):
        z.backward(grad)
        if rule:
            assert not consumer.query()
        else:
            consumer.synchronize()
    assert torch.equal(x.grad.cpu(), torch.full((N,), 2.0 * value)) == rule


@RULE
def test_a_sum_of_gradients_waits_for_each_term(rule):
    streams = [torch.accel.Stream() for _ in range(3)]
    values = [next(FRESH) for _ in streams]
    x = ones().requires_grad_()
    base = x * 1
    parts = []
    for stream, value in zip(streams, values):
        with forked(stream):
            parts.append(base * value)
    grads = [ones() for _ in streams]
    torch.accel.synchronize()
    with hold_stream(streams[1]), without("stream_wait", rule):
        torch.autograd.backward(parts, grads)
        if rule:
            assert not torch.accel.current_stream().query()
        else:
            for stream in (streams[0], streams[2], torch.accel.current_stream()):
                stream.synchronize()
    assert torch.equal(x.grad.cpu(), torch.full((N,), float(sum(values)))) == rule


@RULE
def test_a_gradient_lives_until_another_stream_has_used_it(rule):
    # recordDataPtrOnStream of the guard: autograd drops a gradient as soon as its consumer is queued, and the memory
    # belongs to the producer's stream.
    producer, consumer = torch.accel.Stream(), torch.accel.Stream()
    value = next(FRESH)
    x = ones().requires_grad_()
    with forked(consumer):
        y = x * 2
    with forked(producer):
        z = y * value
    grad = ones()
    addresses = []
    y.register_hook(lambda g: addresses.append(g.data_ptr()))
    torch.accel.synchronize()
    with hold_stream(consumer):
        with without("record_stream", rule):
            z.backward(grad)
        with torch.accel.stream(producer):
            others = []
            while len(others) < 200 and addresses[0] not in [other.data_ptr() for other in others]:
                others.append(full(-1))
        producer.synchronize()
    assert (addresses[0] in [other.data_ptr() for other in others]) != rule
    assert torch.equal(x.grad.cpu(), torch.full((N,), 2.0 * value)) == rule


def test_batched_gradients_cross_streams():
    sides = [torch.accel.Stream() for _ in range(2)]
    value = next(FRESH)
    x = torch.full((3,), 2.0, device="accel", requires_grad=True)
    with forked(sides[0]):
        y = x * x
    with forked(sides[1]):
        z = y * value
    basis = torch.eye(3, device="accel")
    torch.accel.synchronize()
    with hold_stream(sides[1]):
        (rows,) = torch.autograd.grad(z, x, basis, is_grads_batched=True)
        assert not torch.accel.current_stream().query()
    assert torch.equal(rows.cpu(), torch.eye(3) * 4 * value)


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match")
def test_sparse_gradients_cross_streams():
    def gradient(device):
        torch.manual_seed(0)
        table, rows = torch.nn.Embedding(10, 4, sparse=True).to(device), torch.tensor([1, 2, 2, 7]).to(device)
        parts = []
        for factor in (2, 3, 5):
            with forked(torch.accel.Stream()) if device == "accel" else contextlib.nullcontext():
                parts.append((table(rows) * factor).sum(1))
        torch.stack(parts).sum().backward()
        assert table.weight.grad.is_sparse
        return table.weight.grad.to_dense().cpu()

    assert torch.equal(gradient("accel"), gradient("cpu"))


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match")
def test_accumulation_from_several_streams():
    streams = [torch.accel.Stream() for _ in range(3)]
    x = ones().requires_grad_()
    parts = []
    for factor, stream in enumerate(streams, 1):
        with forked(stream):
            parts.append((x * factor).sum())
    with contextlib.ExitStack() as holds:
        for stream in streams:
            holds.enter_context(hold_stream(stream))
        sum(parts).backward()
        doubled = x.grad * 2
    assert torch.equal(doubled.cpu(), torch.full((N,), 12.0))


STALE = """
import warnings, torch
from torch_accel.testing import hold_stream

x = torch.ones(1000, device="accel", requires_grad=True)
node = x.expand_as(x).grad_fn.next_functions[0][0]  # as DDP keeps it: of the default stream
side, main = torch.accel.Stream(), torch.accel.current_stream()
torch.accel.synchronize()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for step in range(6):
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(step >= 2)
        x.grad = None
        side.wait_stream(main)
        with torch.accel.stream(side):
            y = x * 3
            grad = torch.full_like(y, 2)
            side.synchronize()
            with hold_stream(side):
                y.backward(grad)
                used = x.grad + 1  # on side, which waits for the stream of the node
            side.synchronize()
        assert torch.equal(used.cpu(), torch.full((1000,), 7.0))
        print(step, *(str(w.message) for w in caught), sep="|")
        caught.clear()
"""


def test_31_one_warning_of_a_leafs_node_made_on_another_stream(script):
    lines = script(STALE).stdout.splitlines()
    text = (
        "2|The AccumulateGrad node's stream does not match the stream of the node that produced the incoming gradient."
    )
    assert lines[:2] == ["0", "1"] and lines[2].startswith(text) and lines[3:] == ["3", "4", "5"]
