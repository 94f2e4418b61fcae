"""Pointwise operators without a structured kernel: results, strides and promotion as the CPU's TensorIterator has them."""

import numpy as np
import pytest
import torch
from scipy import special

from tests.aten.strides import layouts
from torch_accel.testing.held import check_held, check_refused

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.uint8]
COMPLEX = [torch.complex64, torch.complex128]
SIZES = [(), (5,), (0, 3), (3, 4), (2, 3, 4, 5)]

UNARY = {
    "angle": (torch.angle, [torch.bool, *INTEGERS, *FLOATS, *COMPLEX]),
    "conj_physical": (torch.conj_physical, [torch.int64, torch.float32, *COMPLEX]),
    "logit": (lambda x: torch.logit(x, 0.1), [torch.bool, torch.int64, *FLOATS]),
    "nan_to_num": (torch.nan_to_num, [torch.bool, torch.int64, *FLOATS, torch.complex64]),
    "mvlgamma": (lambda x: torch.mvlgamma(x.abs() + 2, 2), [torch.int64, *FLOATS]),
    "frexp": (torch.frexp, FLOATS),
    "abs": (torch.abs, [torch.int64, *FLOATS, *COMPLEX]),
}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, sizes):
    call, dtypes = UNARY[name]
    for dtype in dtypes:
        for x in layouts(*sizes, dtype=dtype):
            check_held(call, x)


BINARY = {
    "floor_divide": (torch.floor_divide, [*INTEGERS, *FLOATS]),
    "rsub": (torch.rsub, [*INTEGERS, *FLOATS, *COMPLEX]),
    "<<": (lambda a, b: a << b, INTEGERS),
    ">>": (lambda a, b: a >> b, INTEGERS),
    "complex": (torch.complex, [torch.float32, torch.float64, torch.float16]),
    "polar": (torch.polar, [torch.float32, torch.float64]),
}


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    call, dtypes = BINARY[name]
    for dtype in dtypes:
        for sizes in SIZES:
            for x in layouts(*sizes, dtype=dtype):
                # Integers by which one may divide or shift.
                y = x % 5 + 1 if not dtype.is_complex else x
                check_held(call, x, y)
                check_held(call, x, y[..., :1] if y.dim() else y)


def test_promotion():
    i, f = torch.arange(1, 7, dtype=torch.int32).reshape(2, 3), torch.linspace(-2, 2, 3, dtype=torch.float64)
    for call in (torch.floor_divide, torch.rsub):
        check_held(call, f, i)
        check_held(call, i, torch.tensor(2))
        check_held(call, i, 2)
        check_held(call, f, 0.5)
    check_held(lambda x: x << 2, i)
    check_held(lambda x: torch.remainder(7, x), i)
    check_held(lambda x: torch.remainder(-7.5, x), i)
    check_held(lambda x: torch.rsub(x, x, alpha=2), i)


INPLACE = {
    "floor_divide_": lambda x: x.floor_divide_(x.abs() + 1),
    "floor_divide_ by a scalar": lambda x: x.floor_divide_(2),
    "nan_to_num_": lambda x: x.nan_to_num_(),
    "conj_physical_": lambda x: x.conj_physical_(),
    "abs_": lambda x: x.abs_(),
    "logical_not_": lambda x: x.logical_not_(),
    "logical_and_": lambda x: x.logical_and_(x > 0),
}


@pytest.mark.parametrize("name", INPLACE)
def test_inplace(name):
    for x in layouts(2, 3, 4, 5):
        check_held(INPLACE[name], x)


def test_inplace_of_some_dtypes():
    for x in layouts(3, 4, dtype=torch.int64):
        check_held(lambda x: x.__ilshift__(2), x)
        check_held(lambda x: x.__irshift__(x % 3), x)
    for x in layouts(3, 4):
        check_held(lambda x: x.logit_(0.2), x)
    for x in layouts(3, 4, dtype=torch.complex64):
        check_held(lambda x: x.conj_physical_(), x)


OUT = {
    "angle": (torch.angle, 1),
    "conj_physical": (torch.conj_physical, 1),
    "logit": (lambda x, out: torch.logit(x, 0.1, out=out), 1),
    "nan_to_num": (lambda x, out: torch.nan_to_num(x, out=out), 1),
    "floor_divide": (torch.floor_divide, 2),
}


@pytest.mark.parametrize("name", OUT)
def test_out(name):
    call, operands = OUT[name]
    for x in layouts(3, 4):
        for out in (torch.zeros(0), torch.zeros(3, 4), torch.zeros(4, 3).t(), torch.zeros(3, 8)[:, 1::2]):
            check_held(lambda x, out: call(*[x] * operands, out=out), x, out.clone() if out.is_contiguous() else out)
    check_held(lambda x: call(*[x] * operands, out=x), torch.linspace(0.1, 0.9, 5))


def test_out_of_two():
    for x in layouts(3, 4):
        for m, e in ((torch.zeros(0), torch.zeros(0)), (torch.zeros(4, 3).t(), torch.zeros(3, 4))):
            check_held(lambda x, m, e: torch.frexp(x, out=(m, e)), x, m.clone(), e.to(torch.int32))
    check_held(lambda x, out: torch.complex(x, x, out=out), torch.ones(3), torch.zeros(0, dtype=torch.complex64))


def test_gradients_of_samples():
    x = torch.rand(3, 4) + 0.5
    check_held(torch.ops.aten._standard_gamma_grad, x, x.mT.contiguous().mT + 1)
    check_held(torch.ops.aten._dirichlet_grad, x / 4, x, x + 2)


def test_oracle():
    x = np.array([-7.0, -1.5, 0.25, 3.0])
    y = torch.from_numpy(x).to("accel")
    np.testing.assert_array_equal(torch.floor_divide(y, 2).cpu(), np.floor_divide(x, 2))
    np.testing.assert_array_equal(torch.rsub(y, 1, alpha=2).cpu(), 1 - 2 * x)
    np.testing.assert_allclose(torch.angle(torch.complex(y, y)).cpu(), np.angle(x + 1j * x))
    np.testing.assert_allclose(torch.logit(y[2:3]).cpu(), special.logit(x[2:3]))
    np.testing.assert_allclose(torch.mvlgamma(y[3:], 2).cpu(), special.multigammaln(x[3:], 2))
    for mine, theirs in zip(torch.frexp(y), np.frexp(x), strict=True):
        np.testing.assert_array_equal(mine.cpu(), theirs)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.floor_divide(x, x[:, :2]),
        lambda x: x.int().floor_divide_(2.5),
        lambda x: x[0].floor_divide_(x),
        lambda x: x << x[:, :2],
        lambda x: x.__ilshift__(x),
        lambda x: torch.rsub(x > 0, x > 0),
        lambda x: torch.rsub(x.int(), 1, alpha=0.5),
        lambda x: torch.complex(x, x.double()),
        lambda x: torch.complex(x.int(), x.int()),
        lambda x: torch.polar(x, x, out=x),
        lambda x: torch.frexp(x.int()),
        lambda x: torch.logit(x.to(torch.complex64)),
        lambda x: x.int().logit_(),
        lambda x: torch.mvlgamma(x, 0),
        lambda x: torch.nan_to_num(x, out=x.double()),
        lambda x: torch.angle(x, out=x.int()),
    ],
)
def test_errors(call):
    check_refused(call, torch.ones(3, 4))
