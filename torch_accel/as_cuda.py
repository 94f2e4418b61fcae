"""Programs that say "cuda" run on accel: ``torch_accel.as_cuda()``, or ``python -m torch_accel.as_cuda program.py``.

docs/as_cuda.md says how it works and what it covers. One rule holds throughout: the program is told "cuda", torch itself
is told "accel", so that torch takes the paths of accel everywhere.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import threading
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

import torch_accel as accel

from . import _compat, _legacy
from ._cuda_names import Capability, asked_by_torch, capabilities, capability_part, cuda_names
from ._native import _C
from ._utils import Device, _get_device_index

__all__ = ["as_cuda"]

_MISSING = object()


def _without_name(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function(device_type, ...)``, whose first argument is accel's name where only the others are given."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        named = "device_type" in kwargs or (args and isinstance(args[0], str))
        return function(*args, **kwargs) if named else function("accel", *args, **kwargs)

    return call


def _tensor_type(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def type(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        if isinstance(dtype, str):
            dtype = dtype.replace("torch.cuda.", "torch.accel.")
        result = original(self, dtype, non_blocking, **kwargs)
        return result.replace("torch.accel.", "torch.cuda.") if isinstance(result, str) else result

    return type


def _set_default_tensor_type(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def set_default_tensor_type(t: Any, /) -> None:
        kind = getattr(accel, t.removeprefix("torch.cuda."), t) if isinstance(t, str) else t
        if isinstance(kind, _legacy._TensorType):
            torch.set_default_dtype(kind.dtype)
            torch.set_default_device("accel")
        else:
            torch.set_default_device(None)
            original(t)

    return set_default_tensor_type


def _get_device_module(original: Callable[..., ModuleType]) -> Callable[..., ModuleType]:
    @wraps(original)
    def get_device_module(device: Device = None) -> ModuleType:
        module = original(device)
        return torch.cuda if module is accel and not asked_by_torch() else module

    return get_device_module


# Variables of torch.cuda that change, or whose making initialises the chip.
_LAZY = ("_initialized", "default_generators")


def _asked_for(name: str) -> object:
    if name in _LAZY:
        return getattr(accel, name)
    raise AttributeError(f"module 'torch.cuda' has no attribute {name!r}")


def _is_accel(self: Any) -> bool:
    return not asked_by_torch() and bool(self.is_accel)


def _device_type(original: Any) -> property:
    def type(self: torch.device) -> str:
        name = original.__get__(self)
        return "cuda" if name == "accel" and not asked_by_torch() else name

    return property(type)


class _State:
    """What as_cuda() has put where; the process has one."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.handles: list[as_cuda] = []
        self.undo = contextlib.ExitStack()

    def _set(self, owner: Any, name: str, value: object) -> None:
        before = vars(owner).get(name, _MISSING)
        self.undo.callback(*(delattr, owner, name) if before is _MISSING else (setattr, owner, name, before))
        setattr(owner, name, value)

    def _apply(self) -> None:
        self.undo.callback(_C._restore_cuda_name)
        if _C._redirect_cuda_name() == 0:
            raise RuntimeError("torch_accel.as_cuda(): this build of torch lets accel not take the name 'cuda'")
        self.undo.callback(_C._show_devices_as_cuda, False)
        _C._show_devices_as_cuda(True)
        original = vars(torch.device)["type"]
        self.undo.callback(_C._set_device_attribute, "type", original)
        _C._set_device_attribute("type", _device_type(original))

        for owner, name, value in list(cuda_names()):
            self._set(owner, name, value)
        for owner, name, value in _compat.cuda_patches(_get_device_index):
            self._set(owner, name, value)
        self._set(torch.cuda, "__getattr__", _asked_for)
        for name in _LAZY:
            self.undo.callback(setattr, torch.cuda, name, getattr(torch.cuda, name))
            delattr(torch.cuda, name)
        kinds: tuple[Any, ...] = (torch.Tensor, torch.UntypedStorage, torch.TypedStorage, PackedSequence)
        for kind in kinds:
            self._set(kind, "cuda", kind.accel)
            self._set(kind, "is_cuda", property(_is_accel))
        self._set(torch.nn.Module, "cuda", vars(torch.nn.Module)["accel"])
        self._set(torch.Tensor, "type", _tensor_type(torch.Tensor.type))
        self._set(torch, "set_default_tensor_type", _set_default_tensor_type(torch.set_default_tensor_type))
        self._set(torch, "get_device_module", _get_device_module(torch.get_device_module))
        for name in ("is_autocast_enabled", "set_autocast_enabled"):
            self._set(torch, name, _without_name(getattr(torch, name)))
        self._set(torch, "get_autocast_gpu_dtype", lambda: torch.get_autocast_dtype("accel"))
        self._set(torch, "set_autocast_gpu_dtype", lambda dtype: torch.set_autocast_dtype("accel", dtype))
        self._set(accel.Stream, "cuda_stream", accel.Stream.accel_stream)
        for part, name in enumerate(("major", "minor")):
            self._set(_C._AccelDeviceProperties, name, capability_part(part))

    def enter(self, handle: as_cuda) -> None:
        with self.lock:
            if not self.handles:
                if torch.cuda.is_available():
                    raise RuntimeError(
                        f"torch_accel.as_cuda(): this machine has a real CUDA device ({torch.cuda.get_device_name()}), which "
                        "the program would no longer reach. Hide it with the environment variable CUDA_VISIBLE_DEVICES= "
                        "(empty), or leave as_cuda() out."
                    )
                try:
                    self._apply()
                except BaseException:
                    self.undo.close()
                    raise
            self.handles.append(handle)
            capabilities.extend([handle.capability] if handle.capability else [])

    def leave(self, handle: as_cuda) -> None:
        with self.lock:
            self.handles.remove(handle)
            capabilities[:] = [other.capability for other in self.handles if other.capability]
            if not self.handles:
                self.undo.close()


_state = _State()


class as_cuda:
    """From the call on, programs that say "cuda" run on accel, in every thread of the process; see docs/as_cuda.md.

    It ends with :meth:`restore` or, used as a context manager, with its block. Calls may overlap: the last to end puts
    everything back. Call it before the program imports names from torch.cuda (``from torch.cuda import Stream``).

    Args:
        capability: what ``torch.cuda.get_device_capability()`` shall say, for programs that ask; without it, that raises.

    Raises:
        RuntimeError: there is a real CUDA device.
    """

    def __init__(self, capability: Capability | None = None) -> None:
        self.capability = capability
        self._active = True
        _state.enter(self)

    def restore(self) -> None:
        """Ends it; does nothing the second time."""
        with _state.lock:
            if self._active:
                self._active = False
                _state.leave(self)

    def __enter__(self) -> as_cuda:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.restore()


class _Callable(ModuleType):
    """torch_accel.as_cuda, the module, is called for the class in it: a package's attribute cannot be both."""

    def __call__(self, capability: Capability | None = None) -> as_cuda:
        return as_cuda(capability)


sys.modules[__name__].__class__ = _Callable


def _main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: python -m torch_accel.as_cuda program.py [arguments]")
    accel.as_cuda()
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    _main()
