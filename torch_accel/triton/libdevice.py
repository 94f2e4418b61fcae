"""Stands in for ``triton.language.extra.libdevice``: its names for the functions of ``ir.extern``.

A kernel that imports Triton's module gets these functions when it is compiled for accel.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import types
from typing import Any

from .ir.extern import ALIASES, FUNCTIONS, PREFIX

NAME = "triton.language.extra.libdevice"


@functools.cache
def modules() -> dict[str, types.ModuleType]:
    """The module by the name that it stands in for, as a backend's ``get_module_map`` gives it."""
    module = types.ModuleType(NAME, __doc__)
    for name in (*FUNCTIONS, *ALIASES):
        setattr(module, name, _function(name, ALIASES.get(name, name)))
    # Triton looks up every global of a kernel's file that comes from its module: names that nobody calls must be there too.
    theirs = importlib.import_module(NAME)
    for name, value in vars(theirs).items():
        if inspect.isfunction(value) and value.__module__ == NAME and not hasattr(module, name):
            setattr(module, name, _own(name) or _refused(name))
    return {NAME: module}


def _own(name: str) -> Any:
    """Triton's operator of that name (div_rn, sqrt_rn), or None."""
    from triton.language import math

    return getattr(math, name, None)


def _refused(name: str) -> Any:
    from triton.language import core

    def call(*args: Any, _semantic: Any = None) -> Any:
        raise NotImplementedError(
            f"accel: libdevice's '{name}' is not there; docs/semantics.md lists those that are: write it with them"
        )

    call.__name__ = name
    return core.extern(call)


def _function(name: str, function: str) -> Any:
    from triton.language import core

    operands, result = FUNCTIONS[function]
    symbols = {}
    for float_type in ("fp32", "fp64"):
        letters = {"f": core.dtype(float_type), "i": core.int32, "l": core.int64}
        given = tuple(letters[letter] for letter in operands)
        symbols[given] = (PREFIX + function, letters[result])

    def call(*args: Any, _semantic: Any = None) -> Any:
        return core.extern_elementwise("", "", list(args), symbols, is_pure=True, _semantic=_semantic)

    call.__name__ = name
    return core.extern(call)
