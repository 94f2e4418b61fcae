"""Reductions without a structured kernel."""

import numpy as np
import pytest
import torch

from tests.aten.strides import layouts
from torch_accel.testing.held import check_held, check_refused

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.uint8]
SIZES = [(), (5,), (1,), (3, 4), (2, 3, 4, 5)]
DIMS = [None, 0, -1, (), (0, -1)]

ALL = {
    "max": (torch.max, [torch.bool, *INTEGERS, *FLOATS]),
    "min": (torch.min, [torch.bool, *INTEGERS, *FLOATS]),
    "prod": (torch.prod, [torch.bool, *INTEGERS, *FLOATS, torch.complex64]),
    "prod in float64": (lambda x: torch.prod(x, dtype=torch.float64), [torch.int64, torch.float32]),
    "count_nonzero": (torch.count_nonzero, [torch.bool, *INTEGERS, *FLOATS, torch.complex64]),
    "nansum": (torch.nansum, [torch.bool, *INTEGERS, *FLOATS]),
}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", ALL)
def test_of_all(name, sizes):
    call, dtypes = ALL[name]
    for dtype in dtypes:
        for x in layouts(*sizes, dtype=dtype):
            check_held(call, x)


def fits(dims, sizes):
    return not (len(sizes) < 2 and dims == (0, -1))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("keepdim", [False, True])
def test_along_dimensions(sizes, dims, keepdim):
    if not fits(dims, sizes):
        dims = 0  # one dimension has no two names
    for x in layouts(*sizes):
        x = x.masked_fill(x == 1, torch.nan)
        check_held(lambda x: torch.nansum(x, dims, keepdim), x)
        check_held(lambda x: torch.nansum(x, dims, keepdim, dtype=torch.float64), x)
        check_held(lambda x: torch.nansum(x.int(), dims, keepdim), x.nan_to_num())


def test_count_nonzero_along_dimensions():
    for dtype in (torch.bool, torch.int64, torch.float32, torch.complex64):
        for x in layouts(2, 3, 4, 5, dtype=dtype):
            for dims in (0, -1, (1, 2), (3, 0, 1)):
                check_held(torch.count_nonzero, x, dims)


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
def test_deviations(name, dims, keepdim):
    call = getattr(torch, name)
    for sizes in SIZES:
        if fits(dims, sizes):
            for dtype in FLOATS:
                for x in layouts(*sizes, dtype=dtype):
                    check_held(lambda x: call(x, dims, correction=0.5, keepdim=keepdim), x)


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_deviations_of_complex_numbers(name):
    for x in layouts(2, 3, 4, dtype=torch.complex64):
        check_held(lambda x: getattr(torch, name)(x, 1), x)


def test_trace():
    for dtype in (*INTEGERS, torch.float32, torch.float64, torch.complex64):
        for sizes in ((3, 4), (4, 2), (0, 3)):
            for x in layouts(*sizes, dtype=dtype):
                check_held(torch.trace, x)


@pytest.mark.parametrize("out", [torch.zeros(0), torch.zeros(3), torch.zeros(6)[::2]])
def test_out(out):
    for x in layouts(3, 4):
        check_held(lambda x, out: torch.nansum(x, 1, out=out), x, out)
        check_held(lambda x, out: torch.var(x, 1, out=out), x, out)
        check_held(lambda x, out: torch.std(x, 1, out=out), x, out)
    check_held(lambda x, out: torch.max(x, out=out), x, torch.zeros(()))
    check_held(lambda x, out: torch.min(x, out=out), x, torch.zeros(0))


def test_gradients():
    def gradient(x):
        x = x.clone().requires_grad_()
        (x.nansum(0).sum() + x.std() + x.var(1).sum()).backward()
        return x.grad

    check_held(gradient, torch.linspace(-1, 2, 12).reshape(3, 4))


def test_oracle():
    x = np.linspace(-2, 3, 24).reshape(2, 3, 4)
    y = torch.from_numpy(x).to("accel")
    np.testing.assert_allclose(torch.std(y, (0, 2)).cpu(), x.std((0, 2), ddof=1))
    np.testing.assert_allclose(torch.var(y, correction=0).cpu(), x.var())
    np.testing.assert_allclose(torch.nansum(y, 1).cpu(), np.nansum(x, 1))
    assert (y.max().item(), y.min().item(), torch.count_nonzero(y > 0).item()) == (x.max(), x.min(), (x > 0).sum())


def test_too_few_degrees_of_freedom_are_warned_of():
    with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
        torch.ones(1, device="accel").var()
        torch.accel.synchronize()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x[:0].max(),
        lambda x: x.to(torch.complex64).min(),
        lambda x: x.nansum(2),
        lambda x: x.nansum((0, 0)),
        lambda x: x.to(torch.complex64).nansum(),
        lambda x: torch.nansum(x, 0, out=x.int()),
        lambda x: x.int().std(),
        lambda x: x.var(4),
        lambda x: torch.std_mean(x.int()),
        lambda x: x[0].trace(),
        lambda x: (x > 0).trace(),
        lambda x: torch.count_nonzero(x, (0, 5)),
        lambda x: torch.var(x, 0, out=x.int()),
    ],
)
def test_errors(call):
    check_refused(call, torch.ones(3, 4))
