"""The functions that stand in for Triton's libdevice: through Triton's frontend, on both levels, against torch."""

import importlib.util
import inspect
import math

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra.libdevice import div_rn, j0

from tests.triton.corpus import run
from torch_accel.triton import frontend, libdevice
from torch_accel.triton.interpret import raw, tile
from torch_accel.triton.interpret.launch import launch
from torch_accel.triton.ir import lower_ttir, reader, verify
from torch_accel.triton.ir.core import IRError
from torch_accel.triton.ir.extern import ALIASES, FUNCTIONS

N = 64
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 0.999, 1e-30]
KERNEL = """
import triton
import triton.language as tl
from triton.language.extra import libdevice

@triton.jit
def kernel(x, y, n, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b, c = tl.load(x + i), tl.load(y + i), tl.load(n + i)
"""
LETTERS = {"f": ["a", "b", "a"], "i": ["c"]}


def arguments(dtype):
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, N)) * 2
    x[: len(SPECIAL)] = SPECIAL
    y[: len(SPECIAL)] = SPECIAL[3:] + SPECIAL[:3]
    return x.astype(dtype), y.astype(dtype), rng.integers(-20, 20, N, dtype=np.int32)


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """All functions in one kernel for each float type: {type: {name: results}}, equal on both levels."""
    lines = []
    for at, (name, (operands, _)) in enumerate(FUNCTIONS.items()):
        names = {"f": iter(("a", "b", "a")), "i": iter("c")}
        call = f"libdevice.{exported(name)}({', '.join(next(names[letter]) for letter in operands)})"
        lines.append(f"    tl.store(out + {at * N} + i, {call}.to(tl.float64))")
    path = tmp_path_factory.mktemp("libdevice") / "all_functions.py"
    path.write_text(KERNEL + "\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location("all_functions", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    results = {}
    for letter, dtype in (("fp32", np.float32), ("fp64", np.float64)):
        signature = {"x": f"*{letter}", "y": f"*{letter}", "n": "*i32", "out": "*fp64", "N": "constexpr"}
        read = reader.read(frontend.ttir(module.kernel, signature, {"N": N}))
        lowered = lower_ttir.lower(read)
        verify.verify(lowered)
        given = [*arguments(dtype), np.zeros(len(FUNCTIONS) * N)]
        one, other = (run(entry, ir, "kernel", (1,), given)[3] for entry, ir in ((raw.run, read), (tile.run, lowered)))
        assert one.tobytes() == other.tobytes()
        results[dtype] = dict(zip(FUNCTIONS, other.reshape(-1, N)))
    return results


def exported(name):
    """A name of Triton's own module for a function: it has no `isfinite`, `fabs` or `fma` of all types under these names."""
    return {"fabs": "abs", "isfinite": "finitef"}.get(name, name)


def each(function):
    """A function of Python's math; NaN for what it raises for."""

    def one(*args):
        try:
            return function(*args)
        except (ValueError, OverflowError):
            return math.nan

    return lambda *args: torch.tensor([one(*row) for row in zip(*(a.tolist() for a in args))], dtype=torch.float64)


def half_away(x):
    return torch.where(x.isfinite(), x.trunc() + x.frac().abs().ge(0.5) * x.sign(), x)


def to_int(values, width):
    """As an integer cast does: saturating, NaN is 0."""
    most = 2 ** (width - 1) - 1
    return torch.tensor([0 if v != v else max(min(v, most), -most - 1) for v in values.tolist()], dtype=torch.float64)


def exponent(x):
    e = torch.frexp(x)[1].double() - 1
    special = torch.where(x == 0, x.new_tensor(-(2.0**31)), x.new_tensor(2.0**31 - 1))
    return torch.where((x == 0) | ~x.isfinite(), special, e)


FORMULAS = {
    **{name: getattr(torch, name) for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf")},
    **{name: getattr(torch, name) for name in ("erfc", "erfinv", "exp", "exp2", "expm1", "floor", "lgamma", "log", "log10")},
    **{name: getattr(torch, name) for name in ("log1p", "log2", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh", "trunc")},
    **{name: getattr(torch, name) for name in ("atan2", "copysign", "hypot", "pow", "isinf", "isnan", "isfinite", "signbit")},
    "fmod": each(math.fmod),
    "cbrt": lambda x: x.abs().pow(1 / 3).copysign(x),
    "rcbrt": lambda x: x.abs().pow(-1 / 3).copysign(x),
    "exp10": lambda x: torch.pow(10.0, x),
    "fabs": torch.abs,
    "fdim": lambda x, y: torch.where((x - y).isnan() & ~(x == y), math.nan, torch.where(x > y, x - y, 0.0)),
    "fma": lambda x, y, z: x * y + z,
    "ilogb": exponent,
    "ldexp": lambda x, n: x * torch.exp2(n.double()),
    "scalbn": lambda x, n: x * torch.exp2(n.double()),
    "llrint": lambda x: to_int(x.round(), 64),
    "llround": lambda x: to_int(half_away(x), 64),
    "logb": lambda x: torch.where(x == 0, -math.inf, torch.where(x.isinf(), math.inf, torch.where(x.isnan(), x, exponent(x)))),
    "nearbyint": torch.round,
    "rint": torch.round,
    "round": half_away,
    "normcdf": lambda x: torch.erfc(-x / math.sqrt(2)) / 2,
    "remainder": each(math.remainder),
    "saturatef": lambda x: x.nan_to_num(0.0).clamp(0, 1),
    "sinpi": lambda x: torch.where((x % 1 == 0) & x.isfinite(), 0.0, (x * math.pi).sin()),
    "cospi": lambda x: torch.where(((x + 0.5) % 1 == 0) & x.isfinite(), 0.0, (x * math.pi).cos()),
    "tgamma": lambda x: torch.where(x == 0, math.inf * torch.copysign(torch.ones(()), x), torch.where(x == math.inf, x, each(math.gamma)(x))),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "nextafter"])
def test_function(computed, name, dtype):
    x, y, n = (torch.from_numpy(v) for v in arguments(dtype))
    operands = {"f": iter((x.double(), y.double(), x.double())), "i": iter((n,))}
    with np.errstate(all="ignore"):
        want = FORMULAS[name](*(next(operands[letter]) for letter in FUNCTIONS[name][0])).double()
    if dtype == np.float32 and FUNCTIONS[name][1] == "f":
        want = want.float().double()
    # torch's own formulas are good to some ulp of float64.
    torch.testing.assert_close(
        torch.from_numpy(computed[dtype][name]),
        want,
        rtol=1.2e-7 if dtype == np.float32 else 2e-13,
        atol=1e-300,
        equal_nan=True,
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nextafter_steps_in_its_own_type(computed, dtype):
    x, y, _ = arguments(dtype)
    np.testing.assert_array_equal(
        computed[dtype]["nextafter"].astype(dtype), torch.nextafter(*map(torch.from_numpy, (x, y))).numpy()
    )


def test_names_are_those_of_triton():
    from triton.language.extra import libdevice as stubs

    (module,) = libdevice.modules().values()
    theirs = {name for name, value in vars(stubs).items() if inspect.isfunction(value)}
    ours = {name for name in vars(module) if not name.startswith("_")}
    assert ours - theirs == {"isfinite", "fabs"} and theirs <= ours
    for name in {*FUNCTIONS, *ALIASES} & theirs:
        operands, _ = FUNCTIONS[ALIASES.get(name, name)]
        assert len(inspect.signature(getattr(stubs, name)).parameters) == len(operands), name


@triton.jit
def divided(x, y, out):
    tl.store(out, div_rn(tl.load(x), tl.load(y)))


@triton.jit
def bessel(x, out):
    tl.store(out, j0(tl.load(x)))


def test_names_that_are_no_function_of_the_table():
    """Triton looks up all that this file imports for each of its kernels."""
    x, y, out = (np.full(1, value, np.float32) for value in (1, 3, 0))
    launch(divided, (1,), x, y, out)
    assert out[0] == np.float32(1) / np.float32(3)
    with pytest.raises(triton.compiler.errors.CompilationError) as raised:
        launch(bessel, (1,), x, out)
    assert "accel: libdevice's 'j0' is not there; docs/semantics.md lists those that are" in str(raised.value)


def test_unknown_function_names_the_line():
    text = """"builtin.module"() ({
  "tt.func"() <{function_type = (f32) -> (), sym_name = "k"}> ({
  ^bb0(%x: f32):
    %0 = "tt.extern_elementwise"(%x) <{libname = "", libpath = "", pure = true, symbol = "__nv_j0f"}> : (f32) -> f32 loc("k.py":7:3)
    "tt.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
"""
    with pytest.raises(IRError, match=r"accel: external function '__nv_j0f' is not known; .* \(k.py:7:3\)"):
        lower_ttir.lower(reader.read(text))
    with pytest.raises(IRError, match=r"accel: external function '__nv_j0f' is not known \(k.py:7:3\)"):
        run(raw.run, reader.read(text), "k", (1,), [1.0])
