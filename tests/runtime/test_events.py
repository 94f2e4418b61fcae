"""torch.Stream and torch.Event on the device: contexts, events never recorded, times."""

import itertools
import time

import pytest
import torch
from expecttest import assert_expected_inline

from torch_accel.testing import hold_stream


@pytest.mark.parametrize("make", [torch.Event, torch.accel.Event])
def test_never_recorded(make):
    event = make("accel") if make is torch.Event else make()
    event.synchronize()
    event.wait()
    torch.accel.Stream().wait_event(event)
    assert event.query()


@pytest.mark.parametrize("make", [torch.Event, torch.accel.Event])
def test_elapsed_time_errors(make):
    plain, timed, unrecorded = (make(enable_timing=t) for t in (False, True, True))
    plain.record()
    timed.record()
    torch.accel.synchronize()

    def refused(start, end):
        with pytest.raises((RuntimeError, ValueError)) as raised:
            start.elapsed_time(end)
        return f"{raised.type.__name__}: {raised.value}"

    texts = [refused(plain, timed), refused(timed, plain), refused(unrecorded, timed), refused(timed, unrecorded)]
    later = make(enable_timing=True)
    with hold_stream():
        later.record()
        texts += [refused(timed, later), refused(later, timed)]
    later.synchronize()
    assert timed.elapsed_time(later) > 0
    assert_expected_inline(
        "\n".join(texts),
        """\
ValueError: Both events must be created with argument 'enable_timing=True'.
ValueError: Both events must be created with argument 'enable_timing=True'.
ValueError: Both events must be recorded before calculating elapsed time.
ValueError: Both events must be recorded before calculating elapsed time.
RuntimeError: Both events must be completed before calculating elapsed time.
RuntimeError: Both events must be completed before calculating elapsed time.""",
    )


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


def test_times_leave_out_what_the_host_does_between_the_records():
    start, end = torch.Event("accel", enable_timing=True), torch.Event("accel", enable_timing=True)
    with hold_stream():
        start.record()
        time.sleep(1)
        end.record()
    end.synchronize()
    assert 0 <= start.elapsed_time(end) < 500  # the stream gets to both once it is let go


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


@pytest.mark.parametrize("make", [lambda: torch.Stream(device="accel"), torch.accel.Stream], ids=["torch", "accel"])
def test_methods_of_a_stream(make):
    side, main = make(), torch.accel.current_stream()
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
    event = torch.Event("accel")
    with hold_stream():
        x.fill_(3)
        event.record()
        side.wait_event(event)
        with side:
            y.copy_(x)
        assert not side.query()
    side.synchronize()
    assert side.query() and torch.equal(y.cpu(), torch.full((1000,), 3.0))
    again = torch.Stream(stream_id=side.stream_id, device_index=0, device_type=side.device_type)
    assert again == side and len({again, side, main}) == 2
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
