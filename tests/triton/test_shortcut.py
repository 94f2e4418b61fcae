"""The short way to a launch that Triton has prepared before: when it is taken, and when it is not."""

import gc

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.driver import driver
from triton.tools.tensor_descriptor import TensorDescriptor

from torch_accel.testing import hold_stream
from torch_accel.triton.backend import shortcut

pytestmark = pytest.mark.usefixtures("accel")


@pytest.fixture
def runs(monkeypatch):
    """What went Triton's way: the list of its calls' options."""
    seen = []
    usual = shortcut._TRITONS["run"]

    def run(self, *args, **options):
        seen.append(options)
        return usual(self, *args, **options)

    monkeypatch.setitem(shortcut._TRITONS, "run", run)
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


def test_tuned_kernels_and_heuristics_take_it(fresh, runs):
    reset = []
    configs = [triton.Config({"B": size}, num_warps=warps, pre_hook=reset.append) for size, warps in ((16, 1), (32, 2))]
    tuned = triton.autotune(configs, key=["n"], do_bench=lambda call, quantiles: (call(), [1.0] * 3)[1])(
        triton.heuristics({"factor": lambda named: float(named["n"] // 32)})(fresh)
    )
    x, out = torch.arange(64.0, device="accel"), torch.zeros(64, device="accel")
    grid = lambda meta: (triton.cdiv(64, meta["B"]),)  # noqa: E731
    for _ in range(2):
        tuned[grid](x, out, n=64)
    runs.clear(), reset.clear()
    for _ in range(3):
        out.zero_()
        tuned[grid](x, out, n=64)
        assert torch.equal(out.cpu(), torch.arange(64.0) * 2)
    assert (len(runs), len(reset)) == (0, 3)
    tuned[grid](x, out, n=63)  # tunes anew
    assert len(runs) >= 1 and len(tuned.cache) == 2


def test_run_and_warmup(fresh, runs):
    x, out = torch.arange(64.0, device="accel"), torch.zeros(64, device="accel")
    kernel = fresh.warmup(torch.float32, torch.float32, 2.0, 64, grid=(4,))
    assert runs[-1]["warmup"] is True
    assert fresh.run(x, out, 2.0, 64, grid=(4,), warmup=False) is kernel
    assert torch.equal(out.cpu(), torch.arange(64.0) * 2)
    count = len(runs)
    assert fresh.run(x, out, 3.0, 64, grid=(4,), warmup=False) is kernel
    assert torch.equal(out.cpu(), torch.arange(64.0) * 3)
    assert len(runs) == count


def test_descriptors_take_it(runs):
    @triton.jit
    def copy_kernel(source, target):
        target.store([0, 0], source.load([0, 0]))

    def copy(dtype, block):
        x = torch.arange(32, device="accel").view(4, 8).to(dtype)
        out = torch.zeros_like(x)
        runs.clear()
        copy_kernel[(1,)](*(TensorDescriptor.from_tensor(t, block) for t in (x, out)))
        expected = torch.zeros(4, 8, dtype=dtype)
        expected[: block[0], : block[1]] = x[: block[0], : block[1]].cpu()
        assert torch.equal(out.cpu(), expected)
        return len(runs)

    copy(torch.float32, [4, 8])
    assert [copy(torch.float32, [4, 8]) for _ in range(3)][1:] == [0, 0]
    assert [copy(torch.float32, [2, 8]) for _ in range(2)] == [1, 0]
    assert [copy(torch.int32, [2, 8]) for _ in range(2)] == [1, 0]


def test_a_graph_replays_a_tuned_kernel(fresh):
    configs = [triton.Config({"B": size}) for size in (16, 32)]
    tuned = triton.autotune(configs, key=["n"])(fresh)
    x = torch.ones(64, device="accel")
    grid = lambda meta: (triton.cdiv(64, meta["B"]),)  # noqa: E731
    tuned[grid](x, torch.empty_like(x), 2.0, 64)
    graph = torch.accel.AccelGraph()
    with torch.accel.graph(graph):
        tuned[grid](x, x, 2.0, 64)
    for _ in range(3):
        graph.replay()
    assert torch.equal(x.cpu(), torch.full((64,), 8.0))


def test_the_current_stream_of_each_launch(fresh, queued):
    x, out = torch.ones(64, device="accel"), torch.zeros(64, device="accel")
    for _ in range(3):
        fresh[(4,)](x, out, 1.0, 64)
    torch.accel.synchronize()
    side = torch.accel.Stream()
    with hold_stream(side):
        with torch.accel.stream(side):
            fresh[(4,)](x, out, 5.0, 64)
        fresh[(4,)](x, out, 3.0, 64)
        torch.accel.current_stream().synchronize()
        assert not side.query()
        assert out.tolist() == [3.0] * 64
    side.synchronize()
    assert out.tolist() == [5.0] * 64


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
