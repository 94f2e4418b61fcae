"""Streams and events: order, waiting, timing, representation, bad arguments."""

import contextlib
import re
import threading
import time

import pytest
import torch
from expecttest import assert_expected_inline
from torch.accel.testing import hold_stream, wait_report

from torch_accel import _C, sanitizer


def test_classes():
    stream = torch.accel.Stream()
    assert isinstance(stream, torch.Stream) and stream.device == torch.device("accel", 0)
    assert isinstance(torch.accel.Event(), torch.Event)
    assert type(torch.accel.current_stream()) is torch.accel.Stream
    assert torch.accel.current_stream() == torch.accel.default_stream()
    assert torch.accel.default_stream("accel:0").stream_id == 0
    assert hash(stream) == hash(torch.accel.Stream(stream_id=stream.stream_id, device_index=0, device_type=20))


def test_priorities():
    assert torch.accel.Stream.priority_range() == (0, -1)
    for given, real in ((0, 0), (-1, -1), (5, 0), (-9, -1)):
        assert torch.accel.Stream(priority=given).priority == real
    assert torch.accel.default_stream().priority == 0
    pool = {torch.accel.Stream().stream_id for _ in range(64)}
    assert len(pool) == 32


def test_repr():
    stream, event = torch.accel.Stream(), torch.accel.Event()
    assert repr(stream) == f"<torch.accel.Stream device=accel:0 accel_stream={stream.accel_stream:#x}>"
    assert repr(event) == "<torch.accel.Event uninitialized>"
    event.record(stream)
    assert repr(event) == f"<torch.accel.Event {event.event_id:#x}>"


def test_stream_context():
    stream = torch.accel.Stream()
    default = torch.accel.current_stream()
    with torch.accel.stream(stream):
        assert torch.accel.current_stream() == stream
        with torch.accel.stream(None), torch.accel.stream(default):
            assert torch.accel.current_stream() == default
        assert torch.accel.current_stream() == stream
    assert torch.accel.current_stream() == default
    with stream:
        assert torch.accel.current_stream() == stream
    context = torch.accel.stream(stream)
    with context, context:
        assert torch.accel.current_stream() == stream
    torch.accel.set_stream(None)
    assert torch.accel.current_stream() == default


def test_stream_context_restores_both_devices(script):
    script(
        """
        import torch
        one = torch.accel.Stream(device=1)
        with torch.accel.stream(one):
            assert torch.accel.current_device() == 1 and torch.accel.current_stream() == one
            assert torch.accel.current_stream(0) == torch.accel.default_stream(0)
        assert torch.accel.current_device() == 0
        assert torch.accel.current_stream(1) == torch.accel.default_stream(1)
        torch.accel.set_stream(one)
        assert torch.accel.current_device() == 1
        """,
        ACCEL_DEVICES="2",
    )


@sanitizer.enabled("off")  # reads on purpose what another stream will write
def test_streams_do_not_wait_for_each_other():
    held, free = torch.accel.Stream(), torch.accel.Stream()
    x, y = torch.zeros(4, device="accel"), torch.zeros(4, device="accel")
    torch.accel.synchronize()
    with hold_stream(held):
        with torch.accel.stream(held):
            x.fill_(1)
        with torch.accel.stream(free):
            y.fill_(2)
            assert y.tolist() == [2] * 4 and x.tolist() == [0] * 4
        assert free.query() and not held.query()
    held.synchronize()
    assert held.query() and x.tolist() == [1] * 4


def test_event_orders_streams():
    first, second = torch.accel.Stream(), torch.accel.Stream()
    event = torch.accel.Event()
    assert event.query()  # never recorded
    x, y = torch.zeros(4, device="accel"), torch.zeros(4, device="accel")
    torch.accel.synchronize()
    with hold_stream(first):
        with torch.accel.stream(first):
            x.fill_(1)
            event.record()
        second.wait_event(event)
        with torch.accel.stream(second):
            y.copy_(x)
        assert not event.query() and not second.query()
    second.synchronize()
    assert event.query() and y.tolist() == [1] * 4


def test_wait_stream_and_record_event():
    first, second = torch.accel.Stream(), torch.accel.Stream()
    with hold_stream(first):
        second.wait_stream(first)
        event = second.record_event()
        assert type(event) is torch.accel.Event and not event.query()
        torch_event = second.record_event(torch.Event("accel"))
        assert not torch_event.query()
    event.synchronize()
    assert first.query()


def test_a_wait_keeps_the_recording_it_saw():
    first, second = torch.accel.Stream(), torch.accel.Stream()
    event = torch.accel.Event()
    event.record(first)
    first.synchronize()
    event.wait(second)
    with hold_stream(first):
        event.record(first)
        second.synchronize()  # the wait was for the first recording


def test_elapsed_time():
    start, end = torch.accel.Event(enable_timing=True), torch.accel.Event(enable_timing=True)
    start.record()
    torch.accel._sleep(20_000_000)
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 20
    with pytest.raises((RuntimeError, ValueError), match="timing"):
        torch.accel.Event().elapsed_time(end)


def test_sleep_holds_the_stream_not_the_host():
    torch.accel.synchronize()
    start = time.perf_counter()
    torch.accel._sleep(300_000_000)
    assert not torch.accel.current_stream().query()
    torch.accel.synchronize()
    assert time.perf_counter() - start >= 0.3


@pytest.mark.parametrize(
    "wait",
    [
        torch.accel.synchronize,
        lambda: torch.accel.current_stream().synchronize(),
        lambda: torch.accel.current_stream().record_event().synchronize(),
        lambda: torch.accelerator.synchronize(),
        lambda: torch.accel.memory.numpy(X),
        lambda: X.sum().item(),
        lambda: X.cpu(),
        lambda: torch.empty(4).copy_(X),
    ],
    ids=["device", "stream", "event", "accelerator", "numpy", "item", "cpu", "copy_"],
)
def test_other_threads_run_during_a_wait(wait):
    global X
    X = torch.zeros(4, device="accel")
    torch.accel.synchronize()
    released = []
    with contextlib.ExitStack() as held:
        held.enter_context(hold_stream())
        X.fill_(1)

        def release():  # needs the GIL while the main thread waits for what it does
            released.append(True)
            held.close()

        timer = threading.Timer(0.05, release)
        timer.start()
        wait()
        assert released
        timer.join()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("event", [None, torch.Event, torch.accel.Event], ids=["made inside", "torch's", "accel's"])
def test_27_a_compiled_synchronisation_waits(backend, event):
    """What the host computes of a queued copy is right only if the wait between them was not compiled away."""

    def doubled(x, event):
        host = (x + 1).to("cpu", non_blocking=True)
        event = torch.Event("accel") if event is None else event
        event.record()
        event.synchronize()
        return torch.cat([host, host * 2])

    torch._dynamo.reset()
    compiled = torch.compile(doubled, backend=backend, fullgraph=True)
    x, event = torch.arange(3.0, device="accel"), event and event()
    compiled(x, event)
    x.fill_(4)
    released = []
    with contextlib.ExitStack() as held:
        held.enter_context(hold_stream())
        timer = threading.Timer(0.05, lambda: (released.append(True), held.close()))
        timer.start()
        result = compiled(x, event)
        assert released
        timer.join()
    assert result.tolist() == [5] * 3 + [10] * 3


def test_wait_report():
    before = wait_report().get("torch.accel.synchronize", 0)
    torch.accel._sleep(300_000_000)
    torch.accel.synchronize()
    torch.accel.synchronize()  # nothing to wait for
    assert wait_report()["torch.accel.synchronize"] == before + 1


def bad_arguments():
    stream, event = torch.accel.Stream(), torch.accel.Event()
    return [
        lambda: stream.wait_event(stream),
        lambda: stream.wait_stream(event),
        lambda: stream.record_event(3),
        lambda: event.record("accel"),
        lambda: event.wait(event),
        lambda: event.elapsed_time(stream),
        lambda: torch.accel.set_stream(0),
        lambda: torch.accel.Stream("cpu"),
        lambda: torch.accel.set_stream(torch.Stream(stream_id=999, device_index=0, device_type=20)),
        lambda: torch.accel._sleep(-1),
    ]


def test_bad_arguments():
    texts = []
    for use in bad_arguments():
        with pytest.raises((TypeError, ValueError, RuntimeError, NotImplementedError)) as error:
            use()
        texts.append(f"{error.type.__name__}: {error.value}")
    assert torch.ones(2, device="accel").tolist() == [1, 1]
    assert_expected_inline(
        re.sub(r"0x[0-9a-f]+", "0xADDRESS", "\n".join(texts)),
        """\
TypeError: torch.accel: event must be a torch.Event, but got <torch.accel.Stream device=accel:0 accel_stream=0xADDRESS>
TypeError: torch.accel: stream must be a torch.Stream, but got <torch.accel.Event uninitialized>
TypeError: torch.accel: event must be a torch.Event, but got 3
TypeError: torch.accel: stream must be a torch.Stream, but got 'accel'
TypeError: torch.accel: stream must be a torch.Stream, but got <torch.accel.Event uninitialized>
TypeError: torch.accel: end_event must be a torch.Event, but got <torch.accel.Stream device=accel:0 accel_stream=0xADDRESS>
TypeError: torch.accel: stream must be a torch.Stream, but got 0
ValueError: Expected an accel device, but got: cpu
RuntimeError: accel: there is no stream with id 999 on accel:0; take one from torch.Stream(device=...) or torch.accel.Stream()
ValueError: torch.accel._sleep expects a number of cycles of at least 0, but got -1""",
    )


def test_an_operators_error_leaves_the_stream_usable():
    stream = torch.accel.Stream()
    x = torch.ones(4, device="accel")
    torch.accel.synchronize()
    with torch.accel.stream(stream):
        with pytest.raises((RuntimeError, IndexError), match="index"):
            x.index_select(0, torch.tensor([9], device="accel")).sum().item()
        stream.synchronize()
        assert (x + 1).tolist() == [2] * 4


# ---- Streams of others


@pytest.fixture
def driver_stream():
    """The handle of a stream that torch did not make."""
    return _C._create_driver_stream(0, 0)


def test_an_external_stream_is_a_stream(driver_stream):
    external = torch.accel.ExternalStream(driver_stream)
    assert type(external) is torch.accel.ExternalStream and isinstance(external, torch.accel.Stream)
    assert external.accel_stream == driver_stream and external.device == torch.device("accel", 0)
    assert external.query() and external.priority == 0
    assert external == torch.accel.get_stream_from_external(driver_stream, "accel:0")  # one stream, one id
    assert type(torch.accel.get_stream_from_external(driver_stream)) is torch.accel.Stream
    assert external not in [torch.accel.Stream() for _ in range(32)]
    x = torch.zeros(4, device="accel")
    torch.accel.synchronize()
    with hold_stream(external):
        with external:
            assert torch.accel.current_stream() == torch.accelerator.current_stream() == external
            x.fill_(1)
        torch.accel.current_stream().wait_stream(external)
        y = x + 1
        assert not external.query() and not torch.accel.current_stream().query()
    assert y.tolist() == [2] * 4


def test_memory_of_an_external_stream_is_its_own(driver_stream):
    external = torch.accel.ExternalStream(driver_stream, 0)
    with torch.accel.stream(external):
        x = torch.ones(1 << 20, device="accel")
        pointer = x.data_ptr()
        with hold_stream():
            x.add_(1)
            del x
            assert torch.empty(1 << 20, device="accel").data_ptr() == pointer  # ordered by the stream
    with hold_stream(external):
        with torch.accel.stream(external):
            x = torch.ones(1 << 20, device="accel")
        x.record_stream(torch.accel.current_stream())
        del x
        assert torch.empty(1 << 20, device="accel").data_ptr() != pointer


def test_handles_that_torch_knows_give_their_stream():
    for stream in (torch.accel.Stream(priority=-1), torch.accel.default_stream(), torch.Stream(device="accel")):
        handle = getattr(stream, "accel_stream", stream.native_handle)
        assert torch.accel.ExternalStream(handle) == torch.accel.get_stream_from_external(handle) == stream
    stream = torch.accel.Stream()
    assert stream.native_handle == stream.accel_stream == stream._as_parameter_.value


def test_handles_of_nobody_are_refused(driver_stream):
    for wrong in (0, 1, driver_stream + 8, 1 << 46):
        with pytest.raises(ValueError, match="is not the handle of a stream"):
            torch.accel.ExternalStream(wrong)


# ---- torch's classes and accel's, mixed


@pytest.mark.parametrize(
    "make_stream", [torch.accel.Stream, lambda: torch.Stream(device="accel")], ids=["accel", "torch"]
)
@pytest.mark.parametrize("make_event", [torch.accel.Event, lambda: torch.Event("accel")], ids=["accel", "torch"])
def test_classes_mix(make_stream, make_event):
    first, second, event = make_stream(), torch.accel.Stream(), make_event()
    x = torch.zeros(3, device="accel")
    torch.accel.synchronize()
    with hold_stream(first):
        with torch.accel.stream(first):
            x.fill_(1)
        event.record(first)
        second.wait_event(event)
        event.wait(torch.accel.default_stream())
        if type(first) is torch.Stream and type(event) is torch.accel.Event:
            with pytest.raises(RuntimeError, match=r"torch\.Event"):
                first.record_event(event)  # torch takes no subclass here, of torch.cuda neither
        else:
            assert not first.record_event(make_event()).query()
        with torch.accel.stream(second):
            y = x + 1
        assert not second.query() and not torch.accel.default_stream().query() and not event.query()
        assert torch.accel.Stream(stream_id=first.stream_id, device_index=0, device_type=first.device_type) == first
    second.synchronize()
    assert y.tolist() == [2] * 3


def test_an_event_recorded_again_or_destroyed_does_not_change_earlier_waits():
    first, second = torch.accel.Stream(), torch.accel.Stream()
    x = torch.zeros(3, device="accel")
    torch.accel.synchronize()
    with hold_stream(second):
        with hold_stream(first):
            with torch.accel.stream(first):
                x.fill_(1)
            event = first.record_event()
            second.wait_event(event)
            event.record(torch.accel.default_stream())  # an idle stream: complete at once
            event.synchronize()
            del event
            with torch.accel.stream(second):
                y = x.clone()
        first.synchronize()
    second.synchronize()
    assert y.tolist() == [1] * 3


def test_contexts_restore_after_exceptions():
    stream = torch.accel.Stream()
    before = torch.accel.current_stream()
    for context in (lambda: stream, lambda: torch.accel.stream(stream), lambda: torch.accel.StreamContext(stream)):
        with pytest.raises(KeyError), context():
            assert torch.accel.current_stream() == stream
            raise KeyError
        assert torch.accel.current_stream() == before


def test_with_two_devices(two_devices):
    two_devices("""
        import torch
        one = torch.Stream(device="accel:1")
        try:
            with one:
                assert torch.accel.current_device() == 1 and torch.accel.current_stream() == one
                raise KeyError
        except KeyError:
            pass
        assert torch.accel.current_device() == 0
        assert torch.accel.current_stream(1) == torch.accel.default_stream(1)
        with one:
            assert torch.zeros(1, device="accel").device.index == 1
            with torch.Stream(device="accel:0") as zero:
                assert torch.accel.current_device() == 0 and torch.accel.current_stream() == zero
                assert torch.accel.current_stream(1) == one
            assert torch.accel.current_device() == 1 and torch.accel.current_stream() == one
            assert torch.accel.current_stream(0) == torch.accel.default_stream(0)
        assert torch.accel.current_device() == 0
        assert torch.accel.current_stream(1) == torch.accel.default_stream(1)

        # Times of events of different devices, and events of one device on streams of another.
        timing = [torch.Event(f"accel:{d}", enable_timing=True) for d in (0, 1)]
        timing[0].record(torch.accel.default_stream(0)), timing[1].record(torch.accel.default_stream(1))
        for d in (0, 1):
            torch.accel.synchronize(d)
        for start, end in (timing, timing[::-1]):
            try:
                start.elapsed_time(end)
            except (RuntimeError, ValueError) as error:
                assert "device" in str(error), error
            else:
                raise AssertionError
        try:
            timing[0].record(torch.accel.default_stream(1))
        except (RuntimeError, ValueError) as error:
            assert "device" in str(error), error
        else:
            raise AssertionError
        one.wait_event(timing[0])
        one.synchronize()

        # A stream from a handle belongs to one device.
        from torch_accel import _C
        handle = _C._create_driver_stream(1, -1)
        try:
            torch.accel.ExternalStream(handle, 0)
        except ValueError as error:
            assert "is of accel:1, not of accel:0" in str(error)
        else:
            raise AssertionError
        external = torch.accel.ExternalStream(handle, "accel:1")
        assert external.device.index == 1 and external.priority == -1
        with external:
            assert torch.zeros(1, device="accel").device.index == 1
    """)
