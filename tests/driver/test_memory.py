"""Address map, arenas, blocks, pinned memory, and what a host access to device memory says."""

import re

import numpy as np
import pytest

MIB = 1 << 20
HOST, DEVICE, ARENA, PINNED = range(4)


def test_one_constant_separates_the_windows(driver):
    windows = driver.address_map()
    assert windows["host_base"] - windows["device_base"] == windows["offset"]
    for device in range(2):
        address = driver.malloc(device, 100)
        host = driver.arena(device).ctypes.data
        assert 0 <= address + windows["offset"] - host < 64 * MIB
        assert address % (2 * MIB) == 0
        driver.free(address)


def test_the_arena_sees_what_a_copy_wrote(driver, stream, memory):
    x = memory()
    source = np.arange(1000, dtype=np.float32)
    driver.memcpy(x.address, source.ctypes.data, source.nbytes, stream)
    stream.synchronize()
    start = x.address - driver.address_map()["device_base"]
    np.testing.assert_array_equal(driver.arena(0)[start : start + 4000].view("f4"), source)


def test_memory_runs_out_and_comes_back(driver):
    free, total = driver.mem_info(1)
    assert free == total == 64 * MIB
    segments = [driver.malloc(1, 2 * MIB) for _ in range(32)]
    assert driver.mem_info(1) == (0, total)
    with pytest.raises(driver.Error) as error:
        driver.malloc(1, 1)
    assert error.value.args[0] == "OutOfMemory"
    assert "0.00 of 64.00 MiB free" in error.value.args[1]
    # Freed in an order that leaves holes, which merge again.
    for address in segments[::2] + segments[1::2]:
        driver.free(address)
    whole = driver.malloc(1, 64 * MIB)
    driver.free(whole)


def test_a_freed_segment_gives_its_pages_back(driver):
    address = driver.malloc(0, 2 * MIB)
    array = driver.array_over(address + driver.address_map()["offset"], 2 * MIB)
    array[:] = 7
    driver.free(address)
    assert not array.any()


@pytest.mark.parametrize("address", [1, 4096])
def test_freeing_what_is_no_segment(driver, memory, address):
    inside = memory().address + 512
    for wrong in (address, inside):
        with pytest.raises(driver.Error, match="InvalidValue"):
            driver.free(wrong)
    driver.free(0)


def test_zero_bytes_are_refused(driver):
    for call in (lambda: driver.malloc(0, 0), lambda: driver.host_alloc(0)):
        with pytest.raises(driver.Error, match="InvalidValue"):
            call()


def test_attributes(driver, memory):
    x = memory(device=1)
    offset = driver.address_map()["offset"]
    pinned = driver.host_alloc(5000)
    local = np.zeros(4)
    assert driver.attributes(local.ctypes.data)["kind"] == HOST
    assert driver.attributes(pinned + 4999) == {
        **driver.attributes(pinned),
        "kind": PINNED,
        "device": -1,
    }
    driver.block_set(x.address + 1024, 1536, 5, 1)
    block = {"bytes": 1536, "live": 1, "owner": 5, "device": 1}
    device = {**block, "kind": DEVICE, "block": x.address + 1024}
    assert driver.attributes(x.address + 1024) == driver.attributes(x.address + 2559) == device
    arena = {**block, "kind": ARENA, "block": x.address + 1024 + offset}
    assert driver.attributes(x.address + offset + 2000) == arena
    assert driver.attributes(x.address + 2560)["bytes"] == 0
    assert driver.attributes(x.address + 1023)["bytes"] == 0
    driver.block_set(x.address + 1024, 1536, -2, 0)
    freed = driver.attributes(x.address + 1500)
    assert (freed["live"], freed["owner"]) == (0, -2)
    driver.host_free(pinned)


def test_the_block_table_is_the_last_word(driver, memory):
    """Random blocks over random blocks, against an array that holds the truth for each granule."""
    granules = 64 * 64 * 4
    x = memory(granules * 512)
    truth = np.full((granules, 2), -1)  # head, length; a block cut from the front is no block
    generator = np.random.default_rng(0)
    for turn in range(400):
        size = int(2 ** generator.uniform(0, 14))
        head = int(generator.integers(0, granules - size + 1))
        driver.block_set(x.address + 512 * head, 512 * size, turn, 1)
        truth[head : head + size] = (head, size)
        # Blocks that began before and reached in keep their length in the table: skip those.
        cut = truth[:, 0] + truth[:, 1]
        for granule in generator.integers(0, granules, 20):
            first, length = truth[granule]
            later = truth[first + 1 : granule + 1, 0] if first >= 0 else []
            if first < 0 or np.any(later != first) or cut[granule] < granule:
                continue
            found = driver.attributes(x.address + 512 * int(granule) + 100)
            assert (found["block"] - x.address, found["bytes"]) == (512 * first, 512 * length)


def test_wrong_blocks_are_refused(driver, memory):
    x = memory()
    for address, size, owner in [
        (x.address + 8, 512, 0),
        (x.address, 0, 0),
        (x.address, 65 * MIB, 0),
        (x.address, 512, 1 << 30),
        (x.array.ctypes.data, 512, 0),
    ]:
        with pytest.raises(driver.Error, match="InvalidValue"):
            driver.block_set(address, size, owner, 1)


def test_pinned_memory(driver):
    first = driver.host_alloc(10)
    second = driver.host_alloc(MIB)
    assert first % 4096 == second % 4096 == 0
    array = driver.array_over(second, MIB)
    assert not array.any()
    array[:] = 1
    driver.host_free(second)
    again = driver.host_alloc(MIB)
    assert not driver.array_over(again, MIB).any()
    with pytest.raises(driver.Error, match="InvalidValue"):
        driver.host_free(again + 4096)
    for address in (first, again):
        driver.host_free(address)


def test_a_host_access_is_explained_and_faulthandler_follows(process):
    done = process(
        """
        import faulthandler
        faulthandler.enable()
        d.init()
        d.install_fault_handler()
        x = d.malloc(0, 4096)
        d.block_set(x, 512, 3, 1)
        d.dereference(x + 16)
        """
    )
    assert done.returncode == -11
    text = re.sub("0x[0-9a-f]+", "ADDRESS", done.stderr)
    assert text.startswith(
        "torch_accel: host access to accel:0 memory at ADDRESS (byte 16 of a live 512-byte block "
        "at ADDRESS, allocated on stream 3). Device memory cannot be touched by the host: copy it "
        "with tensor.cpu(), or view it with torch.accel.memory.numpy(tensor).\n"
        "Fatal Python error: Segmentation fault\n"
    )
    assert 'File "<string>"' in text


@pytest.mark.parametrize("order", ["before", "twice"])
def test_the_fault_handler_ends_the_process_in_every_order(process, order):
    done = process(
        f"""
        import faulthandler
        d.init()
        d.install_fault_handler()
        faulthandler.enable()
        if {order == "twice"}:
            d.install_fault_handler()
        d.dereference(d.malloc(0, 4096))
        """
    )
    assert done.returncode == -11
    assert ("in no block" in done.stderr) == (order == "twice")
    assert done.stderr.count("Fatal Python error") == 1


def test_other_faults_are_not_ours(process):
    done = process("d.init(); d.install_fault_handler(); d.dereference(8)")
    assert (done.returncode, done.stderr) == (-11, "")
