"""Records: large ones, a full ring, cancelling, launch infos and the tracer, blocking mode."""

import threading

import numpy as np
import pytest

COMPUTE, COPY, HOST = range(3)
WRITE = 2


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000, 131_072, 1_000_000, 20_000_000])
def test_payloads_of_any_size(driver, stream, memory, size):
    x = memory()
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    before = driver.destroyed()
    driver.checksum(stream, data, x.address)
    stream.synchronize()
    assert x.view("u8")[0] == sum(data)
    assert driver.destroyed() == before + 1


def test_records_wrap_around_the_ring(driver, stream, memory):
    """About 40 times round, with sizes that leave every remainder at the end."""
    x = memory()
    generator = np.random.default_rng(1)
    before = driver.destroyed()
    for size in generator.integers(0, 100_000, 400):
        driver.checksum(stream, bytes([1]) * int(size), x.address)
    stream.synchronize()
    assert x.view("u8")[0] == size
    assert driver.destroyed() == before + 400


def test_a_full_ring_holds_the_launching_thread_only(driver, stream, memory, hold, until):
    x = memory()
    held = hold(stream)
    waits = driver.waits().get("launch", 0)
    launches = 20_000

    def launch() -> None:
        for i in range(launches):
            driver.append(stream, x.address, i % 7)

    thread = threading.Thread(target=launch)
    thread.start()
    # Full: the thread waits, without the GIL and without the stream's lock.
    until(lambda: driver.waits().get("launch", 0) > waits)
    assert stream.tickets()[0] < launches
    assert not stream.query()
    held.release()
    thread.join()
    stream.synchronize()
    np.testing.assert_array_equal(x.view("u4")[: launches + 1], [launches] + [i % 7 for i in range(launches)])


def test_cancel(driver, stream, memory):
    x = memory()
    before = driver.destroyed()
    for size in (10, 1_000_000):
        driver.checksum(stream, b"1" * size, x.address, cancel=True)
    driver.append(stream, x.address, 5)
    stream.synchronize()
    assert stream.tickets() == (1, 1)
    assert list(x.view("u4")[:2]) == [1, 5]
    assert driver.destroyed() == before


def test_beginning_twice_is_refused(driver, stream):
    with pytest.raises(driver.Error, match="already begun a launch"):
        driver.begin_twice(stream)


def test_the_tracer_sees_every_launch(driver, stream, memory):
    x = memory()
    driver.set_tracer(True)
    driver.take_trace()
    driver.fill(stream, x.address, 256, 1.0)
    driver.memset(x.address, 0, 64, stream)
    driver.append(stream, x.address, 9)
    stream.synchronize()
    driver.set_tracer(False)
    events = driver.take_trace()
    by_launch = {}
    for event in events:
        by_launch.setdefault(event["ticket"], []).append(event)
    assert sorted(by_launch) == [1, 2, 3]
    for same in by_launch.values():
        same.sort(key=lambda event: event["phase"])
        assert [event["phase"] for event in same] == [0, 1, 2]
        assert len({event["correlation"] for event in same}) == 1
        times = [event["ns"] for event in same]
        assert times == sorted(times)
    fill, fill_set, append = (by_launch[ticket][1] for ticket in (1, 2, 3))
    assert fill["correlation"] < fill_set["correlation"] < append["correlation"]
    assert (fill["name"], fill["engine"], fill["cores"], fill["hbm"]) == ("fill", COMPUTE, 2, 1024)
    assert fill["accesses"] == [(7, x.address, 1024, WRITE)]
    assert (fill_set["name"], fill_set["engine"], fill_set["hbm"]) == ("memset", COPY, 64)
    # Unknown is -1, never 0.
    assert (append["cores"], append["hbm"], append["accesses"]) == (-1, -1, [])


def test_blocking_mode_raises_at_the_call(driver, stream, memory):
    x = memory()
    assert not driver.get_launch_blocking()
    driver.set_launch_blocking(True)
    try:
        ticket = driver.fill(stream, x.address, 10, 1.0)
        assert stream.tickets() == (ticket, ticket)
        with pytest.raises(driver.Error, match="throwing: at once"):
            driver.throwing(stream, "at once")
        # What only orders streams must not wait, or a later launch could never come.
        stream.wait_value(x.address, 0x3F800001)
    finally:
        driver.set_launch_blocking(False)
    x.view("u4")[0] = 0x3F800001
    stream.synchronize()


def test_blocking_mode_from_the_environment(process):
    done = process(
        """
        d.init()
        assert d.get_launch_blocking()
        stream = d.Stream()
        try:
            d.throwing(stream, "here")
        except d.Error as error:
            print(error.args)
        """,
        ACCEL_LAUNCH_BLOCKING="1",
    )
    assert (done.stdout, done.stderr) == ("('LaunchFailure', 'throwing: here')\n", "")


@pytest.mark.parametrize("name", ["ACCEL_DELAY_US", "ACCEL_SCHEDULE_SEED"])
def test_a_shaken_schedule_changes_no_result(process, name):
    done = process(
        """
        d.init()
        x, streams = d.malloc(0, 4096), [d.Stream() for _ in range(3)]
        event = d.Event()
        for i in range(60):
            d.append(streams[i % 3], x, i)
            event.record(streams[i % 3])
            streams[(i + 1) % 3].wait_event(event)
        d.device_synchronize(0)
        print(list(d.arena(0)[:244].view("u4")) == [60, *range(60)])
        """,
        **{name: "100"},
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
