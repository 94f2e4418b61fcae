"""Fork, abort, shutdown, exit with everything alive."""

import os
import subprocess

import pytest
from expecttest import assert_expected_inline

import build


def test_a_forked_child_can_do_nothing_and_breaks_nothing(process):
    done = process(
        """
        import os, threading
        d.init()
        stream, x, event = d.Stream(), d.malloc(0, 4096), d.Event()
        local = np.zeros(10, "u1")
        stop = threading.Event()

        def enqueue():  # holds the stream's lock now and then while the child is made
            while not stop.is_set():
                d.append(stream, x, 0)
                d.memset(x, 0, 8, stream)

        thread = threading.Thread(target=enqueue)
        thread.start()
        for turn in range(10):
            child = os.fork()
            if child == 0:
                texts = set()
                for call in (
                    lambda: d.init(), lambda: d.malloc(0, 10), lambda: d.free(x), d.Stream,
                    lambda: d.append(stream, x, 1), stream.synchronize, stream.query,
                    lambda: event.record(stream), lambda: d.device_synchronize(0), d.device_count,
                    lambda: d.memcpy(x, local.ctypes.data, 10, stream), lambda: d.host_alloc(10),
                    lambda: d.attributes(x), lambda: d.block_set(x, 512, 0, 1),
                ):
                    try:
                        call()
                        os._exit(1)
                    except d.Error as error:
                        texts.add(error.args)
                event.destroy()
                d.shutdown(1000)
                if not d.in_bad_fork() or d.is_initialized() or len(texts) != 1:
                    os._exit(2)
                if turn == 9:
                    print(*texts.pop(), flush=True)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        thread.join()
        stream.synchronize()
        assert not d.in_bad_fork()
        """
    )
    assert done.stderr == ""
    assert_expected_inline(
        done.stdout,
        """\
Forked Cannot use accel in a forked child process: use the 'spawn' start method
""",
    )


def test_a_child_of_a_process_that_never_initialised_is_free(process):
    done = process(
        """
        import os
        d.device_count()
        child = os.fork()
        if child == 0:
            d.init()
            stream, x = d.Stream(), d.malloc(0, 4096)
            d.fill(stream, x, 4, 1.0)
            stream.synchronize()
            os._exit(int(d.arena(0)[:16].view("f4").sum()))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_child_has_no_device_memory(process):
    done = process(
        """
        import os, sys
        d.init()
        d.install_fault_handler()
        x = d.arena(0)
        child = os.fork()
        if child == 0:
            x[0] = 1
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), x[0])
        """
    )
    assert done.stdout == "-11 0\n"
    assert "accel memory in a forked child process" in done.stderr


@pytest.mark.parametrize("waiter", ["stream.synchronize()", "d.device_synchronize(0)", "fill()"])
def test_abort_ends_waits_and_drops_what_is_queued(process, waiter):
    done = process(
        f"""
        import threading
        d.init()
        stream, other, far = d.Stream(0), d.Stream(0), d.Stream(1)
        x, y = d.malloc(0, 4096), d.malloc(1, 4096)
        stream.wait_value(x, 1)  # nobody writes it
        event = d.Event()
        event.record(stream)
        other.wait_event(event)
        other.sleep(10**12)
        far.wait_event(event)
        d.append(stream, x + 64, 1)
        d.checksum(stream, b"123", x)

        def fill():  # until the ring is full
            while True:
                d.append(stream, x + 64, 1)

        def abort():
            while not any(n for n in d.waits().values()):
                pass
            d.abort(0)

        thread = threading.Thread(target=abort)
        thread.start()
        try:
            {waiter}
        except d.Error as error:
            print(*error.args)
        thread.join()
        for one in (stream, other):
            while not one.query():
                pass
        assert d.arena(0)[64] == 0, "a dropped launch ran"
        assert d.destroyed() == 1
        # The other device goes on; its stream that waited hears why.
        try:
            far.synchronize()
        except d.Error as error:
            print(*error.args)
        d.append(far, y, 3)
        far.synchronize()
        assert d.arena(1)[:8].view("u4").tolist() == [1, 3]
        """,
        ACCEL_DEVICES="2",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert_expected_inline(
        done.stdout,
        """\
Aborted accel: accel:0 was aborted, its queued work is lost; reset it to use it again
Aborted wait_event: the device of the stream waited for was aborted
""",
    )


def test_shutdown_ends_everything(process):
    done = process(
        """
        import os, threading, time
        d.init()
        before = len(os.listdir("/proc/self/task"))
        stream, x = d.Stream(), d.malloc(0, 4096)
        stream.wait_value(x, 1)
        d.checksum(stream, b"1", x)
        outcome = []

        def wait():
            try:
                stream.synchronize("waiter")
            except d.Error as error:
                outcome.append(error.args[0])

        thread = threading.Thread(target=wait)
        thread.start()
        while "waiter" not in d.waits():
            pass
        d.shutdown(5000)
        thread.join()
        assert outcome == ["Aborted"] and d.destroyed() == 1
        for call in (d.Stream, stream.query, lambda: d.malloc(0, 1), d.init, d.device_count):
            try:
                call()
            except d.Error as error:
                print(*error.args)
        d.shutdown(5000)
        deadline = time.monotonic() + 10
        while len(os.listdir("/proc/self/task")) > before and time.monotonic() < deadline:
            time.sleep(0.001)
        assert len(os.listdir("/proc/self/task")) == before
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Aborted accel: the process is shutting down\n" * 5


@pytest.mark.skipif(
    "DRIVER_SANITIZER" in os.environ,
    reason="Python 3.11 ends the waiting daemon thread by pthread_exit, whose unwinding the sanitizers cannot follow",
)
def test_exit_with_everything_alive(process):
    done = process(
        """
        import threading
        d.init()
        streams = [d.Stream(0) for _ in range(5)]
        x, flag = d.malloc(0, 1 << 20), d.malloc(0, 4096)
        event = d.Event(1)
        for stream in streams:
            d.append(stream, x, 1)
            stream.wait_value(flag, 1)
            event.record(stream)
            d.checksum(stream, b"1" * 500_000, x)
        streams[0].sleep(10**13)

        def wait():
            try:
                streams[1].synchronize()
            except d.Error:
                pass

        threading.Thread(target=wait, daemon=True).start()
        d.throwing(streams[2], "never seen")
        """,
        ACCEL_DELAY_US="50",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_init_starts_no_thread(process):
    done = process(
        """
        import os
        before = len(os.listdir("/proc/self/task"))
        d.init()
        print(len(os.listdir("/proc/self/task")) - before)
        """
    )
    assert done.stdout == "0\n"


def test_idle_streams_keep_no_thread(process):
    done = process(
        """
        import os, time
        d.init()
        before = len(os.listdir("/proc/self/task"))
        streams, x = [d.Stream() for _ in range(6)], d.malloc(0, 4096)
        for stream in streams:
            d.append(stream, x, 1)
        deadline = time.monotonic() + 20
        while len(os.listdir("/proc/self/task")) > before and time.monotonic() < deadline:
            time.sleep(0.05)
        print(len(os.listdir("/proc/self/task")) - before)
        d.append(streams[0], x, 1)
        streams[0].synchronize()
        """
    )
    assert (done.stdout, done.stderr, done.returncode) == ("0\n", "", 0)


# Rules of fork and exit taken out of a copy of the driver: the tests above would notice.


@pytest.mark.full
def test_without_the_fork_handler_the_child_acts_as_its_parent(process, tmp_path):
    driver = build.planted_copy(tmp_path, "process.cpp", {"g_state.store(State::kForked);": ""})
    done = process(
        """
        import os
        d.init()
        x = d.malloc(0, 4096)
        child = os.fork()
        if child == 0:
            d.free(x)  # returns pages that its parent uses, instead of refusing
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        module=build.build_module(driver),
    )
    assert done.stdout == "7\n"


@pytest.mark.full
def test_without_the_abort_the_exit_waits_for_a_held_stream(process, tmp_path):
    driver = build.planted_copy(
        tmp_path,
        "process.cpp",
        {"      device->abort();\n": "      (void)device;\n", "kExitDeadline = 2000": "kExitDeadline = 1 << 30"},
    )
    with pytest.raises(subprocess.TimeoutExpired):
        process("d.init(); d.Stream().wait_value(d.malloc(0, 4096), 1)", timeout=5, module=build.build_module(driver))


LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_AS, ({limit} << 30, resource.RLIM_INFINITY))
try:
    d.init()
    print(d.address_map()["window_bytes"] >> 30)
    x = d.malloc(0, 2 << 20)
    print(x >= d.address_map()["device_base"])
except d.Error as error:
    print(error.args[1])
"""


@pytest.mark.skipif("DRIVER_SANITIZER" in os.environ, reason="the sanitizers' own shadows exceed the limits")
@pytest.mark.parametrize(("limit", "window"), [(1000, 256), (300, 64), (80, 16)])
def test_less_address_space_means_smaller_windows(process, limit, window):
    assert process(LIMITED.format(limit=limit)).stdout.split() == [str(window), "True"]


@pytest.mark.skipif("DRIVER_SANITIZER" in os.environ, reason="the sanitizers' own shadows exceed the limits")
def test_too_little_address_space_is_refused(process):
    assert_expected_inline(
        process(LIMITED.format(limit=30)).stdout,
        """\
accel: the system refused 48 GiB of address space for 1 device(s) of 64 MiB; raise the limit (ulimit -v unlimited)
""",
    )
    # 20 GiB fit into no smaller window.
    assert "refused 192 GiB of address space for 1 device(s) of 20480 MiB" in (
        process(LIMITED.format(limit=80), ACCEL_MEMORY="20GiB").stdout
    )
