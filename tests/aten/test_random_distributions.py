"""Every other distribution is its formula over the uniforms and normals of the oracle; statistics at fixed seeds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.aten.random_oracle import FLOATING, INTEGRAL, KEY, fill, generator, philox, philox_only, rand, randn

pytestmark = philox_only


@pytest.mark.parametrize("p", [0.0, 1e-3, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("dtype", [*FLOATING, *INTEGRAL, torch.bool])
def test_bernoulli(p: float, dtype: torch.dtype) -> None:
    expected = torch.from_numpy(rand(KEY, 5003) < np.float32(p)).to(dtype)
    assert torch.equal(fill(torch.Tensor.bernoulli_, p, dtype=dtype), expected)


@pytest.mark.parametrize("where", ["accel", "cpu"])
@pytest.mark.parametrize("dtype", FLOATING)
def test_bernoulli_tensor(where: str, dtype: torch.dtype) -> None:
    p = torch.linspace(0, 1, 41, dtype=dtype)
    drawn = torch.empty(100, 41, device="accel").bernoulli_(p.to(where), generator=generator())
    expected = torch.from_numpy(rand(KEY, 4100)).view(100, 41) < p.float()
    assert torch.equal(drawn.cpu(), expected.float())


@pytest.mark.usefixtures("queued")
def test_bernoulli_captures_its_probabilities() -> None:
    """A CPU operand may change right after the call, though the launch is still queued."""
    p = torch.zeros(100)
    torch.accel._sleep(100_000_000)
    drawn = torch.ones(100, device="accel").bernoulli_(p)
    p.fill_(1.0)
    assert not torch.accel.current_stream().query()
    assert drawn.eq(0).all()


def test_bernoulli_out_and_functional() -> None:
    p = torch.rand(33, 7)
    expected = (torch.from_numpy(rand(KEY, 231)).view(33, 7) < p).float()
    assert torch.equal(torch.bernoulli(p.to("accel"), generator=generator()).cpu(), expected)
    out = torch.empty(0, device="accel")
    torch.bernoulli(p.to("accel"), generator=generator(), out=out)
    assert torch.equal(out.cpu(), expected)


def test_exponential() -> None:
    u = np.maximum(rand(KEY, 5003), np.float32(2**-32))
    log = np.minimum(np.log(u.astype(np.longdouble)).astype(np.float32), np.float32(-(2**-24)))
    expected = np.float32(-1) / np.float32(1.5) * log
    np.testing.assert_allclose(fill(torch.Tensor.exponential_, 1.5).numpy(), expected, rtol=2e-7)


def test_cauchy() -> None:
    u = np.clip(rand(KEY, 5003), np.float32(2**-23), np.float32(1 - 2**-23))
    expected = 0.5 + 2.0 * np.tan(np.pi * (u.astype(np.float64) - 0.5))
    np.testing.assert_allclose(fill(torch.Tensor.cauchy_, 0.5, 2.0).numpy(), expected, rtol=2e-3, atol=1e-5)
    assert fill(torch.Tensor.cauchy_, n=1_000_000).isfinite().all()


def test_log_normal() -> None:
    x = randn(KEY, 5003) * np.float32(0.5) + np.float32(0.25)
    np.testing.assert_allclose(
        fill(torch.Tensor.log_normal_, 0.25, 0.5).numpy(), np.exp(x.astype(np.float64)), rtol=1e-7
    )


@pytest.mark.parametrize("dtype", [*FLOATING, *INTEGRAL])
def test_geometric(dtype: torch.dtype) -> None:
    drawn = fill(torch.Tensor.geometric_, 0.25, dtype=dtype).double().numpy()
    u = np.maximum(rand(KEY, 5003), np.float32(2**-32)).astype(np.float64)
    expected = np.ceil(np.log(u) / np.log1p(-0.25))
    assert (drawn != expected).mean() < 1e-3  # float32 may round a quotient onto an integer
    assert drawn.min() >= 1


@pytest.mark.parametrize("dtype", [*FLOATING, *INTEGRAL, torch.bool])
def test_random_full_range(dtype: torch.dtype) -> None:
    r0, r1, _, _ = philox(KEY, np.arange(5003))
    word = (r0 << np.uint64(32) | r1) if dtype in (torch.int64, torch.float64) else r0
    if dtype == torch.bool:
        modulus = 2
    elif dtype.is_floating_point:
        digits = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}[dtype]
        modulus = (1 << digits) + 1
    else:
        modulus = torch.iinfo(dtype).max + 1
    expected = torch.from_numpy((word % np.uint64(modulus)).astype(np.int64)).to(dtype)
    assert torch.equal(fill(torch.Tensor.random_, dtype=dtype), expected)


@pytest.mark.parametrize(
    ("low", "high"), [(0, 10), (-5, 5), (3, 4), (-(1 << 40), 1 << 41), (0, 1 << 28), (-(1 << 63), 1 << 62)]
)
def test_random_from_to(low: int, high: int) -> None:
    span = high - low
    r0, r1, _, _ = philox(KEY, np.arange(5003))
    word = r0 if span < 1 << 28 else r0 << np.uint64(32) | r1
    expected = [int(w) % span + low for w in word]
    assert fill(torch.Tensor.random_, low, high, dtype=torch.int64).tolist() == expected


def test_random_unbounded() -> None:
    r0, r1, _, _ = philox(KEY, np.arange(100))
    word = r0 << np.uint64(32) | r1
    drawn = fill(torch.Tensor.random_, -(2**63), None, n=100, dtype=torch.int64)
    np.testing.assert_array_equal(drawn.numpy(), word.view(np.int64))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64, torch.float16, torch.bool])
def test_random_to_dtypes(dtype: torch.dtype) -> None:
    drawn = fill(torch.Tensor.random_, 2, dtype=dtype).to(torch.int64)
    np.testing.assert_array_equal(drawn.numpy(), (philox(KEY, np.arange(5003))[0] % np.uint64(2)).astype(np.int64))


def test_normal_with_tensors() -> None:
    z = torch.from_numpy(randn(KEY, 12)).view(3, 4)
    mean, std = torch.arange(12.0).view(3, 4), torch.linspace(0, 2, 4)
    m, s = mean.to("accel"), std.to("accel")
    assert torch.equal(torch.normal(m, 2.0, generator=generator()).cpu(), z * 2.0 + mean)
    assert torch.equal(torch.normal(1.5, s.expand(3, 4), generator=generator()).cpu(), z * std + 1.5)
    assert torch.equal(torch.normal(m, s, generator=generator()).cpu(), z * std + mean)
    out = torch.empty(0, device="accel")
    torch.normal(m, s, generator=generator(), out=out)
    assert torch.equal(out.cpu(), z * std + mean)
    torch.normal(0.0, 1.0, (3, 4), generator=generator(), out=out)
    assert torch.equal(out.cpu(), z)


def test_moments() -> None:
    n = 1 << 20
    u = fill(torch.Tensor.uniform_, n=n).double()
    z = fill(torch.Tensor.normal_, n=n).double()
    e = fill(torch.Tensor.exponential_, 2.0, n=n).double()
    for x, mean, variance in ((u, 0.5, 1 / 12), (z, 0, 1), (e, 0.5, 0.25)):
        assert abs(x.mean() - mean) < 5 * (variance / n) ** 0.5
        assert abs(x.var() - variance) < 0.01 * variance
    assert abs(torch.corrcoef(torch.stack([z[:-1], z[1:]]))[0, 1]) < 5 / n**0.5


@pytest.mark.parametrize("name", ["uniform_", "normal_", "exponential_", "cauchy_", "log_normal_"])
def test_kolmogorov_smirnov(name: str) -> None:
    n = 100_000
    x = fill(getattr(torch.Tensor, name), *((0.0, 1.0) if name == "log_normal_" else ()), n=n).double().sort().values
    normal = torch.distributions.Normal(0.0, 1.0)
    cdf = {
        "uniform_": lambda: x,
        "normal_": lambda: normal.cdf(x),
        "exponential_": lambda: 1 - torch.exp(-x),
        "cauchy_": lambda: torch.atan(x) / torch.pi + 0.5,
        "log_normal_": lambda: normal.cdf(x.log()),
    }[name]()
    distance = (cdf - torch.arange(n) / n).abs().max()
    assert distance < 1.95 / n**0.5  # the 0.1 % point


def test_streams_of_seeds_are_unrelated() -> None:
    drawn = torch.stack([torch.randn(20_000, device="accel", generator=generator(seed)).cpu() for seed in range(8)])
    off_diagonal = torch.corrcoef(drawn) - torch.eye(8)
    assert off_diagonal.abs().max() < 5 / 20_000**0.5
