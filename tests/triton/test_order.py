"""The order in which programs are claimed, and loops that wait for programs that do not come."""

import re

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from expecttest import assert_expected_inline

from tests.conftest import ROOT
from torch_accel.triton import frontend
from torch_accel.triton.analysis.polling import polls
from torch_accel.triton.ir.core import IRError

ORDERS = ("ascending", "reverse", "shuffled")


@triton.jit
def arrive(count, out):
    place = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
    tl.store(out + tl.atomic_add(count, 1), place)


@pytest.fixture
def one_core():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def claimed(grid, order):
    programs = int(np.prod(grid))
    out = torch.full((programs,), -1, dtype=torch.int32, device="accel")
    arrive[grid](torch.zeros(1, dtype=torch.int32, device="accel"), out, order=order)
    return out.tolist()


@pytest.mark.parametrize("grid", [(1,), (2,), (5,), (64,), (65,), (1000,), (3, 5, 7)])
def test_each_program_once_in_the_order(accel, one_core, grid):
    ascending = list(range(int(np.prod(grid))))
    assert claimed(grid, "ascending") == ascending
    assert claimed(grid, "reverse") == ascending[::-1]
    shuffled = [claimed(grid, "shuffled") for _ in range(3)]
    assert all(sorted(one) == ascending for one in shuffled)
    if len(ascending) > 60:
        assert len({tuple(one) for one in (*shuffled, ascending, ascending[::-1])}) == 5
        steps = np.diff(shuffled[0])
        assert len(np.unique(steps)) > 20  # no row of equal steps


@triton.jit
def total(x, out, K: tl.constexpr):
    k = tl.program_id(0)
    tl.store(out, tl.sum(tl.load(x + k * K + tl.arange(0, K)), 0) + (tl.load(out) if k > 0 else 0))


def test_a_kernel_that_needs_the_order_is_shown_up(accel, one_core, monkeypatch):
    x = torch.arange(32, dtype=torch.int32, device="accel")
    sums = {}
    for order in ORDERS:
        monkeypatch.setenv("TRITON_ACCEL_ORDER", order)
        out = torch.zeros(1, dtype=torch.int32, device="accel")
        total[(4,)](x, out, K=8, num_stages=ORDERS.index(order) + 1)  # another kernel: it is read when one is compiled
        sums[order] = out.item()
    assert sums["ascending"] == 496 and sums["reverse"] != 496


@triton.jit
def by_atomic(flag):
    while tl.atomic_cas(flag, 1, 1) != 1:
        pass


@triton.jit
def by_volatile(flag, n):
    while (tl.load(flag, volatile=True) != 1) & (n > 0):
        n -= 1


@triton.jit(noinline=True)
def _look(flag):
    return tl.atomic_add(flag, 0)


@triton.jit
def by_call(flag):
    while _look(flag) != 1:
        pass


@triton.jit
def search(x, out, n):
    low = 0
    while low < n:
        middle = (low + n) // 2
        if tl.load(x + middle) < 7:
            low = middle + 1
        else:
            n = middle
    tl.store(out, low)


WAITING = (by_atomic, by_volatile, by_call)


@pytest.mark.parametrize("kernel", [*WAITING, search])
def test_which_loops_wait(kernel):
    types = {"flag": "*i32", "x": "*i32", "out": "*i32", "n": "i32"}
    module = frontend.tile_ir(kernel, {name: types[name] for name in kernel.arg_names})
    assert any(map(polls, module.walk())) == (kernel in WAITING)


def test_an_order_in_which_a_program_would_wait_for_ever_is_refused(accel):
    flag = torch.ones(1, dtype=torch.int32, device="accel")
    by_atomic[(4,)](flag)
    torch.accel.synchronize()
    for order in ("reverse", "shuffled"):
        with pytest.raises(IRError) as raised:
            by_atomic[(4,)](flag, order=order)
    assert_expected_inline(
        re.sub(r"\(\S*test_order.py:\d+:\d+\)", "(test_order.py)", str(raised.value)),
        """accel: order is 'shuffled', and this loop may wait for another program, which comes first only in ascending order; launch this kernel with order='ascending' (test_order.py)""",
    )


def test_unknown_orders_are_refused(accel, monkeypatch):
    flag = torch.ones(1, dtype=torch.int32, device="accel")
    with pytest.raises(ValueError, match="accel: order is 'random', expected ascending, reverse or shuffled"):
        by_atomic[(4,)](flag, order="random")
    monkeypatch.setenv("TRITON_ACCEL_ORDER", "random")
    with pytest.raises(ValueError, match="accel: TRITON_ACCEL_ORDER is 'random', expected"):
        by_atomic[(4,)](flag, num_stages=1)


@triton.jit
def wait_for_the_last(flags):
    tl.atomic_xchg(flags + tl.program_id(0), 1)
    while tl.atomic_add(flags + tl.num_programs(0) - 1, 0) == 0:
        pass


BEGIN = """
    import torch, torch_accel, triton
    from triton.backends import Backend, backends
    from _torch_accel_triton.compiler import AccelBackend
    from triton.runtime.driver import driver
    from _torch_accel_triton.driver import AccelDriver
    backends["accel"] = Backend(AccelBackend, AccelDriver)
    driver.set_active(AccelDriver())
"""


def test_a_loop_that_waits_in_vain_is_reported_at_its_line(script, cache):
    source = """
    from tests.triton.test_order import wait_for_the_last
    flags = torch.zeros(3, dtype=torch.int32, device="accel")
    wait_for_the_last[(3,)](flags)
    try:
        torch.accel.synchronize()
    except torch.AcceleratorError as error:
        print(str(error).splitlines()[0].replace("program (1", "program (0"))  # or the other one
    print(flags.tolist())
    """
    environment = {
        "ACCEL_CORES": 2,
        "ACCEL_WATCHDOG_S": 1,
        "OMP_NUM_THREADS": 2,
        "TRITON_CACHE_DIR": cache,
        "PYTHONPATH": ROOT,
    }
    assert_expected_inline(
        re.sub(r"\S*/test_order.py:\d+", "test_order.py", script(BEGIN + source, **environment).stdout),
        """\
accel kernel failed: wait_for_the_last: accel: program (0, 0, 0) at test_order.py: this loop waits, and no program of the grid has ended for 1 s; let a program wait for earlier ones only, launch with launch_cooperative_grid=True, or raise ACCEL_WATCHDOG_S
[1, 1, 0]
""",
    )


@pytest.mark.full
def test_what_counts_as_progress(script):
    """A waiting loop's time begins anew with each program that ends, and with each loop."""
    source = """
    import ctypes, threading, time
    from tests.triton.codegen.native import WAIT
    from torch_accel._native import _C
    from torch_accel.triton.codegen.context import Context

    said, waiting, ended = [], threading.Event(), threading.Event()

    def program(context, arguments):
        context = ctypes.cast(context, ctypes.POINTER(Context)).contents
        if context.program[0] == 1:
            waiting.wait()
            return 0
        if context.program[0] == 2:  # the core that ran 1 comes here
            ended.set()
            return 0
        wait = WAIT(context.wait)

        def turn(number, seconds=0):
            time.sleep(seconds)
            said.append(wait(ctypes.addressof(context), 0, number))

        turn(101)
        waiting.set()
        ended.wait()
        turn(102, 1.1)  # others ended meanwhile
        turn(101, 1.1)  # another loop
        turn(102)
        turn(103, 1.1)
        return 1

    callback = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(program)
    torch.zeros(1, device="accel")
    address = ctypes.cast(callback, ctypes.c_void_p).value
    kernel = _C._load_grid_kernel("k", address, 0, callback, 0, ["k.py:7"], [], False, 0)
    kernel.launch(3, 1, 1, _C._current_stream_handle(-1), False, ())
    try:
        torch.accel.synchronize()
    except torch.AcceleratorError as error:
        print(str(error).splitlines()[0])
    print(said)
    """
    environment = {"ACCEL_CORES": 2, "ACCEL_WATCHDOG_S": 1, "OMP_NUM_THREADS": 2, "PYTHONPATH": ROOT}
    assert_expected_inline(
        script(BEGIN + source, **environment).stdout,
        """\
accel kernel failed: k: accel: program (0, 0, 0) at k.py:7: this loop waits, and no program of the grid has ended for 1 s; let a program wait for earlier ones only, launch with launch_cooperative_grid=True, or raise ACCEL_WATCHDOG_S
[0, 0, 0, 0, 1]
""",
    )
