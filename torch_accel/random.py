"""Random number generators of the devices, as torch.cuda.random has them."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ._lazy import generator, set_generator
from ._native import _C
from ._utils import Device, _get_device_index

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def get_rng_state(device: Device = "accel") -> torch.Tensor:
    """The state of a device's generator, a CPU ByteTensor: 16 bytes, seed and offset (the CPU generator's with ACCEL_RNG=cpu).

    Initialises accel.
    """
    return generator(_get_device_index(device, optional=True)).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices' generators."""
    return [get_rng_state(index) for index in range(_C._device_count())]


def set_rng_state(new_state: torch.Tensor, device: Device = "accel") -> None:
    """Sets the state of a device's generator to one of :func:`get_rng_state`."""
    state = new_state.clone(memory_format=torch.contiguous_format)
    set_generator(_get_device_index(device, optional=True), lambda g: g.set_state(state))


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Sets the states of all devices' generators."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seeds the generator of the current device. Ignored without a device."""
    seed = int(seed)
    if _C._device_count() > 0:
        set_generator(_C._current_device(), lambda g: g.manual_seed(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all devices. Ignored without a device."""
    seed = int(seed)
    for index in range(_C._device_count()):
        set_generator(index, lambda g: g.manual_seed(seed))


def seed() -> None:
    """Seeds the generator of the current device with a random number. Ignored without a device."""
    if _C._device_count() > 0:
        set_generator(_C._current_device(), lambda g: g.seed())


def seed_all() -> None:
    """Seeds the generators of all devices with one random number. Ignored without a device."""
    manual_seed_all(torch.Generator().seed())


def initial_seed() -> int:
    """The seed of the current device's generator. Initialises accel."""
    return generator(_C._current_device()).initial_seed()
