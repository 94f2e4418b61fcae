"""The boxed launch behind the table of shape functions: placement, comparison, decline, disjointness."""

import subprocess
import sys

import pytest
import torch

from torch_accel._native import _C
from torch_accel.testing import fallback_mode, hold_stream, plant


@pytest.fixture
def x():
    return torch.linspace(-2, 2, 12).reshape(3, 4).to("accel")


def test_queues_functional_inplace_and_out_forms(x):
    mask = x > 0
    out = torch.empty(4, 3, device="accel")
    with hold_stream():
        functional = torch.where(mask, x, -x)
        inplace = x.clone().masked_fill_(mask, 7)
        written = torch.where(mask.t(), x.t(), x.new_zeros(()), out=out)
    host = x.cpu()
    assert torch.equal(functional.cpu(), torch.where(host > 0, host, -host))
    assert torch.equal(inplace.cpu(), host.masked_fill(host > 0, 7))
    assert written is out and torch.equal(out.cpu(), torch.where(host.t() > 0, host.t(), 0.0))


def test_results_are_made_in_their_outputs(x):
    before = _C._misplaced_results()
    y = torch.where(x > 0, x, -x)
    torch.accel.synchronize()
    assert _C._misplaced_results() == before
    with plant("placement"):
        z = torch.where(x > 0, x, -x)
        torch.accel.synchronize()
    assert _C._misplaced_results() > before
    assert torch.equal(y, z)


def test_a_kernel_that_makes_other_tensors_first_is_learned(x):
    def call(x):
        # Its cast to float, and the variance of the real parts, have the size of the result.
        return torch.floor_divide(x, x.int() + 5), torch.complex(x, -x).var(0)

    call(x)
    torch.accel.synchronize()
    before = _C._misplaced_results()
    results = call(x)
    torch.accel.synchronize()
    assert _C._misplaced_results() == before
    for result, expected in zip(results, call(x.cpu()), strict=True):
        assert torch.equal(result.cpu(), expected)


def test_another_shape_than_foreseen_is_an_error(x, queued):
    with plant("foresight"):
        y = torch.where(x > 0, x, -x)
        with pytest.raises(torch.AcceleratorError) as error:
            torch.accel.synchronize()
    assert y.shape == (1, 3, 4)
    assert "where its shape function foresaw" in str(error.value)
    assert "aten::where.self" in str(error.value)


def test_a_declined_call_raises_the_cpus_error_at_the_call(x):
    with pytest.raises(RuntimeError) as here:
        x.masked_fill_(torch.ones(4, device="accel"), 1.0)
    with pytest.raises(RuntimeError) as there:
        x.cpu().masked_fill_(torch.ones(4), 1.0)
    assert str(here.value) == str(there.value)


def test_a_declined_call_that_succeeds_is_counted_and_can_be_forbidden(x):
    # The shape function does not foresee casts to another dtype of out=; the kernel casts.
    out = torch.empty(3, 4, dtype=torch.float64, device="accel")
    torch.accel.fallback_report(reset=True)
    torch.floor_divide(x, x, out=out)
    assert list(torch.accel.fallback_report()) == ["aten::floor_divide.out"]
    assert torch.equal(out.cpu(), torch.floor_divide(x.cpu(), x.cpu()).double())
    with fallback_mode("error"), pytest.raises(NotImplementedError, match="ACCEL_FALLBACK=error"):
        torch.floor_divide(x, x, out=out)


def test_overlap_is_left_to_the_kernel(x):
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.logical_not(x[:2], out=x[1:])
    with pytest.warns(UserWarning, match="masked_fill_ on expanded tensors is deprecated"):
        x[:1].expand(3, 4).masked_fill_(x > 0, 0)


def test_an_output_that_is_an_input(x):
    expected = x.cpu().abs()
    with fallback_mode("error"):
        torch.abs(x, out=x)
    assert torch.equal(x.cpu(), expected)
    row = x[:1].clone()
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        torch.logical_and(row, x, out=row)


def test_operands_that_are_not_dense_are_queued(x):
    out, host = torch.zeros(3, 8, device="accel"), torch.zeros(3, 8)
    with fallback_mode("error"):
        torch.abs(x[:, ::2], out=out[:, ::4])
        out[:, 1::4].masked_fill_(x[:, ::2] > 0, 5)
    torch.abs(x.cpu()[:, ::2], out=host[:, ::4])
    host[:, 1::4].masked_fill_(x.cpu()[:, ::2] > 0, 5)
    assert torch.equal(out.cpu(), host)


def test_each_operator_is_registered_once():
    names = _C._shape_function_operators()
    assert len(names) == len(set(names)) > 0
    # torch warns when one registration replaces another.
    done = subprocess.run([sys.executable, "-c", "import torch_accel"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
