"""The one host wait: counted by caller, with the GIL let go."""

import threading

import numpy as np
import pytest


def count(driver, caller):
    return driver.waits().get(caller, 0)


def test_only_waits_that_find_work_are_counted(driver, stream):
    before = count(driver, "count")
    stream.synchronize("count")
    assert count(driver, "count") == before
    stream.sleep(100_000_000)  # long enough for a thread that the system lets wait
    stream.synchronize("count")
    stream.synchronize("count")
    assert count(driver, "count") == before + 1


def test_a_device_counts_once(driver, memory):
    streams = [driver.Stream(1) for _ in range(3)]
    before = count(driver, "device")
    for stream in streams:
        stream.sleep(100_000_000)
    driver.device_synchronize(1, "device")
    assert count(driver, "device") == before + 1
    for stream in streams:
        stream.destroy()


@pytest.mark.parametrize("entry", ["stream", "ticket", "event", "device", "copy", "destroy"])
def test_another_thread_advances_meanwhile(driver, memory, entry):
    """The stream ends only when a second Python thread has run: a wait with the GIL would hang."""
    x, flag = memory(), memory()
    stream = driver.Stream(0)
    event = driver.Event()
    waiting = threading.Event()

    def release() -> None:
        waiting.wait()
        total = sum(range(10_000))
        flag.view("u4")[0] = total > 0

    thread = threading.Thread(target=release)
    thread.start()
    stream.wait_value(flag.address, 1)
    ticket = driver.fill(stream, x.address, 1, 1.0)
    event.record(stream)
    waiting.set()
    local = np.zeros(4, np.uint8)
    {
        "stream": stream.synchronize,
        "ticket": lambda: stream.wait_ticket(ticket),
        "event": event.synchronize,
        "device": lambda: driver.device_synchronize(0),
        "copy": lambda: driver.memcpy(local.ctypes.data, x.address, 4, stream),
        "destroy": stream.destroy,
    }[entry]()
    assert x.view("f4")[0] == 1.0
    thread.join()
    event.destroy()


def test_a_kernel_cannot_wait_for_its_own_stream(driver, stream):
    driver.waiting_kernel(stream)
    with pytest.raises(driver.Error) as error:
        stream.synchronize()
    assert error.value.args == (
        "NotSupported",
        "waiting: accel: kernel: a kernel cannot wait for a stream; let the stream wait with an event",
    )


def test_many_threads_wait_for_one_stream(driver, stream, hold):
    held = hold(stream)
    ended = []
    threads = [threading.Thread(target=lambda: ended.append(stream.synchronize("crowd"))) for _ in range(8)]
    before = count(driver, "crowd")
    for thread in threads:
        thread.start()
    while count(driver, "crowd") < before + 8:
        threading.Event().wait(0.001)
    held.release()
    for thread in threads:
        thread.join()
    assert ended == [None] * 8
