"""Order statistics, searches and histograms."""

import numpy as np
import pytest
import torch

from tests.aten.strides import layouts
from torch_accel.testing.held import check_held, check_refused

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.uint8]

SELECT = {
    "median": (torch.median, [*INTEGERS, *FLOATS]),
    "nanmedian": (torch.nanmedian, [*INTEGERS, *FLOATS]),
    "mode": (torch.mode, [torch.bool, *INTEGERS, *FLOATS]),
    "kthvalue": (lambda x, dim, keepdim, **out: torch.kthvalue(x, 1, dim, keepdim, **out), [*INTEGERS, *FLOATS]),
}


@pytest.mark.parametrize("name", SELECT)
@pytest.mark.parametrize("keepdim", [False, True])
def test_along_a_dimension(name, keepdim):
    call, dtypes = SELECT[name]
    for dtype in dtypes:
        for sizes in ((), (5,), (3, 4), (0, 3), (2, 3, 4, 5)):
            for x in layouts(*sizes, dtype=dtype):
                for dim in (-1, len(sizes) // 2):
                    check_held(call, x, dim, keepdim)


@pytest.mark.parametrize("call", [torch.median, torch.nanmedian])
def test_of_all(call):
    for dtype in (*INTEGERS, *FLOATS):
        for sizes in ((5,), (3, 4)):
            for x in layouts(*sizes, dtype=dtype):
                check_held(call, x)
    check_held(call, torch.tensor([1.0, torch.nan, 3.0]))


@pytest.mark.parametrize("name", SELECT)
def test_out(name):
    for x in layouts(3, 4):
        for v, i in ((torch.zeros(0), torch.zeros(0)), (torch.zeros(3), torch.zeros(6)[::2])):
            i = i.long() if i.is_contiguous() else torch.zeros(6, dtype=torch.int64)[::2]
            check_held(lambda x, v, i: SELECT[name][0](x, 1, False, out=(v, i)), x, v.clone(), i)


@pytest.mark.parametrize("call", [torch.cummax, torch.cummin])
def test_cumulative_extrema(call):
    for dtype in (torch.bool, *INTEGERS, *FLOATS):
        for sizes in ((), (5,), (3, 4), (0, 3)):
            for x in layouts(*sizes, dtype=dtype):
                check_held(call, x, -1)


def test_logcumsumexp():
    for dtype in (*FLOATS, torch.complex64):
        for sizes in ((), (5,), (3, 4), (0, 3)):
            for x in layouts(*sizes, dtype=dtype):
                check_held(torch.logcumsumexp, x, 0)
    check_held(lambda x, out: torch.logcumsumexp(x, 1, out=out), torch.ones(3, 4), torch.zeros(0))


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("int32", [False, True])
@pytest.mark.filterwarnings("ignore:torch.searchsorted.*non-contiguous")
def test_searches(right, int32):
    sequence = torch.tensor([-2.0, -1.0, 0.0, 0.0, 1.5])
    for x in (torch.tensor(0.5), *layouts(3, 4), *layouts(0, 3), *layouts(5, dtype=torch.int64)):
        check_held(lambda s, x: torch.bucketize(x, s, out_int32=int32, right=right), sequence, x)
        check_held(lambda s, x: torch.searchsorted(s, x, out_int32=int32, right=right), sequence, x)
    check_held(lambda s: torch.bucketize(0.5, s, out_int32=int32, right=right), sequence)
    check_held(lambda s: torch.searchsorted(s, 1, out_int32=int32, right=right), sequence)
    rows = torch.stack([sequence, sequence * 2]).flip(1)
    order = rows.argsort(1)
    for x in layouts(2, 3):
        check_held(lambda s, x: torch.searchsorted(s.sort(1)[0], x, out_int32=int32, side="right"), rows, x)
        check_held(lambda s, x, o: torch.searchsorted(s, x, out_int32=int32, sorter=o), rows, x, order)


def test_searches_out():
    sequence = torch.arange(5.0)
    for out in (torch.zeros(0, dtype=torch.int64), torch.zeros(4, 3, dtype=torch.int64).t()):
        check_held(lambda s, x, out: torch.bucketize(x, s, out=out), sequence, torch.ones(3, 4), out)
        check_held(lambda s, x, out: torch.searchsorted(s, x, out=out), sequence, torch.ones(3, 4), out)
    check_held(lambda s, out: torch.searchsorted(s, 2.5, out=out), sequence, torch.zeros(0, dtype=torch.int64))


def test_histograms_of_half_precision():
    for x in layouts(3, 4, dtype=torch.bfloat16):
        check_held(torch.histc, x, 5)


def test_histograms():
    for dtype in (torch.float32, torch.float64):
        for x in (*layouts(3, 4, dtype=dtype), *layouts(0, dtype=dtype)):
            check_held(torch.histc, x, 5)
            check_held(torch.histc, x, 5, -1, 2)
            check_held(torch.histogram, x, 5)
            check_held(lambda x: torch.histogram(x, 4, range=(-1.0, 2.0), weight=x + 1, density=True), x)
            check_held(torch.histogram, x, torch.tensor([-2, 0, 0.5, 3], dtype=dtype))
    check_held(lambda x, out: torch.histc(x, 5, out=out), torch.ones(3), torch.zeros(0))
    check_held(lambda x, h, e: torch.histogram(x, 5, out=(h, e)), torch.ones(3), torch.zeros(0), torch.zeros(6))


def test_histograms_of_points():
    for x in layouts(6, 2):
        edges = torch.tensor([-2, 0, 0.5, 3])
        check_held(torch.ops.aten._histogramdd_from_bin_tensors, x, [edges, edges * 2])
        check_held(torch.ops.aten._histogramdd_from_bin_cts, x, [3, 4])
        check_held(torch.histogramdd, x, [3, 4])


def test_oracle():
    x = np.array([[3.0, -1.0, 2.0, 2.0], [0.0, 5.0, 4.0, -2.0]])
    y = torch.from_numpy(x).to("accel")
    np.testing.assert_array_equal(y.median(1)[0].cpu(), np.sort(x, 1)[:, 1])
    np.testing.assert_array_equal(y.kthvalue(3, 1)[0].cpu(), np.sort(x, 1)[:, 2])
    np.testing.assert_array_equal(y.cummax(1)[0].cpu(), np.maximum.accumulate(x, 1))
    np.testing.assert_array_equal(torch.bucketize(y, y.new_tensor([0, 2, 3])).cpu(), np.searchsorted([0, 2, 3], x))
    np.testing.assert_array_equal(torch.histc(y, 4, -2, 6).cpu(), np.histogram(x, 4, (-2, 6))[0])
    assert y[0].mode()[0].item() == 2


def test_values_that_have_no_range_are_told_late(queued):
    x = torch.tensor([1.0, torch.inf], device="accel")
    torch.histc(x, 3)
    with pytest.raises(torch.AcceleratorError, match="is not finite"):
        torch.accel.synchronize()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.median(2),
        lambda x: x[:, :0].median(1),
        lambda x: (x > 0).median(),
        lambda x: torch.median(x, 0, out=(x.int(), x.long())),
        lambda x: x.kthvalue(5, 1),
        lambda x: x.kthvalue(0, 1),
        lambda x: x[:, :0].mode(1),
        lambda x: x.cummax(3),
        lambda x: x.logcumsumexp(2),
        lambda x: torch.bucketize(x, x),
        lambda x: torch.bucketize(x, x[0], out=x),
        lambda x: torch.searchsorted(x, x[:2]),
        lambda x: torch.searchsorted(x, 1.0),
        lambda x: torch.searchsorted(x, x, side="middle"),
        lambda x: torch.searchsorted(x, x, side="left", right=True),
        lambda x: torch.searchsorted(x, x, sorter=x.long()[:2]),
        lambda x: x.histc(0),
        lambda x: x.histc(3, 2, 1),
        lambda x: x.int().histc(3),
        lambda x: torch.histogram(x, 3, range=(2.0, 1.0)),
        lambda x: torch.histogram(x, 3, weight=x[0]),
        lambda x: torch.histogram(x, x),
        lambda x: torch.histogram(x.half(), 3),
        lambda x: torch.ops.aten._histogramdd_from_bin_cts(x, [3]),
    ],
)
def test_errors(call):
    check_refused(call, torch.ones(3, 4))
