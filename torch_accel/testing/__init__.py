"""Instruments for tests: hold a stream, count waits and launches, forbid fallbacks."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch

from .._native import _C
from .._sync_debug import HostWait, host_waits
from ..streams import current_stream

__all__ = [
    "DEVICE_SPEC",
    "TORCH_TEST_DEVICES",
    "HostWait",
    "fallback_mode",
    "hold_stream",
    "host_waits",
    "launch_blocking",
    "launches",
    "plant",
    "wait_report",
]

#: the file for torch's variable of this name: what ``instantiate_device_type_tests`` needs to make tests for accel
TORCH_TEST_DEVICES = str(Path(__file__).with_name("_torch_test_devices.py"))

#: the file for TRANSFORMERS_TEST_DEVICE_SPEC and DIFFUSERS_TEST_DEVICE_SPEC: copy it to the folder where pytest runs
DEVICE_SPEC = str(Path(__file__).with_name("device_spec.py"))


@contextlib.contextmanager
def hold_stream(stream: torch.Stream | None = None) -> Iterator[None]:
    """While active, work enqueued on ``stream`` (by default the current one) from here on does not start.

    Whatever waits for that work in the same thread waits for ever; launches do not, even under ACCEL_LAUNCH_BLOCKING=1.
    """
    stream = current_stream() if stream is None else stream
    with launch_blocking(False):
        hold = _C._hold_stream(stream)
        try:
            yield
        finally:
            hold.release()


@contextlib.contextmanager
def fallback_mode(mode: str) -> Iterator[None]:
    """Sets ACCEL_FALLBACK at run time to ``allow``, ``warn`` or ``error``, and restores it at the exit.

    Raises:
        RuntimeError: another mode.
    """
    before = _C._fallback_mode()
    _C._set_fallback_mode(mode)
    try:
        yield
    finally:
        _C._set_fallback_mode(before)


@contextlib.contextmanager
def launch_blocking(on: bool = True) -> Iterator[None]:
    """Sets ACCEL_LAUNCH_BLOCKING at run time and restores it at the exit."""
    before = _C._launch_blocking()
    _C._set_launch_blocking(on)
    try:
        yield
    finally:
        _C._set_launch_blocking(before)


@contextlib.contextmanager
def launches() -> Iterator[list[str]]:
    """Yields a list that holds, at the exit, the name of every launch enqueued meanwhile, in order, by any thread.

    Up to 8 may watch at a time.
    """
    names: list[str] = []
    log = _C._log_launches()
    try:
        yield names
    finally:
        names += log.stop()


def wait_report() -> dict[str, int]:
    """Caller -> number of times the host waited there for unfinished work, in this process."""
    return _C._wait_counts()


@contextlib.contextmanager
def plant(fault: str) -> Iterator[None]:
    """Plants a fault while active: takes one rule out, so that a test can prove that it would notice.

    ``ticket_rule``: threads that write at once get memory that queued work still uses. ``capture``: host operands
    are referred to instead of copied. ``reclaim``: no second try after a worker ran out of memory.
    ``release_gil``: host waits keep the GIL. ``restride``: kernels turn the strides of their outputs round.
    ``placement``: kernels make results elsewhere than in their outputs. ``foresight``: shape functions foresee a leading
    dimension too many.
    ``spend``: the first of two runs of a record (ACCEL_REPLAY_TWICE) uses its captured operands up.
    ``undeclared_read``: an operand that is written and read is declared as written only.
    ``stream_wait``: a stream that is told to wait for an event does not. ``record_stream``: it notes nothing, for
    autograd neither.

    Raises:
        RuntimeError: another name.
    """
    _C._plant(fault, True)
    try:
        yield
    finally:
        _C._plant(fault, False)
