"""Stands in for ``triton.language.extra.libdevice``: its names for the functions of ``ir.extern``.

A kernel that imports Triton's module gets these functions when it is compiled for accel.
"""

from __future__ import annotations

import functools
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
    return {NAME: module}


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
