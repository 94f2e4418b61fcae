"""Initialisation on first use, and what was asked of the generators before it."""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Callable

import torch

from ._compat import autograd_threads
from ._native import _C
from .sanitizer._mode import start as start_sanitizer

GeneratorAction = Callable[[torch.Generator], object]

# Seeding must not initialise the chip (torch.manual_seed seeds every device). Each action sets the whole state of a
# generator, so the last one per device is all there is to remember.
_lock = threading.Lock()
_pending: dict[int, GeneratorAction] = {}
_ready = False


def lazy_init() -> None:
    """Initialises the chip once, then seeds its generators as asked before.

    Raises:
        RuntimeError: a forked child of a process that had initialised, an unusable ACCEL_* variable, or no device.
    """
    global _ready
    _C._init()
    if _ready:
        return
    start_sanitizer()
    with _lock:
        while _pending:
            index, action = _pending.popitem()
            action(_C._default_generator(index))
        if not _ready:
            atexit.register(_settle_engine)
        _ready = True
    _C._mark_initialized()


def _settle_engine() -> None:
    """Before the interpreter ends: autograd's threads let go of the last graph, see bind_autograd.cpp."""
    with contextlib.suppress(Exception):  # a lost device, or a forked child: there is nothing to settle
        if autograd_threads():
            _C._settle_engine()


def generator(index: int) -> torch.Generator:
    """The default generator of a device."""
    lazy_init()
    return _C._default_generator(index)


def set_generator(index: int, action: GeneratorAction) -> None:
    """Runs ``action``, which sets the generator's whole state, on the default generator of a device now or at lazy_init."""
    index = _C._check_index(index)
    with _lock:
        if not _ready:
            _pending[index] = action
            return
    action(generator(index))
