"""A kernel's failure rises once, at a later synchronisation, and leaves the stream usable."""

import numpy as np
import pytest


def failure(driver, call):
    with pytest.raises(driver.Error) as error:
        call()
    return error.value.args


def test_raised_once_at_the_next_synchronisation(driver, stream, memory):
    x = memory()
    driver.throwing(stream, "boom")
    driver.fill(stream, x.address, 10, 1.0)  # later launches still run
    driver.throwing(stream, "later")
    assert failure(driver, stream.synchronize) == ("LaunchFailure", "throwing: boom")
    stream.synchronize()
    np.testing.assert_array_equal(x.view("f4")[:10], 1.0)
    driver.throwing(stream, "again")
    assert failure(driver, stream.synchronize) == ("LaunchFailure", "throwing: again")


def test_the_code_and_text_of_the_kernel(driver, stream):
    driver.failing(stream, 3, "no workspace")
    assert failure(driver, stream.synchronize) == ("OutOfMemory", "failing: no workspace")
    driver.failing(stream, 1, "")
    assert failure(driver, stream.synchronize) == (
        "InvalidValue",
        "failing: the kernel returned error 1",
    )


def test_not_raised_for_an_earlier_ticket(driver, stream, memory):
    x = memory()
    ticket = driver.append(stream, x.address, 1)
    bad = driver.throwing(stream, "boom")
    while stream.tickets()[1] < bad:
        pass
    stream.wait_ticket(ticket)
    assert failure(driver, lambda: stream.wait_ticket(bad))[1] == "throwing: boom"


def test_queries_raise_nothing(driver, stream):
    bad = driver.throwing(stream, "boom")
    while not stream.query():
        pass
    assert stream.tickets() == (bad, bad)
    assert failure(driver, stream.synchronize)[0] == "LaunchFailure"


def test_travels_with_an_event(driver, stream):
    other, third = driver.Stream(0), driver.Stream(1)
    event, next_event = driver.Event(), driver.Event()
    driver.throwing(stream, "far")
    event.record(stream)
    other.wait_event(event)
    next_event.record(other)
    third.wait_event(next_event)
    assert failure(driver, third.synchronize) == ("LaunchFailure", "throwing: far")
    for one in (other, stream):  # one failure, raised once
        one.synchronize()
    for one in (other, third):
        one.destroy()
    for one in (event, next_event):
        one.destroy()


def test_does_not_travel_with_an_event_before_it(driver, stream):
    other = driver.Stream(0)
    event = driver.Event()
    event.record(stream)
    driver.throwing(stream, "after")
    while not stream.query():
        pass
    other.wait_event(event)
    other.synchronize()
    assert failure(driver, stream.synchronize)[1] == "throwing: after"
    event.destroy()
    other.destroy()


def test_event_synchronize_raises(driver, stream):
    event = driver.Event()
    driver.throwing(stream, "boom")
    event.record(stream)
    assert failure(driver, event.synchronize)[1] == "throwing: boom"
    event.synchronize()
    event.destroy()


def test_a_device_raises_the_oldest_first(driver):
    streams = [driver.Stream(1) for _ in range(3)]
    for i in (2, 0, 1):
        driver.throwing(streams[i], f"number {i}")
        while not streams[i].query():
            pass
    texts = [failure(driver, lambda: driver.device_synchronize(1))[1] for _ in range(3)]
    assert texts == ["throwing: number 2", "throwing: number 0", "throwing: number 1"]
    driver.device_synchronize(1)
    for stream in streams:
        stream.destroy()
