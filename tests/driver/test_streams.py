"""Order on a stream, tickets, values that one stream writes and another waits for."""

import time

import numpy as np
import pytest


def test_launches_run_in_order(driver, stream, memory):
    x = memory()
    tickets = [driver.append(stream, x.address, i) for i in range(5000)]
    assert tickets == list(range(1, 5001))
    stream.synchronize()
    assert stream.tickets() == (5000, 5000)
    np.testing.assert_array_equal(x.view("u4")[:5001], [5000, *range(5000)])


def test_nothing_runs_before_its_turn(driver, stream, memory, hold):
    x = memory()
    held = hold(stream)
    ticket = driver.fill(stream, x.address, 10, 1.5)
    assert not stream.query()
    assert not x.array.any()
    assert stream.tickets()[1] < ticket
    held.release()
    stream.wait_ticket(ticket)
    assert stream.query()
    np.testing.assert_array_equal(x.view("f4")[:10], 1.5)


def test_numerics(driver, stream, memory):
    x, y = memory(), memory()
    driver.fill(stream, x.address, 1000, 3.0)
    driver.fill(stream, y.address, 1000, 1.0)
    driver.axpy(stream, 2.0, x.address, y.address, 1000)
    stream.synchronize()
    np.testing.assert_array_equal(y.view("f4")[:1000], 7.0)


def test_a_kernel_waits_for_a_value_that_only_another_stream_writes(driver, memory):
    """Needs a worker for each active stream: with one for all, the first would block the second."""
    flag, x = memory(), memory()
    waiting, writing = driver.Stream(0), driver.Stream(0, -1)
    waiting.wait_value(flag.address, 41)
    driver.fill(waiting, x.address, 10, 2.0)
    writing.write_value(flag.address, 42)
    waiting.synchronize()
    assert flag.view("u4")[0] == 42
    np.testing.assert_array_equal(x.view("f4")[:10], 2.0)
    assert (writing.priority, writing.device) == (-1, 0)
    for one in (waiting, writing):
        one.destroy()


def test_many_streams_wait_for_one_another(driver, memory):
    flag = memory()
    streams = [driver.Stream(i % 2) for i in range(12)]
    for i, one in reversed(list(enumerate(streams))):
        one.wait_value(flag.address, i)
        one.write_value(flag.address, i + 1)
    for device in range(2):
        driver.device_synchronize(device)
    assert flag.view("u4")[0] == 12
    for one in streams:
        one.destroy()


def test_a_stream_works_again_after_its_worker_left(driver, stream, memory, until):
    x = memory()
    for turn in range(3):
        driver.append(stream, x.address, turn)
        stream.synchronize()
        time.sleep(0.12)  # longer than an idle worker stays
    assert x.view("u4")[0] == 3


def test_sleep_holds_the_stream_and_not_the_host(driver, stream):
    begin = time.monotonic()
    stream.sleep(50_000_000)
    assert not stream.query()
    stream.synchronize()
    assert time.monotonic() - begin >= 0.05


def test_a_destroyed_stream_is_drained_and_answers(driver, memory):
    x = memory()
    stream = driver.Stream(0)
    for i in range(100):
        driver.append(stream, x.address, i)
    stream.destroy()
    assert x.view("u4")[0] == 100
    assert stream.tickets() == (100, 100)
    assert stream.query()
    stream.synchronize()
    with pytest.raises(driver.Error, match="destroyed"):
        driver.append(stream, x.address, 0)


def test_wrong_arguments(driver, stream, memory):
    x = memory()
    with pytest.raises(driver.Error, match="accel:0 to accel:1"):
        driver.Stream(2)
    with pytest.raises(driver.Error, match="InvalidDevice"):
        driver.Stream(-1)
    with pytest.raises(driver.Error, match="has not issued"):
        stream.wait_ticket(1)
    for address in (x.address + 2, np.zeros(1, "u4").ctypes.data):
        with pytest.raises(driver.Error, match="InvalidValue"):
            stream.wait_value(address, 1)
        with pytest.raises(driver.Error, match="InvalidValue"):
            stream.write_value(address, 1)
