"""What compiled kernels do beside results: faults, aborts, prints, addresses in memory, names, memory that is not theirs."""

import ctypes
import mmap

import numpy as np
import pytest
import triton
import triton.language as tl
from expecttest import assert_expected_inline

from tests.triton.codegen.native import Kernel
from torch_accel.triton import codegen, frontend
from torch_accel.triton.codegen import llvm
from torch_accel.triton.codegen.control import PAUSES


def compiled(kernel, signature, constants=None, **options):
    known = dict(part.split(":") for part in signature.split())
    types = {name: known.get(name, "constexpr") for name in kernel.arg_names}
    lowered = frontend.tile_ir(kernel, types, constants or {}, options=frontend.Options(**options))
    return Kernel(lowered, kernel.fn.__name__)


@triton.jit(noinline=True)
def check(v, n):
    tl.device_assert(v < n, "100% too large")
    return v + 1


@triton.jit
def asserting(x, out, n, B: tl.constexpr):
    pid = tl.program_id(1)
    v = tl.load(x + pid * B + tl.arange(0, B))
    tl.device_assert(v < n + 5, "in lanes")
    tl.store(out + pid, check(tl.max(v), n))


@pytest.mark.parametrize("value, text", [(9, "device_assert: 100% too large"), (30, "device_assert: in lanes")])
def test_assert_writes_the_fault(value, text):
    kernel = compiled(asserting, "x:*i32 out:*i32 n:i32", {"B": 32}, debug=True)
    x = np.zeros(96, np.int32)
    x[70] = value
    (_, out, _), fault = kernel.run((1, 3), [x, np.zeros(3, np.int32), 7])
    assert (fault.kind, list(fault.program), fault.text.decode()) == (1, [0, 2, 0], text)
    line = kernel.compiled.locations[fault.site].line
    assert line == (check if value == 9 else asserting).starting_line_number + (2 if value == 9 else 4)
    assert out.tolist() == [1, 1, 0]
    x[70] = 6
    assert kernel.run((1, 3), [x, np.zeros(3, np.int32), 7])[1] is None


@triton.jit
def spin(flag, out):
    while tl.atomic_cas(flag, 1, 1) != 1:
        pass
    tl.store(out, 1)


@triton.jit(noinline=True)
def wait(flag):
    while tl.load(flag, volatile=True) != 1:
        pass
    return 5


@triton.jit
def spin_inside(flag, out):
    tl.store(out, wait(flag))


@pytest.mark.parametrize("kernel", [spin, spin_inside])
def test_a_loop_that_waits_leaves_when_it_is_aborted(kernel):
    """Without the look at the abort word, this would not end."""
    code = compiled(kernel, "flag:*i32 out:*i32")
    (_, out), fault = code.run((1,), [np.zeros(1, np.int32), np.zeros(1, np.int32)], abort=1)
    assert fault is None and out[0] == 0
    (_, out), fault = code.run((1,), [np.ones(1, np.int32), np.zeros(1, np.int32)])
    assert fault is None and out[0] in (1, 5)


def test_a_loop_that_waits_pauses_then_yields_and_may_be_told_to_end():
    code, turns = compiled(spin, "flag:*i32 out:*i32"), []

    def wait(context, site, turn):
        line = code.compiled.locations[site].line
        turns.append((line - spin.starting_line_number, turn))
        return int(turn == PAUSES + 3)

    (_, out), fault = code.run((1,), [np.zeros(1, np.int32), np.zeros(1, np.int32)], wait=wait)
    assert fault is not None and out[0] == 0
    assert turns == [(2, PAUSES + 1), (2, PAUSES + 2), (2, PAUSES + 3)]


@triton.jit
def count_down(x, out, n):
    total = 0
    while n > 0:
        total += tl.load(x + n)
        n -= 1
    tl.store(out, total)


def test_a_loop_that_makes_progress_by_itself_does_not_yield():
    waits = []

    def wait(context, site, turn):
        waits.append(turn)
        return 0

    x = np.ones(1001, np.int32)
    (_, out, _), fault = compiled(count_down, "x:*i32 out:*i32 n:i32").run(
        (1,), [x, np.zeros(1, np.int32), 1000], wait=wait
    )
    assert fault is None and out[0] == 1000 and not waits


@triton.jit
def printing(x, y, h, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.device_print("tile ", tl.load(x + i))
    tl.device_print("100% ", n, tl.load(y))
    tl.device_print("hex ", tl.load(x), hex=True)
    tl.device_print("half ", tl.load(h + i)[:, None] * tl.full((1, 2), 2, tl.float16))
    tl.device_print("flag ", tl.load(y) > 0)
    tl.device_print("nothing")


def test_print(capfd):
    kernel = compiled(printing, "x:*i32 y:*fp32 h:*fp16 n:u64", {"B": 2})
    kernel.run(
        (1, 2), [np.array([-1, 5], np.int32), np.array([2.5], np.float32), np.array([1, -0.5], np.float16), 2**64 - 7]
    )
    lines = capfd.readouterr().out.splitlines()
    half = len(lines) // 2
    assert [line.replace("(0, 1, 0)", "(0, 0, 0)") for line in lines[half:]] == lines[:half]
    assert_expected_inline(
        "\n".join(lines[:half]),
        """\
pid (0, 0, 0) idx (0) tile: -1
pid (0, 0, 0) idx (1) tile: 5
pid (0, 0, 0) 100%: (operand 0) 18446744073709551609
pid (0, 0, 0) 100%: (operand 1) 2.500000
pid (0, 0, 0) hex: 0xffffffff
pid (0, 0, 0) idx (0, 0) half: 2.000000
pid (0, 0, 0) idx (0, 1) half: 2.000000
pid (0, 0, 0) idx (1, 0) half: -1.000000
pid (0, 0, 0) idx (1, 1) half: -1.000000
pid (0, 0, 0) flag: 1
pid (0, 0, 0) nothing""",
    )


@triton.jit
def pointers(table, out, B: tl.constexpr):
    i = tl.arange(0, B)
    base = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.store(out + tl.program_id(0) * B + i, tl.load(base + i))
    tl.store(table + 2 + tl.program_id(0), (base + 1).to(tl.int64))


def test_pointers_in_memory():
    parts = [np.arange(4, dtype=np.float32), np.arange(4, 9, dtype=np.float32)]
    table = np.array([*(part.ctypes.data for part in reversed(parts)), 0, 0])
    (after, out), _ = compiled(pointers, "table:*i64 out:*fp32", {"B": 4}).run((2,), [table, np.zeros(8, np.float32)])
    assert out.tolist() == [4, 5, 6, 7, 0, 1, 2, 3]
    assert after.tolist() == [*table[:2], table[0] + 4, table[1] + 4]


@triton.jit
def copy_some(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n, other=7), mask=i < n + 1)


@triton.jit
def copy_scattered(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + (i ^ 1), tl.load(x + (i ^ 1), mask=i < n, other=7), mask=i < n)


@pytest.mark.parametrize("kernel", [copy_some, copy_scattered])
@pytest.mark.parametrize("type", ["*i8", "*fp16", "*fp32", "*i64"])
def test_masked_lanes_are_not_touched(kernel, type):
    """The array ends where memory ends: a page that must not be read follows."""
    size = {"*i8": 1, "*fp16": 2, "*fp32": 4, "*i64": 8}[type]
    page = mmap.PAGESIZE
    area = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    assert protect(ctypes.c_void_p(start + page), ctypes.c_size_t(page), 0) == 0
    code = compiled(kernel, f"x:{type} y:{type} n:i32", {"B": 64})
    count = 24
    np.frombuffer(area, np.uint8, page)[:] = 0x3C
    address = start + page - count * size
    out = np.zeros(64, {1: np.int8, 2: np.float16, 4: np.float32, 8: np.int64}[size])
    (_, got, _), fault = code.run((1,), [address, out, count])
    assert fault is None
    assert got[:count].tobytes() == b"\x3c" * count * size
    assert got[count + 1 :].tobytes() == bytes((63 - count) * size)
    code.run((1,), [out, address, count - 1])
    del got
    protect(ctypes.c_void_p(start + page), ctypes.c_size_t(page), 3)


@triton.jit
def exp(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.exp(tl.load(x + i)) + tl.load(x + i) % 3.0)


def test_a_kernel_may_have_a_name_of_the_c_library():
    x = np.linspace(0, 1, 16)
    (_, out), _ = compiled(exp, "x:*fp64 out:*fp64", {"B": 16}).run((1,), [x, np.zeros(16)])
    np.testing.assert_allclose(out, np.exp(x) + np.fmod(x, 3.0), rtol=1e-15)


def test_targets():
    with pytest.raises(ValueError, match="accel: target is 'sm_90', expected 'host', 'x86-64-v3' or 'x86-64-v4'"):
        codegen.target("sm_90")
    assert codegen.target("x86-64-v4").vector_bits == 512
    assert len({codegen.target(name).key for name in ("host", "x86-64-v3", "x86-64-v4")}) == 3
    with pytest.raises(KeyError, match="accel: the object has no function 'absent'"):
        compiled(exp, "x:*fp64 out:*fp64", {"B": 16}).code.address("absent")


def test_wide_vectors_on_the_wide_target():
    """Without prefer-vector-width LLVM uses half of a register of AVX-512."""
    lowered = frontend.tile_ir(exp, {"x": "*fp32", "out": "*fp32", "B": "constexpr"}, {"B": 256})
    code = codegen.compile_module(lowered, name="exp", target=codegen.target("x86-64-v4"))
    text = llvm.assembly(code.llvm_text, codegen.target("x86-64-v4"))
    assert "vfmadd" in text and "%zmm" in text
    narrow = codegen.compile_module(lowered, name="exp", target=codegen.target("x86-64-v3"))
    assert "%zmm" not in llvm.assembly(narrow.llvm_text, codegen.target("x86-64-v3"))
