"""flip, roll, narrow_copy and the gradient of unfold."""

import numpy as np
import pytest
import torch

from tests.aten.strides import layouts
from torch_accel.testing.held import check_held, check_refused

SIZES = [(), (5,), (0,), (3, 4), (2, 0, 3), (2, 3, 4, 5), (2, 1, 4, 1), (1, 3, 4, 4), (2, 3, 2, 4, 2)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex64])
def test_flip(sizes, dtype):
    for x in layouts(*sizes, dtype=dtype):
        for dims in ((), (0,), (-1, 0), tuple(range(len(sizes)))):
            if len(set(dims)) <= len(sizes):
                dims = tuple({d % max(len(sizes), 1) for d in dims})
                check_held(torch.flip, x, dims)


@pytest.mark.parametrize("sizes", SIZES)
def test_roll(sizes):
    for x in layouts(*sizes):
        check_held(torch.roll, x, 2)
        for dim in range(len(sizes)):
            for shift in (0, 1, -7, 9):
                check_held(torch.roll, x, shift, dim)
        if len(sizes) > 1:
            check_held(torch.roll, x, (1, -1), (0, -1))
            check_held(torch.roll, x, (1, 0, 3), (1, 0, 1))


@pytest.mark.parametrize("sizes", [(5,), (3, 4), (2, 0, 3), (2, 3, 4, 5)])
def test_narrow_copy(sizes):
    for x in layouts(*sizes):
        check_held(lambda x: x.narrow_copy(-1, 1, 2), x)
        check_held(lambda x: x.narrow_copy(0, -1, 1), x)
        check_held(lambda x: x.narrow_copy(0, 0, 0), x)
        check_held(lambda x, out: torch.narrow_copy(x, 0, 1, 1, out=out), x, torch.empty(0))


@pytest.mark.parametrize("dim, size, step", [(0, 3, 2), (-1, 2, 2), (1, 4, 1), (0, 1, 3)])
def test_unfold_backward(dim, size, step):
    sizes = torch.zeros(7, 4).unfold(dim, size, step).shape
    for grad in layouts(*sizes):
        check_held(torch.ops.aten.unfold_backward, grad, [7, 4], dim, size, step)


def test_oracle():
    x = np.arange(24).reshape(2, 3, 4)
    y = torch.from_numpy(x).to("accel")
    np.testing.assert_array_equal(y.flip(0, 2).cpu().numpy(), np.flip(x, (0, 2)))
    np.testing.assert_array_equal(y.roll((1, -2), (0, 2)).cpu().numpy(), np.roll(x, (1, -2), (0, 2)))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.flip(2),
        lambda x: x.flip(0, 0),
        lambda x: x.roll((1, 2), (0,)),
        lambda x: x.roll(1, 5),
        lambda x: x.sum().roll(1, 0),
        lambda x: x.narrow_copy(0, 2, 2),
        lambda x: x.narrow_copy(3, 0, 1),
        lambda x: x.sum().narrow_copy(0, 0, 1),
        lambda x: torch.narrow_copy(x, 0, 0, 1, out=x.int()),
    ],
)
def test_errors(call):
    check_refused(call, torch.ones(3, 4))
