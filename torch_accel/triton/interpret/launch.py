"""Runs a ``@triton.jit`` kernel on NumPy arrays, with no device: what a kernel computes, by definition."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import frontend, passes
from ..ir import reader
from ..target import CPU, Target
from . import machine, raw, tile, validate
from .checks import CheckedMemory, Checks
from .descriptor import Descriptor
from .memory import Memory

_TYPES = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bool": "i1",
    **{f"int{width}": f"i{width}" for width in (8, 16, 32, 64)},
    **{f"uint{width}": f"u{width}" for width in (8, 16, 32, 64)},
}


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    *arguments: Any,
    signature: Mapping[str, str] | None = None,
    level: str = "tile",
    say: Callable[[str], None] = print,
    check: Checks | None = None,
    target: Target = CPU,
    dma: str | int = "late",
    **constants: Any,
) -> None:
    """Runs every program of the grid, in ascending order, on this thread; arrays are written in place.

    ``arguments`` are the kernel's parameters but the constexpr ones, which are given by name. Arrays must be C-contiguous; bf16 and
    the 8-bit floats are arrays of their bits (uint16, uint8), and ``signature`` names their type: ``{"x": "*bf16"}``. A Python int is
    an i32, or an i64 if it needs one; a float is an fp32; a ``descriptor.Descriptor`` is a tensor descriptor. ``level`` is "tile", the
    tile IR, "ttir", Triton's IR decoded apart from it, or "machine", what is made of it for a ``target``. ``dma`` says
    when DMA moves its elements, where the target has it: "late", "early" or a seed. ``say`` takes the lines of ``device_print``. ``check`` looks for more than accesses out of bounds.

    With ``TRITON_ACCEL_STRICT=1`` in the environment the kernel is compiled in strict mode, but at "ttir". With
    ``TRITON_ACCEL_VERIFY=each`` a kernel without checks runs at all levels and after every pass, and a difference in any bit raises
    ``validate.Miscompiled``.

    Raises KernelFault with the kernel's line, program and lane for an access outside of all arrays and for a ``device_assert`` that
    does not hold; IRError for an operator that is not supported.
    """
    if level not in ("tile", "ttir", "machine"):
        raise ValueError(f"accel: level is '{level}', expected 'tile', 'ttir' or 'machine'")
    if check is not None and "nan" in check.kinds and level != "tile":
        raise ValueError(
            f"accel: the check 'nan' follows values through the tile IR; level is '{level}', expected 'tile'"
        )
    if target is not CPU and level != "machine":
        raise ValueError(f"accel: target '{target.name}' has code at the level 'machine'; level is '{level}'")
    names = [name for name in kernel.arg_names if name not in constants]
    if len(names) != len(arguments):
        raise TypeError(
            f"accel: kernel '{kernel.fn.__name__}' takes {', '.join(names)}; {len(arguments)} arguments given"
        )
    known = {name: (signature or {}).get(name) or _type(name, value) for name, value in zip(names, arguments)}
    types = {name: known.get(name, "constexpr") for name in kernel.arg_names}
    options = frontend.Options(debug=True)
    opened = [
        part
        for name, value in zip(names, arguments)
        for part in (value.opened(name) if isinstance(value, Descriptor) else [(name, value)])
    ]
    names, arguments = [name for name, _ in opened], tuple(value for _, value in opened)
    module = reader.read(frontend.ttir(kernel, types, constants, options=options))
    if os.environ.get("TRITON_ACCEL_VERIFY") == "each" and check is None:
        validate.validate(module, kernel.fn.__name__, grid, arguments, say, strict=options.strict, target=target)
        return
    memory = Memory() if check is None else CheckedMemory(check)
    # The larger one first: the smaller may be a part of it.
    arrays = sorted((a for a in zip(names, arguments) if isinstance(a[1], np.ndarray)), key=lambda a: -a[1].nbytes)
    addresses = {name: memory.add(array, name) for name, array in arrays}
    passed = [addresses.get(name, value) for name, value in zip(names, arguments)]
    if level == "ttir":
        raw.run(module, kernel.fn.__name__, grid, passed, memory, say)
        return
    lowered = frontend.lowered(module, strict=options.strict)
    if level == "machine":
        made = passes.machine_ir(lowered, target=target)
        machine.run(made, kernel.fn.__name__, grid, passed, memory, say, schedule=dma)
        return
    tile.run(lowered, kernel.fn.__name__, grid, passed, memory, say)


def _type(name: str, value: Any) -> str:
    if isinstance(value, np.ndarray) and value.dtype.name in _TYPES:
        return f"*{_TYPES[value.dtype.name]}"
    if isinstance(value, Descriptor):
        return value.type(_type(name, value.base).removeprefix("*"))
    if isinstance(value, (bool, np.bool_)):
        return "i1"
    if isinstance(value, (int, np.integer)):
        return "i32" if -(1 << 31) <= value < 1 << 31 else "i64"
    if isinstance(value, (float, np.floating)):
        return "fp32"
    raise TypeError(f"accel: argument '{name}' is a {type(value).__name__}, expected a NumPy array or a number")
