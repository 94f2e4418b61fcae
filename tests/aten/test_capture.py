"""Host operands of queued work are captured at the call: they may change right after it."""

import pytest
import torch

from torch_accel import sanitizer
from torch_accel.testing import hold_stream, plant


def copy_small():
    source = torch.arange(100.0)
    target = torch.zeros(100, device="accel")
    return source, lambda: target.copy_(source), torch.arange(100.0)


def copy_small_non_blocking():
    source = torch.arange(100.0)
    target = torch.zeros(100, device="accel")
    return source, lambda: target.copy_(source, non_blocking=True), torch.arange(100.0)


def copy_large_non_blocking():
    source = torch.arange(100_000.0)
    target = torch.zeros(100_000, device="accel")
    return source, lambda: target.copy_(source, non_blocking=True), torch.arange(100_000.0)


def copy_strided_converted():
    source = torch.arange(100.0)[::2]
    target = torch.zeros(50, device="accel", dtype=torch.int64)
    return source, lambda: target.copy_(source), torch.arange(0, 100, 2)


def fill_from_0_dim():
    source = torch.tensor(3.0)
    target = torch.zeros(10, device="accel")
    return source, lambda: target.fill_(source), torch.full((10,), 3.0)


CASES = [copy_small, copy_small_non_blocking, copy_large_non_blocking, copy_strided_converted, fill_from_0_dim]


def run(case) -> bool:
    """True if the queued work saw the operand as it was at the call."""
    source, enqueue, expected = case()
    with hold_stream():
        result = enqueue()
        source.fill_(-7)
    return torch.equal(result.cpu(), expected)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_captured(case):
    assert run(case)


@pytest.mark.parametrize("case", [copy_small, copy_strided_converted, fill_from_0_dim], ids=lambda case: case.__name__)
def test_seen_when_planted(case):
    with plant("capture"):
        assert not run(case)


def test_random_key_is_taken_at_the_call():
    torch.accel.manual_seed(5)
    expected = torch.empty(1000, device="accel").uniform_().cpu()
    torch.accel.manual_seed(5)
    target = torch.empty(1000, device="accel")
    with hold_stream():
        target.uniform_()
        torch.accel.manual_seed(6)
    assert torch.equal(target.cpu(), expected)


@sanitizer.enabled("off")  # overwrites on purpose what a copy will read
def test_pinned_source_is_read_in_place():
    # CUDA's meaning: a pinned source must not change before the copy has run.
    source = torch.zeros(100, pin_memory=True)
    target = torch.empty(100, device="accel")
    with hold_stream():
        target.copy_(source, non_blocking=True)
        source.fill_(4)
    assert torch.equal(target.cpu(), torch.full((100,), 4.0))


def test_thread_count_and_flush_denormal_travel():
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush denormals")
    try:
        tiny = torch.tensor([1e-39], device="accel")
        with hold_stream():
            target = torch.empty(1, device="accel").copy_(tiny)
            halves = torch.full((1,), 2e-38, device="accel")
        assert (halves * 0.25).item() == 0.0
    finally:
        torch.set_flush_denormal(False)
    assert (torch.full((1,), 2e-38, device="accel") * 0.25).item() != 0.0
    del target
