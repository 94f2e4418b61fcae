"""The ticket rule by construction: a block freed behind queued work is not handed to a thread that writes at once."""

import pytest
import torch

import torch_accel
from torch_accel.testing import hold_stream, plant


def reuse_at_once() -> bool:
    """True if memory that a held stream still reads is handed to a NumPy kernel's result."""
    torch.accel.empty_cache()
    freed = torch.empty(1 << 16, device="accel")
    address = freed.data_ptr()
    with hold_stream():
        sink = torch.empty_like(freed).copy_(freed)  # queued: reads `freed` once the stream goes on
        del freed
        with torch_accel._C._ExecuteNow():
            at_once = torch.empty(1 << 16, device="accel")
        reused = at_once.data_ptr() == address
    torch.accel.synchronize()
    del sink
    return reused


def test_kept():
    assert not reuse_at_once()


def test_broken_when_planted():
    with plant("ticket_rule"):
        assert reuse_at_once()


def test_enqueue_order_may_reuse():
    torch.accel.empty_cache()
    freed = torch.empty(1 << 16, device="accel")
    address = freed.data_ptr()
    with hold_stream():
        freed.fill_(1)
        del freed
        assert torch.empty(1 << 16, device="accel").data_ptr() == address
    torch.accel.synchronize()


@pytest.fixture(autouse=True)
def _fresh_stream():
    # A stream of its own: blocks cached by other tests must not decide which block is taken.
    with torch.accel.stream(torch.accel.Stream()):
        yield
