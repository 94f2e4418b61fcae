"""Grids: programs claimed in ascending order by the cores, launches that own what they need, faults, aborts.

Concurrency is shown by kernels that wait for one another: they end only if they run at the same time.
"""

import threading

import pytest
from expecttest import assert_expected_inline

CORES = 4  # conftest.py


@pytest.fixture
def module(driver):
    """``module(kernel, **options)``: a module that is unloaded after the test."""
    made = []

    def load(kernel, **options):
        made.append(driver.Module(kernel, **options))
        return made[-1]

    yield load
    for device in range(driver.device_count()):
        driver.device_synchronize(device)
    for one in made:
        one.unload()


def words(memory):
    return memory.view("u4")


def raised(driver, call):
    """(code, text) of the error that ``call`` raises."""
    with pytest.raises(driver.Error) as error:
        call()
    return error.value.args


def test_every_program_runs_once(driver, stream, memory, module):
    log = memory()
    module("record").launch(stream, (5, 3, 2), log.address)
    stream.synchronize()
    count = words(log)[0]
    places = words(log)[1 : 1 + 3 * count].reshape(-1, 3).tolist()
    assert sorted(places) == sorted([x, y, z] for x in range(5) for y in range(3) for z in range(2))


def test_one_core_runs_programs_in_ascending_order(driver, stream, memory, module):
    log = memory()
    module("record").launch(stream, (3, 2, 2), log.address, cores=1)
    stream.synchronize()
    expected = [[x, y, z] for z in range(2) for y in range(2) for x in range(3)]
    assert words(log)[1 : 1 + 3 * 12].reshape(-1, 3).tolist() == expected


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2, 2), (64, 1, 1), (5, 1, 13)])
def test_other_orders_run_every_program_once(driver, stream, memory, module, shape):
    record, logs = module("record"), [memory() for _ in range(3)]
    for log, order in zip(logs, (1, 2, 2)):
        record.launch(stream, shape, log.address, cores=1, order=order)
    stream.synchronize()
    count = shape[0] * shape[1] * shape[2]
    ascending = [[x, y, z] for z in range(shape[2]) for y in range(shape[1]) for x in range(shape[0])]
    reverse, one, other = (words(log)[1 : 1 + 3 * count].reshape(-1, 3).tolist() for log in logs)
    assert reverse == ascending[::-1]
    assert sorted(one) == sorted(other) == sorted(ascending)
    assert count < 60 or len({str(order) for order in (ascending, reverse, one, other)}) == 4
    with pytest.raises(driver.Error, match="the order is none of accelGridAscending"):
        record.launch(stream, shape, logs[0].address, order=3)


@pytest.mark.parametrize("cores", [1, 2, 0])
def test_a_program_may_wait_for_an_earlier_one(driver, stream, memory, module, cores):
    x = memory()
    module("chain").launch(stream, (500, 1, 1), x.address, cores=cores)
    stream.synchronize()
    assert words(x)[0] == 500


@pytest.mark.parametrize("cooperative", [False, True])
def test_all_cores_run_programs_at_the_same_time(driver, stream, memory, module, cooperative):
    x = memory()
    meet = module("meet")
    for _ in range(20):
        words(x)[:2] = 0
        meet.launch(stream, (CORES, 1, 1), x.address, (CORES, 0), cooperative=cooperative)
        stream.synchronize()
        assert words(x)[1] == CORES


def test_cooperative_grids_of_two_streams_do_not_take_cores_from_one_another(driver, memory, module):
    streams = [driver.Stream(0), driver.Stream(0), driver.Stream(1)]
    meet, x = module("meet"), memory()
    together = CORES * len(streams)  # all programs of all three wait for all
    for s in streams:
        meet.launch(s, (CORES, 1, 1), x.address, (together, 0), cooperative=True)
    for s in streams:
        s.synchronize()
        s.destroy()
    assert words(x)[1] == together


@pytest.mark.parametrize("cores", [1, 2])
def test_a_launch_takes_no_more_cores_than_it_asks_for(driver, stream, memory, module, cores):
    x = memory()
    module("overlap").launch(stream, (300, 1, 1), x.address, cores=cores)
    stream.synchronize()
    assert 1 <= words(x)[1] <= cores


def test_a_cooperative_grid_needs_a_core_for_each_program(driver, stream, memory, module):
    meet, x = module("meet"), memory()
    code, text = raised(driver, lambda: meet.launch(stream, (5, 1, 1), x.address, cooperative=True))
    assert code == "InvalidValue"
    assert_expected_inline(
        text,
        """accel: kernel 'meet': a cooperative launch of 5 programs needs a core for each, and the device has 4; launch fewer programs, or raise ACCEL_CORES""",
    )
    assert stream.tickets() == (0, 0)


def test_a_queued_launch_owns_code_and_arguments(driver, stream, memory, hold):
    x, held = memory(), hold(stream)
    before = driver.released()
    add = driver.Module("add")
    add.launch(stream, (8, 1, 1), x.address, (7, 0))  # its argument bytes are zeroed behind it
    add.unload()
    assert driver.released() == before
    held.release()
    stream.synchronize()
    assert words(x)[:9].tolist() == [7] * 8 + [0]
    assert driver.released() == before + 1


def test_a_module_is_released_when_it_is_unloaded(driver):
    before = driver.released()
    driver.Module("add").unload()
    assert driver.released() == before + 1


def test_a_graph_replays_by_value(driver, stream, memory):
    x = memory()
    before = driver.released()
    add = driver.Module("add")
    stream.begin_capture()
    add.launch(stream, (4, 1, 1), x.address, (3, 0))
    graph = stream.end_capture()
    add.unload()
    exec = graph.instantiate()
    assert graph.nodes() == [("add", [])]
    graph.destroy()
    stream.synchronize()
    assert words(x)[:4].tolist() == [0] * 4
    for _ in range(3):
        exec.launch(stream)
    exec.synchronize()
    assert words(x)[:5].tolist() == [9] * 4 + [0]
    assert driver.released() == before
    exec.destroy()
    assert driver.released() == before + 1


def test_a_fault_names_kernel_program_line_and_remedy(driver, stream, memory, module):
    x = memory()
    module("fail_two").launch(stream, (3, 2, 1), x.address, (1000, 4))
    code, text = raised(driver, stream.synchronize)
    assert code == "LaunchFailure"
    assert_expected_inline(
        text,
        """fail_two: accel: program (1, 1, 0) at kernel.py:20: lane 3 of the load; mask the access, or pass a larger tensor""",
    )
    stream.synchronize()  # raised once


def test_the_first_program_that_fails_is_reported(driver, stream, memory, module):
    x = memory()
    # Program 1 waits until program 3, on another core, is about to fail.
    module("fail_two").launch(stream, (4, 1, 1), x.address, (1, 3))
    assert_expected_inline(
        raised(driver, stream.synchronize)[1],
        """fail_two: accel: program (1, 0, 0) at kernel.py:10: n > 0; check what the kernel was launched with""",
    )


def test_no_program_begins_after_a_fault(driver, stream, memory, module):
    x = memory()
    module("fail_two").launch(stream, (1000, 1, 1), x.address, (1000, 5), cores=1)
    raised(driver, stream.synchronize)
    assert words(x)[0] == 6


def test_a_fault_ends_the_programs_that_wait(driver, stream, memory, module):
    x = memory()
    module("fail_beside_a_poll").launch(stream, (2, 1, 1), x.address)
    assert_expected_inline(
        raised(driver, stream.synchronize)[1],
        """fail_beside_a_poll: accel: program (1, 0, 0): the kernel failed; fix the kernel, or what it was launched with""",
    )


def test_launches_after_a_fault_run(driver, stream, memory, module):
    x, y = memory(), memory()
    module("fail_two").launch(stream, (4, 1, 1), x.address, (1000, 0))
    module("add").launch(stream, (4, 1, 1), y.address, (1, 0))
    raised(driver, stream.synchronize)
    assert words(y)[:4].tolist() == [1] * 4


def test_an_abort_ends_a_grid_that_waits(driver, memory, module, until):
    stream = driver.Stream(1)
    x, poll = memory(device=1), module("poll")
    poll.launch(stream, (CORES, 1, 1), x.address)
    poll.launch(stream, (CORES, 1, 1), x.address)  # never begins
    until(lambda: words(x)[0] == CORES)
    driver.reset(1)  # aborts, and waits for what runs
    assert words(x)[0] == CORES
    words(x)[1] = 1
    poll.launch(stream, (CORES, 1, 1), x.address)  # the device is as before
    stream.synchronize()
    assert words(x)[0] == 2 * CORES
    stream.destroy()


def test_an_abort_of_another_device_does_not(driver, stream, memory, module, until):
    x = memory()
    module("poll").launch(stream, (2, 1, 1), x.address)
    until(lambda: words(x)[0] == 2)
    driver.reset(1)
    assert stream.query() is False
    words(x)[1] = 1
    stream.synchronize()


def test_a_grid_without_programs_launches_nothing(driver, stream, memory, module):
    x, add = memory(), module("add")
    for grid in ((0, 1, 1), (4, 0, 1), (4, 4, 0)):
        assert add.launch(stream, grid, x.address) == 0
    assert stream.tickets() == (0, 0)


def test_a_grid_that_is_too_large(driver, stream, memory, module):
    x, add = memory(), module("add")
    assert_expected_inline(
        raised(driver, lambda: add.launch(stream, (65536, 65536, 2), x.address))[1],
        """accel: kernel 'add': a grid of 65536 x 65536 x 2 programs is too large; the most are 2147483647 along an axis and 4294967296 in all: let a program do more""",
    )
    assert "too large" in raised(driver, lambda: add.launch(stream, (1 << 31, 1, 1), x.address))[1]


def test_arguments_of_another_length(driver, stream, module):
    add = module("add", args_bytes=8)
    assert_expected_inline(
        raised(driver, lambda: add.launch(stream, (1, 1, 1), 0))[1],
        """accel: accelLaunchGrid: kernel 'add' takes 8 bytes of arguments; 16 given""",
    )


def test_scratch_memory(driver, stream, memory, module):
    x = memory()
    module("scratch", sram=2 << 20).launch(stream, (1, 1, 1), x.address)
    stream.synchronize()
    size, misaligned, _ = words(x)[:3]
    assert (size, misaligned) == (2 << 20, 0)
    assert size == driver.properties(0)["sram_per_core"]
    code, text = raised(driver, lambda: driver.Module("scratch", sram=(2 << 20) + 1))
    assert code == "OutOfMemory"
    assert_expected_inline(
        text,
        """accel: kernel 'scratch' uses 2097153 bytes of scratch memory, and a core has 2097152; use smaller tiles, or raise ACCEL_SRAM""",
    )


def test_each_core_has_scratch_memory_of_its_own(process):
    done = process(
        """
        d.init()
        x, s = d.malloc(0, 1 << 21), d.Stream(0)
        words = d.array_over(x + d.address_map()["offset"], 1 << 21).view("u4")
        scratch = d.Module("scratch")
        sums = []
        for _ in range(3):  # the worker's own core: filled by the program before
            scratch.launch(s, (1, 1, 1), x)
            s.synchronize()
            sums.append(int(words[2]))
        print(int(words[0]), sums)
        """,
        ACCEL_SRAM="5000",
        ACCEL_CORES="1",
    )
    assert (done.stdout, done.stderr) == ("4096 [0, 4096, 4096]\n", "")


def test_tracing(driver, stream, memory, module):
    x = memory()
    driver.set_tracer(True)
    module("add").launch(stream, (3, 1, 1), x.address, name="a name")
    module("add").launch(stream, (30, 1, 1), x.address)
    stream.synchronize()
    entries = driver.take_trace()
    driver.set_tracer(False)
    phases = [(e["phase"], e["name"], e["cores"]) for e in entries if e["ticket"] == 1]
    assert phases == [(0, "a name", 3), (1, "a name", 3), (2, "a name", 3)]
    assert entries[0]["accesses"] == [(7, x.address, 4096, 3)]
    assert {(e["name"], e["cores"]) for e in entries if e["ticket"] == 2} == {("add", CORES)}


def test_a_blocking_launch_raises_its_fault(driver, stream, memory, module):
    x = memory()
    driver.set_launch_blocking(True)
    try:
        text = raised(driver, lambda: module("fail_two").launch(stream, (1, 1, 1), x.address, (9, 0)))[1]
    finally:
        driver.set_launch_blocking(False)
    assert "program (0, 0, 0) at kernel.py:20" in text


def test_denormals_are_kept_whatever_the_host_does(process):
    """Threads start with the floating-point control of the one that makes them: here the host's, which flushes."""
    done = process(
        """
        if not hasattr(d, "flush_denormals"):
            print([True])  # not this architecture's
            raise SystemExit
        d.init()
        x, s = d.malloc(0, 1 << 21), d.Stream(0)
        denormal = d.Module("denormal")
        d.flush_denormals(True)
        denormal.launch(s, (64, 1, 1), x)
        s.synchronize()
        d.flush_denormals(False)
        words = d.array_over(x + d.address_map()["offset"], 1 << 21).view("u4")
        print(sorted({bool(w == 2 * np.float32(1e-40).view("u4")) for w in words[:64]}))
        """,
        ACCEL_CORES="4",
    )
    assert (done.stdout, done.stderr) == ("[True]\n", "")


def test_streams_share_the_cores(driver, memory, module):
    """Each stream's worker runs programs itself, so that no grid waits for a core."""
    streams = [driver.Stream(0) for _ in range(6)]
    x, poll, add = memory(), module("poll"), module("add")
    for s in streams[:5]:
        poll.launch(s, (64, 1, 1), x.address)
    y = memory()
    add.launch(streams[5], (64, 1, 1), y.address, (5, 0))
    streams[5].synchronize()  # while all cores wait for a word
    assert words(y)[:64].tolist() == [5] * 64
    words(x)[1] = 1
    for s in streams:
        s.synchronize()
        s.destroy()
    assert words(x)[0] == 5 * 64


def test_many_threads_launch(driver, memory, module):
    add, x = module("add"), memory()

    def play():
        s = driver.Stream(0)
        for _ in range(200):
            add.launch(s, (16, 1, 1), x.address, (1, 0))
        s.synchronize()
        s.destroy()

    threads = [threading.Thread(target=play) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert words(x)[:17].tolist() == [800] * 16 + [0]


def test_the_threads_end_with_the_process(process):
    done = process(
        """
        import os, time
        tasks = lambda: len(os.listdir("/proc/self/task"))
        d.init()
        x, s = d.malloc(0, 1 << 21), d.Stream(0)
        meet = d.Module("meet")
        meet.launch(s, (4, 1, 1), x, (4, 0))
        s.synchronize()
        print(tasks() >= 1 + 4)  # this one, the worker, three more
        d.shutdown(10_000)
        while tasks() > 1:  # their last steps
            time.sleep(0.001)
        """,
        ACCEL_CORES="4",
        OMP_NUM_THREADS="1",
        OPENBLAS_NUM_THREADS="1",
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
