"""Events are (stream, ticket) by value: recording again or destroying changes no wait made before."""

import numpy as np
import pytest


@pytest.fixture
def other(driver):
    made = driver.Stream(0)
    yield made
    made.destroy()


def test_a_wait_orders_two_streams(driver, stream, other, memory, hold):
    x, y = memory(), memory()
    event = driver.Event()
    held = hold(stream)
    driver.fill(stream, x.address, 10, 3.0)
    event.record(stream)
    other.wait_event(event)
    driver.axpy(other, 1.0, x.address, y.address, 10)
    assert not event.query()
    held.release()
    other.synchronize()
    np.testing.assert_array_equal(y.view("f4")[:10], 3.0)
    event.destroy()


def test_recording_again_after_the_wait(driver, stream, other, hold, until):
    """The wait is for the first recording, which is complete; the second is behind a held stream."""
    event = driver.Event()
    event.record(stream)
    gate = hold(other)
    other.wait_event(event)
    held = hold(stream)
    event.record(stream)
    gate.release()
    until(other.query)
    assert not event.query()
    held.release()
    event.synchronize()


def test_destroyed_after_the_wait(driver, stream, other, memory, hold):
    x = memory()
    held = hold(stream)
    driver.append(stream, x.address, 1)
    event = driver.Event()
    event.record(stream)
    other.wait_event(event)
    driver.append(other, x.address, 2)
    event.destroy()
    held.release()
    other.synchronize()
    assert list(x.view("u4")[:3]) == [2, 1, 2]


def test_never_recorded(driver, stream):
    event = driver.Event()
    assert event.query()
    event.synchronize()
    stream.wait_event(event)
    assert stream.tickets() == (0, 0)
    event.destroy()
    event.destroy()  # null is ignored


def test_waiting_for_the_own_stream_is_nothing(driver, stream):
    event = driver.Event()
    event.record(stream)
    stream.wait_event(event)
    stream.synchronize()
    assert stream.tickets() == (1, 1)
    event.destroy()


def test_across_devices(driver, stream, memory, hold):
    far = driver.Stream(1)
    x, y = memory(), memory(device=1)
    held = hold(stream)
    driver.fill(stream, x.address, 100, 5.0)
    event = driver.Event()
    event.record(stream)
    far.wait_event(event)
    driver.memcpy(y.address, x.address, 400, far)
    held.release()
    far.synchronize()
    np.testing.assert_array_equal(y.view("f4")[:100], 5.0)
    far.destroy()
    event.destroy()


def test_elapsed_time(driver, stream, hold):
    start, end = driver.Event(1), driver.Event(1)
    start.record(stream)
    stream.sleep(20_000_000)
    end.record(stream)
    end.synchronize()
    assert 20 <= start.elapsed(end) < 5000
    assert end.elapsed(start) == -start.elapsed(end)

    held = hold(stream)
    end.record(stream)
    with pytest.raises(driver.Error, match="NotReady"):
        start.elapsed(end)
    held.release()

    plain, fresh, far = driver.Event(), driver.Event(1), driver.Event(1)
    remote = driver.Stream(1)
    plain.record(stream)
    far.record(remote)
    for wrong, text in [(plain, "timing"), (fresh, "recorded"), (far, "different devices")]:
        with pytest.raises(driver.Error, match=text):
            start.elapsed(wrong)
    with pytest.raises(driver.Error, match="InvalidValue"):
        driver.Event(8)
    remote.destroy()
    stream.synchronize()
    for event in (start, end, plain, fresh, far):
        event.destroy()
