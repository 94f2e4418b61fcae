"""Copies between every two kinds of memory, and when they read and write them."""

import itertools

import numpy as np
import pytest


@pytest.fixture
def pinned(driver):
    address = driver.host_alloc(1 << 20)
    yield address, driver.array_over(address, 1 << 20)
    driver.host_free(address)


@pytest.mark.parametrize("size", [4, 1000, 900_000])
def test_a_pageable_source_may_change_right_after_the_call(driver, stream, memory, hold, size):
    x = memory()
    source = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    expected = source.copy()
    held = hold(stream)
    driver.memcpy(x.address, source.ctypes.data, size, stream)
    source[:] = 0
    del source
    held.release()
    stream.synchronize()
    np.testing.assert_array_equal(x.array[:size], expected)


def test_a_pageable_destination_makes_the_call_wait(driver, stream, memory):
    x = memory()
    driver.fill(stream, x.address, 100, 4.0)
    result = np.zeros(100, np.float32)
    stream.sleep(5_000_000)
    waits = driver.waits().get("read", 0)
    driver.memcpy(result.ctypes.data, x.address, 400, stream, "read")
    np.testing.assert_array_equal(result, 4.0)
    assert driver.waits()["read"] == waits + 1


def test_pinned_memory_is_used_in_place(driver, stream, memory, pinned, hold):
    x = memory()
    address, array = pinned
    held = hold(stream)
    driver.memcpy(x.address, address, 1000, stream)
    driver.memcpy(address + 4096, x.address, 1000, stream)
    array[:1000] = 9  # read when the copy's turn comes
    assert not array[4096:5096].any()
    held.release()
    stream.synchronize()
    np.testing.assert_array_equal(x.array[:1000], 9)
    np.testing.assert_array_equal(array[4096:5096], 9)


def test_every_pair(driver, stream, memory, pinned):
    x, y, far = memory(), memory(), memory(device=1)
    local, out = np.arange(100, dtype=np.uint8), np.zeros(100, np.uint8)
    address, _ = pinned
    driver.set_tracer(True)
    driver.take_trace()
    path = [local.ctypes.data, address, x.address, y.address, far.address, x.array.ctypes.data]
    path += [out.ctypes.data]
    for source, target in itertools.pairwise(path):
        driver.memcpy(target, source, 100, stream)
    driver.set_tracer(False)
    np.testing.assert_array_equal(out, local)
    names = [event["name"] for event in driver.take_trace() if event["phase"] == 0]
    assert [name.removeprefix("memcpy_") for name in names] == [
        "h2h", "h2d", "d2d", "p2p", "p2p", "d2h",
    ]  # fmt: skip


def test_overlap_is_a_move(driver, stream, memory):
    x = memory()
    x.array[:1000] = np.arange(1000) % 256
    driver.memcpy(x.address + 1, x.address, 999, stream)
    stream.synchronize()
    np.testing.assert_array_equal(x.array[1:1000], np.arange(999) % 256)


def test_memset(driver, stream, memory, hold):
    x = memory()
    held = hold(stream)
    driver.memset(x.address + 10, 0x1FF, 100, stream)
    assert not x.array.any()
    held.release()
    stream.synchronize()
    assert x.array.sum() == 255 * 100


def test_wrong_arguments(driver, stream, memory):
    x = memory()
    local = np.zeros(10, np.uint8)
    end = driver.address_map()["device_base"] + driver.mem_info(0)[1]
    with pytest.raises(driver.Error, match="neither device nor pinned"):
        driver.memset(local.ctypes.data, 0, 10, stream)
    with pytest.raises(driver.Error, match="not all in the memory of one device"):
        driver.memcpy(local.ctypes.data, end, 10, stream)
    with pytest.raises(driver.Error, match="not all in the memory of one device"):
        driver.memset(x.address, 0, 1 << 40, stream)
    with pytest.raises(driver.Error, match="null"):
        driver.memcpy(0, x.address, 10, stream)
    driver.memcpy(0, 0, 0, stream)
    driver.memset(0, 0, 0, stream)
    assert stream.tickets() == (0, 0)
