"""Errors of the device: the chip's codes, waits that are not wanted, a device that must be used again."""

from __future__ import annotations

from enum import IntEnum

from torch import AcceleratorError, OutOfMemoryError

from ._lazy import lazy_init
from ._native import _C
from ._utils import Device, _get_device_index

__all__ = [
    "AccelError",
    "AcceleratorError",
    "OutOfMemoryError",
    "accelStatus",
    "check_error",
    "get_sync_debug_mode",
    "reset_device",
    "set_sync_debug_mode",
]

_SYNC_DEBUG_MODES = ("default", "warn", "error")


class accelStatus(IntEnum):
    """The codes of the chip's C interface (accelError_t of csrc/driver/accel.h): ``AcceleratorError.error_code``."""

    SUCCESS = 0
    ERROR_INVALID_VALUE = 1
    ERROR_INVALID_DEVICE = 2
    ERROR_OUT_OF_MEMORY = 3
    ERROR_NOT_READY = 4
    ERROR_LAUNCH_FAILURE = 5
    ERROR_FORKED = 6
    ERROR_ABORTED = 7
    ERROR_CONFIG = 8
    ERROR_NOT_SUPPORTED = 9
    ERROR_CAPTURE = 10
    ERROR_REFUSED = 11


class AccelError(RuntimeError):
    """A call of the chip's C interface has failed with ``code``, a number of :class:`accelStatus`."""

    def __init__(self, code: int) -> None:
        self.code = code
        known = code in accelStatus.__members__.values()
        name = accelStatus(code).name.removeprefix("ERROR_").lower().replace("_", " ") if known else "unknown error"
        super().__init__(f"{name} ({code})")


def check_error(res: int) -> None:
    """For callers of the chip's C interface (ctypes): raises if ``res``, the code that a call returned, is no success.

    Raises:
        AccelError: ``res`` is not 0.
    """
    if res != accelStatus.SUCCESS:
        raise AccelError(res)


def reset_device(device: Device = None, timeout: float | None = None) -> None:
    """Makes a device usable again that a kernel's error, an abort or a stream that waits for ever has spoilt.

    Everything queued on all streams of the device is dropped, and a kernel's error that nobody has seen is forgotten.
    Memory stays allocated and tensors stay valid; what dropped work should have written there is undefined. Threads that
    wait for the device, and streams of other devices that wait for dropped work, get a :class:`torch.AcceleratorError`.
    May be called from any thread, as one that watches a thread that hangs in a synchronisation.

    Args:
        device: the device, by default the current one.
        timeout: seconds to wait for running kernels, which cannot be stopped; None: for ever.

    Raises:
        RuntimeError: a kernel still ran after ``timeout`` or another thread resets the device. The device is then left
            aborted; reset it again.
    """
    lazy_init()
    milliseconds = -1 if timeout is None else round(min(max(timeout, 0) * 1000, 1 << 31))
    _C._reset_device(_get_device_index(device, optional=True), milliseconds)


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Sets what happens when an operation makes the host wait for a stream, as ``item()`` does.

    The report names the operation and shows the Python stack, whether or not there is anything to wait for. Waits that
    are asked for by name (``torch.accel.synchronize``, ``Event.synchronize``) and those of an allocation that reclaims
    memory are not reported. :func:`torch_accel.testing.host_waits` collects the same in a list.

    Args:
        debug_mode: 0 or ``default``: nothing; 1 or ``warn``: a warning; 2 or ``error``: a RuntimeError, before the wait.

    Raises:
        RuntimeError: another mode.
    """
    lazy_init()
    mode = debug_mode
    if isinstance(mode, str) and mode in _SYNC_DEBUG_MODES:
        mode = _SYNC_DEBUG_MODES.index(mode)
    if isinstance(mode, str) or mode not in range(len(_SYNC_DEBUG_MODES)):
        raise RuntimeError(
            "invalid value of debug_mode, expected one of `default`, `warn`, `error`, 0, 1 or 2, "
            f"but got {debug_mode!r}"
        )
    _C._set_sync_debug_mode(mode)


def get_sync_debug_mode() -> int:
    """What :func:`set_sync_debug_mode` has set: 0, 1 or 2."""
    return _C._sync_debug_mode()
