"""The short way to a launch that Triton has prepared before: when it is taken, and when it is not."""

import gc

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.driver import driver

pytestmark = pytest.mark.usefixtures("accel")


@pytest.fixture
def runs(monkeypatch):
    """What went Triton's way: the list of its calls' options."""
    seen = []
    usual = triton.runtime.jit.JITFunction.run

    def run(self, *args, **options):
        seen.append(options)
        return usual(self, *args, **options)

    monkeypatch.setattr(triton.runtime.jit.JITFunction, "run", run)
    return seen


@pytest.fixture
def fresh():
    """A function that was never launched."""

    @triton.jit
    def scale_kernel(x, out, factor, n, B: tl.constexpr = 16):
        i = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(out + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)

    return scale_kernel


def test_a_launch_as_before_takes_the_short_way(fresh, runs):
    x, out = torch.arange(64.0, device="accel"), torch.zeros(64, device="accel")
    for factor in (2.0, 3.0, 4.0, 5.0):
        fresh[(4,)](x, out, factor, 64)
        assert torch.equal(out.cpu(), torch.arange(64.0) * factor)
    ways = len(runs)
    assert ways <= 2  # the source has no hash before the first
    kernel = fresh[lambda meta: (64 // meta["B"],)](x, out, n=64, factor=6.0)
    assert torch.equal(out.cpu(), torch.arange(64.0) * 6)
    assert kernel.asm["tile"].startswith("func @scale_kernel(")
    assert len(runs) == ways


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"x": torch.arange(64)}, torch.arange(64.0) * 2),  # dtype
        ({"x": torch.arange(65.0), "first": 1}, torch.arange(1.0, 65.0) * 2),  # alignment
        ({"n": 1}, torch.arange(64.0) * torch.tensor([2.0] + [0.0] * 63)),  # a constant
        ({"n": 63}, torch.arange(64.0) * torch.tensor([2.0] * 63 + [0.0])),  # no multiple of 16
        ({"factor": 2}, torch.arange(64.0) * 2),  # an integer
        ({"B": 32}, torch.arange(64.0) * 2),
        ({"num_warps": 8}, torch.arange(64.0) * 2),
    ],
)
def test_what_is_specialised_on_goes_another_way(fresh, runs, change, expected):
    x = torch.arange(64.0, device="accel")
    for _ in range(3):
        fresh[(4,)](x, torch.empty_like(x), 2.0, 64)
    runs.clear()
    out = torch.zeros(64, device="accel")
    arguments = {"x": x, "out": out, "factor": 2.0, "n": 64, **change}
    first = arguments.pop("first", 0)
    arguments["x"] = arguments["x"].to("accel")[first:]
    fresh[(4,)](**arguments)
    assert torch.equal(out.cpu(), expected)
    assert len(runs) == 1
    fresh[(4,)](**arguments)
    assert len(runs) == 1


FACTOR = tl.constexpr(2)


@triton.jit
def global_kernel(out):
    tl.store(out, FACTOR)


def test_whoever_watches_or_changes_a_launch_is_asked(fresh, runs, monkeypatch):
    x = torch.arange(16.0, device="accel")

    def launch():
        fresh[(1,)](x, x, 1.0, 16)
        return len(runs)

    launch(), launch()
    before = launch()
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(triton.knobs.runtime, "launch_enter_hook", seen.append)
        assert launch() == before + 1 and len(seen) == 1
    triton.knobs.runtime.launch_exit_hook.add(seen.append)
    try:
        launch()
    finally:
        triton.knobs.runtime.launch_exit_hook.remove(seen.append)
    assert len(seen) == 2
    fresh.add_pre_run_hook(lambda *args, **options: seen.append(args))
    launch()
    assert len(seen) == 3


def test_a_changed_global_is_an_error(runs):
    out = torch.zeros(1, device="accel", dtype=torch.int32)
    for _ in range(3):
        global_kernel[(1,)](out)
    assert out.item() == 2
    globals()["FACTOR"] = tl.constexpr(3)
    try:
        with pytest.raises(RuntimeError, match="Global variable FACTOR has changed"):
            global_kernel[(1,)](out)
    finally:
        globals()["FACTOR"] = tl.constexpr(2)


def test_errors_are_the_same_on_the_short_way(fresh):
    x = torch.arange(16.0, device="accel")
    for _ in range(3):
        fresh[(1,)](x, x, 1.0, 16)
    with pytest.raises(ValueError, match="argument 'out' of kernel 'scale_kernel' is a tensor on cpu"):
        fresh[(1,)](x, x.cpu(), 1.0, 16)
    with pytest.raises(TypeError):
        fresh[(1,)](x, x, 1.0)
    with pytest.raises(TypeError):
        fresh[(1,)](x, x, 1.0, 16, n=16)
    with pytest.raises(ValueError, match="has a size that is not in 0"):
        fresh[(-1,)](x, x, 1.0, 16)


def test_functions_are_not_kept_alive(fresh):
    x = torch.arange(16.0, device="accel")
    for _ in range(3):
        fresh[(1,)](x, x, 1.0, 16)
    assert len(gc.get_referrers(fresh.__dict__["_accel_launches"])) == 1  # the function's own dictionary


def test_the_short_way_is_for_this_driver_only(fresh, runs):
    x = torch.arange(16.0, device="accel")
    for _ in range(3):
        fresh[(1,)](x, x, 1.0, 16)
    count = len(runs)

    class Other:  # does the same, but who is to know
        def __init__(self, same):
            self.same = same

        def __getattr__(self, name):
            return getattr(self.same, name)

    driver.set_active(Other(driver.active))
    fresh[(1,)](x, x, 1.0, 16)
    assert len(runs) == count + 1
