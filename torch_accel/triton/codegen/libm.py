"""Calls of the C library, lane by lane, for functions that have no polynomial of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .emit import Lanes

_ONE = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "cos", "cosh", "erf", "erfc", "exp", "exp10", "exp2"),
    *("expm1", "lgamma", "log", "log10", "log1p", "log2", "sin", "sinh", "tan", "tanh", "tgamma"),
)
_TWO = ("atan2", "fmod", "hypot", "nextafter", "pow", "remainder")
# symbol: number of operands; those of float32 are exact functions, all others are called on float64
SYMBOLS = {**dict.fromkeys(_ONE, 1), **dict.fromkeys((*_TWO, "fmodf", "nextafterf"), 2)}
# Objects name them with this in front: a kernel may itself be called "exp".
PREFIX = "accel_libc_"


def call(lanes: Lanes, symbol: str, base: str, values: Sequence[str]) -> str:
    """A function of ``SYMBOLS`` on every lane; ``base`` is "double", or "float" for those that end with f."""
    module = lanes.function.module
    module.declare(PREFIX + symbol, base, [base] * SYMBOLS[symbol])
    if not lanes.count:
        given = ", ".join(f"{base} {value}" for value in values)
        return lanes.op(f"call {base} @{PREFIX}{symbol}({given})")
    type = lanes.type(base)
    name = f"accel_each.{lanes.count}.{symbol}"
    module.helper(name, lambda: _each(lanes, name, symbol, base))
    given = ", ".join(f"{type} {value}" for value in values)
    return lanes.op(f"call {type} @{name}({given})")


def _each(lanes: Lanes, name: str, symbol: str, base: str) -> str:
    """A loop over the lanes, made once in a module: a call in line for each of 16 lanes is long code."""
    from .emit import Function

    type, count = lanes.type(base), SYMBOLS[symbol]
    parameters = [(type, f"%x{index}") for index in range(count)]
    function = Function(lanes.function.module, name, parameters, type, "internal", "noinline")
    places = [function.alloca(type) for _ in range(count)]
    result = function.alloca(type)
    for place, (_, value) in zip(places, parameters):
        function.do(f"store {type} {value}, ptr {place}")
    with function.loop("0", str(lanes.count)) as index:
        at = [function.op(f"getelementptr {base}, ptr {place}, i64 {index}") for place in (*places, result)]
        given = ", ".join(f"{base} {function.op(f'load {base}, ptr {place}')}" for place in at[:-1])
        function.do(f"store {base} {function.op(f'call {base} @{PREFIX}{symbol}({given})')}, ptr {at[-1]}")
    function.do(f"ret {type} {function.op(f'load {type}, ptr {result}')}")
    return function.text()
