"""Subscribers: several at a time, told of their phases only, gone when their subscription has ended."""

import threading

import pytest

ENQUEUE, BEGIN, END, LAUNCH, CAPTURE, NODE, WAIT, COMPLETE, ALLOCATE, RELEASE = range(10)


@pytest.fixture
def subscribe(driver):
    """``subscribe(phase, ...)``: a subscriber that is gone after the test."""
    made = []

    def start(*phases):
        made.append(driver.Subscriber(sum(1 << phase for phase in phases)))
        return made[-1]

    yield start
    made.clear()


def test_each_is_told_of_its_phases(driver, stream, memory, subscribe):
    x = memory()
    before, after = subscribe(LAUNCH), subscribe(ENQUEUE, END)
    driver.append(stream, x.address, 1)
    stream.synchronize()
    assert before.take() == [(LAUNCH, 0, 0, "append", 0, 0, 0)]
    assert [event[:4] for event in after.take()] == [(ENQUEUE, 0, 1, "append"), (END, 0, 1, "append")]


def test_there_is_room_for_eight(driver, stream, memory, subscribe):
    x = memory()
    all = [subscribe(ENQUEUE) for _ in range(8)]
    with pytest.raises(driver.Error, match="there are 8 subscribers already; end one first"):
        subscribe(ENQUEUE)
    all[3].end()
    assert subscribe(LAUNCH)
    driver.append(stream, x.address, 1)
    stream.synchronize()
    assert [len(one.take()) for one in all] == [1, 1, 1, 0, 1, 1, 1, 1]


def test_ending_twice_is_an_error(driver, subscribe):
    one = subscribe(ENQUEUE)
    one.end()
    with pytest.raises(driver.Error, match="no subscriber of that id"):
        one.end()


def test_a_refused_launch_is_not_enqueued(driver, stream, memory, subscribe):
    x = memory()
    one, other = subscribe(LAUNCH), subscribe(LAUNCH)
    one.refuse(True)
    with pytest.raises(driver.Error, match="refused by a test"):
        driver.append(stream, x.address, 1)
    with pytest.raises(driver.Error, match="refused by a test"):
        driver.memset(x.address, 1, 64, stream)
    assert stream.tickets() == (0, 0)
    one.refuse(False)
    driver.append(stream, x.address, 1)
    stream.synchronize()
    assert stream.tickets() == (1, 1) and len(other.take()) == 3


def test_an_end_waits_for_the_callback(driver, stream, memory, subscribe, until):
    x = memory()
    one = subscribe(BEGIN)
    one.stay(True)
    driver.append(stream, x.address, 1)
    until(lambda: one.inside)
    ended = threading.Event()

    def end():
        one.end()
        ended.set()

    thread = threading.Thread(target=end)
    thread.start()
    assert not ended.wait(0.1)
    one.stay(False)
    thread.join()
    assert ended.is_set() and len(one.take()) == 1
    driver.append(stream, x.address, 1)
    stream.synchronize()
    assert one.take() == []


def test_waits_and_what_the_host_knows(driver, stream, memory, subscribe):
    x, other, event = memory(), driver.Stream(0), driver.Event()
    one = subscribe(WAIT, COMPLETE)
    driver.append(stream, x.address, 1)
    event.record(stream)  # ticket 2
    other.wait_event(event)
    assert one.take() == [(WAIT, 0, 0, "", 2, 0, 0)]
    stream.wait_event(event)  # its own: nothing to wait for
    assert one.take() == []
    stream.synchronize()
    event.synchronize()
    assert event.query() and stream.query()
    assert one.take() == [(COMPLETE, 0, 2, "", 0, 0, 0)] * 4
    driver.device_synchronize(0)
    assert (COMPLETE, 0, 2, "", 0, 0, 0) in one.take()
    other.destroy()
    event.destroy()


def test_a_blocking_launch_tells_the_host_nothing(driver, stream, memory, subscribe):
    """The program has not asked to wait."""
    x = memory()
    one = subscribe(COMPLETE)
    driver.set_launch_blocking(True)
    try:
        driver.append(stream, x.address, 1)
    finally:
        driver.set_launch_blocking(False)
    assert one.take() == []


def test_unfinished_work_is_not_known(driver, stream, hold, subscribe):
    one, event = subscribe(COMPLETE), driver.Event()
    held = hold(stream)
    event.record(stream)
    assert not stream.query() and not event.query() and one.take() == []
    held.release()
    stream.synchronize()
    assert len(one.take()) == 1
    event.destroy()


def test_a_graph(driver, stream, memory, subscribe):
    x = memory()
    one = subscribe(CAPTURE, NODE, LAUNCH)
    stream.begin_capture()
    driver.append(stream, x.address, 1)
    driver.append(stream, x.address, 2)
    graph = stream.end_capture()
    assert [event[0] for event in one.take()] == [LAUNCH, CAPTURE, LAUNCH, CAPTURE]
    run = graph.instantiate()
    ticket = run.launch(stream)
    told = [(phase, told, name) for phase, _, told, name, *_ in one.take()]
    assert told == [
        (LAUNCH, 0, "append"),
        (LAUNCH, 0, "append"),
        (LAUNCH, 0, "graph_launch"),
        (NODE, ticket, "append"),
        (NODE, ticket, "append"),
    ]
    one.refuse(True)
    before = stream.tickets()[0]
    with pytest.raises(driver.Error, match="refused by a test"):
        run.launch(stream)
    assert stream.tickets()[0] == before
    stream.synchronize()
    run.destroy()
    graph.destroy()


def test_memory(driver, subscribe):
    one = subscribe(ALLOCATE, RELEASE)
    address = driver.malloc(0, 1000)
    driver.trace_note(ALLOCATE, address, 512)
    driver.free(address)
    pinned = driver.host_alloc(4096)
    driver.host_free(pinned)
    first, second, third = one.take()
    assert (first[0], first[5], first[6]) == (ALLOCATE, address, 512)
    assert (second[0], second[5]) == (RELEASE, address) and second[6] >= 1000
    assert (third[0], third[5]) == (RELEASE, pinned) and third[6] >= 4096
