"""torch.Stream and torch.Event on the device: contexts, events never recorded, times."""

import itertools

import pytest
import torch

from torch_accel.testing import hold_stream


@pytest.mark.parametrize("make", [torch.Event, torch.accel.Event])
def test_never_recorded(make):
    event = make("accel") if make is torch.Event else make()
    event.synchronize()
    event.wait()
    torch.accel.Stream().wait_event(event)
    assert event.query()


def test_elapsed_time_errors():
    plain, timed, unrecorded = (torch.Event("accel", enable_timing=t) for t in (False, True, True))
    plain.record()
    timed.record()
    torch.accel.synchronize()
    for start, end in ((plain, timed), (timed, plain), (unrecorded, timed), (timed, unrecorded)):
        with pytest.raises((RuntimeError, ValueError)) as raised:
            start.elapsed_time(end)
        assert "timing" in str(raised.value) or "recorded" in str(raised.value)
    later = torch.Event("accel", enable_timing=True)
    with hold_stream():
        later.record()
        with pytest.raises(RuntimeError, match=r"synchronize|complete"):
            timed.elapsed_time(later)
    later.synchronize()
    assert timed.elapsed_time(later) > 0


def test_times_are_of_the_device():
    events = [torch.Event("accel", enable_timing=True) for _ in range(20)]
    for event in events:
        event.record()
    events[-1].synchronize()
    assert all(a.elapsed_time(b) >= 0 for a, b in itertools.pairwise(events))
    start, end = events[:2]
    start.record()
    torch.accel._sleep(30_000_000)
    end.record()
    torch.accel.synchronize()
    assert 30 <= start.elapsed_time(end) < 30_000


def test_context_restores_after_an_exception():
    side = torch.Stream(device="accel")
    before = torch.accel.current_stream()
    with pytest.raises(KeyError), side:
        assert torch.accel.current_stream() == side == torch.accelerator.current_stream()
        raise KeyError
    assert torch.accel.current_stream() == before and torch.accel.current_device() == 0
    with side, torch.Stream(device="accel") as inner:
        assert torch.accel.current_stream() == inner != side
    assert torch.accel.current_stream() == before


def test_methods_of_a_stream():
    side, main = torch.Stream(device="accel"), torch.accel.current_stream()
    x, y = torch.zeros(1000, device="accel"), torch.zeros(1000, device="accel")
    torch.accel.synchronize()
    with hold_stream(side):
        with side:
            x.fill_(1)
        event = side.record_event()
        assert not side.query() and not event.query()
        main.wait_event(event)
        y.copy_(x)  # on the main stream
        assert not main.query()
    main.synchronize()
    assert side.query() and torch.equal(y.cpu(), torch.ones(1000))
    with hold_stream():
        x.fill_(2)
        side.wait_stream(main)
        with side:
            y.copy_(x)
        assert not side.query()
    side.synchronize()
    assert torch.equal(y.cpu(), torch.full((1000,), 2.0))
    assert hash(side) == hash(torch.Stream(stream_id=side.stream_id, device_index=0, device_type=side.device_type))
    assert torch.Stream(device="accel", priority=-1) != side


def test_new_work_lands_on_the_stream_that_was_set():
    side, before = torch.accel.Stream(), torch.accel.current_stream()
    x = torch.zeros(3, device="accel")
    torch.accel.synchronize()
    try:
        torch.accelerator.set_stream(side)
        assert torch.accelerator.current_stream() == side
        with hold_stream(side):
            x.fill_(1)
            assert before.query() and not side.query()
    finally:
        torch.accelerator.set_stream(before)
    torch.accelerator.synchronize()
    assert side.query() and x.tolist() == [1, 1, 1]
