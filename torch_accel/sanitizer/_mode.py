"""Turning the sanitizer on and off, with what it hooks in Python."""

from __future__ import annotations

import atexit
import functools
import os
import threading
from collections.abc import Callable
from typing import Any

import torch

from .._native import _C

__all__ = ["set_mode", "start"]

_MODES = {"": "off", "0": "off", "1": "raise", "raise": "raise", "warn": "warn"}
# They give the memory to code that no operator shows. What becomes of it there cannot be seen, so they count as reads.
_READERS = ("numpy", "tolist", "__dlpack__")

_lock = threading.Lock()
_originals: dict[str, Callable[..., Any]] = {}


def _watched(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        _C._sanitizer_host_access(self, name, False)
        return original(self, *args, **kwargs)

    return method


def set_mode(mode: str) -> None:
    """``off``, ``raise`` or ``warn``."""
    with _lock:
        _C._sanitizer_set_mode(mode)
        if mode != "off" and not _originals:
            atexit.register(_C._sanitizer_set_mode, "off")  # stacks of Python are of no use once it ends
            for name in _READERS:
                _originals[name] = getattr(torch.Tensor, name)
                setattr(torch.Tensor, name, _watched(name, _originals[name]))
        elif mode == "off" and _originals:
            atexit.unregister(_C._sanitizer_set_mode)
            while _originals:
                _restore(*_originals.popitem())


def _restore(name: str, original: Callable[..., Any]) -> None:
    # What torch.Tensor only inherits, from TensorBase, it does not get as its own.
    if getattr(torch.Tensor.__base__, name, None) is original:
        delattr(torch.Tensor, name)
    else:
        setattr(torch.Tensor, name, original)


@functools.cache
def start() -> None:
    """Once, as ACCEL_SANITIZER says, and TRITON_ACCEL_CHECK of unwritten memory, which is known from here on.

    Raises:
        RuntimeError: it has another value.
    """
    value = os.environ.get("ACCEL_SANITIZER", "")
    if value not in _MODES:
        raise RuntimeError(f"accel: ACCEL_SANITIZER={value} is not usable; accepted: 0, 1, raise, warn")
    if _MODES[value] != "off":
        set_mode(_MODES[value])
    if "uninit" in map(str.strip, os.environ.get("TRITON_ACCEL_CHECK", "").split(",")):
        _C._track_unwritten()
