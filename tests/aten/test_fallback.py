"""Operators by the CPU's kernel over device bytes: results adopted, aliasing kept, errors and warnings the CPU's."""

import gc
import os
import threading
import uuid
import warnings

import numpy as np
import pytest
import torch
from expecttest import assert_expected_inline

import torch_accel
from torch_accel.testing import fallback_mode, hold_stream


@pytest.fixture(autouse=True)
def no_leaked_workspace():
    before = torch_accel._C._leaked_workspace_bytes()
    yield
    assert torch_accel._C._leaked_workspace_bytes() == before


def to(device, value):
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, (list, tuple)):
        return type(value)(to(device, item) for item in value)
    return value


def flat(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [leaf for item in result for leaf in flat(item)] if isinstance(result, (list, tuple)) else []


def check_equal(result, expected):
    results, oracles = flat(result), flat(expected)
    assert len(results) == len(oracles)
    for mine, theirs in zip(results, oracles):
        assert mine.is_accel and mine.dtype == theirs.dtype and mine.stride() == theirs.stride()
        torch.testing.assert_close(mine.cpu(), theirs, rtol=0, atol=0, equal_nan=True)


A = torch.arange(12.0).reshape(3, 4)
J = torch.tensor([2, 0, 2])
Z = torch.complex(A, A + 1)

CASES = {
    "functional": lambda d, a, i, z: torch.add(a, a, alpha=2),
    "broadcast": lambda d, a, i, z: a + a[0],
    "0-dim CPU operand": lambda d, a, i, z: a * torch.tensor(2.0),
    "wrapped number promotes as a number": lambda d, a, i, z: i * 2.5,
    "0-dim tensor does not promote": lambda d, a, i, z: a + torch.tensor(2.0, dtype=torch.float64),
    "strided operands": lambda d, a, i, z: a[1::2, :] + a[1::2, :],
    "transposed operands": lambda d, a, i, z: a.t() @ a[:, 1:],
    "conj operand": lambda d, a, i, z: z.conj() * z,
    "neg operand": lambda d, a, i, z: z.conj().imag + 1,
    "scalar result": lambda d, a, i, z: a.sum(),
    "no operand left": lambda d, a, i, z: torch.empty(0, 9, device=d) @ torch.ones(9, device=d),
    "dot of nothing": lambda d, a, i, z: torch.dot(torch.empty(0, device=d), torch.empty(0, device=d)),
    "mean of nothing": lambda d, a, i, z: torch.empty(1, 0, device=d).mean(),
    "sum of nothing": lambda d, a, i, z: torch.empty(1, 0, device=d).sum(1),
    "several results": lambda d, a, i, z: torch.sort(a, descending=True),
    "several results of which one unused": lambda d, a, i, z: torch.max(a, 1),
    "list of results": lambda d, a, i, z: torch._foreach_add([a, a[0]], 1.0),
    "list operand": lambda d, a, i, z: torch.cat([a, a[:1], a[2:]]),
    "list operand of one": lambda d, a, i, z: torch.stack([a]),
    "list of views": lambda d, a, i, z: torch.cat([a.t(), a.t()], 1),
    "optional operand absent": lambda d, a, i, z: torch.bincount(i),
    "optional operand present": lambda d, a, i, z: torch.bincount(i, a[0, :3]),
    "clamp by tensors": lambda d, a, i, z: torch.clamp(a, min=a[0]),
    "index by None and tensor": lambda d, a, i, z: a[:, i],
    "index by two tensors": lambda d, a, i, z: a[i, i],
    "index by CPU tensor": lambda d, a, i, z: a[J],
    "index by None and CPU tensor": lambda d, a, i, z: a[:, J],
    "index by mask": lambda d, a, i, z: a[a > 3],
    "index by CPU mask": lambda d, a, i, z: a[A > 3],
    "index by list": lambda d, a, i, z: a[[0, 2], [1, 3]],
    "index by tensor, slice, None": lambda d, a, i, z: a[i, None, 1:],
    "index put": lambda d, a, i, z: a.index_put((i,), a[0]),
    "index put accumulating": lambda d, a, i, z: a.index_put((i,), a[0], accumulate=True),
    "index put accumulating bfloat16": lambda d, a, i, z: a.bfloat16().index_put(
        (i,), a[1].bfloat16(), accumulate=True
    ),
    "index put by CPU index": lambda d, a, i, z: a.index_put((J,), torch.tensor(5.0, device=d)),
    "index add of nothing": lambda d, a, i, z: a.index_add(0, i[:0], a[:0]),
    "index add of duplicates": lambda d, a, i, z: a.index_add(0, i, a),
    "scatter of nothing": lambda d, a, i, z: a.scatter(0, i[:0].reshape(0, 1), 9.0),
    "scatter reduce": lambda d, a, i, z: a.scatter_reduce(0, i[:, None].expand(3, 4), a, "mean", include_self=False),
    "data-dependent shape": lambda d, a, i, z: torch.nonzero(a > 4),
    "unique": lambda d, a, i, z: torch.unique(i, return_inverse=True, return_counts=True),
    "masked_select": lambda d, a, i, z: a.masked_select(a > 4),
    "repeat_interleave": lambda d, a, i, z: torch.repeat_interleave(a, i, 0),
    "layer_norm": lambda d, a, i, z: torch.layer_norm(a, (4,), a[0], a[1]),
    "group_norm": lambda d, a, i, z: torch.group_norm(a, 2),
    "batch_norm": lambda d, a, i, z: torch.nn.functional.batch_norm(a, a[0] * 0, a[0] * 0 + 1, training=True),
    "softmax": lambda d, a, i, z: torch.softmax(a, 1),
    "gelu (raw allocations)": lambda d, a, i, z: torch.nn.functional.gelu(a),
    "linear": lambda d, a, i, z: torch.nn.functional.linear(a, a, a[:, 0]),
    "embedding": lambda d, a, i, z: torch.nn.functional.embedding(i, a),
    "fft": lambda d, a, i, z: torch.fft.fft(a),
    "cumsum to another dtype": lambda d, a, i, z: torch.cumsum(i, 0, dtype=torch.float64),
    "where": lambda d, a, i, z: torch.where(a > 3, a, 0),
    "isfinite": lambda d, a, i, z: (torch.isnan(a), torch.isinf(a), torch.isfinite(a), a.abs()),
    "tril_indices": lambda d, a, i, z: torch.tril_indices(3, 3, device=d),
    "device argument": lambda d, a, i, z: torch.arange(0, 1, 0.25, device=d),
    "kaiser_window (a composite over a stub)": lambda d, a, i, z: torch.kaiser_window(5, device=d),
    "kaiser_window with beta": lambda d, a, i, z: torch.kaiser_window(5, False, 3.0, dtype=torch.float64, device=d),
    "range.out_ (reads the host)": lambda d, a, i, z: torch.ops.aten.range.out_(0, 5, out=torch.empty(0, device=d)),
    "_saturate_weight_to_fp16": lambda d, a, i, z: torch._saturate_weight_to_fp16(a * 1e5),
    "choose_qparams_optimized": lambda d, a, i, z: torch.choose_qparams_optimized(a, 12, 200, 0.16, 8),
    "arange like": lambda d, a, i, z: torch.zeros_like(a, dtype=torch.int64),
    "float to int": lambda d, a, i, z: (a * 100.75).to(torch.int8),
    "einsum": lambda d, a, i, z: torch.einsum("ij,kj->ik", a, a),
    "pad_packed": lambda d, a, i, z: torch.nn.utils.rnn.pad_packed_sequence(
        torch.nn.utils.rnn.pack_padded_sequence(a[None], torch.tensor([2]), batch_first=True)
    )[0],
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_equals_the_cpu(case):
    expected = case("cpu", A.clone(), J.clone(), Z.clone())
    a, i, z = A.to("accel"), J.to("accel"), Z.to("accel")
    check_equal(case("accel", a, i, z), expected)
    check_equal([a, i, z], [A, J, Z])  # the operands are untouched


def test_against_numpy():
    a = A.to("accel")
    np.testing.assert_allclose((a @ a.t()).cpu().numpy(), A.numpy() @ A.numpy().T)
    np.testing.assert_array_equal(a.sort(descending=True)[1].cpu().numpy(), np.argsort(-A.numpy(), kind="stable"))
    np.testing.assert_allclose(torch.fft.fft(a).cpu().numpy(), np.fft.fft(A.numpy()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "call", [torch.linalg.svd, torch.linalg.eigh, torch.linalg.inv, lambda x: torch.linalg.lstsq(x, x)[0]]
)
def test_linear_algebra(call):
    # LAPACK's last bits depend on how the memory is aligned: on the CPU as well.
    x = A[:, :3] @ A[:, :3].t() + torch.eye(3) * 50
    for mine, theirs in zip(flat(call(x.to("accel"))), flat(call(x))):
        torch.testing.assert_close(mine.cpu(), theirs)


IN_PLACE = {
    "in-place": lambda d, a, i: a.add_(1),
    "in-place on a view": lambda d, a, i: a[1].mul_(2),
    "in-place on a strided view": lambda d, a, i: a[:, ::2].sub_(1),
    "in-place on transposed": lambda d, a, i: a.t().addcdiv_(a.t() + 1, a.t() + 2),
    "clamp_ of transposed": lambda d, a, i: a.t().clamp_(2, 5),
    "masked_fill_ of transposed": lambda d, a, i: a.t().masked_fill_(a.t() > 3, 9),
    "bitwise_ of strided": lambda d, a, i: a.to(torch.int32)[:, ::2].bitwise_or_(8),
    "in-place with itself": lambda d, a, i: a.add_(a),
    "in-place with its row": lambda d, a, i: a[1:].add_(a[0]),
    "setitem": lambda d, a, i: a.__setitem__((slice(None), 1), 7),
    "setitem by mask": lambda d, a, i: a.__setitem__(a > 5, 0),
    "setitem by CPU mask": lambda d, a, i: a.__setitem__(A > 5, 0),
    "setitem by index": lambda d, a, i: a.__setitem__(i, a[:1] * 2),
    "index_put_ accumulating": lambda d, a, i: a.index_put_((i,), a[:1] * 1, accumulate=True),
    "foreach": lambda d, a, i: torch._foreach_mul_([a[0], a[2]], 3.0),
    "fill_ of expanded": lambda d, a, i: a[:, :1].expand(3, 4).fill_(5),
    "zero_ of expanded": lambda d, a, i: a[:, :1].expand(3, 4).zero_(),
    "fill_ of overlapping": lambda d, a, i: a.as_strided((4, 3), (2, 1)).fill_(5),
    "from its flip": lambda d, a, i: a.copy_(a.flip(0)),
    "scatter_add_": lambda d, a, i: a.scatter_add_(0, i[:, None].expand(3, 4), torch.ones(3, 4, device=d)),
    "erfinv_ on 0-dim": lambda d, a, i: a[0, 0].add_(0.25).erfinv_(),
    "squeeze_": lambda d, a, i: a.squeeze_().unsqueeze_(0),
    "t_": lambda d, a, i: a.t_(),
    "resize by out": lambda d, a, i: torch.add(a, 1, out=a),
}


@pytest.mark.parametrize("case", IN_PLACE.values(), ids=IN_PLACE.keys())
def test_in_place(case):
    host, device = A.clone(), A.to("accel")
    storage = device.untyped_storage().data_ptr()
    expected, result = case("cpu", host, J.clone()), case("accel", device, J.to("accel"))
    check_equal(device, host)
    assert device.untyped_storage().data_ptr() == storage
    if isinstance(expected, torch.Tensor):
        check_equal(result, expected)


OUT = {
    "add": lambda a, out: torch.add(a, a, out=out),
    "sum": lambda a, out: torch.sum(a, 1, out=out),
    "cumsum": lambda a, out: torch.cumsum(a, 0, out=out),
    "where": lambda a, out: torch.where(a > 3, a, a, out=out),
    "cat": lambda a, out: torch.cat([a, a], out=out),
    "matmul": lambda a, out: torch.matmul(a, a.t(), out=out),
    "index_select": lambda a, out: torch.index_select(a, 0, J.to(a.device), out=out),
    "nonzero": lambda a, out: torch.nonzero(a, out=out),
}


@pytest.mark.parametrize("kind", ["empty", "right", "transposed", "slice", "wrong shape"])
@pytest.mark.parametrize("call", OUT.values(), ids=OUT.keys())
def test_out(call, kind):
    shape, dtype = call(A, None).shape, call(A, None).dtype

    def make(device):
        if kind == "empty":
            base = torch.empty(0, dtype=dtype, device=device)
            return base, base
        if kind == "right":
            base = torch.zeros(shape, dtype=dtype, device=device)
            return base, base
        if kind == "transposed":
            base = torch.zeros(shape[::-1], dtype=dtype, device=device)
            return base, base.permute(*range(len(shape))[::-1])
        if kind == "slice":
            base = torch.zeros(*shape[:-1], shape[-1] + 3, dtype=dtype, device=device)
            return base, base[..., 1:-2]
        base = torch.ones(3, dtype=dtype, device=device)[1:2]
        return base, base

    messages = []
    for device in ("cpu", "accel"):
        base, out = make(device)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = call(A.to(device), out)
        assert result is out
        messages.append([str(w.message) for w in caught])
        if device == "cpu":
            expected_base, expected = base, out
    check_equal(out, expected)
    check_equal(base, expected_base)
    # Warnings of the kernel come up at the call, with the CPU's text.
    assert messages[0] == messages[1]
    assert bool(messages[0]) == (kind == "wrong shape")


def test_out_grown_beyond_its_storage_is_seen_by_views():
    out = torch.zeros(2, device="accel")
    other = out.view(2)
    with pytest.warns(UserWarning, match="The out tensor will be resized"):
        torch.arange(0, 1000, 1, dtype=torch.float32, device="accel", out=out)
    assert out.shape == (1000,) and other.untyped_storage().data_ptr() == out.untyped_storage().data_ptr()
    assert torch.equal(out.cpu(), torch.arange(1000.0)) and other.tolist() == [0, 1]


def test_warning_points_at_the_caller():
    out = torch.zeros(5, device="accel")
    with pytest.warns(UserWarning, match="resized") as caught:
        torch.add(A.to("accel"), 1, out=out)
    assert caught[0].filename == __file__


def test_warning_as_error_leaves_the_device_usable():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="resized"):
            torch.add(A.to("accel"), 1, out=torch.zeros(5, device="accel"))
    assert torch.ones(3, device="accel").sum().item() == 3


ERRORS = {
    "shape": lambda d: torch.ones(2, 3, device=d) @ torch.ones(2, 3, device=d),
    "broadcast": lambda d: torch.ones(3, device=d) + torch.ones(4, device=d),
    "too many indices": lambda d: torch.ones(3, device=d)[0, 0],
    "dim out of range": lambda d: torch.ones(3, device=d).sum(4),
    "dtype": lambda d: torch.ones(3, device=d).bitwise_and(torch.ones(3, device=d)),
    "out of the wrong dtype": lambda d: torch.add(
        torch.ones(3, device=d), 1, out=torch.ones(3, dtype=torch.int32, device=d)
    ),
    "in-place of the wrong dtype": lambda d: torch.ones(3, dtype=torch.int32, device=d).add_(1.5),
    "not implemented for the dtype": lambda d: torch.linalg.svd(torch.ones(3, 3, dtype=torch.float16, device=d)),
    "singular": lambda d: torch.linalg.inv(torch.zeros(3, 3, device=d)),
    "not positive definite": lambda d: torch.linalg.cholesky(-torch.eye(3, device=d)),
    "expanded in place": lambda d: torch.ones(1, device=d).expand(3).add_(1),
    "expanded in place by mul": lambda d: torch.ones(1, 3, device=d).expand(3, 3).mul_(torch.ones(3, 3, device=d)),
    "expanded out": lambda d: torch.add(torch.ones(3, device=d), 1, out=torch.ones(1, device=d).expand(3)),
    "out overlaps an operand": lambda d: (lambda x: torch.add(x[:-1], 1, out=x[1:]))(torch.ones(4, device=d)),
    "fill_ by a vector": lambda d: torch.ones(3, device=d).fill_(torch.ones(2, device=d)),
    "scatter of another dtype": lambda d: torch.ones(3, device=d).scatter(
        0, torch.tensor([0], device=d), torch.ones(1, dtype=torch.int32, device=d)
    ),
    "cat of nothing": lambda d: torch.cat([]),
    "max of nothing": lambda d: torch.empty(0, device=d).max(),
    "repeat_interleave negative": lambda d: torch.repeat_interleave(torch.tensor([-1], device=d)),
    "avg_pool": lambda d: torch.nn.functional.avg_pool2d(torch.ones(1, 2, device=d), 3),
    "conv of wrong channels": lambda d: torch.nn.functional.conv2d(
        torch.ones(1, 2, 5, 5, device=d), torch.ones(3, 4, 2, 2, device=d)
    ),
    "conv of another dtype": lambda d: torch.nn.functional.conv2d(
        torch.ones(1, 2, 5, 5, device=d), torch.ones(3, 2, 2, 2, device=d, dtype=torch.float64)
    ),
}


@pytest.mark.parametrize("call", ERRORS.values(), ids=ERRORS.keys())
def test_errors_are_the_cpus(call):
    with pytest.raises(Exception) as expected:
        call("cpu")
    with pytest.raises(expected.type) as raised:
        call("accel")
    assert type(raised.value) is expected.type
    assert str(raised.value) == str(expected.value)
    assert torch.ones(3, device="accel").sum().item() == 3  # and no error is left behind


def test_failed_kernel_leaves_its_operands():
    x = torch.arange(6.0).reshape(2, 3).to("accel")
    gc.collect()
    allocated = torch.accel.memory_allocated()
    for _ in range(3):
        with pytest.raises(RuntimeError):
            x @ x
        with pytest.raises(torch.linalg.LinAlgError):
            torch.linalg.inv(torch.zeros(3, 3, device="accel"))
    gc.collect()
    assert torch.accel.memory_allocated() == allocated
    assert torch.equal(x.cpu(), torch.arange(6.0).reshape(2, 3))


# ---- Aliasing


def test_results_are_adopted_without_a_copy():
    x = torch.ones(1 << 20, device="accel")
    gc.collect()
    torch.accel.synchronize()
    torch.accel.reset_peak_memory_stats()
    before = torch.accel.memory_allocated()
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


def define(schema, cpu, key="CPU"):
    """An operator of its own namespace with that kernel; the library lives as long as the function."""
    library = torch.library.Library("fb" + uuid.uuid4().hex[:12], "DEF")
    library.define(schema)
    name = schema.split("(")[0]
    if cpu is not None:
        library.impl(name, cpu, key)
    op = getattr(getattr(torch.ops, library.ns), name)
    LIBRARIES.append(library)
    return op


LIBRARIES = []


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


def test_zero_tensors():
    zero = torch._efficientzerotensor((3,), device="accel")
    ones = torch.ones(3, device="accel")
    assert torch.dot(zero, ones).item() == 0
    check_equal([zero * 2, zero + ones, ones - zero], [torch.zeros(3), torch.ones(3), torch.ones(3)])


# ---- Where it runs, and behind what


def test_runs_behind_queued_work():
    x = torch.zeros(1000, device="accel")
    torch.accel._sleep(20_000_000)
    x.fill_(3)
    y = x + 1
    x.fill_(9)
    check_equal(y, torch.full((1000,), 4.0))


def test_does_not_wait_for_other_streams():
    side = torch.accel.Stream()
    x = torch.ones(3, device="accel")
    with hold_stream(side):
        assert (x + 1).sum().item() == 6


@pytest.mark.parametrize("registered_as", ["custom_op", "library"])
def test_python_kernel_runs_on_the_callers_thread(registered_as):
    seen = []

    def kernel(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append((threading.get_ident(), x.device.type, float(x[0])))
        return torch.from_numpy(np.cumsum(x.numpy())) + y

    if registered_as == "custom_op":
        op = torch.library.custom_op(
            "accel_test::op" + uuid.uuid4().hex[:12], kernel, mutates_args=(), device_types="cpu"
        )
        op.register_fake(lambda x, y: torch.empty_like(x))
    else:
        op = define("numpy(Tensor x, Tensor y) -> Tensor", kernel)
    x, y = torch.zeros(4, device="accel"), torch.ones(4, device="accel")
    before = torch_accel.fallback_report().total
    torch.accel._sleep(20_000_000)
    x.fill_(2)
    check_equal(op(x, y), torch.tensor([3.0, 5, 7, 9]))
    assert seen == [(threading.get_ident(), "cpu", 2.0)]
    assert torch_accel.fallback_report().total == before + 1
    result = []
    other = threading.Thread(target=lambda: result.append(op(x, y)))
    other.start()
    other.join()
    check_equal(result[0], torch.tensor([3.0, 5, 7, 9]))
    assert seen[1][0] == other.ident


def test_python_kernel_writes_and_raises():
    def kernel(x: torch.Tensor) -> None:
        if x[0] < 0:
            raise KeyError("negative")
        x.numpy()[:] = np.sqrt(x.numpy())

    op = torch.library.custom_op(
        "accel_test::op" + uuid.uuid4().hex[:12], kernel, mutates_args={"x"}, device_types="cpu"
    )
    x = torch.full((3,), 4.0, device="accel")
    op(x)
    assert x.tolist() == [2, 2, 2]
    x.neg_()
    with pytest.raises(KeyError, match="negative"):
        op(x)
    assert x.tolist() == [-2, -2, -2]


def test_python_kernel_memory_is_free_now():
    # Blocks that queued work still uses are not handed to a kernel that writes at once.
    torch.accel.empty_cache()
    op = define("ones(Tensor x) -> Tensor", lambda x: torch.ones(1 << 18))
    x = torch.zeros(1 << 18, device="accel")
    side = torch.accel.Stream()
    y = torch.zeros(4, device="accel")
    torch.accel.synchronize()
    with hold_stream(side):
        with torch.accel.stream(side):
            scratch = torch.full((1 << 18,), 5.0, device="accel")
            kept = torch.empty_like(scratch).copy_(scratch)
            del scratch
        result = op(y)  # on the main stream
    side.synchronize()
    check_equal([kept, result, x], [torch.full((1 << 18,), 5.0), torch.ones(1 << 18), torch.zeros(1 << 18)])


def test_python_kernel_with_autograd():
    @torch.library.custom_op("accel_test::op" + uuid.uuid4().hex[:12], mutates_args=(), device_types="cpu")
    def square(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() ** 2)

    square.register_autograd(
        lambda ctx, grad: grad * 2 * ctx.saved_tensors[0],
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    x = torch.arange(3.0, device="accel", requires_grad=True)
    square(x).sum().backward()
    check_equal(x.grad, torch.tensor([0.0, 2, 4]))


# ---- Counting and forbidding


def test_report_counts():
    x = torch.ones(3, device="accel")
    torch_accel.fallback_report(reset=True)
    x.nonzero()
    x.nonzero()
    x.unique()
    report = torch_accel.fallback_report(reset=True)
    assert report == {"aten::nonzero": 2, "aten::_unique2": 1}
    assert list(report.values()) == sorted(report.values(), reverse=True) and report.total == 3
    assert_expected_inline(str(torch_accel.fallback_report()), """accel: no operator fell back""")


def test_queued_operators_do_not_count():
    torch_accel.fallback_report(reset=True)
    x = torch.empty(3, device="accel").fill_(1).zero_()
    x.copy_(torch.ones(3))
    x[0].item()
    x.uniform_()
    assert torch_accel.fallback_report().total == 0


def test_forbidden():
    x = torch.ones(3, device="accel")
    with fallback_mode("error"), pytest.raises(NotImplementedError) as raised:
        x.nonzero()
    assert_expected_inline(
        str(raised.value),
        """accel: aten::nonzero has no kernel for accel, and ACCEL_FALLBACK=error forbids to run the CPU's; set ACCEL_FALLBACK=allow""",
    )
    assert x.nonzero().shape == (3, 1)  # allowed again


def test_warned_once_an_operator():
    x = torch.ones(3, device="accel")
    torch_accel.fallback_report(reset=True)
    with fallback_mode("warn"), pytest.warns(UserWarning) as caught:
        x.nonzero()
        x.nonzero()
    assert len(caught) == 1
    assert_expected_inline(
        str(caught[0].message).split(" (Triggered")[0],
        """accel: aten::nonzero runs its CPU kernel on device memory (ACCEL_FALLBACK=warn)""",
    )


def test_unknown_mode():
    with pytest.raises(RuntimeError) as raised, fallback_mode("never"):
        pass
    assert_expected_inline(str(raised.value), """accel: ACCEL_FALLBACK='never' is not one of allow, warn, error""")


def test_unknown_mode_in_the_environment(script):
    done = script(
        """
        import torch
        try:
            torch.ones(3, device="accel").nonzero()
        except RuntimeError as error:
            print(error)
        print(torch.zeros(3).to("accel").cpu().tolist())
        """,
        ACCEL_FALLBACK="yes",
    )
    assert done.stdout == "accel: ACCEL_FALLBACK='yes' is not one of allow, warn, error\n[0.0, 0.0, 0.0]\n"


def test_operator_without_a_cpu_kernel():
    op = define("meta_only(Tensor x) -> Tensor", lambda x: torch.empty_like(x), "Meta")
    with pytest.raises(NotImplementedError) as raised:
        op(torch.ones(3, device="accel"))
    assert_expected_inline(
        str(raised.value).split("::", 1)[1],
        """meta_only has no kernel for accel, and none for the CPU that it could fall back on; move its operands with .cpu() and use an operator that the CPU has""",
    )
    assert str(raised.value).startswith("accel: fb")


OTHER_LAYOUTS = {
    "to_mkldnn": lambda x: x.to_mkldnn(),
    "quantize": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
}


@pytest.mark.parametrize("call", OTHER_LAYOUTS.values(), ids=OTHER_LAYOUTS.keys())
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_other_layouts_name_accel(call):
    x = torch.eye(3, device="accel")
    with pytest.raises((RuntimeError, NotImplementedError), match="accel"):
        call(x)
    check_equal(x, torch.eye(3))


PACKING = {
    "fbgemm_linear_quantize_weight": lambda x: torch.fbgemm_linear_quantize_weight(x),
    "fbgemm_pack_gemm_matrix_fp16": lambda x: torch.fbgemm_pack_gemm_matrix_fp16(x),
    "fbgemm_pack_quantized_matrix": lambda x: torch.fbgemm_pack_quantized_matrix(x.to(torch.int8)),
}


@pytest.mark.parametrize("call", PACKING.values(), ids=PACKING.keys())
def test_packing_for_the_host_is_refused(call):
    with pytest.raises(NotImplementedError, match=r"accel: aten::fbgemm_\w+ packs weights for the host's processor"):
        call(torch.ones(3, 4, device="accel"))


MIXED = {
    "add": lambda x, y: x + y,
    "add, the CPU first": lambda x, y: y + x,
    "mm": lambda x, y: torch.mm(x, y),
    "cat": lambda x, y: torch.cat([x, y]),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "index_select": lambda x, y: torch.index_select(x, 0, torch.tensor([0])),
    "index of CPU by accel": lambda x, y: y[torch.tensor([0], device="accel")],
    "linear": lambda x, y: torch.nn.functional.linear(x, y),
    "in-place": lambda x, y: x.add_(y),
    "out": lambda x, y: torch.add(x, x, out=y),
    "lerp": lambda x, y: torch.lerp(x, x, y),
    "batch_norm": lambda x, y: torch.nn.functional.batch_norm(x, y[0], y[0]),
    "conv": lambda x, y: torch.nn.functional.conv2d(x[None, None], y[None, None]),
    "embedding": lambda x, y: torch.nn.functional.embedding(torch.tensor([0]), x),
    "meta": lambda x, y: x + y.to("meta"),
}


@pytest.mark.parametrize("call", MIXED.values(), ids=MIXED.keys())
def test_mixed_devices(call):
    x, y = torch.eye(3, device="accel"), torch.eye(3)
    with pytest.raises((RuntimeError, IndexError), match=r"accel:0|the same device as the indexed tensor") as raised:
        call(x, y)
    assert "device" in str(raised.value)
    check_equal(x, torch.eye(3))
    assert torch.equal(y, torch.eye(3))


def test_mixed_devices_text():
    with pytest.raises(RuntimeError) as raised:
        torch.mm(torch.eye(3, device="accel"), torch.eye(3))
    assert_expected_inline(
        str(raised.value),
        """Expected all tensors to be on the same device, but got mat2 is on cpu, different from other tensors on accel:0 (when checking argument in method aten::mm)""",
    )


def test_transformer_encoder_fast_path():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    encoder = torch.nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        expected = encoder(x)
        actual = encoder.to("accel")(x.to("accel"))
    torch.testing.assert_close(actual.cpu(), expected)


@pytest.mark.skipif("ACCEL_THREADS" in os.environ, reason="ACCEL_THREADS overrides torch.set_num_threads")
@pytest.mark.parametrize("threads", [1, 2])
def test_thread_count_reaches_the_worker(threads):
    # These sums depend on how they are split: bit-equal only at an equal count.
    torch.manual_seed(3)
    x = torch.randn(300_001)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        check_equal([x.to("accel").sum(), x.to("accel").norm()], [x.sum(), x.norm()])
        y = x[:30_000].reshape(100, 300)
        check_equal(y.to("accel") @ y.to("accel").t(), y @ y.t())
    finally:
        torch.set_num_threads(before)


def test_thread_count_of_the_environment(script):
    # From the first kernel of a worker on; which counts make a difference is asked of the CPU.
    script(
        """
        import torch
        torch.set_num_threads(2)
        torch.manual_seed(3)
        x = torch.randn(300_001)
        y = x.to("accel").sum().cpu()
        two = x.sum()
        torch.set_num_threads(1)
        one = x.sum()
        assert not torch.equal(one, two)
        assert torch.equal(y, one)
        """,
        ACCEL_THREADS=1,
    )
