"""Streams are independent: what one waits for, another may bring."""

import torch

from torch_accel.testing import hold_stream


def test_a_waits_for_a_flag_that_only_b_sets(script):
    # In a process of its own: with one worker for all streams this would hang for ever.
    script("""
    import torch
    from torch_accel import _C
    a, b = torch.accel.Stream(), torch.accel.Stream()
    flag = torch.zeros(1, dtype=torch.int32, device="accel")
    x = torch.zeros(4, device="accel")
    torch.accel.synchronize()
    _C._stream_wait_value(a, flag.data_ptr(), 1)
    with torch.accel.stream(a):
        x.fill_(2)
    assert not a.query()
    with torch.accel.stream(b):
        flag.fill_(1)
    a.synchronize()
    assert x.tolist() == [2, 2, 2, 2]
    """)


def test_held_stream_does_not_hold_another():
    a, b = torch.accel.Stream(), torch.accel.Stream()
    with hold_stream(a):
        with torch.accel.stream(a):
            first = torch.ones(8, device="accel")
        with torch.accel.stream(b):
            second = torch.full((8,), 2.0, device="accel")
            assert second.cpu().tolist() == [2.0] * 8
        assert not a.query()
    a.synchronize()
    assert first.cpu().tolist() == [1.0] * 8


def test_wait_captures_the_recording_at_the_call():
    a, b = torch.accel.Stream(), torch.accel.Stream()
    event = torch.accel.Event()
    event.record(a)
    b.wait_event(event)
    with hold_stream(a):
        event.record(a)  # a later recording: b waits for the first one only
        with torch.accel.stream(b):
            x = torch.ones(4, device="accel")
        b.synchronize()
        assert not event.query()
    a.synchronize()
    assert x.cpu().tolist() == [1.0] * 4
