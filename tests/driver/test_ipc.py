"""Memory between processes, both ends in one process: an import has an address of its own and the same bytes."""

import os
import socket

import numpy as np
import pytest
from expecttest import assert_expected_inline

import build

MIB = 1 << 20
DEVICE = 1


@pytest.fixture
def exported(driver):
    """``exported(address, bytes)`` -> (export, descriptor)."""
    made = []

    def export(address, size):
        result, file = driver.ipc_export(address, size)
        made.append(result)
        return result, file

    yield export
    for one in made:
        one.destroy()


def on_host(driver, address, size):
    return driver.array_over(address + driver.address_map()["offset"], size)


def unmapped(address):
    """Whether no memory file is mapped at a host address."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            first, last = (int(bound, 16) for bound in line.split()[0].split("-"))
            if first <= address < last:
                return "memfd" not in line
    return True


def test_an_import_is_the_same_memory_at_another_address(driver, stream, memory, exported):
    x = memory(4 * MIB)
    part = x.address + 3 * 512  # not at the start of a page
    export, file = exported(part, 5000)
    assert export.state() == "pending"
    address, size = driver.ipc_import(file, stream)
    assert export.state() == "held" and size == 5000
    assert address != part and address % 4096 == part % 4096
    attributes = driver.attributes(address)
    assert (attributes["kind"], attributes["device"], attributes["live"]) == (DEVICE, 0, 1)
    source = np.arange(1250, dtype=np.float32)
    driver.memcpy(address, source.ctypes.data, source.nbytes, stream)
    stream.synchronize()
    np.testing.assert_array_equal(x.array[1536 : 1536 + 5000].view("f4"), source)
    driver.fill(stream, part, 1250, 2.5)
    stream.synchronize()
    np.testing.assert_array_equal(on_host(driver, address, 5000).view("f4"), 2.5)
    driver.ipc_free(address)
    assert export.state() == "released"
    assert driver.attributes(address)["device"] == -1
    assert x.array[1536:1540].view("f4")[0] == 2.5


def test_an_import_waits_for_what_the_exporter_had_queued(driver, memory, exported, hold):
    mine, other, theirs = driver.Stream(0), driver.Stream(0), driver.Stream(0)
    x, y = memory(), memory()
    held = [hold(mine), hold(other)]
    driver.fill(mine, x.address, 10, 3.0)
    _export, file = exported(x.address, 4096)
    late = hold(mine)  # after the export: not waited for
    address, _ = driver.ipc_import(file, theirs)
    driver.memcpy(y.address, address, 40, theirs)
    assert not theirs.query()
    held[0].release()
    assert not theirs.query() and not y.array.any()  # the other stream was busy too
    held[1].release()
    theirs.synchronize()
    np.testing.assert_array_equal(y.view("f4")[:10], 3.0)
    assert not mine.query()
    late.release()
    driver.ipc_free(address)


def test_an_import_stays_until_queued_work_on_any_device_is_done(driver, memory, exported, hold):
    near, far = driver.Stream(0), driver.Stream(1)
    x, y = memory(), memory(device=1)
    driver.fill(near, x.address, 10, 4.0)
    near.synchronize()
    export, file = exported(x.address, 4096)
    address, _ = driver.ipc_import(file, near)
    held = hold(far)
    driver.memcpy(y.address, address, 40, far)
    driver.ipc_free(address)
    host = address + driver.address_map()["offset"]
    assert export.state() == "held" and not unmapped(host)
    held.release()
    far.synchronize()
    np.testing.assert_array_equal(y.view("f4")[:10], 4.0)


def test_the_last_stream_lets_go(driver, memory, exported, hold, until):
    stream = driver.Stream(0)
    export, file = exported(memory().address, 4096)
    address, _ = driver.ipc_import(file, stream)
    held = hold(stream)
    driver.ipc_free(address)
    assert export.state() == "held"
    held.release()
    until(lambda: export.state() == "released")
    assert unmapped(address + driver.address_map()["offset"])


def test_another_import_of_memory_that_is_here_only_waits(driver, memory, exported, hold, until):
    mine, theirs = driver.Stream(0), driver.Stream(0)
    held = hold(mine)
    export, file = exported(memory().address, 4096)
    driver.ipc_import_again(file, theirs)
    assert not theirs.query() and export.state() == "pending"
    held.release()
    theirs.synchronize()
    until(lambda: export.state() == "released")


def test_an_unused_descriptor_that_is_closed_releases(driver, memory, exported):
    export, file = exported(memory().address, 4096)
    os.close(file)
    assert export.state() == "released"


def test_what_cannot_be_shared(driver, stream, memory, exported):
    x = memory()
    _export, file = exported(x.address, 4096)
    address, _ = driver.ipc_import(file, stream)
    texts = []
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.send(b"something else")
    read = ours.detach()
    for call in (
        lambda: driver.ipc_export(address, 100),
        lambda: driver.ipc_export(x.address, 0),
        lambda: driver.ipc_export(x.array.ctypes.data, 100),
        lambda: driver.ipc_export(x.address, 65 * MIB),
        lambda: driver.ipc_import(read, stream),
        lambda: driver.ipc_free(address + 512),
        lambda: driver.free(address),
        lambda: driver.block_set(address, 512, 0, 1),
    ):
        with pytest.raises(driver.Error) as error:
            call()
        texts.append(" ".join(error.value.args).replace(f"{address:#x}", "ADDRESS"))
    assert_expected_inline(
        "\n".join(texts),
        """\
NotSupported accel: memory received from another process cannot be shared again; share a copy
InvalidValue accel: accelIpcExportCreate: a result pointer is null or the size is 0
InvalidValue accel: accelIpcExportCreate: the range is not all in the memory of one device
InvalidValue accel: accelIpcExportCreate: the range is not all in the memory of one device
InvalidValue accel: accelIpcImport: the descriptor is not one of accelIpcExportCreate's
InvalidValue accel: accelIpcFree: the address is not one of accelIpcImport's
InvalidValue accel: accelFree: ADDRESS is not device memory
InvalidValue accel: accelBlockSet: not a 512-byte aligned address of device memory""",
    )
    with pytest.raises(OSError):
        os.close(read)  # taken, also in vain
    driver.ipc_free(address)


def test_the_room_for_imports_is_given_back(driver, stream, memory, exported):
    x = memory()
    addresses = set()
    for _ in range(5):
        _export, file = exported(x.address, MIB)
        address, _ = driver.ipc_import(file, stream)
        driver.ipc_free(address)
        addresses.add(address)
    assert len(addresses) == 1


def test_a_fault_in_an_import_says_so(process):
    done = process(
        """
        d.init()
        d.install_fault_handler()
        export, file = d.ipc_export(d.malloc(0, 4096), 4096)
        address, size = d.ipc_import(file, d.Stream(0))
        d.dereference(address + 5)
        """
    )
    assert "(byte 5 of a live 4096-byte block at" in done.stderr and ", shared by another process)." in done.stderr


@pytest.mark.parametrize("rule", ["kept", pytest.param("planted", marks=pytest.mark.full)])
def test_a_forked_child_holds_nothing(process, tmp_path, rule):
    """An importer that is killed lets go, although its forked child lives on with copies of its descriptors."""
    module = None
    if rule == "planted":
        copy = build.planted_copy(
            tmp_path,
            "ipc.cpp",
            {"    os::close_file(file);\n  }\n  open_sockets()": "  (void)file;  }\n  open_sockets()"},
        )
        module = build.build_module(copy)
    done = process(
        """
        import array, os, signal, socket
        mine, theirs = socket.socketpair()
        importer = os.fork()
        if importer == 0:
            mine.close()
            d.init()
            _, control, _, _ = theirs.recvmsg(1, socket.CMSG_SPACE(4))
            file = array.array("i", control[0][2])[0]
            d.ipc_import(file, d.Stream(0))
            child = os.fork()
            if child == 0:
                theirs.send(str(os.getpid()).encode())  # after what a fork does in the child
            signal.pause()
        theirs.close()
        d.init()
        export, file = d.ipc_export(d.malloc(0, 4096), 4096)
        socket.send_fds(mine, [b"x"], [file])
        os.close(file)
        child = int(mine.recv(20))
        assert export.state() == "held"
        os.kill(importer, signal.SIGKILL)
        os.waitpid(importer, 0)
        print(export.state())
        os.kill(child, signal.SIGKILL)
        """,
        **({"module": module} if module else {}),
    )
    assert done.stderr == ""
    assert done.stdout == {"kept": "released\n", "planted": "held\n"}[rule]
