"""Backwards of several Python threads at once, and the thread count of the engine's thread."""

import os
import threading

import pytest
import torch

from tests.autograd.forked import forked
from torch_accel.testing import hold_stream


def test_several_threads_each_with_its_own_graph():
    results = [None] * 4

    def work(i):
        x = torch.full((100,), float(i), device="accel", requires_grad=True)
        (x**2).sum().backward()
        results[i] = x.grad.cpu()

    run(work)
    for i, grad in enumerate(results):
        assert torch.equal(grad, torch.full((100,), 2.0 * i))


def run(work):
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_several_threads_accumulate_into_one_leaf():
    x = torch.ones(100, device="accel", requires_grad=True)
    start = threading.Barrier(4)

    def work(i):
        y = x * (i + 1)
        start.wait()
        y.sum().backward()

    for count in range(1, 6):
        run(work)
        assert torch.equal(x.grad.cpu(), torch.full((100,), 10.0 * count))


def test_modes_of_the_caller_reach_the_engines_thread():
    seen = []

    class Note(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            seen.append(
                (
                    threading.current_thread() is threading.main_thread(),
                    torch.is_autocast_enabled("accel"),
                    torch.is_grad_enabled(),
                )
            )
            return grad

    x = torch.ones(3, device="accel", requires_grad=True)
    Note.apply(x).sum().backward()
    with torch.autocast("accel"):
        torch.autograd.grad(Note.apply(x).sum(), x, create_graph=True)
    assert seen == [(False, False, False), (False, True, True)]


def test_without_the_engines_thread():
    threads = []
    x = torch.ones(3, device="accel", requires_grad=True)
    x.register_hook(lambda grad: threads.append(threading.current_thread() is threading.main_thread()))
    with torch.autograd.set_multithreading_enabled(False):
        (x * 2).sum().backward()
    (x * 3).sum().backward()
    assert threads == [True, False] and x.grad.tolist() == [5, 5, 5]


def test_a_callback_at_the_end_runs_where_backward_was_called():
    # What DDP and FSDP finish a backward with: on the caller's streams, which have waited for the leaves'.
    side, main = torch.accel.Stream(), torch.accel.current_stream()
    x = torch.ones(1000, device="accel", requires_grad=True)
    seen = []

    def finish():
        seen.append(torch.accel.current_stream())
        seen.append(x.grad * 2)

    x.register_hook(lambda grad: torch.autograd.Variable._execution_engine.queue_callback(finish))
    with forked(side):
        y = x * 3
    grad = torch.ones_like(y)
    torch.accel.synchronize()
    with hold_stream(side):
        y.backward(grad)
    stream, doubled = seen
    assert stream == main and torch.equal(doubled.cpu(), torch.full((1000,), 6.0))


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
