"""Every kernel of the corpus as native code, against the tile interpreter: bit for bit, or as close as its functions are."""

import numpy as np
import pytest

from tests.triton.codegen.arrays import ISAS, assert_same_bits
from tests.triton.codegen.native import Kernel
from tests.triton.corpus import cases, modules, run
from torch_accel.triton.interpret import tile
from torch_accel.triton.ir.types import Ptr, Scalar

NAMES = list(cases())
# Functions that docs/semantics.md lets be off by ulps. Kernels without them have the same bits.
APPROXIMATE = {"exp", "exp2", "log", "log2", "rsqrt", "sin", "cos", "erf"}
# The largest relative difference of kernels with them, where the case does not say how far it may be from NumPy.
OFF = {
    "math_functions": 3e-7,  # three roundings of sigmoid
    "math_functions-f64": 4e-16,
    "softmax": 3e-7,
    "attention": 1e-6,  # a sum of four blocks, each times a factor with an error
}


def stored_type(type):
    """Of the elements of an argument; of an array of addresses an integer."""
    elem = type.elem if isinstance(type, Ptr) else type
    return elem if isinstance(elem, Scalar) else Scalar("i64")


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", NAMES)
def test_same_as_the_interpreter(name, isa):
    case, (_, lowered) = cases()[name], modules(name)
    kernel = case.kernel.fn.__name__
    native = Kernel(lowered, kernel, isa)
    got, fault = native.run(case.grid, case.arguments())
    assert fault is None
    opcodes = {op.attributes["opcode"] for op in lowered.walk() if op.name == "elementwise"}
    off = (case.rtol or OFF[name]) if opcodes & APPROXIMATE else 0
    want = run(tile.run, lowered, kernel, case.grid, case.arguments())
    for type, one, other in zip(native.types, got, want):
        if not isinstance(one, np.ndarray):
            continue
        if off:
            np.testing.assert_allclose(one, other, rtol=off, atol=case.atol)
        else:
            assert_same_bits(stored_type(type), one.reshape(-1), other.reshape(-1))
