"""A shorter way from ``kernel[grid](...)`` to a launch that Triton has prepared before, in C++.

Triton's own way takes about ten times as long as the launch itself. Whatever the short one does not know goes Triton's: new
types, hooks, other drivers. Launches of tuned kernels and of heuristics come to ``run``, after these have chosen the constants.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..._native import _C
from .launcher import Launcher

_NAME = "_accel_launches"  # of the cache, in a function's __dict__; launch_cache.cpp has it too
_MISSING = object()
_TRITONS: dict[str, Callable[..., Any]] = {}  # methods of JITFunction that were replaced


@functools.cache
def install(driver_class: type) -> None:
    """Puts the short way before Triton's, while the active driver is a ``driver_class``. Checked on Triton 3.7."""
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    _TRITONS["run"] = JITFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        if warmup or not isinstance(driver._active, driver_class):
            return _TRITONS["run"](self, *args, grid=grid, warmup=warmup, **options)
        return self[grid](*args, **options)

    JITFunction.__getitem__ = _C._make_getitem(driver, driver_class, JITFunction.__getitem__, _cache)
    JITFunction.run = run


def _cache(function: Any) -> object:
    """A function's cache of launches, which is kept with it."""
    from triton import knobs
    from triton.tools.tensor_descriptor import TensorDescriptor

    parameters = function.params
    function.__dict__[_NAME] = _C._make_launch_cache(
        [parameter.name for parameter in parameters],
        [parameter.is_constexpr for parameter in parameters],
        [parameter.default if parameter.has_default else _MISSING for parameter in parameters],
        _MISSING,
        TensorDescriptor,
        knobs.runtime,
        _prepare,
    )
    return function.__dict__[_NAME]


def _prepare(function: Any, grid: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Any, bool]:
    """Launches Triton's way: what it gives, and the kernel if the next such launch may take the short one."""
    compiled = _TRITONS["run"](function, *arguments, grid=grid, warmup=False, **options)
    launcher = getattr(compiled, "_run", None)
    if not isinstance(launcher, Launcher) or not launcher.flat or launcher.interpreted:
        return compiled, None, False
    return compiled, launcher.kernel, launcher.cooperative
