"""How far functions of compiled kernels are from the exact value: the table of docs/semantics.md.

python -m tests.triton.codegen.accuracy                 # the table, on the tests' grid
python -m tests.triton.codegen.accuracy --write         # puts it into the page
python -m tests.triton.codegen.accuracy --every 257     # on every 257th float32 there is; 1 takes them all, an hour
"""

import argparse
import functools
import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.triton.codegen.arrays import Operators
from torch_accel.triton.codegen import math as functions
from torch_accel.triton.codegen import scalars
from torch_accel.triton.ir.types import F32

PAGE = Path(__file__).parents[3] / "docs" / "semantics.md"
COLUMNS = "| Function | At most | At |\n|---|---|---|\n"
CHUNK = 1 << 22

_erf = np.frompyfunc(math.erf, 1, 1)
# NumPy's float64 functions are within a few units of 2 ** -53, which is nothing beside the units of float32.
EXACT = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "log10": np.log10, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "erf": lambda x: _erf(x).astype(np.float64),
}  # fmt: skip


def emitted(name, elem):
    """What writes the code of a function; the square root is an instruction."""
    if name == "sqrt":
        return lambda e, x: scalars.elementwise(e, name, elem, [x])
    return lambda e, x: functions.function(e, name, {"f32": "float", "f64": "double"}[elem.name], [x])


@functools.cache
def compiled(isa, elem):
    """All of them."""
    return Operators({name: ([elem], elem, emitted(name, elem)) for name in EXACT}, isa)


@functools.cache
def grid():
    """Every exponent and sign, most numbers where the functions are not constant, and what is special."""
    spread = np.arange(0, 1 << 32, 131_071, dtype=np.uint64).astype(np.uint32).view(np.float32)
    rng = np.random.default_rng(0)
    near = [rng.uniform(-limit, limit, 25_000) for limit in (1, 5, 20, 100)]
    around_one = 1 + rng.uniform(-0.5, 0.5, 25_000)
    quarters = np.arange(-600, 600) * (math.pi / 4)
    special = [0.0, math.inf, math.nan, 2.0**-149, 2.0**-126, 3.4028235e38, 1.0]
    with np.errstate(invalid="ignore"):  # the spread has signalling NaN
        return np.concatenate([spread, *near, around_one, quarters, special, np.negative(special)]).astype(np.float32)


def ulps(got, want, digits=24, least=-149):
    """Differences of finite results in units of the last place of ``want``; infinite where the results are not of one kind."""
    with np.errstate(all="ignore"):
        nearest = want.astype(got.dtype)
        unit = np.ldexp(np.ones_like(want), np.maximum(np.frexp(want)[1] - digits, least))
        distance = np.abs(got.astype(want.dtype) - want) / unit
        same = (got == nearest) | (np.isnan(got) & np.isnan(nearest))
        wrong_zero = (nearest == 0) & (got == 0) & (np.signbit(got) != np.signbit(nearest))
        return np.where(
            wrong_zero,
            np.inf,
            np.where(same | np.isfinite(distance), np.where(same & ~np.isfinite(distance), 0, distance), np.inf),
        )


def worst(name, x):
    """The largest error of a function over operands, and where it is."""
    with np.errstate(all="ignore"):
        error = ulps(compiled("host", F32)(name, x), EXACT[name](x.astype(np.float64)))
    at = int(error.argmax())
    return float(error[at]), float(x[at])


def bits(every) -> Iterator[np.ndarray]:
    """Float32 numbers by their bits, ``every`` apart."""
    for start in range(0, 1 << 32, every * CHUNK):
        end = min(start + every * CHUNK, 1 << 32)
        yield np.arange(start, end, every, dtype=np.uint64).astype(np.uint32).view(np.float32)


def shown(error):
    """Rounded up: what the page says is a bound."""
    return f"{math.ceil(error * 100) / 100:.2f}"


def table(every=521):
    """The rows of the page, measured on the grid, and on bit patterns ``every`` apart."""
    found = {name: (0.0, 0.0) for name in EXACT}
    for x in itertools.chain([grid()], bits(every)):
        for name, before in found.items():
            found[name] = max(before, worst(name, x))
    rows = [f"| `{name}` | {shown(error)} | {at:.9g} |\n" for name, (error, at) in found.items()]
    return COLUMNS + "".join(rows)


def known():
    """Name and bound of each function in the page."""
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| \S+ \|$", PAGE.read_text(), re.MULTILINE)
    return {name: float(bound) for name, bound in rows}


def main():
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into docs/semantics.md")
    parser.add_argument(
        "--every", type=int, default=521, help="take every so many of all float32 numbers (default: 521)"
    )
    given = parser.parse_args()
    text = table(given.every)
    print(text, end="")
    if given.write:
        before = PAGE.read_text()
        old = re.search(re.escape(COLUMNS) + r"(?:\|.*\n)+", before)
        if old is None:
            raise SystemExit(f"{PAGE.name} has no table that begins with {COLUMNS.splitlines()[0]}")
        PAGE.write_text(before.replace(old[0], text))


if __name__ == "__main__":
    main()
