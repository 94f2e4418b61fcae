"""A shorter way from ``kernel[grid](...)`` to a launch that Triton has prepared before, in C++.

Triton's own way takes about ten times as long as the launch itself. Whatever the short one does not know goes Triton's: new
types, hooks, other drivers.
"""

from __future__ import annotations

import functools
from typing import Any

from ..._native import _C
from .launcher import Launcher

_NAME = "_accel_launches"  # of the cache, in a function's __dict__
_MISSING = object()


@functools.cache
def install(driver_class: type) -> None:
    """Puts the short way before Triton's, while the active driver is a ``driver_class``. Checked on Triton 3.7."""
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    usual = JITFunction.__getitem__

    def getitem(self: Any, grid: Any) -> Any:
        if not isinstance(driver._active, driver_class):
            return usual(self, grid)
        launches = self.__dict__.get(_NAME)
        if launches is None:
            launches = self.__dict__[_NAME] = _cache(self)
        return functools.partial(launches.launch, self, grid)

    JITFunction.__getitem__ = getitem


def _cache(function: Any) -> _C._LaunchCache:
    from triton import knobs

    parameters = function.params
    return _C._LaunchCache(
        [parameter.name for parameter in parameters],
        [parameter.is_constexpr for parameter in parameters],
        [parameter.default if parameter.has_default else _MISSING for parameter in parameters],
        _MISSING,
        knobs.runtime,
        _prepare,
    )


def _prepare(function: Any, grid: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Any, bool]:
    """Launches Triton's way: what it gives, and the kernel if the next such launch may take the short one."""
    compiled = function.run(*arguments, grid=grid, warmup=False, **options)
    launcher = getattr(compiled, "_run", None)
    if not isinstance(launcher, Launcher) or not launcher.flat or launcher.interpreted:
        return compiled, None, False
    return compiled, launcher.kernel, launcher.cooperative
