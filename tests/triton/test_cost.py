"""What a kernel costs by its cost function, against what the interpreter of the machine IR counts, and the same function as native code."""

import ctypes

import numpy as np
import pytest
import triton
import triton.language as tl
from expecttest import assert_expected_inline

from tests.triton.corpus import cases, copied
from torch_accel.triton import codegen, frontend, passes
from torch_accel.triton.analysis import cost
from torch_accel.triton.codegen.compile import packed
from torch_accel.triton.interpret import counters
from torch_accel.triton.interpret.engine import argument
from torch_accel.triton.interpret.memory import Memory
from torch_accel.triton.ir import lower_ttir, printer, reader
from torch_accel.triton.machine import verify
from torch_accel.triton.machine.ops import MACHINE, groups

# Kernels whose cost depends on what memory holds: `while` has no count, of branches the dearer one counts.
WHILE = {"collatz", "lock", "until_small", "scalar_loop"}
BRANCHES = {"nested", "early_return", "returning_early", "cross_entropy"}
# Kernels that run the second version of a nest, which has a buffer more, or masks.
SECOND = {
    "matmul",
    "dropped",
    "summed_area",
    "partial_overwrite",
    "modulo",
    "shift_in_place",
    "rolled",
    "reversed_in_place",
    "shifted_in_place",
}
SECOND_COUNTERS = {"sram read", "sram written", "int"}


def machine(kernel, types, constants):
    return passes.machine_ir(lower_ttir.lower(reader.read(frontend.ttir(kernel, types, constants))))


def launched(case):
    """The machine IR of a case, its memory, and the arguments as a kernel gets them."""
    memory, passed = Memory(), []
    for number, value in enumerate(copied(case.arguments())):
        if isinstance(value, np.ndarray):
            passed.append(memory.add(value, f"argument {number}"))
        else:
            passed.append(value(memory) if callable(value) else value)
    module = passes.machine_ir(lower_ttir.lower(reader.read(case.ttir())))
    return module, memory, passed


def masked(module):
    return any(op.name in ("load", "store", "atomic_rmw") and groups(op)["mask"] for op in module.walk())


FAST = ("control", "memory", "matrix")  # of these files in every run


def slow(name):
    file = cases()[name].kernel.fn.__module__.rsplit(".", 1)[-1]
    return () if file in FAST else pytest.mark.full


@pytest.mark.parametrize("name", [pytest.param(name, marks=slow(name)) for name in cases()])
def test_counted(name):
    """Equal, but for what is masked, and for the kernels that are named above."""
    case, kernel = cases()[name], cases()[name].kernel.fn.__name__
    module, memory, passed = launched(case)
    function = cost.function(module, kernel)
    verify.verify(function)
    said = counters.predicted(function, case.grid, passed)
    counted = counters.count(module, kernel, case.grid, passed, memory, lambda line: None)
    differ = {counter for counter in cost.COUNTERS if said[counter] != counted[counter]}
    unknown = {counter for counter in differ if said[counter] == -1}
    more = {counter for counter in differ if said[counter] > counted[counter]}
    assert (kernel in WHILE) == bool(unknown)
    if masked(module):
        more -= {"hbm read", "hbm written"}
    if kernel in BRANCHES:
        more = set()
    if kernel in SECOND:
        differ -= SECOND_COUNTERS
        more -= SECOND_COUNTERS
    assert not more, "it counts more than was done"
    assert {counter for counter in differ - unknown if said[counter] < counted[counter]} == set()


@triton.jit
def product(x, y, n, K, BM: tl.constexpr, BK: tl.constexpr):
    m, k = tl.program_id(1) * BM + tl.arange(0, BM), tl.arange(0, BK)
    acc = tl.zeros((BM, BM), tl.float32)
    for start in range(0, K, BK):
        a = tl.load(x + m[:, None] * K + start + k[None, :])
        acc = tl.dot(a, tl.trans(a), acc)
    tl.store(y + m[:, None] * n + m[None, :], acc)


@triton.jit
def triangle(x, y, n, B: tl.constexpr):
    """Program p reads p + 1 blocks, each of them once for each one before it."""
    total = tl.zeros((B,), tl.float32)
    for outer in range(tl.program_id(0) + 1):
        for inner in range(outer, n):
            total += tl.load(x + inner * B + tl.arange(0, B))
    tl.store(y + tl.program_id(0) * B + tl.arange(0, B), total)


def test_text():
    """Trips and sizes of the grid are values; all else is a number."""
    constants = {"BM": 16, "BK": 32}
    types = {"x": "*bf16", "y": "*fp32", "n": "i32", "K": "i32", "BM": "constexpr", "BK": "constexpr"}
    function = cost.function(machine(product, types, constants), "product")
    assert_expected_inline(
        printer.text(function, operators=MACHINE),
        """\
func @product.cost(%x: ptr<bf16, hbm>, %y: ptr<f32, hbm>, %n: i32, %K: i32) -> (i64, i64, i64, i64, i64, i64, i64, i64, i64) {
  %0 = num_programs() : i32
  %1 = cast.extsi(%0) : i64
  %2 = num_programs() {axis = 1} : i32
  %3 = cast.extsi(%2) : i64
  %4 = num_programs() {axis = 2} : i32
  %5 = cast.extsi(%4) : i64
  %6 = const 0 : i32
  %7 = const 32 : i32
  %8 = cast.extsi(%K) : i64
  %9 = const 31 : i64
  %10 = elementwise.addi(%8, %9) : i64
  %11 = const 32 : i64
  %12 = elementwise.divsi(%10, %11) : i64
  %13 = const 0 : i64
  %14 = elementwise.maxsi(%12, %13) : i64
  %15 = elementwise.muli(%1, %3) : i64
  %16 = elementwise.muli(%15, %5) : i64
  %17 = const 19 : i64
  %18 = const 3 : i64
  %19 = elementwise.muli(%14, %18) : i64
  %20 = elementwise.addi(%17, %19) : i64
  %21 = elementwise.muli(%20, %16) : i64
  %22 = const 1024 : i64
  %23 = const 4096 : i64
  %24 = elementwise.muli(%14, %23) : i64
  %25 = elementwise.addi(%22, %24) : i64
  %26 = elementwise.muli(%25, %16) : i64
  %27 = elementwise.muli(%14, %22) : i64
  %28 = elementwise.muli(%27, %16) : i64
  %29 = const 5120 : i64
  %30 = elementwise.muli(%14, %29) : i64
  %31 = elementwise.addi(%30, %22) : i64
  %32 = elementwise.muli(%31, %16) : i64
  %33 = const 16384 : i64
  %34 = elementwise.muli(%14, %33) : i64
  %35 = elementwise.muli(%34, %16) : i64
  %36 = elementwise.muli(%16, %22) : i64
  return(%28, %36, %32, %26, %13, %13, %35, %13, %21)
}
""",
    )


def native(kernel, types, constants, grid, given):
    """The record that the object's own function fills."""
    module = machine(kernel, types, constants)
    compiled = codegen.compile.compile_machine(module, name=kernel.fn.__name__)
    code = codegen.load(compiled.object)
    arguments = module.regions[0].block.operations[0].regions[0].block.arguments
    *places, size = packed([value.type for value in arguments])
    data = np.zeros(size, np.uint8)
    for value, number, at in zip(arguments, given, places):
        one = np.atleast_1d(argument(value.type, number)).view(np.uint8)
        data[at : at + one.size] = one
    sizes, record = np.array((*grid, 1, 1, 1)[:3], np.uint32), np.full(len(cost.COUNTERS), -7, np.int64)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(code.address(compiled.cost_symbol))
    call(data.ctypes.data, sizes.ctypes.data, record.ctypes.data)
    return dict(zip(cost.COUNTERS, record.tolist())), cost.function(module, kernel.fn.__name__)


def test_native_is_symbolic():
    types = {"x": "*bf16", "y": "*fp32", "n": "i32", "K": "i32", "BM": "constexpr", "BK": "constexpr"}
    given = [4096, 8192, 80, 65]
    got, function = native(product, types, {"BM": 16, "BK": 32}, (3, 5), given)
    assert got == counters.predicted(function, (3, 5), given)
    assert got["hbm read"] == 15 * 3 * 16 * 32 * 2  # three blocks of K, the last of them masked by nothing
    assert got["hbm written"] == 15 * 16 * 16 * 4
    assert got["f16"] == 15 * 3 * 2 * 16 * 16 * 32


def test_native_program_by_program():
    types = {"x": "*fp32", "y": "*fp32", "n": "i32", "B": "constexpr"}
    got, function = native(triangle, types, {"B": 8}, (7, 2), [4096, 8192, 5])
    assert got == counters.predicted(function, (7, 2), [4096, 8192, 5])
    assert got["hbm read"] == 2 * 8 * 4 * sum(max(5 - outer, 0) for p in range(7) for outer in range(p + 1))


@triton.jit
def prefix(x, y, B: tl.constexpr):
    total = tl.zeros((B,), tl.float32)
    for block in range(tl.program_id(0) + 1):
        total += tl.load(x + block * B + tl.arange(0, B))
    tl.store(y + tl.program_id(0) * B + tl.arange(0, B), total)


@pytest.mark.parametrize("programs", [cost.LIMIT, cost.LIMIT + 1])
def test_limit(programs):
    """Of more programs than the limit nothing is known."""
    got, _ = native(prefix, {"x": "*fp32", "y": "*fp32", "B": "constexpr"}, {"B": 8}, (programs,), [4096, 8192])
    assert got["hbm read"] == (8 * 4 * programs * (programs + 1) // 2 if programs == cost.LIMIT else -1)
