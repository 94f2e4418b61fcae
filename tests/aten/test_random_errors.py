"""Errors of random operators and of generators: the CPU's where the CPU has them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from expecttest import assert_expected_inline

from tests.aten.random_oracle import SEED, generator, philox_only

pytestmark = philox_only


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


def test_a_negative_deviation_raises_at_the_synchronisation(queued: None) -> None:
    x = torch.zeros(4, device="accel")
    for mean, std in ((x, x - 5), (0.0, x - 5)):
        torch.normal(mean, std)
        with pytest.raises(torch.AcceleratorError, match=r"normal expects all elements of std >= 0\.0"):
            torch.accel.synchronize()
    with pytest.raises(RuntimeError, match="standard deviation to be non-complex"):
        torch.normal(0.0, x.to(torch.complex64))


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
RuntimeError: Expected a 'cpu' device type for generator but found 'accel'
RuntimeError: accel: offset must be a multiple of 4, but got 3
RuntimeError: RNG state is wrong size: an accel generator takes 16 bytes (seed, offset) or 8 (seed), but got 5056, the size of a CPU generator's state
RuntimeError: RNG state is wrong size: an accel generator takes 16 bytes (seed, offset) or 8 (seed), but got 12
TypeError: RNG state must be a torch.ByteTensor
RuntimeError: RNG state must be contiguous""",
    )
    assert (g.initial_seed(), g.get_offset()) == (SEED, 0)


CALLS = {
    "rand": lambda d, g: torch.rand(5, device=d, generator=g),
    "randint": lambda d, g: torch.randint(9, (5,), device=d, generator=g),
    "randperm": lambda d, g: torch.randperm(5, device=d, generator=g),
    "randperm, out": lambda d, g: torch.randperm(5, generator=g, out=torch.empty(5, dtype=torch.int64, device=d)),
    "normal_": lambda d, g: torch.ones(5, device=d).normal_(generator=g),
    "normal": lambda d, g: torch.normal(torch.ones(5, device=d), 1.0, generator=g),
    "bernoulli": lambda d, g: torch.bernoulli(torch.ones(5, device=d), generator=g),
    "bernoulli_ by a tensor": lambda d, g: torch.ones(5, device=d).bernoulli_(torch.ones(5, device=d), generator=g),
    "multinomial": lambda d, g: torch.multinomial(torch.ones(5, device=d), 2, generator=g),
    "poisson": lambda d, g: torch.poisson(torch.ones(5, device=d), generator=g),
    "poisson of a scalar": lambda d, g: torch.poisson(torch.tensor(5.0, device=d), generator=g),
    "binomial": lambda d, g: torch.binomial(*[torch.ones(5, device=d)] * 2, generator=g),
    "_standard_gamma": lambda d, g: torch._standard_gamma(torch.ones(5, device=d), generator=g),
    "_sample_dirichlet": lambda d, g: torch._sample_dirichlet(torch.ones(5, device=d), generator=g),
    "rrelu": lambda d, g: torch.ops.aten.rrelu_with_noise(*[torch.ones(5, device=d)] * 2, 0.1, 0.2, True, g),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("tensors, generators", [("cpu", "accel"), ("accel", "cpu")])
def test_a_generator_of_another_type_is_refused_in_torchs_words(tensors, generators, call) -> None:
    g = torch.Generator(generators)
    state = g.get_state()
    text = f"RuntimeError: Expected a '{tensors}' device type for generator but found '{generators}'"
    assert error(lambda: call(tensors, g)) == text
    assert torch.equal(g.get_state(), state)
