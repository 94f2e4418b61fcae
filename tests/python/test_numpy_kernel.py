"""Operators defined by a NumPy function."""

import contextlib
import threading

import numpy as np
import pytest
import torch
from expecttest import assert_expected_inline
from torch.accel.testing import hold_stream, plant

import torch_accel


@torch_accel.numpy_kernel("accel_test::axpy(Tensor x, Tensor y, float a=1.0) -> Tensor")
def axpy(x, y, a):
    return (a * x + y).astype(x.dtype)


@axpy.register_fake
def _(x, y, a=1.0):
    return torch.empty(torch.broadcast_shapes(x.shape, y.shape), dtype=x.dtype, device=x.device)


def axpy_setup(ctx, inputs, output):
    ctx.a = inputs[2]


def axpy_backward(ctx, grad):
    return grad * ctx.a, grad, None


axpy.register_autograd(axpy_backward, setup_context=axpy_setup)


@torch_accel.numpy_kernel("accel_test::scale_(Tensor(a!) x, float a) -> ()")
def scale_(x, a):
    x *= a


@torch_accel.numpy_kernel("accel_test::many(Tensor[] xs, *, int[] shifts, str name='') -> (Tensor, Tensor[], int)")
def many(xs, *, shifts, name):
    return sum(xs), [np.roll(x, shift) for x, shift in zip(xs, shifts, strict=True)], len(name)


def on_accel(*values, **kwargs):
    return torch.tensor(values, device="accel", **kwargs)


def test_call():
    x, y = on_accel(1.0, 2.0), on_accel(10.0, 20.0)
    for result in (
        axpy(x, y, 3.0),
        torch.ops.accel_test.axpy(x, y, 3.0),
        torch.ops.accel_test.axpy.default(x, y, a=3.0),
    ):
        assert result.device == x.device and result.dtype == torch.float32
        assert result.tolist() == [13, 26]
    assert axpy(x, y).tolist() == [11, 22]


def test_arguments_arrive_as_they_are():
    seen = {}

    @torch_accel.numpy_kernel("accel_test::look(Tensor x, Tensor? y, Tensor? host=None) -> Tensor")
    def look(x, y, host):
        seen.update(x=(type(x), x.dtype, x.shape, x.strides, x.flags.writeable), y=y, host=host)
        return x

    base = torch.arange(12, dtype=torch.int16).reshape(3, 4).to("accel")
    result = look(base.t()[1:], None, torch.ones(2))
    assert seen["x"] == (np.ndarray, np.int16, (3, 3), (2, 8), False)
    assert seen["y"] is None and (seen["host"] == 1).all() and not seen["host"].flags.writeable
    assert result.is_contiguous() and torch.equal(result.cpu(), base.cpu().t()[1:])
    assert result.data_ptr() != base.data_ptr()


def test_waits_for_the_stream():
    x = torch.zeros(4, device="accel")
    torch.accel._sleep(20_000_000)
    x.add_(1)
    assert axpy(x, x).tolist() == [2] * 4


def test_other_streams_do_not_hold_it():
    x = torch.ones(4, device="accel")
    torch.accel.synchronize()
    with hold_stream(torch.accel.Stream()):
        assert axpy(x, x).tolist() == [2] * 4


LATE = 3_000_017  # of no other block of this process, so that the freed one is the best fit


held = contextlib.ExitStack()


@torch_accel.numpy_kernel("accel_test::plus_one_late(Tensor x) -> Tensor")
def plus_one_late(x):
    """Meanwhile, another thread fills and frees a tensor of the result's size; the fill is still to come at the return."""

    def fill_and_free():
        held.enter_context(hold_stream())
        torch.full((LATE,), 7.0, device="accel")

    thread = threading.Thread(target=fill_and_free)
    thread.start()
    thread.join()
    return x + 1


def run_plus_one_late():
    torch.accel.empty_cache()
    with held:
        result = plus_one_late(torch.ones(LATE, device="accel"))
    torch.accel.synchronize()
    return set(torch.accel.memory.numpy(result).tolist())


def test_result_is_not_memory_that_queued_work_uses():
    assert run_plus_one_late() == {2.0}


def test_that_test_sees_a_missing_ticket_rule():
    with plant("ticket_rule"):
        assert run_plus_one_late() != {2.0}  # but 7, or poison


def test_mutable_argument():
    x = on_accel(1.0, 2.0, 3.0)
    version, address = x._version, x.data_ptr()
    assert scale_(x[1:], 10.0) is None
    assert x.tolist() == [1, 20, 30] and x.data_ptr() == address
    assert x._version > version


def test_read_only_argument():
    @torch_accel.numpy_kernel("accel_test::cheat(Tensor x) -> Tensor")
    def cheat(x):
        x += 1
        return x

    x = on_accel(1.0)
    with pytest.raises(ValueError, match="read-only"):
        cheat(x)
    assert x.tolist() == [1]


def test_several_results():
    total, rolled, length = many([on_accel(1, 2), on_accel(3, 4)], shifts=[1, 0], name="abc")
    assert total.tolist() == [4, 6] and [r.tolist() for r in rolled] == [[2, 1], [3, 4]] and length == 3
    assert total.dtype == torch.int64 and total.is_accel and all(r.is_accel for r in rolled)


def test_empty_and_0_dim():
    empty = torch.empty(0, 3, device="accel")
    assert axpy(empty, empty).shape == (0, 3)
    assert axpy(on_accel(2.0).sum(), on_accel(3.0).sum()).item() == 5


def test_error_of_the_function():
    class Broken(Exception):
        pass

    @torch_accel.numpy_kernel("accel_test::broken(Tensor x) -> Tensor")
    def broken(x):
        raise Broken("seen")

    x = on_accel(1.0)
    with pytest.raises(Broken, match="seen"):
        broken(x)
    assert (x + 1).tolist() == [2]
    torch.accel.synchronize()


def test_gradient():
    x = torch.rand(3, dtype=torch.float64, device="accel", requires_grad=True)
    y = torch.rand(3, dtype=torch.float64, device="accel", requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, y: axpy(x, y, 2.5), (x, y))


def test_fake_kernel():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.empty(4, 1, device="accel")
        result = axpy(x, torch.empty(3, device="accel"))
        assert result.shape == (4, 3) and result.device == torch.device("accel", 0)
        scale_(x, 2.0)
    meta = axpy(torch.empty(2, device="meta"), torch.empty(2, device="meta"))
    assert meta.device.type == "meta" and meta.shape == (2,)


def test_opcheck():
    utils = ("test_schema", "test_faketensor")
    x = torch.rand(3, device="accel", requires_grad=True)
    torch.library.opcheck(axpy, (x, torch.rand(3, device="accel"), 2.0), test_utils=utils)
    torch.library.opcheck(scale_, (torch.rand(3, device="accel"), 2.0), test_utils=utils)


def test_kernel_for_another_device():
    @torch_accel.numpy_kernel("accel_test::negate(Tensor x) -> Tensor")
    def negate(x):
        return -x

    with pytest.raises(NotImplementedError, match="accel_test::negate"):
        negate(torch.ones(1))
    negate.register_kernel("cpu")(lambda x: -x)
    assert negate(torch.ones(1)).tolist() == [-1]
    assert negate(on_accel(1.0)).tolist() == [-1]


def bad_uses():
    @torch_accel.numpy_kernel("accel_test::text(Tensor x) -> Tensor")
    def text(x):
        return np.array(["a"])

    return [
        lambda: torch_accel.numpy_kernel("axpy(Tensor x) -> Tensor"),
        lambda: axpy(on_accel(1.0, dtype=torch.bfloat16), on_accel(1.0)),
        lambda: text(on_accel(1.0)),
    ]


def test_bad_uses():
    texts = []
    for use in bad_uses():
        with pytest.raises((TypeError, ValueError, RuntimeError)) as error:
            use()
        texts.append(f"{error.type.__name__}: {error.value}")
    assert_expected_inline(
        "\n".join(texts),
        """\
ValueError: accel: the schema of a NumPy kernel needs a namespace, as in 'demo::axpy', got 'axpy(Tensor x) -> Tensor'
TypeError: NumPy has no type for torch.bfloat16, the dtype of this accel tensor; view its bytes with .view(torch.int16)
TypeError: accel: a NumPy kernel returned an array of dtype <U1, for which torch has none; convert it with .astype()""",
    )
    with pytest.raises(RuntimeError):
        torch_accel.numpy_kernel("accel_test::f(Tenser x) -> Tensor")
