"""A device that was aborted, holds failures or waits for ever is usable again after a reset."""

import threading

import numpy as np
import pytest
from expecttest import assert_expected_inline

import build


@pytest.fixture
def error(driver):
    """``error(call)``: name and text of the failure of a call."""

    def run(call):
        with pytest.raises(driver.Error) as raised:
            call()
        return raised.value.args

    return run


@pytest.fixture
def far(driver):
    """A fresh stream of device 1."""
    made = driver.Stream(1)
    yield made
    made.destroy()


def works(driver, stream, segment):
    segment.view("u4")[:2] = 0
    driver.append(stream, segment.address, 7)
    stream.synchronize()
    return segment.view("u4")[:2].tolist() == [1, 7]


def test_a_stream_that_waits_for_ever(driver, stream, memory):
    x, never = memory(), memory()
    x.array[:] = 5
    stream.wait_value(never.address, 1)
    driver.append(stream, x.address, 1)
    dropped = driver.destroyed()
    driver.checksum(stream, b"123", x.address)
    stream.sleep(10**12)
    driver.reset(0)
    assert stream.query() and driver.destroyed() == dropped + 1
    assert (x.array == 5).all(), "a dropped launch ran, or the memory is lost"
    stream.synchronize()
    assert works(driver, stream, x)


def test_after_an_abort(driver, stream, far, memory, error):
    x = memory()
    driver.abort(0)
    assert error(stream.synchronize)[0] == "Aborted"
    driver.append(stream, x.address, 1)
    assert error(lambda: driver.device_synchronize(0))[0] == "Aborted"
    driver.reset(0)
    driver.device_synchronize(0)
    assert works(driver, stream, x)
    assert works(driver, far, memory(device=1)), "the other device was touched"


def test_failures_are_forgotten(driver, stream, memory):
    driver.throwing(stream, "lost")
    driver.throwing(stream, "too")
    driver.reset(0)
    stream.synchronize()
    driver.device_synchronize(0)
    assert works(driver, stream, memory())


def test_a_device_that_is_idle(driver, stream, memory):
    for _ in range(3):
        driver.reset(0)
    assert works(driver, stream, memory())


def late_waiter(driver, stream, far, memory, hold):
    """A stream of device 1 looks at a dropped recording of device 0 only after the reset."""
    never = memory()
    stream.wait_value(never.address, 1)
    event = driver.Event()
    event.record(stream)
    held = hold(far)
    far.wait_event(event)
    driver.reset(0)
    held.release()
    return event


def test_a_stream_of_another_device_hears_of_dropped_work(driver, stream, far, memory, hold, error):
    event = late_waiter(driver, stream, far, memory, hold)
    assert_expected_inline(
        str(error(far.synchronize)),
        """('Aborted', 'wait_event: the device of the stream waited for was aborted')""",
    )
    assert event.query()
    event.synchronize()  # as if it were recorded on an idle stream
    far.wait_event(event)
    far.synchronize()


@pytest.mark.full
def test_without_the_count_of_resets_it_would_not(process, tmp_path):
    planted = build.planted_copy(tmp_path, "event.cpp", {" && source->device.resets.load() == since": ""})
    done = process(
        """
        d.init()
        near, far, never, flag = d.Stream(0), d.Stream(1), d.malloc(0, 4096), d.malloc(1, 4096)
        near.wait_value(never, 1)
        event = d.Event()
        event.record(near)
        far.wait_value(flag, 1)
        far.wait_event(event)
        d.reset(0)
        d.arena(1)[:4].view("u4")[0] = 1
        far.synchronize()
        """,
        module=build.build_module(driver=planted),
        ACCEL_DEVICES="2",
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("wait", ["stream", "device", "event", "copy", "launch"])
def test_a_thread_that_waits_is_told(driver, stream, memory, error, until, wait):
    x, never = memory(), memory()
    stream.wait_value(never.address, 1)
    event = driver.Event()
    event.record(stream)
    local = np.zeros(8, "u1")

    def launch():  # until the ring is full
        while True:
            driver.append(stream, x.address + 64, 1)

    calls = {
        "stream": lambda: stream.synchronize("told"),
        "device": lambda: driver.device_synchronize(0, "told"),
        "event": lambda: event.synchronize("told"),
        "copy": lambda: driver.memcpy(local.ctypes.data, x.address, 8, stream, "told"),
        "launch": launch,
    }
    name = "launch" if wait == "launch" else "told"
    before = driver.waits().get(name, 0)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(error(calls[wait])))
    thread.start()
    until(lambda: driver.waits().get(name, 0) > before)
    driver.reset(0)
    thread.join()
    assert seen == [("Aborted", "accel: accel:0 was aborted, its queued work is lost; reset it to use it again")]
    assert works(driver, stream, x)


def test_a_kernel_that_runs_cannot_be_stopped(driver, stream, memory, error, until):
    x, flag = memory(), memory()
    driver.busy(stream, flag.address)
    until(lambda: flag.view("u4")[1] == 1)
    driver.append(stream, x.address, 1)
    assert_expected_inline(
        str(error(lambda: driver.reset(0, 1))),
        """('NotReady', 'accel: a kernel on accel:0 still runs, and a kernel cannot be stopped; the device stays aborted, reset it again once the kernel has ended')""",
    )
    assert error(stream.synchronize)[0] == "Aborted"
    flag.view("u4")[0] = 1
    driver.reset(0)
    assert not x.array.any(), "a dropped launch ran"
    assert works(driver, stream, x)


def test_one_thread_resets_at_a_time(driver, stream, memory, error, until):
    flag = memory()
    driver.busy(stream, flag.address)
    until(lambda: flag.view("u4")[1] == 1)
    thread = threading.Thread(target=driver.reset, args=(0,))
    thread.start()
    until(lambda: error(lambda: driver.reset(0, 0))[1] == "accel: another thread is resetting accel:0")
    flag.view("u4")[0] = 1
    thread.join()
    assert works(driver, stream, flag)


def test_a_kernel_may_not(driver, stream, error):
    driver.resetting_kernel(stream)
    assert error(stream.synchronize) == (
        "NotSupported",
        "resetting: accel: accelDeviceReset: a kernel cannot reset a device",
    )


def test_times_of_a_dropped_event(driver, stream, memory, error):
    never = memory()
    start, end = driver.Event(1), driver.Event(1)
    start.record(stream)
    stream.wait_value(never.address, 1)
    end.record(stream)
    driver.reset(0)
    assert error(lambda: start.elapsed(end)) == (
        "Aborted",
        "accel: accelEventElapsedTime: the device was aborted before it passed an event",
    )


def test_no_such_device(driver, error):
    assert error(lambda: driver.reset(2))[0] == "InvalidDevice"


def test_only_streams_have_a_device(driver, stream):
    assert driver.device_of_handle(stream.handle) == 0
    assert driver.device_of_handle(stream.handle + 8) == -1
