"""Operators in place and into out=: what is written, what is resized, and the warnings of it."""

import warnings

import pytest
import torch

from tests.aten.fallback_cases import A, J, check_equal

pytestmark = pytest.mark.usefixtures("no_leaked_workspace")


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
