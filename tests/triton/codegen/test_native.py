"""Every kernel of the corpus as native code, against the tile interpreter: bit for bit, or as close as its functions are."""

import numpy as np
import pytest

from tests.triton.codegen.arrays import ISAS, assert_same_bits
from tests.triton.codegen.native import Kernel
from tests.triton.corpus import cases, modules, run
from torch_accel.triton.interpret import tile
from torch_accel.triton.ir.types import Ptr, Scalar

# The kernels that are made for one operator each run on both; the larger ones are made of the same operators.
COMPOSED = ("activations", "layers", "indexing", "updates", "ranks")
RUNS = [
    (name, isa)
    for name, case in cases().items()
    for isa in ISAS
    if isa == "host" or case.kernel.fn.__module__.rsplit(".", 1)[-1] not in COMPOSED
]
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


@pytest.mark.parametrize("name, isa", RUNS, ids=["-".join(run) for run in RUNS])
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
