"""Kernels on accel tensors through Triton: discovery, compilation, cache, launches."""

import os
import sys
import types

import pytest
import torch
import triton
import triton.language as tl
from expecttest import assert_expected_inline
from triton.backends import backends
from triton.backends.compiler import GPUTarget, Language
from triton.runtime.driver import _create_driver

from _torch_accel_triton.compiler import AccelBackend
from _torch_accel_triton.driver import AccelDriver
from tests.docs.markdown import ROOT
from torch_accel import sanitizer
from torch_accel.testing import hold_stream, launches

if sys.version_info >= (3, 11):
    import tomllib


pytestmark = pytest.mark.usefixtures("accel")


# ---- Discovery


@pytest.mark.skipif(sys.version_info < (3, 11), reason="reads pyproject.toml with tomllib")
def test_triton_finds_the_entry_point_and_does_not_register_accel(script, tmp_path):
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["triton.backends"]
    folder = tmp_path / "torch_accel_sim-99.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-accel-sim\nVersion: 99\n")
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (folder / "entry_points.txt").write_text(f"[triton.backends]\n{lines}")
    done = script(
        """
        import sys, triton
        from triton.backends import backends
        print(backends["accel"], "torch_accel" in sys.modules)
        print(backends["accel"].driver.is_active())
        import torch_accel
        from triton.runtime.driver import driver
        print(driver.active.get_current_target())
        """,
        ACCEL_AUTOLOAD="0",
        PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]),
    )
    assert_expected_inline(
        done.stdout,
        """\
Backend(compiler=<class '_torch_accel_triton.compiler.AccelBackend'>, driver=<class '_torch_accel_triton.driver.AccelDriver'>) False
False
GPUTarget(backend='accel', arch='accel1', warp_size=1)
""",
    )


def test_beside_another_driver_accel_is_active_when_it_is_chosen(monkeypatch):
    class Other:
        @staticmethod
        def is_active():
            return True

    monkeypatch.setitem(backends, "other", types.SimpleNamespace(driver=Other))
    monkeypatch.delenv("TRITON_DEFAULT_BACKEND", raising=False)
    assert not AccelDriver.is_active()
    assert isinstance(_create_driver(), Other)
    monkeypatch.setenv("TRITON_DEFAULT_BACKEND", "accel")
    assert isinstance(_create_driver(), AccelDriver)


def test_without_a_device_it_is_not_active(script):
    source = (
        "import torch_accel, triton; from _torch_accel_triton.driver import AccelDriver; print(AccelDriver.is_active())"
    )
    assert script(source, ACCEL_DEVICES="0").stdout == "False\n"
    assert script(source).stdout == "True\n"


def test_what_the_driver_says(accel):
    assert accel.get_active_torch_device() == torch.device("accel", 0)
    assert accel.get_device_interface() is torch.accel
    assert accel.get_current_stream(0) != 0
    with torch.accel.stream(torch.accel.Stream()):
        other = accel.get_current_stream(0)
    assert other != accel.get_current_stream(0)
    properties = accel.utils.get_device_properties(0)
    assert properties["max_shared_mem"] == torch.accel.get_device_properties().sram_per_core
    assert [accel.map_python_to_cpp_type(ty) for ty in ("*fp32", "i32", "u8", "i1", "fp64")] == [
        "uint64_t",
        "int32_t",
        "uint8_t",
        "uint8_t",
        "double",
    ]


def test_gluon_is_refused():
    backend = AccelBackend(GPUTarget("accel", "accel1", 1))
    with pytest.raises(NotImplementedError, match="accel: Gluon kernels are for GPUs' layouts"):
        backend.add_stages({}, None, Language.GLUON)


# ---- Kernels


@triton.jit
def add_kernel(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i, mask=i < n)
    tl.store(out + i, a + tl.load(y + i, mask=i < n), mask=i < n)


def add(x, y, out=None, block=256):
    out = torch.empty_like(x) if out is None else out
    add_kernel[(triton.cdiv(x.numel(), block),)](x, y, out, x.numel(), B=block)
    return out


@pytest.mark.parametrize("n", [1, 255, 256, 10_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
def test_add(n, dtype):
    x, y = (torch.arange(n).mul(k).to(dtype) for k in (3, 5))
    assert torch.equal(add(x.to("accel"), y.to("accel")).cpu(), x + y)


@triton.jit
def softmax_kernel(x, out, columns, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    value = tl.load(x + row * columns + i, mask=i < columns, other=-float("inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * columns + i, value / tl.sum(value, 0), mask=i < columns)


@pytest.mark.parametrize("shape", [(1, 1), (7, 100), (64, 1024)])
def test_softmax(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    device = x.to("accel")
    out = torch.empty_like(device)
    softmax_kernel[(shape[0],)](device, out, shape[1], B=triton.next_power_of_2(shape[1]))
    torch.testing.assert_close(out.cpu(), x.softmax(1))


@triton.jit
def matmul_kernel(a, b, c, M, N, K, B: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)[:, None]
    columns = tl.program_id(1) * B + tl.arange(0, B)[None, :]
    acc = tl.zeros((B, B), tl.float32)
    for start in range(0, K, B):
        k = start + tl.arange(0, B)
        left = tl.load(a + rows * K + k[None, :], mask=(rows < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * N + columns, mask=(k[:, None] < K) & (columns < N), other=0.0)
        acc = tl.dot(left, right, acc)
    tl.store(c + rows * N + columns, acc, mask=(rows < M) & (columns < N))


@pytest.mark.parametrize("sizes", [(32, 32, 32), (50, 33, 70)])
def test_matmul(sizes):
    m, n, k = sizes
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(m, k, generator=generator), torch.randn(k, n, generator=generator)
    c = torch.empty(m, n, device="accel")
    matmul_kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32))](a.to("accel"), b.to("accel"), c, m, n, k, B=32)
    torch.testing.assert_close(c.cpu(), a @ b, rtol=1e-5, atol=1e-4)


@triton.jit
def tuple_kernel(tensors, numbers, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(tensors[1] + i, tl.load(tensors[0] + i) * numbers[0] + numbers[1][0])


def test_tuples():
    x, out = torch.arange(16.0, device="accel"), torch.empty(16, device="accel")
    tuple_kernel[(1,)]((x, out), (3.0, (5, 1)), B=16)
    assert torch.equal(out.cpu(), torch.arange(16.0) * 3 + 5)
    with pytest.raises(ValueError, match=r"argument 'tensors\[1\]' of kernel 'tuple_kernel' is a tensor on cpu"):
        tuple_kernel[(1,)]((x, out.cpu()), (3.0, (5, 1)), B=16)


# ---- Launches


@triton.jit
def middle_kernel(x, B: tl.constexpr, n, out, C: tl.constexpr = 1):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n, other=0.0) + C, mask=i < n)


@pytest.mark.parametrize(
    ("kernel", "arguments"),
    [
        (add_kernel, lambda x, out: (x, x, out, 8, 8)),
        (add_kernel, lambda x, out: (x, x, out, 8)),  # FlagGems 5.0.2 leaves constants out
        (middle_kernel, lambda x, out: (x, 8, 8, out, 1)),
        (middle_kernel, lambda x, out: (x, 8, 8, out)),
        (middle_kernel, lambda x, out: (x, 8, out)),
    ],
)
def test_a_compiled_kernel_is_launched_with_constants_or_without(kernel, arguments):
    x, out = torch.ones(8, device="accel"), torch.zeros(8, device="accel")
    given = {"x": x, "y": x, "out": out, "n": 8, "B": 8}
    named = {name: given[name] for name in kernel.arg_names if name in given}
    compiled = kernel.warmup(**named, grid=(1,))
    compiled[(1, 1, 1)](*arguments(x, out))
    assert out.tolist() == [2.0] * 8
    compiled[(1, 1, 1)](*arguments(x, out.zero_()), stream=torch.accel.current_stream().accel_stream)
    assert out.tolist() == [2.0] * 8


def test_a_compiled_kernel_says_what_it_takes():
    x = torch.ones(8, device="accel")
    compiled = middle_kernel.warmup(x, 8, 8, x, grid=(1,))
    with pytest.raises(TypeError) as error:
        compiled[(1, 1, 1)](x, 8)
    assert_expected_inline(
        str(error.value),
        """accel: kernel 'middle_kernel' has 5 parameters, 3 of which are not constant; 2 arguments given""",
    )
    pair = tuple_kernel.warmup((x, x), (3.0, (5, 1)), B=8, grid=(1,))
    pair[(1, 1, 1)]((x, x), (3.0, (5, 1)))
    assert x.tolist() == [8.0] * 8
    with pytest.raises(TypeError) as error:
        pair[(1, 1, 1)]((x, x))
    assert_expected_inline(
        str(error.value),
        """accel: kernel 'tuple_kernel' has 3 parameters, 2 of which are not constant; 1 arguments given""",
    )


def test_a_pinned_tensor_is_reached_from_the_cores(queued):
    x, out = torch.arange(100.0).pin_memory(), torch.zeros(100, pin_memory=True)
    with sanitizer.enabled():
        add(x, x.to("accel"), out)
        with pytest.raises(RuntimeError, match="add_kernel"):
            out.sum()  # nothing waited for the kernel
    torch.accel.synchronize()
    assert torch.equal(out, x * 2)
    memory = out.data_ptr()
    with hold_stream():
        add(out, out, torch.empty(100, device="accel"))
        del out  # and its memory is not handed out while the kernel may read it
        assert torch.zeros(100, pin_memory=True).data_ptr() != memory
    torch.accel.synchronize()
    assert torch.zeros(100, pin_memory=True).data_ptr() == memory


def test_a_tensor_on_the_cpu_is_named():
    x = torch.ones(8, device="accel")
    with pytest.raises(ValueError) as error:
        add(x, x.cpu())
    assert_expected_inline(
        str(error.value),
        """accel: argument 'y' of kernel 'add_kernel' is a tensor on cpu, and the kernel runs on accel:0; move it there with .to('accel:0')""",
    )


def test_a_launch_is_queued_on_the_current_stream(queued):
    x, out = torch.ones(1000, device="accel"), torch.zeros(1000, device="accel")
    side = torch.accel.Stream()
    side.wait_stream(torch.accel.current_stream())
    add(x, x, out)  # compiles
    torch.accel.synchronize()
    out.zero_()
    torch.accel.synchronize()
    with hold_stream(side), torch.accel.stream(side), launches() as names:
        add(x, x, out)
        assert not side.query()
    assert names == ["add_kernel"]
    side.synchronize()
    assert out.tolist() == [2.0] * 1000


def test_a_graph_replays_a_kernel():
    x, out = torch.ones(100, device="accel"), torch.zeros(100, device="accel")
    add(x, x, out)
    out.zero_()
    graph = torch.accel.AccelGraph()
    with torch.accel.graph(graph):
        add(x, out, out)
    for _ in range(3):
        graph.replay()
    assert out.tolist() == [3.0] * 100


def test_hooks_run_around_the_launch(monkeypatch):
    seen = []
    monkeypatch.setattr(
        triton.knobs.runtime, "launch_enter_hook", lambda data: seen.append(("enter", data.get()["name"]))
    )
    monkeypatch.setattr(
        triton.knobs.runtime, "launch_exit_hook", lambda data: seen.append(("exit", data.get()["name"]))
    )
    x = torch.ones(8, device="accel")
    add(x, x)
    assert seen == [("enter", "add_kernel"), ("exit", "add_kernel")]


@triton.jit
def assert_kernel(x, n):
    value = tl.load(x + tl.program_id(0))
    tl.device_assert(value < n, "value is too large")


def test_a_device_assertion_rises_at_the_synchronisation(queued):
    x = torch.arange(10, device="accel", dtype=torch.int32)
    assert_kernel[(10,)](x, 10, debug=True)
    torch.accel.synchronize()
    assert_kernel[(10,)](x, 7, debug=True)
    with pytest.raises(torch.AcceleratorError) as error:
        torch.accel.synchronize()
    line = assert_kernel.starting_line_number + 3
    text = str(error.value)
    assert text.startswith("accel kernel failed: assert_kernel: accel: program (7, 0, 0) at ")
    assert f"test_backend.py:{line}: device_assert: value is too large" in text
    torch.accel.synchronize()


def test_autotuning():
    configs = [triton.Config({"B": size}) for size in (64, 128)]
    tuned = triton.autotune(configs, key=["n"])(add_kernel)
    x, out = torch.ones(1000, device="accel"), torch.zeros(1000, device="accel")
    tuned[lambda meta: (triton.cdiv(1000, meta["B"]),)](x, x, out, 1000)
    assert out.tolist() == [2.0] * 1000
    assert tuned.best_config.kwargs["B"] in (64, 128)


# ---- Compilation


def test_every_stage_is_kept():
    x = torch.ones(8, device="accel")
    kernel = add_kernel[(1,)](x, x, torch.empty_like(x), 8, B=8)
    assert {"ttir", "tile", "machine", "llir", "hsaco"} <= set(kernel.asm)
    assert kernel.asm["tile"].startswith("func @add_kernel(")
    assert kernel.asm["hsaco"].startswith(b"\x7fELF")
    assert kernel.metadata.accesses == [1, 1, 2, 0]


def test_another_process_takes_the_object_from_the_cache(script, tmp_path):
    source = """
        import triton, torch, torch_accel
        from triton.backends import Backend, backends
        from _torch_accel_triton.compiler import AccelBackend
        from triton.runtime.driver import driver
        from _torch_accel_triton.driver import AccelDriver
        backends["accel"] = Backend(AccelBackend, AccelDriver)
        driver.set_active(AccelDriver())
        from tests.triton.test_backend import add
        triton.knobs.compilation.listener = lambda *, cache_hit, **rest: print(cache_hit)
        x = torch.ones(8, device="accel")
        print(add(x, x).tolist() == [2.0] * 8)
    """
    environment = {"TRITON_CACHE_DIR": tmp_path, "PYTHONPATH": ROOT}
    assert script(source, **environment).stdout == "False\nTrue\n"
    assert script(source, **environment).stdout == "True\nTrue\n"


def test_another_compiler_makes_another_key(monkeypatch):
    from torch_accel.triton.backend import stages

    backend = AccelBackend(GPUTarget("accel", "accel1", 1))
    before = backend.hash()
    assert before == backend.hash()
    monkeypatch.setattr(stages, "fingerprint", lambda: "another")
    assert backend.hash() != before


def test_benchmarks_of_triton_run():
    x = torch.ones(1000, device="accel")
    assert triton.testing.do_bench(lambda: add(x, x), warmup=1, rep=2) > 0
