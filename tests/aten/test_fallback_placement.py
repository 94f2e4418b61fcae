"""Where a fallback's kernel runs and behind what: on its stream's worker, in order; Python kernels on the caller's thread."""

import os
import threading
import uuid

import numpy as np
import pytest
import torch

import torch_accel
from tests.aten.fallback_cases import check_equal, define
from torch_accel.testing import hold_stream

pytestmark = pytest.mark.usefixtures("no_leaked_workspace")


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
