"""The device's random numbers against an independent NumPy oracle, and the state of its generators."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from expecttest import assert_expected_inline

from torch_accel.testing import hold_stream

ROOT = Path(__file__).resolve().parents[2]
FLOATING = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGRAL = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
SEED = 0x0123456789ABCDEF

pytestmark = pytest.mark.skipif(os.environ.get("ACCEL_RNG", "philox") == "cpu", reason="tests the Philox numbers")

# ---- The oracle: Philox 4x32-10, tl.rand and tl.randn in NumPy ---------------------------------------------------------


def philox(key: int, index: np.ndarray) -> list[np.ndarray]:
    """The four words of Philox 4x32-10 for each 64-bit index."""
    mask = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    index = np.asarray(index, dtype=np.uint64)
    c = [index & mask, index >> shift, np.zeros_like(index), np.zeros_like(index)]
    return rounds(c, key & 0xFFFFFFFF, key >> 32)


def rounds(c: list[np.ndarray], k0: int, k1: int) -> list[np.ndarray]:
    mask = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    for _ in range(10):
        a = np.uint64(0xD2511F53) * c[0]
        b = np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> shift) ^ c[1] ^ np.uint64(k0), b & mask, (a >> shift) ^ c[3] ^ np.uint64(k1), a & mask]
        k0 = (k0 + 0x9E3779B9) & 0xFFFFFFFF
        k1 = (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def call_key(seed: int, offset: int) -> int:
    """The key of the call that finds its generator at (seed, offset)."""
    r0, r1, _, _ = philox(seed, np.array([offset]))
    return int(r0[0]) | int(r1[0]) << 32


def to_uniform(word: np.ndarray) -> np.ndarray:
    x = word.astype(np.uint32).view(np.int32)
    return np.where(x < 0, -x - 1, x).astype(np.float32) * np.float32(4.6566127342e-10)


def rand(key: int, n: int) -> np.ndarray:
    """tl.rand(key, arange(n))."""
    return to_uniform(philox(key, np.arange(n))[0])


def log32(u: np.ndarray) -> np.ndarray:
    return np.log(u.astype(np.longdouble)).astype(np.float32)


def randn(key: int, n: int) -> np.ndarray:
    """tl.randn(key, arange(n)), log and cos correctly rounded to float32."""
    r0, r1, _, _ = philox(key, np.arange(n))
    u1 = np.maximum(np.float32(1.0e-7), to_uniform(r0))
    theta = np.float32(6.283185307179586) * to_uniform(r1)
    radius = np.sqrt(np.float32(-2.0) * log32(u1))
    return radius * np.cos(theta.astype(np.longdouble)).astype(np.float32)


def generator(seed: int = SEED) -> torch.Generator:
    return torch.Generator("accel").manual_seed(seed)


def fill(
    call: Callable[..., torch.Tensor], *args: float, n: int = 5003, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """`call`(tensor, *args) at the start of SEED's stream, on the host."""
    return call(torch.empty(n, device="accel", dtype=dtype), *args, generator=generator()).cpu()


KEY = call_key(SEED, 0)


def test_oracle_known_answers() -> None:
    """Random123's known answers for philox4x32-10."""
    zeros = [np.zeros(1, np.uint64)] * 4
    ones = [np.full(1, 0xFFFFFFFF, np.uint64)] * 4
    pi = [np.full(1, x, np.uint64) for x in (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)]
    words = [
        " ".join(f"{int(x[0]):08x}" for x in rounds(c, k0, k1))
        for c, k0, k1 in ((zeros, 0, 0), (ones, 0xFFFFFFFF, 0xFFFFFFFF), (pi, 0xA4093822, 0x299F31D0))
    ]
    assert words == [
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ]


@pytest.mark.parametrize("stride", [1009, pytest.param(1, marks=pytest.mark.full)])
def test_philox_header(stride: int, tmp_path: Path) -> None:
    """Logarithm and cosine are correctly rounded for every uniform there is."""
    binary = tmp_path / "philox"
    source = ROOT / "tests/aten/philox_exhaustive.cpp"
    subprocess.run(
        [
            os.environ.get("CXX", "g++"),
            "-std=c++20",
            "-O3",
            "-ffp-contract=off",
            f"-I{ROOT / 'csrc'}",
            source,
            "-o",
            binary,
        ],
        check=True,
    )
    output = subprocess.run([binary, str(stride)], check=True, capture_output=True, text=True).stdout
    assert "0 logarithms and 0 cosines not correctly rounded" in output
    assert output.splitlines()[1:] == ["6627e8d5 e169c58d bc57ac4c 9b00dbd8", "408f276d 41c83b0e a20bc7c6 6d5451fd"]


# ---- Fills -------------------------------------------------------------------------------------------------------------


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


def layouts(n: int) -> list[torch.Tensor]:
    """Tensors of n * n elements whose bytes lie differently."""
    return [
        torch.empty(n, n, device="accel"),
        torch.empty(n, n, device="accel").t(),
        torch.empty(n, 2 * n, device="accel")[:, ::2],
        torch.empty(n, 1, n, 1, device="accel").to(memory_format=torch.channels_last),
        torch.empty(3, n, n, device="accel")[1],
    ]


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


@pytest.mark.parametrize(
    "call",
    [
        lambda g: torch.rand(9, device="accel", generator=g),
        lambda g: torch.randn(9, device="accel", generator=g),
        lambda g: torch.randint(0, 100, (9,), device="accel", generator=g),
        lambda g: torch.randperm(9, device="accel", generator=g),
        lambda g: torch.multinomial(torch.ones(9, device="accel"), 4, generator=g),
        lambda g: torch.poisson(torch.ones(9, device="accel"), generator=g),
        lambda g: torch.binomial(
            torch.full((9,), 5.0, device="accel"), torch.full((9,), 0.5, device="accel"), generator=g
        ),
        lambda g: torch._standard_gamma(torch.ones(9, device="accel"), generator=g),
        lambda g: torch.empty(9, device="accel").geometric_(0.5, generator=g),
    ],
)
def test_every_random_operator_obeys_its_generator(call: Callable[[torch.Generator], torch.Tensor]) -> None:
    """Also those that fall back: the same seed draws the same, a call takes one key, and no other generator moves."""
    torch.manual_seed(7)
    before = torch.get_rng_state()
    default = torch.accel.get_rng_state()
    g = generator()
    first, second = call(g), call(g)
    assert first.device.type == "accel"
    assert g.get_offset() == 8
    assert torch.equal(first, call(generator()))
    assert second.shape == first.shape and second.dtype == first.dtype
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(default, torch.accel.get_rng_state())


# ---- Statistics, at fixed seeds ----------------------------------------------------------------------------------------


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


# ---- Generators --------------------------------------------------------------------------------------------------------


def test_state_is_seed_and_offset() -> None:
    g = generator()
    torch.rand(3, device="accel", generator=g)
    state = g.get_state()
    assert state.device.type == "cpu" and state.dtype == torch.uint8
    assert state.numpy().tobytes() == SEED.to_bytes(8, "little") + (4).to_bytes(8, "little")
    assert (g.initial_seed(), g.get_offset(), g.device) == (SEED, 4, torch.device("accel", 0))


def test_state_round_trip_midway() -> None:
    g = generator()
    torch.rand(10, device="accel", generator=g)
    state = g.get_state()
    first = torch.randn(10, device="accel", generator=g)
    g.set_state(state)
    assert torch.equal(first, torch.randn(10, device="accel", generator=g))
    other = torch.Generator("accel")
    other.set_state(state)
    assert torch.equal(first, torch.randn(10, device="accel", generator=other))
    other.set_state(state[:8])  # as in torch.cuda: a seed alone
    assert (other.initial_seed(), other.get_offset()) == (SEED, 0)


def test_set_offset() -> None:
    g = generator()
    torch.rand(10, device="accel", generator=g)
    second = torch.rand(10, device="accel", generator=g)
    g.set_offset(4)
    assert torch.equal(second, torch.rand(10, device="accel", generator=g))


def test_clone_is_independent() -> None:
    g = generator()
    torch.rand(3, device="accel", generator=g)
    copy = g.clone_state()
    assert copy.device == g.device
    assert torch.equal(copy.get_state(), g.get_state())
    assert torch.equal(torch.rand(3, device="accel", generator=g), torch.rand(3, device="accel", generator=copy))
    torch.rand(3, device="accel", generator=copy)
    assert (g.get_offset(), copy.get_offset()) == (8, 12)


def test_manual_seed_and_default_generator() -> None:
    torch.manual_seed(11)
    first = torch.rand(5, device="accel")
    assert torch.accel.initial_seed() == 11
    np.testing.assert_array_equal(first.cpu().numpy(), rand(call_key(11, 0), 5))
    torch.accel.manual_seed(11)
    assert torch.equal(first, torch.rand(5, device="accel"))
    g = torch.Generator("accel")
    seed = g.seed()
    assert (seed, 0) == (g.initial_seed(), g.get_offset())


def test_fork_rng() -> None:
    torch.manual_seed(3)
    with torch.random.fork_rng(device_type="accel"):
        inside = torch.rand(5, device="accel")
    assert torch.equal(inside, torch.rand(5, device="accel"))


@pytest.mark.usefixtures("queued")
def test_draws_are_numbered_at_the_call() -> None:
    """A stream that is held draws later than another one, and the same numbers as if it were not."""
    g = generator()
    expected = [torch.randn(50, device="accel", generator=g).cpu() for _ in range(3)]
    g.manual_seed(SEED)
    streams = [torch.accel.Stream() for _ in range(3)]
    drawn = []
    torch.accel.synchronize()
    with hold_stream(streams[0]):
        for stream in streams:
            with torch.accel.stream(stream):
                drawn.append(torch.randn(50, device="accel", generator=g))
        streams[1].synchronize()
        streams[2].synchronize()
        assert not streams[0].query()
    torch.accel.synchronize()
    assert all(torch.equal(x.cpu(), y) for x, y in zip(drawn, expected, strict=True))


@pytest.mark.parametrize("capability", ["default", "avx2"])
def test_draws_do_not_depend_on_the_instruction_set(script: Callable[..., Any], capability: str) -> None:
    source = """
        import torch
        draws = [f(1001, device="accel", generator=torch.Generator("accel").manual_seed(5)) for f in (torch.rand, torch.randn)]
        print(hash(tuple(torch.cat(draws).tolist())), torch.backends.cpu.get_cpu_capability())
    """
    numbers, used = script(source, ATEN_CPU_CAPABILITY=capability, PYTHONHASHSEED="0").stdout.split()
    draws = [
        f(1001, device="accel", generator=torch.Generator("accel").manual_seed(5)) for f in (torch.rand, torch.randn)
    ]
    assert int(numbers) == hash(tuple(torch.cat(draws).tolist())) and used == capability.upper()


@pytest.mark.usefixtures("queued")
def test_get_state_does_not_wait() -> None:
    """The state moves at the call, so it can be read while the draws are still queued."""
    g = generator()
    torch.accel._sleep(200_000_000)
    drawn = torch.rand(5, device="accel", generator=g)
    assert g.get_offset() == 4 and g.get_state()[8] == 4
    assert not torch.accel.current_stream().query()
    np.testing.assert_array_equal(drawn.cpu().numpy(), rand(KEY, 5))


def test_cpu_generator_is_untouched() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    x = torch.ones(100, device="accel", requires_grad=True)
    torch.nn.functional.dropout(x).sum().backward()
    torch.nn.functional.rrelu(x, training=True)
    torch.nn.functional.alpha_dropout(x, training=True)
    torch.nn.functional.gumbel_softmax(x)
    torch.randn_like(x)
    torch.randperm(10, device="accel")
    torch.nn.init.trunc_normal_(torch.empty(10, device="accel"))
    assert torch.equal(before, torch.get_rng_state())


# ---- Dropout -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_definition(p: float, dtype: torch.dtype) -> None:
    torch.accel.manual_seed(SEED)
    x = torch.linspace(-3, 3, 5003, dtype=dtype)
    device_x = x.to("accel").requires_grad_()
    out = torch.nn.functional.dropout(device_x, p)
    keep = torch.from_numpy(rand(KEY, 5003) < np.float32(1 - p))
    factor = torch.ones((), dtype=dtype).div_(1 - p)
    assert torch.equal(out.detach().cpu(), x * (keep * factor))
    out.backward(torch.full_like(out, 3.0))
    assert torch.equal(device_x.grad.cpu(), torch.full_like(x, 3.0) * (keep * factor))


def test_dropout_layouts() -> None:
    drawn = []
    for x in layouts(20):
        torch.accel.manual_seed(1)
        out, mask = torch.native_dropout(x.fill_(1.0), 0.5, True)
        assert out.stride() == torch.empty_like(x).stride()
        assert torch.equal(out.cpu(), mask.cpu() * 2.0)
        drawn.append(out.cpu().reshape(-1))
    for other in drawn[1:]:
        assert torch.equal(drawn[0], other)


def test_dropout_edges() -> None:
    x = torch.ones(5, device="accel")
    torch.accel.manual_seed(1)
    for p, train in ((0.0, True), (0.7, False)):
        out, mask = torch.native_dropout(x, p, train)
        assert out.eq(1).all() and mask.all() and out.data_ptr() != x.data_ptr()
    out, mask = torch.native_dropout(x, 1.0, True)
    assert out.eq(0).all() and not mask.any() and mask.dtype == torch.bool
    out, mask = torch.native_dropout(x[:0], 0.5, True)
    assert out.numel() == 0 and mask.dtype == torch.bool
    assert torch.accel.get_rng_state()[8] == 0  # nothing was drawn


def test_dropout_under_checkpoint() -> None:
    x = torch.randn(64, device="accel", requires_grad=True)

    def block(y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(y, 0.5).square()

    grads = []
    for run in (block, lambda y: torch.utils.checkpoint.checkpoint(block, y, use_reentrant=False)):
        torch.manual_seed(9)
        x.grad = None
        run(x).sum().backward()
        grads.append(x.grad.clone())
    assert torch.equal(grads[0], grads[1])


# ---- Errors ------------------------------------------------------------------------------------------------------------


def error(call: Callable[[], object]) -> str:
    with pytest.raises((RuntimeError, TypeError)) as caught:
        call()
    return f"{caught.type.__name__}: {str(caught.value).splitlines()[0]}"


def test_argument_errors_are_the_cpus() -> None:
    """Same type, same text, at the call; nothing is drawn."""
    calls: list[Callable[[torch.Tensor], object]] = [
        lambda t: t.uniform_(2, 1),
        lambda t: t.uniform_(0, 1e39),
        lambda t: t.to(torch.int64).uniform_(),
        lambda t: t.normal_(0, -1),
        lambda t: t.log_normal_(0, 0),
        lambda t: t.exponential_(0),
        lambda t: t.to(torch.int32).exponential_(),
        lambda t: t.cauchy_(0, 0),
        lambda t: t.to(torch.int32).cauchy_(),
        lambda t: t.geometric_(1.0),
        lambda t: t.bernoulli_(1.5),
        lambda t: t.random_(3, 3),
        lambda t: t.to(torch.uint8).random_(0, 300),
        lambda t: t.to(torch.int8).random_(-300, 0),
        lambda t: t.to(torch.complex64).random_(0, 3),
        lambda t: torch.normal(t, -1.0),
        lambda t: torch.dropout(t, 1.5, True),
        lambda t: t[:1].expand(4).uniform_(),
        lambda t: t[:1].expand(4).bernoulli_(0.5),
    ]
    torch.accel.manual_seed(0)
    for call in calls:
        assert error(lambda call=call: call(torch.zeros(4, device="accel"))) == error(
            lambda call=call: call(torch.zeros(4))
        )
    assert torch.accel.get_rng_state()[8] == 0


def test_dtype_errors() -> None:
    def zeros(dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(4, dtype=dtype, device="accel")

    texts = [
        error(lambda: zeros(torch.int64).normal_()),
        error(lambda: zeros(torch.int64).log_normal_()),
        error(lambda: zeros(torch.bool).geometric_(0.5)),
        error(lambda: zeros(torch.uint16).bernoulli_(0.5)),
        error(lambda: zeros(torch.float32).bernoulli_(zeros(torch.int64))),
        error(lambda: zeros(torch.uint32).random_()),
        error(lambda: zeros(torch.int32).random_(-(2**63), None)),
        error(lambda: torch.native_dropout(zeros(torch.int64), 0.5, True)),
    ]
    assert_expected_inline(
        "\n".join(texts),
        """\
NotImplementedError: "normal_kernel_accel" not implemented for 'Long'
NotImplementedError: "log_normal_accel" not implemented for 'Long'
NotImplementedError: "geometric_accel" not implemented for 'Bool'
NotImplementedError: "bernoulli_scalar_accel" not implemented for 'UInt16'
NotImplementedError: "bernoulli_tensor_accel_p" not implemented for 'Long'
NotImplementedError: "random_accel" not implemented for 'UInt32'
NotImplementedError: "random_full_64_bits_range_accel" not implemented for 'Int'
NotImplementedError: "native_dropout_accel" not implemented for 'Long'""",
    )


@pytest.mark.usefixtures("queued")
def test_probability_outside_surfaces_at_synchronisation() -> None:
    torch.empty(3, device="accel").bernoulli_(torch.tensor([0.5, 1.5, 0.5], device="accel"))
    with pytest.raises(RuntimeError, match=r"bernoulli_ expects p to be in \[0, 1\], but got p=1.5"):
        torch.accel.synchronize()


def test_generator_errors() -> None:
    g = generator()
    texts = [
        error(lambda: torch.rand(3, device="accel", generator=torch.Generator("cpu"))),
        error(lambda: torch.rand(3, generator=g)),
        error(lambda: g.set_offset(3)),
        error(lambda: g.set_state(torch.get_rng_state())),
        error(lambda: g.set_state(torch.zeros(12, dtype=torch.uint8))),
        error(lambda: g.set_state(torch.zeros(16))),
        error(lambda: g.set_state(torch.zeros(32, dtype=torch.uint8)[::2])),
    ]
    assert_expected_inline(
        "\n".join(texts),
        """\
RuntimeError: Expected a 'accel' device type for generator but found 'cpu'
RuntimeError: Expected a generator of device cpu but found one of accel:0. Make it with torch.Generator('cpu').
RuntimeError: accel: offset must be a multiple of 4, but got 3
RuntimeError: RNG state is wrong size: an accel generator takes 16 bytes (seed, offset) or 8 (seed), but got 5056, the size of a CPU generator's state
RuntimeError: RNG state is wrong size: an accel generator takes 16 bytes (seed, offset) or 8 (seed), but got 12
TypeError: RNG state must be a torch.ByteTensor
RuntimeError: RNG state must be contiguous""",
    )
    assert (g.initial_seed(), g.get_offset()) == (SEED, 0)


# ---- Processes with variables of their own -----------------------------------------------------------------------------


def run(program: str, **variables: str) -> str:
    """Runs `program` after `import torch` in a fresh process and returns what it printed."""
    result = subprocess.run(
        [sys.executable, "-c", "import torch\n" + textwrap.dedent(program)],
        env={**os.environ, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_generator_of_another_device() -> None:
    output = run(
        """
        try:
            torch.rand(3, device="accel:0", generator=torch.Generator("accel:1"))
        except RuntimeError as e:
            print(str(e).splitlines()[0])
        torch.accel.manual_seed_all(5)
        print(torch.equal(torch.rand(9, device="accel:0").cpu(), torch.rand(9, device="accel:1").cpu()))
        """,
        ACCEL_DEVICES="2",
    )
    assert_expected_inline(
        output,
        """\
Expected a generator of device accel:0 but found one of accel:1. Make it with torch.Generator('accel:0').
True""",
    )


def test_seeding_does_not_initialise() -> None:
    assert run('torch.manual_seed(3); torch.Generator("accel"); print(torch.accel.is_initialized())') == "False"


def test_unknown_generator_name() -> None:
    output = run(
        """
        try:
            torch.Generator("accel")
        except RuntimeError as e:
            print(str(e).splitlines()[0])
        print(torch.rand(3).numel())
        """,
        ACCEL_RNG="mersenne",
    )
    assert_expected_inline(
        output,
        """\
accel: ACCEL_RNG=mersenne is not a random number generator. Set it to philox (the default) or cpu, before the process starts.
3""",
    )


# Each of these runs on both devices from one seed and must give the same bits.
CPU_MODE = """
import torch.nn.functional as F

calls = [
    lambda d: torch.rand(50, device=d),
    lambda d: torch.rand(5, dtype=torch.complex64, device=d),
    lambda d: torch.randn(50, device=d),
    lambda d: torch.randn(7, device=d),
    lambda d: torch.randn(50, dtype=torch.complex128, device=d),
    lambda d: torch.empty(6, 8, device=d).t().normal_(1, 2),
    lambda d: torch.randint(0, 1000, (50,), device=d),
    lambda d: torch.randperm(50, device=d),
    lambda d: torch.empty(50, device=d).uniform_(-3, 2),
    lambda d: torch.empty(50, dtype=torch.bfloat16, device=d).uniform_(),
    lambda d: torch.empty(50, device=d).exponential_(2.0),
    lambda d: torch.empty(50, device=d).cauchy_(1.0, 2.0),
    lambda d: torch.empty(50, device=d).log_normal_(0.5, 0.25),
    lambda d: torch.empty(50, dtype=torch.int64, device=d).geometric_(0.2),
    lambda d: torch.empty(50, device=d).bernoulli_(0.3),
    lambda d: torch.bernoulli(torch.linspace(0, 1, 50, device=d)),
    lambda d: torch.empty(50, dtype=torch.int64, device=d).random_(),
    lambda d: torch.empty(50, dtype=torch.float16, device=d).random_(0, 65504),
    lambda d: torch.empty(50, dtype=torch.int64, device=d).random_(-5, None),
    lambda d: torch.empty(50, dtype=torch.int64, device=d).random_(-(2**63), None),
    lambda d: torch.normal(torch.arange(50.0, device=d), torch.arange(50.0, device=d)),
    lambda d: torch.multinomial(torch.ones(50, device=d), 10),
    lambda d: torch.poisson(torch.full((50,), 3.0, device=d)),
    lambda d: torch.nn.init.kaiming_uniform_(torch.empty(8, 8, device=d)),
    lambda d: F.gumbel_softmax(torch.ones(50, device=d)),
    lambda d: F.alpha_dropout(torch.ones(50, device=d), training=True),
    lambda d: torch.empty(0, device=d).normal_(),
]
for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
    for shape in ((3,), (50,), (4, 3, 6, 5)):
        def dropout(d, dtype=dtype, shape=shape):
            x = torch.linspace(-2, 2, torch.Size(shape).numel()).to(dtype).view(shape).to(d)
            if x.dim() == 4:
                x = x.to(memory_format=torch.channels_last)
            x.requires_grad_()
            y = F.dropout(x, 0.3)
            (y * y).sum().backward()
            return torch.stack([y.detach(), x.grad])
        calls.append(dropout)

torch.manual_seed(1234)
expected = [call("cpu") for call in calls]
cpu_state = torch.get_rng_state()
torch.manual_seed(1234)
start = torch.get_rng_state()
wrong = [i for i, call in enumerate(calls) if not torch.equal(call("accel").cpu(), expected[i])]
print("wrong:", wrong)
print("state:", torch.equal(torch.accel.get_rng_state(), cpu_state), torch.equal(torch.get_rng_state(), start))
state = torch.accel.get_rng_state()
a = torch.randn(20, device="accel")
torch.accel.set_rng_state(state)
print("again:", torch.equal(a, torch.randn(20, device="accel")), torch.equal(a.cpu(), torch.randn(20, generator=torch.Generator().set_state(state))))
g = torch.Generator("accel").manual_seed(5)
print("own:", torch.equal(torch.rand(9, device="accel", generator=g).cpu(), torch.rand(9, generator=torch.Generator().manual_seed(5))))
print("clone:", torch.equal(torch.rand(9, device="accel", generator=g.clone_state()), torch.rand(9, device="accel", generator=g)))
for call in (g.get_offset, lambda: g.set_offset(4), lambda: torch.empty(3, device="accel").random_(3, 3)):
    try:
        call()
    except RuntimeError as e:
        print(str(e).splitlines()[0])
"""


def test_cpu_mode_draws_the_cpus_numbers() -> None:
    assert_expected_inline(
        run(CPU_MODE, ACCEL_RNG="cpu"),
        """\
wrong: []
state: True True
again: True True
own: True
clone: True
accel: get_offset needs the Philox generator, but ACCEL_RNG=cpu draws the CPU's numbers, which have no offset. Unset ACCEL_RNG or use get_state.
accel: set_offset needs the Philox generator, but ACCEL_RNG=cpu draws the CPU's numbers, which have no offset. Unset ACCEL_RNG or use set_state.
random_ expects 'from' to be less than 'to', but got from=3 >= to=3""",
    )


def test_a_negative_deviation_raises_at_the_synchronisation(queued: None) -> None:
    x = torch.zeros(4, device="accel")
    for mean, std in ((x, x - 5), (0.0, x - 5)):
        torch.normal(mean, std)
        with pytest.raises(torch.AcceleratorError, match=r"normal expects all elements of std >= 0\.0"):
            torch.accel.synchronize()
    with pytest.raises(RuntimeError, match="standard deviation to be non-complex"):
        torch.normal(0.0, x.to(torch.complex64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_rrelu_draws_a_slope_for_each_negative_element(dtype: torch.dtype) -> None:
    x = torch.linspace(-2, 2, 24).reshape(4, 6).to(dtype)
    torch.accel.manual_seed(3)
    uniform = torch.rand(4, 6, device="accel").cpu().double()
    slopes = torch.where(x <= 0, uniform * 0.4 + 0.1, 1.0).to(dtype)
    expected = (x.float() * slopes.float()).to(dtype) if dtype != torch.float64 else x * slopes
    for strided in (x, x.t().contiguous().t()):
        torch.accel.manual_seed(3)
        noise = torch.empty(4, 6, dtype=dtype, device="accel")
        ours = torch.ops.aten.rrelu_with_noise(strided.to("accel"), noise, 0.1, 0.5, True)
        assert torch.equal(ours.cpu(), expected) and torch.equal(noise.cpu(), slopes)
        torch.accel.manual_seed(3)
        leaf = strided.to("accel").requires_grad_()
        torch.nn.functional.rrelu(leaf, 0.1, 0.5, training=True).sum().backward()
        assert torch.equal(leaf.grad.cpu(), slopes)
