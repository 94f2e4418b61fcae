"""The generated operators: queued, exact, with torch's meaning of in-place and out=, each registered once."""

import sys
import warnings
from pathlib import Path

import pytest
import torch
from expecttest import assert_expected_inline

from torch_accel.testing import fallback_mode, hold_stream, launch_blocking, plant, wait_report

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "csrc/aten/codegen"))
import generate  # noqa: E402

WRITTEN = generate.hand_written(ROOT / "csrc/aten")
STRUCTURED = [str(f.func.name) for group in generate.structured_groups() for f in group.functions()]


def registered_at(name: str) -> str:
    """The file that registered the kernel which accel runs for an operator."""
    lines = torch._C._dispatch_dump(f"aten::{name}").splitlines()
    (line,) = [line for line in lines if line.startswith("PrivateUse1:")] or [""]
    return line


@pytest.fixture(autouse=True)
def queued():
    with launch_blocking(False):
        yield


# ---- The table


def test_every_structured_operator_has_one_kernel():
    assert len(STRUCTURED) > 600
    for name in STRUCTURED:
        where = registered_at(name)
        if name in generate.EXCLUDED:
            # The backend fallback, or the same by name.
            assert where == "" or "register.cpp" in where, f"{name}: {where}"
        elif name in WRITTEN:
            assert "csrc/aten/" in where and "register.cpp" not in where, f"{name}: {where}"
        else:
            assert "build/generated/structured_" in where, f"{name}: {where}"


def test_tables_are_disjoint():
    assert not WRITTEN & set(generate.EXCLUDED)
    assert set(generate.EXCLUDED) <= set(STRUCTURED)
    assert set(generate.HOST_CHECKS) <= set(STRUCTURED)
    assert set(generate.RESIZED_BY_META) <= set(STRUCTURED)
    dump = torch._C._dispatch_dump("aten::add.Tensor")
    assert "(inactive)" not in "\n".join(line for line in dump.splitlines() if "PrivateUse1" in line)


# ---- Queued


def held(call):
    """Runs `call` behind a held stream: it may not wait, and nothing may fall back."""
    before = wait_report()
    with fallback_mode("error"), hold_stream():
        result = call()
        assert wait_report() == before
    return result


@pytest.fixture
def x():
    return torch.arange(12.0, device="accel").view(3, 4)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x + x,
        lambda x: x @ x.t(),
        lambda x: x.sum(),
        lambda x: x.sum((0, 1), keepdim=True),
        lambda x: x.softmax(1),
        lambda x: torch.cat([x, x[:1], x[1:]]),
        lambda x: torch.stack([x, x]),
        lambda x: torch.clamp(x, max=x[0]),
        lambda x: x.sort(dim=1, descending=True)[1],
        lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
        lambda x: torch.div(x, 3, rounding_mode="floor"),
        lambda x: x.clone().mul_(2).add_(x, alpha=3),
        lambda x: torch.exp(x, out=torch.empty(0, device=x.device)),
        lambda x: x[[0, 2]],
        lambda x: x[:, torch.tensor([1, 1], device=x.device)],
        lambda x: x.gather(1, torch.zeros(3, 1, dtype=torch.int64, device=x.device)),
        lambda x: torch.linalg.vector_norm(x, dim=1),
        lambda x: (x > 4).any(),
        lambda x: (x.to(torch.int64) * 2.5).to(torch.bfloat16) + 1,
    ],
)
def test_nothing_waits(x, call):
    assert torch.equal(held(lambda: call(x)).cpu(), call(x.cpu()))


def test_wait_report_sees_a_wait(x):
    before = wait_report()
    x.sum().item()
    assert wait_report() != before


def test_host_operands_are_taken_at_the_call(x):
    s, index, alpha = torch.tensor(2.0), torch.tensor([0, 2]), torch.tensor(3.0)

    def call():
        results = x * s, x[index], torch.add(x, s), x + float(alpha), s - x
        s.fill_(-1)
        index.fill_(1)
        return results

    h = x.cpu()
    expected = h * 2.0, h[[0, 2]], h + 2.0, h + 3.0, 2.0 - h
    for result, value in zip(held(call), expected):
        assert torch.equal(result.cpu(), value)


def test_operands_may_be_freed_after_the_call(x):
    def call():
        y = x + 1
        z = y * 2
        del y
        return z + torch.full_like(x, 5)

    assert torch.equal(held(call).cpu(), (x.cpu() + 1) * 2 + 5)


def test_lists_longer_than_a_record_holds_wait():
    x = torch.arange(512.0, device="accel").view((2,) * 9)
    before = wait_report().get("long_argument", 0)
    assert torch.equal(x.sum(tuple(range(9))).cpu(), torch.arange(512.0).sum())
    assert wait_report().get("long_argument", 0) == before + 1
    assert torch.equal(x.amax(tuple(range(1, 9))).cpu(), torch.tensor([255.0, 511.0]))


def test_dtype_promotion_sees_wrapped_numbers(x):
    i = torch.arange(3, device="accel", dtype=torch.int32)
    assert (i + 1).dtype == torch.int32 and (i + 1.5).dtype == torch.float32
    assert (i + torch.tensor(1.5, dtype=torch.float64)).dtype == torch.float64
    assert (i + torch.tensor(2**40)).dtype == torch.int32
    assert (x.half() * 3.7).cpu().equal(x.cpu().half() * 3.7)


# ---- In place and out=


def test_in_place_returns_self_and_keeps_memory(x):
    address = x.data_ptr()
    assert x.add_(1) is x and x.data_ptr() == address
    assert torch.equal(x.cpu(), torch.arange(12.0).view(3, 4) + 1)


def test_in_place_on_views(x):
    x.t()[1].mul_(10)
    expected = torch.arange(12.0).view(3, 4)
    expected[:, 1] *= 10
    assert torch.equal(x.cpu(), expected)


def test_in_place_errors_at_the_call(x):
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        torch.ones(3, device="accel", dtype=torch.int64).add_(1.5)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        torch.ones(4, device="accel").add_(x)
    with pytest.raises(RuntimeError, match="Bad in-place call"):
        torch.ones(3, device="accel", dtype=torch.int64).cumsum_(0, dtype=torch.float32)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        torch.ones(1, device="accel").expand(3).add_(1)


def test_out_is_resized_with_torchs_warning(x):
    out = torch.empty(5, device="accel")
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        torch.mul(x, 2, out=out)
    assert torch.equal(out.cpu(), x.cpu() * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        empty = torch.empty(0, device="accel")
        assert torch.sum(x, 0, out=empty) is empty
    assert torch.equal(empty.cpu(), x.cpu().sum(0))


@pytest.mark.parametrize(
    "call", [torch.exp, lambda x, out: torch.matmul(x, x, out=out), lambda x, out: torch.cumsum(x, 0, out=out)]
)
def test_strided_out(call):
    x = torch.rand(4, 4).accel()
    wide = torch.zeros(4, 8, device="accel")
    call(x, out=wide[:, ::2])
    expected = torch.zeros(4, 8)
    call(x.cpu(), out=expected[:, ::2])
    assert torch.equal(wide.cpu(), expected)
    transposed = torch.empty(4, 4, device="accel").t()
    call(x, out=transposed)
    assert torch.equal(transposed.cpu(), expected[:, ::2]) and transposed.stride() == (1, 4)


def test_out_errors_at_the_call(x):
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Long"):
        torch.add(x, 1, out=torch.empty(3, 4, dtype=torch.int64, device="accel"))
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype"):
        torch.mm(x, x.t(), out=torch.empty(3, 3, dtype=torch.float64, device="accel"))
    with pytest.raises(RuntimeError, match=r"Expected.* device"):
        torch.sum(x, 0, out=torch.empty(4))
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.add(x.view(-1)[:5], 1, out=x.view(-1)[1:6])
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.cat([x, x], out=torch.ones(1, device="accel").expand(6, 4))


def test_out_that_is_an_input(x):
    a, b = torch.rand(3, 3), torch.rand(3, 3)
    for call in (
        lambda a, b: torch.add(a, b, out=a),
        lambda a, b: torch.addmm(a, b, b, out=a),
        lambda a, b: torch.baddbmm(a[None], b[None], b[None], out=a[None]),
        lambda a, b: torch.cumsum(a, 0, out=a),
        lambda a, b: torch.where(a > b, a, b, out=a),
        lambda a, b: torch.mul(a, a, out=a),
        lambda a, b: a.scatter_(0, torch.zeros_like(a, dtype=torch.int64), b),
    ):
        mine = call(a.accel(), b.accel())
        assert torch.equal(mine.cpu(), call(a.clone(), b.clone()))


def test_other_devices_raise_at_the_call(x):
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        x + torch.ones(3, 4)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.mm(x, torch.ones(4, 2))
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.cat([x, torch.ones(1, 4)])
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(3, 4).add_(x)


# ---- Errors of kernels


def test_dtypes_without_a_kernel_raise_at_the_call():
    for call in (
        lambda d: torch.softmax(torch.ones(3, dtype=torch.int64, device=d), 0),
        lambda d: torch.mm(torch.ones(2, 2, dtype=torch.bool, device=d), torch.ones(2, 2, dtype=torch.bool, device=d)),
        lambda d: torch.nn.functional.avg_pool2d(torch.ones(1, 1, 4, 4, dtype=torch.int32, device=d), 2),
    ):
        with pytest.raises((NotImplementedError, RuntimeError)) as cpu:
            call("cpu")
        with hold_stream(), pytest.raises(type(cpu.value)) as accel:
            call("accel")
        assert str(accel.value) == str(cpu.value)
    torch.accel.synchronize()


LATE = {
    "index": lambda d: torch.ones(3, device=d)[torch.tensor([5], device=d)],
    "index on the CPU": lambda d: torch.ones(3, device=d)[torch.tensor([5])],
    "gather": lambda d: torch.gather(torch.ones(3, device=d), 0, torch.tensor([7], device=d)),
    "scatter": lambda d: torch.ones(3, device=d).scatter(0, torch.tensor([7], device=d), 1.0),
    "nll target": lambda d: torch.nn.functional.nll_loss(torch.ones(1, 3, device=d), torch.tensor([5], device=d)),
    "integer division": lambda d: (
        torch.ones(3, device=d, dtype=torch.int64) % torch.zeros(3, device=d, dtype=torch.int64)
    ),
}


@pytest.mark.parametrize("call", LATE.values(), ids=LATE.keys())
def test_errors_of_values_rise_at_the_synchronisation(call):
    with pytest.raises(Exception) as expected:
        call("cpu")
    call("accel")
    with pytest.raises(torch.AcceleratorError) as raised:
        torch.accel.synchronize()
    assert str(expected.value) in str(raised.value)
    assert torch.ones(3, device="accel").sum().item() == 3  # and no error is left behind


def test_text_of_a_late_error():
    torch.gather(torch.ones(2, 2, device="accel"), 0, torch.full((1, 1), 7, device="accel"))
    with pytest.raises(torch.AcceleratorError) as raised:
        torch.accel.synchronize()
    assert_expected_inline(
        str(raised.value),
        """\
accel kernel failed: gather: index 7 is out of bounds for dimension 0 with size 2 (operands: Float[1, 1], Float[2, 2], Long[1, 1])
Kernels fail after their launch, so this call may not be the one to blame. ACCEL_LAUNCH_BLOCKING=1 raises the error at the launch.""",
    )


def test_an_output_with_a_conj_bit():
    # The CPU's kernel sets the bit instead of conjugating.
    torch.manual_seed(0)
    a, b = torch.randn(3, 3, dtype=torch.complex64), torch.randn(4, 3, dtype=torch.complex64)
    lu, pivots = torch.linalg.lu_factor(a)
    expected = torch.linalg.lu_solve(lu, pivots, b, left=False, adjoint=True)
    assert expected.is_conj()
    actual = torch.linalg.lu_solve(lu.accel(), pivots.accel(), b.accel(), left=False, adjoint=True)
    assert torch.equal(actual.cpu(), expected)


def test_a_bad_argument_raises_at_the_call(x):
    with hold_stream(), pytest.raises(RuntimeError, match="approximate argument must be either none or tanh"):
        torch.nn.functional.gelu(x, approximate="sinh")


def test_blocking_launches_compute_the_same(x):
    with launch_blocking():
        assert torch.equal((x + x).cpu(), x.cpu() * 2)


def test_an_output_of_other_geometry_is_an_error(x):
    torch.accel.synchronize()
    with plant("restride"), pytest.raises(torch.AcceleratorError) as raised:
        x + x
        torch.accel.synchronize()
    assert_expected_inline(
        str(raised.value),
        """\
accel kernel failed: add: accel: the CPU's kernel gave output 0 of shape [3, 4] other sizes, strides or memory; pass an output of the right shape, or none (operands: Float[3, 4], Float[3, 4], Float[3, 4])
Kernels fail after their launch, so this call may not be the one to blame. ACCEL_LAUNCH_BLOCKING=1 raises the error at the launch.""",
    )


@pytest.mark.parametrize("loss", ["mse_loss", "smooth_l1_loss"])
def test_no_warning_of_a_resize_that_nobody_asked_for(loss, recwarn):
    a, b = torch.ones(4, 4, device="accel"), torch.zeros(4, 4, device="accel")
    result = getattr(torch.nn.functional, loss)(a, b)
    torch.accel.synchronize()
    assert result.item() in (1.0, 0.5)
    assert not recwarn.list
