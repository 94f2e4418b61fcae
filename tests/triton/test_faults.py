"""What a kernel does wrong is reported with kernel, line, program and element; what it prints is Triton's text."""

import re

import numpy as np
import pytest
import triton
import triton.language as tl
from expecttest import assert_expected_inline

from tests.triton.corpus import run
from torch_accel.triton import frontend, passes
from torch_accel.triton.interpret import machine, raw, tile
from torch_accel.triton.interpret.engine import KernelFault
from torch_accel.triton.interpret.memory import Memory, MemoryFault
from torch_accel.triton.ir import lower_ttir, reader, text, verify
from torch_accel.triton.ir.core import IRError


@triton.jit
def copy(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i), mask=i < n)


@triton.jit
def asserting(x, n):
    v = tl.load(x + tl.program_id(0))
    tl.device_assert(v < n, "too large")


@triton.jit
def printing(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.device_print("tile ", tl.load(x + i))
    tl.device_print("two ", n, tl.load(y))
    tl.device_print("hex ", tl.load(x), hex=True)
    tl.device_print("nothing")


@triton.jit
def pointers(table, out, B: tl.constexpr):
    i = tl.arange(0, B)
    base = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.store(out + tl.program_id(0) * B + i, tl.load(base + i))
    tl.store(table + 2 + tl.program_id(0), (base + 1).to(tl.int64))


@triton.jit
def assembly(x, y):
    v = tl.load(x)
    tl.store(y, tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [v], dtype=tl.int32, is_pure=True, pack=1))


def levels(kernel, signature, constants=None, **options):
    """(entry, module) of the interpreters."""
    known = dict(part.split(":") for part in signature.split())
    signature = {name: known.get(name, "constexpr") for name in kernel.arg_names}
    module = reader.read(frontend.ttir(kernel, signature, constants, options=frontend.Options(**options)))
    lowered = lower_ttir.lower(module)
    verify.verify(lowered)
    return {"raw": (raw.run, module), "tile": (tile.run, lowered), "machine": (machine.run, passes.machine_ir(lowered))}


@pytest.mark.parametrize("level", ["raw", "tile", "machine"])
def test_out_of_bounds_names_line_program_and_lane(level):
    entry, module = levels(copy, "x:*fp32 y:*fp32 n:i32", {"B": 8})[level]
    given = [np.zeros(12, np.float32), np.zeros(12, np.float32), 12]
    with pytest.raises(KernelFault) as raised:
        run(entry, module, "copy", (2,), given)
    assert raised.value.program == (1, 0, 0)
    assert raised.value.location.line == copy.starting_line_number + 3
    message = re.sub(r"\S*test_faults", "test_faults", str(raised.value))
    assert_expected_inline(
        re.sub(r":\d+:\d+:", ":LINE:", message),  # Triton 3.8 has another column
        """accel: kernel 'copy', program (1, 0, 0), test_faults.py:LINE: out of bounds: 4 bytes at 0x10000000030 (lane 4): byte 48 of 'argument 0', which has 48; mask the lane, or mend its index""",
    )


@pytest.mark.parametrize("level", ["raw", "tile", "machine"])
def test_masked_lanes_are_never_read(level):
    entry, module = levels(copy, "x:*fp32 y:*fp32 n:i32", {"B": 8})[level]
    # The load has no mask: only its buffer is long enough. The store has one.
    x, y, _ = run(entry, module, "copy", (2,), [np.arange(16, dtype=np.float32), np.zeros(12, np.float32), 12])
    np.testing.assert_array_equal(y, x[:12])


@pytest.mark.parametrize("level", ["raw", "tile", "machine"])
def test_device_assert(level):
    entry, module = levels(asserting, "x:*i32 n:i32", debug=True)[level]
    run(entry, module, "asserting", (2,), [np.array([1, 2], np.int32), 3])
    with pytest.raises(KernelFault, match=r"program \(1, 0, 0\), .*test_faults.py:\d+:\d+: device_assert: too large"):
        run(entry, module, "asserting", (2,), [np.array([1, 3], np.int32), 3])


@pytest.mark.parametrize("level", ["raw", "tile", "machine"])
def test_device_print(level):
    entry, module = levels(printing, "x:*i32 y:*fp32 n:i64", {"B": 2})[level]
    said = []
    run(entry, module, "printing", (1,), [np.array([-1, 5], np.int32), np.array([2.5], np.float32), 7], said.append)
    assert_expected_inline(
        "\n".join(said),
        """\
pid (0, 0, 0) idx (0) tile: -1
pid (0, 0, 0) idx (1) tile: 5
pid (0, 0, 0) two: (operand 0) 7
pid (0, 0, 0) two: (operand 1) 2.500000
pid (0, 0, 0) hex: 0xffffffff
pid (0, 0, 0) nothing""",
    )


@pytest.mark.parametrize("level", ["raw", "tile", "machine"])
def test_pointers_in_memory(level):
    entry, module = levels(pointers, "table:*i64 out:*fp32", {"B": 4})[level]
    memory = Memory()
    parts = [np.arange(4, dtype=np.float32), np.arange(4, 9, dtype=np.float32)]
    addresses = [memory.add(part) for part in parts]
    table, out = np.array([*reversed(addresses), 0, 0]), np.zeros(8, np.float32)
    entry(module, "pointers", (2,), [memory.add(table), memory.add(out)], memory)
    np.testing.assert_array_equal(out, [4, 5, 6, 7, 0, 1, 2, 3])
    assert table[2:].tolist() == [address + 4 for address in reversed(addresses)]


def test_inline_assembly_is_refused():
    with pytest.raises(
        IRError, match=r"'tt.elementwise_inline_asm' is not supported: inline assembly is for one GPU"
    ) as raised:
        levels(assembly, "x:*i32 y:*i32")
    assert raised.value.location.line == assembly.starting_line_number + 3
    with pytest.raises(IRError, match=r"'tt.elementwise_inline_asm' cannot be interpreted"):
        module = reader.read(frontend.ttir(assembly, {"x": "*i32", "y": "*i32"}))
        run(raw.run, module, "assembly", (1,), [np.zeros(1, np.int32)] * 2)


def test_buffers_are_far_apart_and_checked_at_both_ends():
    memory = Memory()
    with pytest.raises(MemoryFault, match="no buffer"):
        memory.load(np.array([4096]), np.dtype(np.int8), None)
    small, large = memory.add(np.zeros(3, np.int8), "small"), memory.add(np.zeros(1 << 21, np.int8), "large")
    last = memory.add(np.zeros(1, np.int8), "last")
    assert large - small >= 1 << 21 and last - large >= 1 << 22
    for address in (small - 1, small + 3, large - 1, last - 1, last + 1):
        with pytest.raises(MemoryFault):
            memory.store(np.array([address]), np.zeros(1, np.int8), None)
    with pytest.raises(MemoryFault, match="byte 2 of 'small', which has 3"):
        memory.load(np.array([small + 2]), np.dtype(np.int16), None)
    with pytest.raises(ValueError, match="accel: buffer 'rows' is not contiguous"):
        memory.add(np.zeros((4, 4))[:, ::2], "rows")


VIEW = """
func @view(%x: ptr<i16, hbm>, %out: ptr<i16, hbm>, %rows: i64, %columns: i64, %at: i32) {
  %one = const 1 : i64
  %zero = const 0 : i32
  %four = const 4 : i64
  %source = view(%x, sizes=[%rows, %columns], strides=[%columns, %one], offsets=[%at, %zero]) {bounds = [0, 1]} : view<2x4xi16>
  %target = view(%out, sizes=[%rows, %four], strides=[%four, %one], offsets=[%zero, %zero]) : view<2x4xi16>
  %fill = const -1 : tile<2x4xi16>
  %everywhere = const 1 : tile<2x4xi1>
  %tile = load(%source, mask=%everywhere, other=%fill) : tile<2x4xi16>
  store(%target, %tile)
  return()
}
"""


def test_views():
    module = text.parse(VIEW)
    verify.verify(module)
    x = np.arange(9, dtype=np.int16).reshape(3, 3)
    _, out, *_ = run(tile.run, module, "view", (1,), [x, np.zeros((2, 4), np.int16), 3, 3, 2])
    np.testing.assert_array_equal(out, [[6, 7, 8, -1], [-1] * 4])


def test_wrong_number_of_arguments():
    with pytest.raises(TypeError, match="accel: kernel 'view' takes 5 arguments, 1 given"):
        run(tile.run, text.parse(VIEW), "view", (1,), [1])
