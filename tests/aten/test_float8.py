"""The float8 dtypes on accel: creation, copies, casts and scaled products equal the CPU's bit for bit."""

import numpy as np
import pytest
import torch

DTYPES = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]
OTHERS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]

each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def patterns(dtype):
    """Every value of the dtype."""
    return torch.arange(256, dtype=torch.uint8).view(dtype)


def bits(tensor):
    return tensor.cpu().contiguous().view(torch.uint8)


@each_dtype
def test_creation(dtype):
    assert torch.empty(3, 2, dtype=dtype, device="accel").dtype == dtype
    assert torch.equal(bits(torch.ones(5, dtype=dtype, device="accel")), bits(torch.ones(5, dtype=dtype)))
    assert torch.equal(
        bits(torch.full((5,), 2.0, dtype=dtype, device="accel")), bits(torch.full((5,), 2.0, dtype=dtype))
    )
    if dtype != torch.float8_e8m0fnu:  # which has no zero
        assert torch.equal(bits(torch.zeros(5, dtype=dtype, device="accel")), bits(torch.zeros(5, dtype=dtype)))


@each_dtype
def test_copies_keep_every_bit(dtype):
    host = patterns(dtype)
    device = host.to("accel")
    assert torch.equal(bits(device), bits(host))
    other = torch.empty_like(device)
    other.copy_(device)
    assert torch.equal(bits(other), bits(host))
    assert torch.equal(bits(device.clone()), bits(host))
    pinned = torch.empty(256, dtype=dtype, pin_memory=True)
    pinned.copy_(device, non_blocking=True)
    torch.accelerator.synchronize()
    assert torch.equal(bits(pinned), bits(host))


@each_dtype
def test_strided_copies(dtype):
    host = patterns(dtype).reshape(16, 16)
    device = host.to("accel")
    assert torch.equal(bits(device.t().contiguous()), bits(host.t()))
    device[1:3].copy_(host[5:7])
    assert torch.equal(bits(device[1:3]), bits(host[5:7]))


@each_dtype
@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_casts(dtype, other):
    values = patterns(dtype)
    wide = values.to("accel").to(other)
    assert torch.equal(wide.cpu().nan_to_num(nan=12345), values.to(other).nan_to_num(nan=12345))
    torch.manual_seed(0)
    numbers = (torch.randn(1000) * 100).to(other)
    assert torch.equal(bits(numbers.to("accel").to(dtype)), bits(numbers.to(dtype)))


def test_casts_against_numpy():
    """e5m2 is the upper byte of a half: an oracle that shares no code."""
    expected = (np.arange(256, dtype=np.uint16) << 8).view(np.float16).astype(np.float32)
    actual = patterns(torch.float8_e5m2).to("accel").float().cpu().numpy()
    np.testing.assert_array_equal(actual, expected)


@each_dtype
def test_views_of_bytes(dtype):
    raw = torch.arange(256, dtype=torch.uint8, device="accel")
    assert torch.equal(raw.view(dtype).view(torch.uint8).cpu(), raw.cpu())


@pytest.mark.parametrize("left", DTYPES[:2], ids=str)
@pytest.mark.parametrize("out", [torch.float32, torch.bfloat16, None], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_scaled_mm(left, out, bias):
    torch.manual_seed(0)
    a = torch.randn(16, 32).to(left)
    b = torch.randn(48, 32).to(torch.float8_e4m3fn).t()
    scales = torch.tensor(0.5), torch.tensor(2.0)
    vector = torch.randn(48).to(out or torch.float32) if bias else None

    def call(device):
        moved = [t if t is None else t.to(device) for t in (a, b, *scales, vector)]
        return torch._scaled_mm(*moved[:4], bias=moved[4], out_dtype=out)

    try:
        expected = call("cpu")
    except (RuntimeError, ValueError) as error:
        with pytest.raises(type(error)) as raised:
            call("accel")
        assert str(raised.value).splitlines()[0] == str(error).splitlines()[0]
        return
    result = call("accel")
    assert result.is_accel and result.dtype == expected.dtype
    assert torch.equal(bits(result), bits(expected))
    if out == torch.float32:
        exact = a.double() @ b.double() * 1.0 + (vector.double() if bias else 0)
        torch.testing.assert_close(result.cpu().double(), exact, rtol=1e-4, atol=1e-3)


def test_scaled_mm_by_rows():
    torch.manual_seed(0)
    a, b = torch.randn(16, 32).to(torch.float8_e4m3fn), torch.randn(48, 32).to(torch.float8_e4m3fn).t()
    rows, columns = torch.rand(16, 1) + 0.5, torch.rand(1, 48) + 0.5
    results = []
    for device in ("cpu", "accel"):
        try:
            results.append(
                torch._scaled_mm(*(t.to(device) for t in (a, b, rows, columns)), out_dtype=torch.bfloat16).cpu()
            )
        except (RuntimeError, ValueError) as error:
            results.append(str(error).splitlines()[0])
    assert torch.equal(*results) if isinstance(results[0], torch.Tensor) else results[0] == results[1]
