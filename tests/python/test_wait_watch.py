"""WaitWatch sees a wait that a fast device would hide, and lets the code go on."""

import pytest
import torch

from torch_accel.testing.waits import WaitWatch


@pytest.fixture
def watch():
    with WaitWatch() as watch:
        yield watch


def test_queued_work_shows_no_wait(watch):
    x = torch.ones(100, device="accel")
    with watch.block() as waits:
        y = (x * 2).sum()
    assert waits == {}
    assert y.item() == 200


@pytest.mark.parametrize("count", [1, 2, 3])
def test_planted_waits_are_noticed(watch, count):
    x = torch.ones(1, device="accel")
    for _ in range(20):
        with watch.block() as waits:
            y = x + 1
            for _ in range(count):
                torch.accelerator.synchronize()
        assert sum(waits.values()) >= 1
        assert y.item() == 2


def test_a_wait_for_nothing_queued_is_noticed(watch):
    x = torch.ones(1, device="accel")
    torch.accelerator.synchronize()
    with watch.block() as waits:
        assert x.item() == 1
    assert waits == {"item": 1}


def test_an_exception_leaves_the_stream_free(watch):
    with pytest.raises(ZeroDivisionError), watch.block():
        raise ZeroDivisionError
    torch.ones(1, device="accel").item()
