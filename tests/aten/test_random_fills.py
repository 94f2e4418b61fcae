"""uniform_ and normal_ are tl.rand and tl.randn of a call's key, whatever the strides, the threads and the dtype."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.aten.random_oracle import FLOATING, KEY, SEED, call_key, fill, generator, layouts, philox_only, rand, randn

pytestmark = philox_only


def test_uniform_is_tl_rand() -> None:
    np.testing.assert_array_equal(fill(torch.Tensor.uniform_).numpy(), rand(KEY, 5003))


def test_uniform_range() -> None:
    expected = rand(KEY, 5003) * np.float32(5.5) + np.float32(-2.5)
    np.testing.assert_array_equal(fill(torch.Tensor.uniform_, -2.5, 3.0).numpy(), expected)


def test_normal_is_tl_randn() -> None:
    np.testing.assert_array_equal(fill(torch.Tensor.normal_, n=200_003).numpy(), randn(KEY, 200_003))


def test_normal_mean_std() -> None:
    expected = randn(KEY, 5003) * np.float32(0.3) + np.float32(7.1)
    np.testing.assert_array_equal(fill(torch.Tensor.normal_, 7.1, 0.3).numpy(), expected)


def test_calls_take_consecutive_offsets() -> None:
    g = generator()
    for call in range(3):
        drawn = torch.rand(100, device="accel", generator=g)
        np.testing.assert_array_equal(drawn.cpu().numpy(), rand(call_key(SEED, 4 * call), 100))
        assert g.get_offset() == 4 * (call + 1)


def test_empty_takes_no_offset() -> None:
    g = generator()
    torch.empty(0, 3, device="accel").normal_(generator=g).uniform_(generator=g).random_(generator=g)
    assert g.get_offset() == 0


def test_seed_uses_all_64_bits() -> None:
    for seed in (0, 1, 1 << 32, (1 << 64) - 1):
        drawn = torch.rand(50, device="accel", generator=generator(seed))
        np.testing.assert_array_equal(drawn.cpu().numpy(), rand(call_key(seed, 0), 50))


@pytest.mark.parametrize("dtype", FLOATING)
def test_uniform_dtypes(dtype: torch.dtype) -> None:
    n = 100_003
    drawn = fill(torch.Tensor.uniform_, n=n, dtype=dtype)
    expected = torch.from_numpy(rand(KEY, n)).to(dtype)
    expected = torch.where(expected == 1, torch.zeros_like(expected), expected)  # half open in every dtype
    assert torch.equal(drawn, expected)
    assert drawn.max() < 1


@pytest.mark.parametrize("dtype", FLOATING)
def test_normal_dtypes(dtype: torch.dtype) -> None:
    real = torch.float64 if dtype == torch.float64 else torch.float32
    expected = (torch.from_numpy(randn(KEY, 5003)).to(real) * 1.25 + 0.5).to(dtype)
    assert torch.equal(fill(torch.Tensor.normal_, 0.5, 1.25, dtype=dtype), expected)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.complex32])
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_complex(dtype: torch.dtype) -> None:
    """Real and imaginary parts are consecutive elements; together they have the variance asked for."""
    real = torch.view_as_real(torch.empty(0, dtype=dtype)).dtype
    drawn = torch.view_as_real(fill(torch.Tensor.normal_, n=1001, dtype=dtype)).flatten()
    expected = torch.from_numpy(randn(KEY, 2002))
    expected = (expected.double() / 2**0.5 if real == torch.float64 else expected * torch.tensor(2**-0.5)).to(real)
    torch.testing.assert_close(drawn, expected)
    drawn = torch.view_as_real(fill(torch.Tensor.uniform_, n=1001, dtype=dtype)).flatten()
    assert drawn.min() >= 0 and drawn.max() < 1


@pytest.mark.parametrize(
    "name", ["uniform_", "normal_", "exponential_", "cauchy_", "log_normal_", "random_", "bernoulli_"]
)
def test_strides_do_not_matter(name: str) -> None:
    drawn = [getattr(t, name)(generator=generator()).cpu().reshape(-1) for t in layouts(37)]
    for other in drawn[1:]:
        assert torch.equal(drawn[0], other)


def test_neighbours_stay_untouched() -> None:
    base = torch.zeros(50, 20, device="accel")
    base[:, ::2].uniform_(1, 2)
    assert base[:, 1::2].eq(0).all() and base[:, ::2].ge(1).all()


def test_thread_count_does_not_matter() -> None:
    threads = torch.get_num_threads()
    try:
        drawn = []
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            drawn.append(fill(torch.Tensor.normal_, n=300_007))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(drawn[0], drawn[1]) and torch.equal(drawn[0], drawn[2])


def test_prefix() -> None:
    """Element i does not depend on how many there are."""
    assert torch.equal(fill(torch.Tensor.normal_, n=100_000)[:33], fill(torch.Tensor.normal_, n=33))
