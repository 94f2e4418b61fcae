"""Seeds, states and offsets of generators; which generator a call obeys, and which it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.aten.random_oracle import KEY, SEED, call_key, generator, philox_only, rand
from torch_accel.testing import hold_stream

pytestmark = philox_only


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
