"""Results are adopted, not copied: storages stay shared as the CPU's kernel shared them."""

import pytest
import torch

import torch_accel
from tests.aten.fallback_cases import A, check_equal, define
from tests.memory import settled

pytestmark = pytest.mark.usefixtures("no_leaked_workspace")


def test_results_are_adopted_without_a_copy():
    x = torch.ones(1 << 20, device="accel")
    before = settled()
    torch.accel.reset_peak_memory_stats()
    y = x + 1
    assert torch.accel.memory_allocated() - before == 4 << 20
    assert torch.accel.max_memory_allocated() - before < (4 << 20) + 4096  # never twice
    assert torch_accel.memory.numpy(y)[0] == 2


def test_results_that_share_a_storage_keep_sharing():
    # chunk-like results of one kernel: unsafe_split and LSTM-like kernels view one storage.
    host, device = torch.unsafe_split(A, 1), torch.unsafe_split(A.to("accel"), 1)
    check_equal(list(device), list(host))
    q, r = torch.linalg.qr(A.to("accel"))
    assert q.untyped_storage().data_ptr() != r.untyped_storage().data_ptr()
    op = define("shared(Tensor x) -> (Tensor, Tensor)", lambda x: (lambda y: (y[0], y[1]))(x + 1))
    first, second = op(A.to("accel"))
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    assert second.data_ptr() - first.data_ptr() == 16
    second.fill_(0)
    check_equal(first, A[0] + 1)
    del second
    check_equal(first, A[0] + 1)


def test_operator_returns_its_operand():
    op = define("same(Tensor(a!) x) -> Tensor(a!)", lambda x: x.add_(1))
    x = torch.zeros(3, device="accel")
    result = op(x)
    assert result.data_ptr() == x.data_ptr() and x.tolist() == [1, 1, 1]


def test_operator_returns_a_view_of_its_operand():
    op = define("tail(Tensor(a) x) -> Tensor(a)", lambda x: x[1:])
    x = torch.zeros(3, device="accel")
    op(x).fill_(2)
    assert x.tolist() == [0, 2, 2]


def test_operator_returns_what_is_no_tensor():
    op = define(
        "mixed(Tensor x, Tensor? y, Tensor?[] z, int n, float[] f, str s, Device? d) -> (Tensor[], int, str, bool)",
        lambda x, y, z, n, f, s, d: ([x + n, x * f[0]], n + 1, s + str(d), y is None and z[0] is None),
    )
    x = torch.ones(2, device="accel")
    tensors, n, s, none = op(x, None, [None, x], 3, [2.0], "on ", torch.device("accel"))
    check_equal(tensors, [torch.full((2,), 4.0), torch.full((2,), 2.0)])
    assert (n, s, none) == (4, "on cpu", True)


def test_operator_returns_nothing():
    op = define("bump(Tensor(a!) x) -> ()", lambda x: (x.add_(1), None)[1])
    x = torch.zeros(3, device="accel")
    assert op(x) is None and x.tolist() == [1, 1, 1]


def test_operator_returns_a_cpu_constant():
    constant = torch.arange(3.0)
    op = define("constant(Tensor x) -> Tensor", lambda x: constant)
    check_equal(op(torch.ones(1, device="accel")), constant)
    assert constant.device.type == "cpu" and constant.tolist() == [0, 1, 2]
