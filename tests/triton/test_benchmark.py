"""The autotuner's benchmark: how often it calls, and what it gives."""

import time

import pytest
import torch

from torch_accel.triton.backend import benchmark


@pytest.fixture
def calls(monkeypatch):
    """Calls of ``work``, each of which takes two milliseconds on a clock that nothing else moves."""
    seen = []
    monkeypatch.setattr(time, "perf_counter", lambda: 2e-3 * len(seen))
    return seen


def test_the_hosts_clock_ends_it(calls):
    benchmark.do_bench(lambda: calls.append(1))
    assert len(calls) == 1 + 5 + 12 + 50
    calls.clear()
    benchmark.do_bench(lambda: calls.append(1), warmup=4, rep=1)
    assert len(calls) == 1 + 5 + 2 + 1


def test_what_it_gives(monkeypatch):
    monkeypatch.setattr(benchmark, "_timed", lambda fn, count, grads: (2.0, [float(i) for i in range(count)]))

    def run(**options):
        return benchmark.do_bench(lambda: None, rep=10, **options)

    assert run() == 2.0
    assert run(return_mode="min") == 0.0
    assert run(return_mode="max") == 4.0
    assert run(return_mode="median") == 2.0
    assert run(return_mode="all") == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert run(quantiles=(0.5, 0.25, 1.0)) == [2.0, 1.0, 4.0]
    assert run(quantiles=[0.5]) == 2.0


def test_a_gradient_is_not_accumulated(calls):
    x = torch.ones(3, device="accel", requires_grad=True)

    def work():
        calls.append(1)
        x.sum().backward()

    benchmark.do_bench(work, warmup=1, rep=4, grad_to_none=[x])
    assert x.grad.tolist() == [1.0] * 3


def test_it_is_the_drivers(accel):
    assert accel.get_benchmarker() is benchmark.do_bench
    x = torch.randn(1 << 16, device="accel")
    assert accel.get_benchmarker()(lambda: x.add_(1), warmup=1, rep=2) > 0
