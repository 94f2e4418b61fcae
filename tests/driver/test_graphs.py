"""Capture keeps launches as nodes; a launch of the graph runs them in order, as often as it is asked."""

import threading

import numpy as np
import pytest

GLOBAL, THREAD_LOCAL, RELAXED = range(3)
NONE, ACTIVE, INVALIDATED = range(3)


@pytest.fixture
def other(driver):
    made = driver.Stream(0)
    yield made
    made.destroy()


def captured(stream, enqueue):
    """The graph of what ``enqueue()`` enqueues while ``stream`` captures."""
    stream.begin_capture()
    enqueue()
    return stream.end_capture()


def join(driver, source, target):
    """Makes ``target`` wait for what ``source`` has."""
    event = driver.Event()
    event.record(source)
    target.wait_event(event)
    event.destroy()


def values(memory):
    """The list that driver.append wrote."""
    words = memory.view("u4")
    return list(words[1 : 1 + words[0]])


def test_captured_work_does_not_run(driver, stream, memory):
    x = memory()
    before = stream.tickets()
    graph = captured(stream, lambda: driver.append(stream, x.address, 1))
    assert stream.tickets() == before
    stream.synchronize()
    assert values(x) == []
    graph.destroy()


def test_every_launch_runs_all_nodes_in_order(driver, stream, other, memory):
    x = memory()

    def three():
        for value in (1, 2, 3):
            driver.append(stream, x.address, value)

    graph = captured(stream, three)
    assert graph.nodes() == [("append", []), ("append", [0]), ("append", [1])]
    exec = graph.instantiate()
    graph.destroy()  # what was instantiated lives on
    exec.launch(stream)
    exec.launch(other)
    exec.launch(stream)
    exec.synchronize()
    assert values(x) == [1, 2, 3] * 3
    exec.destroy()


def test_a_launch_is_one_ticket(driver, stream, memory):
    x = memory()
    graph = captured(stream, lambda: [driver.append(stream, x.address, i) for i in range(10)])
    exec = graph.instantiate()
    assert exec.launch(stream) == 1
    stream.synchronize()
    assert stream.tickets() == (1, 1)
    exec.destroy()
    graph.destroy()


def test_pageable_sources_are_captured_by_value(driver, stream, memory):
    x = memory()
    source = np.arange(8, dtype="u4")
    graph = captured(stream, lambda: driver.memcpy(x.address, source.ctypes.data, 32, stream))
    source[:] = 0
    exec = graph.instantiate()
    exec.launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(x.view("u4")[:8], np.arange(8))
    exec.destroy()
    graph.destroy()


def test_payloads_live_until_the_last_launch_has_run(driver, stream, memory, hold):
    x = memory()
    destroyed = driver.destroyed()
    graph = captured(stream, lambda: driver.checksum(stream, "ab" * 200_000, x.address))
    exec = graph.instantiate()
    held = hold(stream)
    exec.launch(stream)
    graph.destroy()
    exec.destroy()
    assert driver.destroyed() == destroyed
    held.release()
    stream.synchronize()
    assert x.view("u8")[0] == 200_000 * (ord("a") + ord("b"))
    assert driver.destroyed() == destroyed + 1


def test_a_cancelled_launch_is_no_node(driver, stream, memory):
    x = memory()
    destroyed = driver.destroyed()
    graph = captured(stream, lambda: driver.checksum(stream, "abc", x.address, cancel=True))
    assert graph.nodes() == []
    graph.destroy()
    assert driver.destroyed() == destroyed


def test_a_forked_stream_joins_the_capture(driver, stream, other, memory):
    x, y = memory(), memory()

    def fork():
        driver.append(stream, x.address, 1)
        join(driver, stream, other)
        assert other.capture_info() == stream.capture_info()
        driver.append(other, y.address, 2)
        driver.append(stream, x.address, 3)
        join(driver, other, stream)
        driver.append(stream, x.address, 4)

    graph = captured(stream, fork)
    assert graph.nodes() == [("append", []), ("append", [0]), ("append", [0]), ("append", [2, 1])]
    assert other.capture_info() == (NONE, 0)
    exec = graph.instantiate()
    exec.launch(stream)
    stream.synchronize()
    assert (values(x), values(y)) == ([1, 3, 4], [2])
    driver.append(other, y.address, 5)  # runs: its capture has ended
    other.synchronize()
    assert values(y) == [2, 5]
    exec.destroy()
    graph.destroy()


def test_a_fork_without_a_join_is_an_error(driver, stream, other, memory):
    x = memory()
    stream.begin_capture()
    driver.append(stream, x.address, 1)
    join(driver, stream, other)
    driver.append(other, x.address, 2)
    with pytest.raises(driver.Error, match="not joined back"):
        stream.end_capture()
    for one in (stream, other):
        assert one.capture_info() == (NONE, 0)
        one.synchronize()
    assert values(x) == []


def test_a_fork_that_does_nothing_needs_no_join(driver, stream, other, memory):
    x = memory()

    def fork():
        driver.append(stream, x.address, 1)
        join(driver, stream, other)

    captured(stream, fork).destroy()
    assert other.capture_info() == (NONE, 0)


def test_launches_of_a_graph_wait_for_each_other(driver, stream, other, memory, hold):
    x = memory()
    graph = captured(stream, lambda: driver.append(stream, x.address, 1))
    exec = graph.instantiate()
    held = hold(stream)
    driver.append(stream, x.address, 0)
    exec.launch(stream)
    exec.launch(other)
    assert other.tickets()[0] == 2  # behind the launch on the held stream
    assert not other.query()
    held.release()
    other.synchronize()
    assert values(x) == [0, 1, 1]
    exec.destroy()
    graph.destroy()


def test_words_are_written_before_the_nodes_run(driver, stream, memory, hold):
    word = np.zeros(1, "u8")
    pinned = driver.host_alloc(8)
    x = memory()
    graph = captured(stream, lambda: driver.memcpy(x.address, pinned, 8, stream))
    exec = graph.instantiate()
    held = hold(stream)
    exec.launch(stream, [(pinned, 7), (word.ctypes.data, 1)])
    exec.launch(stream, [(pinned, 9)])
    assert word[0] == 0
    held.release()
    stream.synchronize()
    assert (x.view("u8")[0], word[0]) == (9, 1)
    exec.destroy()
    graph.destroy()
    driver.host_free(pinned)


def test_the_failure_of_a_node_has_its_name(driver, stream, memory):
    x = memory()

    def failing():
        driver.failing(stream, 5, "on purpose")
        driver.append(stream, x.address, 1)

    graph = captured(stream, failing)
    exec = graph.instantiate()
    for turn in (1, 2):
        exec.launch(stream)
        with pytest.raises(driver.Error, match="failing: on purpose"):
            stream.synchronize()
        assert values(x) == [1] * turn  # a stream goes on after a failure
    exec.destroy()
    graph.destroy()


def test_nodes_are_traced_under_the_launch(driver, stream, memory):
    x = memory()
    graph = captured(stream, lambda: [driver.append(stream, x.address, i) for i in range(2)])
    exec = graph.instantiate()
    driver.set_tracer(True)
    driver.take_trace()
    exec.launch(stream)
    stream.synchronize()
    driver.set_tracer(False)
    trace = driver.take_trace()
    assert [(e["phase"], e["name"]) for e in trace] == [
        (0, "graph_launch"),
        (1, "graph_launch"),
        *[(phase, "append") for _ in range(2) for phase in (1, 2)],
        (2, "graph_launch"),
    ]
    assert len({(e["correlation"], e["ticket"]) for e in trace}) == 1
    exec.destroy()
    graph.destroy()


# What waits or asks, and so cannot be captured.
ILLEGAL = {
    "synchronize": lambda driver, stream, memory: stream.synchronize("Tensor.item"),
    "query": lambda driver, stream, memory: stream.query(),
    "device": lambda driver, stream, memory: driver.device_synchronize(0, "Tensor.item"),
    "download": lambda driver, stream, memory: driver.memcpy(
        np.zeros(4).ctypes.data, memory().address, 32, stream, "Tensor.item"
    ),
    "destroy": lambda driver, stream, memory: stream.destroy(),
}


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
@pytest.mark.parametrize("call", ILLEGAL)
def test_a_capturing_stream_cannot_be_waited_for(driver, stream, memory, call, mode):
    x = memory()
    stream.begin_capture(mode)
    driver.append(stream, x.address, 1)
    name = {"query": "accelStreamQuery", "destroy": "accelStreamDestroy"}.get(call, "Tensor.item")
    text = f"{name}: operation not permitted when stream is capturing"
    with pytest.raises(driver.Error, match=text):
        ILLEGAL[call](driver, stream, memory)
    assert stream.capture_info()[0] == INVALIDATED
    with pytest.raises(driver.Error, match="due to a previous error during capture.*" + text):
        driver.append(stream, x.address, 1)
    with pytest.raises(driver.Error, match="due to a previous error during capture.*" + text):
        stream.end_capture()
    assert stream.capture_info() == (NONE, 0)
    driver.append(stream, x.address, 2)  # the stream is as before
    stream.synchronize()
    assert values(x) == [2]


def test_work_from_before_the_capture_may_be_waited_for_in_relaxed_mode(driver, stream, memory):
    """Allocators do, who know the ticket."""
    x = memory()
    ticket = driver.append(stream, x.address, 1)
    stream.begin_capture()
    mode = driver.exchange_capture_mode(RELAXED)
    stream.wait_ticket(ticket)
    driver.exchange_capture_mode(mode)
    assert values(x) == [1]
    with pytest.raises(driver.Error, match="test: operation not permitted while this thread"):
        stream.wait_ticket(ticket)
    with pytest.raises(driver.Error, match="previous error"):
        stream.end_capture()


@pytest.mark.parametrize("call", ["query", "synchronize"])
def test_a_captured_event_cannot_be_waited_for(driver, stream, call):
    event = driver.Event()
    stream.begin_capture(RELAXED)
    event.record(stream)
    with pytest.raises(driver.Error, match="an event last recorded in a capturing stream"):
        getattr(event, call)()
    with pytest.raises(driver.Error, match="previous error"):
        stream.end_capture()
    event.destroy()


def test_dependencies_do_not_cross_the_capture(driver, stream, other):
    outside, inside = driver.Event(), driver.Event()
    outside.record(other)
    stream.begin_capture()
    with pytest.raises(driver.Error, match="recorded outside of the capture"):
        stream.wait_event(outside)
    with pytest.raises(driver.Error, match="previous error"):
        stream.end_capture()

    stream.begin_capture()
    inside.record(stream)
    stream.end_capture().destroy()
    with pytest.raises(driver.Error, match="a capture that has ended"):
        other.wait_event(inside)
    outside.destroy()
    inside.destroy()


def test_captures_do_not_merge(driver, stream, other):
    event = driver.Event()
    stream.begin_capture()
    other.begin_capture()
    event.record(stream)
    with pytest.raises(driver.Error, match="the capture of another stream"):
        other.wait_event(event)
    for one in (stream, other):
        with pytest.raises(driver.Error, match="previous error"):
            one.end_capture()
    event.destroy()


def in_a_thread(call):
    """What ``call()`` raises in another thread, or None."""
    raised = []

    def run():
        try:
            call()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_whom_a_mode_forbids_to_wait(driver, stream, other, mode):
    """Waiting for another stream: forbidden to all threads, to the capturing one, or to none."""
    for own, forbidden in ((True, mode != RELAXED), (False, mode == GLOBAL)):
        stream.begin_capture(mode)
        error = None
        try:
            error = in_a_thread(other.synchronize) if not own else other.synchronize()
        except driver.Error as raised:
            error = raised
        assert (error is not None) == forbidden
        if forbidden:
            with pytest.raises(driver.Error, match="previous error"):
                stream.end_capture()
        else:
            stream.end_capture().destroy()


def test_a_thread_may_relax_its_mode(driver, stream, other):
    stream.begin_capture()
    assert driver.exchange_capture_mode(RELAXED) == GLOBAL
    other.synchronize()
    driver.forbid("anything")
    assert driver.exchange_capture_mode(GLOBAL) == RELAXED
    with pytest.raises(driver.Error, match="anything: operation not permitted while this thread"):
        driver.forbid("anything")
    with pytest.raises(driver.Error, match="previous error"):
        stream.end_capture()


def test_the_thread_that_began_ends(driver, stream):
    stream.begin_capture()
    assert "another thread began" in str(in_a_thread(stream.end_capture))
    stream.end_capture().destroy()
    stream.begin_capture(RELAXED)
    assert in_a_thread(lambda: stream.end_capture().destroy()) is None


def test_out_of_turn(driver, stream, other):
    with pytest.raises(driver.Error, match="not capturing"):
        stream.end_capture()
    stream.begin_capture()
    with pytest.raises(driver.Error, match="capturing already"):
        stream.begin_capture()
    join(driver, stream, other)
    with pytest.raises(driver.Error, match="began on another stream"):
        other.end_capture()
    graph = stream.end_capture()
    exec = graph.instantiate()
    stream.begin_capture()
    with pytest.raises(driver.Error, match="cannot be part of another capture"):
        exec.launch(stream)
    exec.synchronize()  # allowed: nothing captured is waited for
    stream.end_capture().destroy()
    exec.destroy()
    graph.destroy()


def test_a_graph_may_be_launched_on_another_device(driver, stream, memory):
    far = driver.Stream(1)
    x = memory()
    graph = captured(stream, lambda: driver.append(stream, x.address, 1))
    exec = graph.instantiate()
    exec.launch(stream)
    exec.launch(far)
    far.synchronize()
    assert values(x) == [1, 1]
    exec.destroy()
    graph.destroy()
    far.destroy()


def test_a_full_queue_does_not_stop_a_capture(driver, stream, memory):
    """Nodes are not in the stream's ring."""
    x = memory()
    graph = captured(stream, lambda: [driver.checksum(stream, "x" * 10_000, x.address) for _ in range(200)])
    assert len(graph.nodes()) == 200
    graph.destroy()
