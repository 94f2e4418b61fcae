"""Random number generators of the devices, as torch.cuda.random has them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import torch

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

_Action = Callable[[torch.Generator], object]

# Seeding must not initialise the chip (torch.manual_seed seeds every device). Each action sets the whole state of a
# generator, so the last one per device is all there is to remember until _apply_pending.
_lock = threading.Lock()
_pending: dict[int, _Action] = {}
_ready = False


def _apply_pending() -> None:
    """Called once the chip is initialised."""
    global _ready
    with _lock:
        for index, action in _pending.items():
            action(_C._default_generator(index))
        _pending.clear()
        _ready = True


def _generator(index: int) -> torch.Generator:
    _C._init()
    if not _ready:
        _apply_pending()
    return _C._default_generator(index)


def _do_or_remember(index: int, action: _Action) -> None:
    with _lock:
        if not _ready:
            _pending[index] = action
            return
    action(_generator(index))


def get_rng_state(device: Device = "accel") -> torch.Tensor:
    """The state of a device's generator: 16 bytes, seed and offset, in a CPU ByteTensor. Initialises accel."""
    return _generator(_get_device_index(device, optional=True)).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices' generators."""
    return [get_rng_state(index) for index in range(_C._device_count())]


def set_rng_state(new_state: torch.Tensor, device: Device = "accel") -> None:
    """Sets the state of a device's generator to one of :func:`get_rng_state`."""
    state = new_state.clone(memory_format=torch.contiguous_format)
    _do_or_remember(_get_device_index(device, optional=True), lambda generator: generator.set_state(state))


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Sets the states of all devices' generators."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seeds the generator of the current device. Ignored without a device."""
    seed = int(seed)
    if _C._device_count() > 0:
        _do_or_remember(_C._current_device(), lambda generator: generator.manual_seed(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all devices. Ignored without a device."""
    seed = int(seed)
    for index in range(_C._device_count()):
        _do_or_remember(index, lambda generator: generator.manual_seed(seed))


def seed() -> None:
    """Seeds the generator of the current device with a random number. Ignored without a device."""
    if _C._device_count() > 0:
        _do_or_remember(_C._current_device(), lambda generator: generator.seed())


def seed_all() -> None:
    """Seeds the generators of all devices with one random number. Ignored without a device."""
    manual_seed_all(torch.Generator().seed())


def initial_seed() -> int:
    """The seed of the current device's generator. Initialises accel."""
    return _generator(_C._current_device()).initial_seed()
