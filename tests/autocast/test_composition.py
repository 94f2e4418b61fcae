"""Autocast with the rest of torch: settings, threads, transforms, custom operators, capture of graphs."""

import threading
import warnings

import pytest
import torch
from expecttest import TestCase


@pytest.fixture
def a():
    return torch.linspace(-1, 1, 16).reshape(4, 4).to("accel")


class TestTexts(TestCase):
    def test_an_unsupported_dtype_warns_and_disables(self):
        x = torch.ones(2, 2, device="accel")
        for dtype in (torch.float32, torch.float64, torch.int8):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                region = torch.autocast("accel", dtype=dtype)
            with region:
                assert not torch.is_autocast_enabled("accel")
                assert (x @ x).dtype == torch.float32
            (warning,) = caught
            assert warning.filename == __file__
            self.assertExpectedInline(
                str(warning.message),
                """\
In accel autocast, but the target dtype is not supported. Disabling autocast.
accel Autocast only supports dtypes of torch.float16, torch.bfloat16 currently.""",
            )


def test_every_supported_dtype_is_accepted_in_silence(a):
    assert torch.amp.is_autocast_available("accel")
    assert torch.accel.get_amp_supported_dtype() == torch.accel.amp.get_amp_supported_dtype()
    for dtype in torch.accel.get_amp_supported_dtype():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with torch.autocast("accel", dtype=dtype):
                assert torch.get_autocast_dtype("accel") == dtype
                assert (a @ a).dtype == dtype


def test_the_default_dtype_can_be_set(a):
    before = torch.get_autocast_dtype("accel")
    cpus = torch.get_autocast_dtype("cpu")
    try:
        torch.set_autocast_dtype("accel", torch.bfloat16)
        with torch.autocast("accel"):
            assert (a @ a).dtype == torch.bfloat16
        with torch.autocast("accel", dtype=torch.float16):
            assert (a @ a).dtype == torch.float16
        assert torch.get_autocast_dtype("accel") == torch.bfloat16  # restored at the exit
        assert torch.get_autocast_dtype("cpu") == cpus
    finally:
        torch.set_autocast_dtype("accel", before)


def test_autocast_can_be_switched_without_a_region(a):
    try:
        torch.set_autocast_enabled("accel", True)
        assert (a @ a).dtype == torch.float16
        assert not torch.is_autocast_enabled("cpu")
    finally:
        torch.set_autocast_enabled("accel", False)
        torch.clear_autocast_cache()
    assert (a @ a).dtype == torch.float32


def test_what_is_in_no_list_keeps_its_dtype(a):
    half = a.half()
    with torch.autocast("accel", dtype=torch.bfloat16):
        for op in (torch.relu, torch.tanh, torch.sigmoid, torch.neg, lambda x: torch.nn.functional.gelu(x)):
            assert op(a).dtype == torch.float32 and op(half).dtype == torch.float16
        assert (a + half).dtype == torch.float32  # as without autocast
        assert torch.cat([a, half]).dtype == torch.float32


def test_a_state_belongs_to_its_thread(a):
    seen = {}
    entered, leave = threading.Event(), threading.Event()

    def other():
        seen["outside"] = torch.is_autocast_enabled("accel"), (a @ a).dtype
        with torch.autocast("accel", dtype=torch.bfloat16):
            entered.set()
            leave.wait()
            seen["inside"] = (a @ a).dtype

    with torch.autocast("accel", dtype=torch.float16):
        thread = threading.Thread(target=other)
        thread.start()
        entered.wait()
        assert (a @ a).dtype == torch.float16
        leave.set()
        thread.join()
        assert (a @ a).dtype == torch.float16
    assert seen == {"outside": (False, torch.float32), "inside": torch.bfloat16}


def test_gradients_flow_in_the_dtype_of_the_forward_outside_the_region(a):
    """backward runs on the engine's thread, where autocast is off: what it computes with was cast in the forward."""
    seen = []
    weight = a.clone().requires_grad_()
    with torch.autocast("accel"):
        out = a @ weight
        out.register_hook(lambda g: seen.append(g.dtype))
        loss = out.float().sum()
    loss.backward()
    assert seen == [torch.float16] and weight.grad.dtype == torch.float32
    expected = a.cpu().half().t() @ torch.ones(4, 4, dtype=torch.float16)
    assert torch.equal(weight.grad.cpu(), expected.float())


def test_checkpoint_computes_again_in_the_region_of_the_forward(a):
    from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

    def run(again):
        seen = []

        def block(x):
            y = x @ x
            seen.append(y.dtype)
            return y.float().sum()

        x = a.clone().requires_grad_()
        with torch.autocast("accel", dtype=torch.bfloat16), set_checkpoint_early_stop(False):
            loss = checkpoint(block, x, use_reentrant=False) if again else block(x)
        loss.backward()
        assert seen == [torch.bfloat16] * (2 if again else 1)
        return x.grad.cpu()

    assert torch.equal(run(again=True), run(again=False))


TRANSFORMS = {
    "vmap": (lambda f, x: torch.func.vmap(f)(torch.stack([x, x])), torch.float16),
    "grad": (lambda f, x: torch.func.grad(lambda t: f(t).float().sum())(x), torch.float32),
    "vjp": (lambda f, x: torch.func.vjp(f, x)[0], torch.float16),
    "jvp": (lambda f, x: torch.func.jvp(f, (x,), (x,))[1], torch.float16),
    "jacrev": (lambda f, x: torch.func.jacrev(f)(x), torch.float32),
    "functionalize": (lambda f, x: torch.func.functionalize(f)(x), torch.float16),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_function_transforms(name, a):
    """The reference is the same transform of the function with its casts written out."""
    transform, dtype = TRANSFORMS[name]
    other = a.t().contiguous()
    with torch.autocast("accel"):
        actual = transform(lambda x: x @ other, a)
    expected = transform(lambda x: x.half() @ other.half(), a)
    assert actual.dtype == dtype == expected.dtype
    assert torch.equal(actual.cpu(), expected.cpu())


class Model(torch.nn.Module):
    def forward(self, x):
        with torch.autocast("accel", dtype=torch.bfloat16):
            product = x @ x
            with torch.autocast("accel", enabled=False):
                plain = x @ x
            return product, torch.softmax(product, 0), plain


DTYPES = [torch.bfloat16, torch.float32, torch.float32]


def test_export_keeps_the_regions(a):
    program = torch.export.export(Model(), (a,))
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert "wrap_with_autocast" in targets
    same(program.module()(a), Model()(a))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_graphs_keep_the_regions(backend, a):
    compiled = torch.compile(Model(), backend=backend, fullgraph=True)
    same(compiled(a), Model()(a))
    outside = torch.compile(lambda x: x @ x, backend=backend, fullgraph=True)
    assert outside(a).dtype == torch.float32
    with torch.autocast("accel"):
        assert outside(a).dtype == torch.float16  # another graph: the state is guarded
    assert outside(a).dtype == torch.float32


def same(actual, expected):
    assert [t.dtype for t in actual] == [t.dtype for t in expected] == DTYPES
    assert all(torch.equal(x.cpu(), y.cpu()) for x, y in zip(actual, expected, strict=True))


deprecated = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


@deprecated
def test_scripts_follow_the_callers_region(a):
    @torch.jit.script
    def product(x):
        return x @ x

    for _ in range(3):  # the profiling executor optimises at the second call
        with torch.autocast("accel"):
            assert product(a).dtype == torch.float16
    assert product(a).dtype == torch.float32


@deprecated
def test_scripts_know_no_region_of_accel(a):
    """A limit of torch's, which its pass for CPU and CUDA states; TorchScript is no longer developed."""

    @torch.jit.script
    def product(x):
        with torch.autocast("accel"):
            return x @ x

    with pytest.raises(RuntimeError, match="unrecognized device for autocast pass: accel"):
        product(a)


def test_a_custom_operator_falls_through_unless_it_registers_a_cast(a):
    with torch.library._scoped_library("accel_test_amp", "FRAGMENT") as library:
        for name in ("plain", "lower"):
            library.define(f"{name}(Tensor x) -> Tensor")
            library.impl(name, lambda x: x * 2, "PrivateUse1")
        torch.library.register_autocast("accel_test_amp::lower", "accel", torch.bfloat16, lib=library)
        ops = torch.ops.accel_test_amp
        with torch.autocast("accel"):
            assert (ops.plain(a).dtype, ops.lower(a).dtype) == (torch.float32, torch.bfloat16)
        assert ops.lower(a).dtype == torch.float32


def test_a_custom_operator_of_python_registers_a_cast(a):
    with torch.library._scoped_library("accel_test_amp_py", "FRAGMENT"):

        @torch.library.custom_op("accel_test_amp_py::double", mutates_args=(), device_types="accel")
        def double(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        double.register_autocast("accel", torch.float16)
        with torch.autocast("accel"):
            assert double(a).dtype == torch.float16
        assert double(a).dtype == torch.float32
