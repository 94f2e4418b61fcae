"""``accel-triton dump``: what it shows of a kernel in a file, and what it says of words that do not fit."""

import os
import re
import subprocess
import sys

import pytest
from expecttest import assert_expected_inline

from torch_accel.triton import passes
from torch_accel.triton.__main__ import main
from torch_accel.triton.ir import text
from torch_accel.triton.machine import verify
from torch_accel.triton.machine.ops import MACHINE
from torch_accel.triton.tools.dump import STAGES

SOURCE = """\
import triton
import triton.language as tl


@triton.jit
def double(x, n, B: tl.constexpr, F: tl.constexpr = 2.0):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.device_assert(n > 0, "n is not positive")
    tl.store(x + i, tl.load(x + i, mask=i < n) * F, mask=i < n)


@triton.autotune([triton.Config({"B": 64})], key=[])
@triton.jit
def tuned(x, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), 1.0)


@triton.jit
def wrong(x):
    tl.store(x, y)


@triton.jit
def inline(x):
    tl.store(x, tl.inline_asm_elementwise("nop", "=r,r", [tl.load(x)], tl.int32, True, 1))


@triton.jit
def large(x, N: tl.constexpr):
    a = tl.load(x + tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(x + tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :], tl.dot(a, a))
"""
GIVEN = ["--signature", "x=*fp32:16", "n=i32", "--constexpr", "B=32", "--target", "x86-64-v3"]


@pytest.fixture
def dump(tmp_path, monkeypatch, capsys):
    """``dump(function, *arguments)`` -> status, what it prints, what it says is wrong."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels.py").write_text(SOURCE)

    def run(function, *arguments):
        status = main(["dump", f"kernels.py{function}", *arguments])
        return status, *capsys.readouterr()

    return run


def test_tile(dump):
    status, shown, _ = dump(":double", *GIVEN, "--stage", "tile")
    assert status == 0
    assert_expected_inline(
        shown,
        """\
func @double(%x: ptr<f32, hbm>, %n: i32) {arguments = [{"divisibility": 16}, {}]} {
  %0 = const 2.0 : tile<32xf32>
  %1 = const 32 : i32
  %i = program_id() : i32
  %i.1 = elementwise.muli(%i, %1) : i32
  %i.2 = iota() {end = 32} : tile<32xi32>
  %i.3 = splat(%i.1) : tile<32xi32>
  %i.4 = elementwise.addi(%i.3, %i.2) : tile<32xi32>
  %2 = splat(%n) : tile<32xi32>
  %3 = cmp.slt(%i.4, %2) : tile<32xi1>
  %4 = splat(%x) : tile<32xptr<f32, hbm>>
  %5 = elementwise.addptr(%4, %i.4) : tile<32xptr<f32, hbm>>
  %6 = load(%5, mask=%3) : tile<32xf32>
  %7 = elementwise.mulf(%6, %0) : tile<32xf32>
  store(%5, %7, mask=%3)
  return()
}
""",
    )


def test_machine_can_be_read_back(dump):
    """A stage alone is a text that the compiler's tools read."""
    status, shown, _ = dump(":double", *GIVEN, "--stage", "machine")
    assert status == 0
    assert_expected_inline(
        shown,
        """\
func @double(%x: ptr<f32, hbm>, %n: i32) {arguments = [{"divisibility": 16}, {}], frame = 128, sram = 128} {
  %0 = const 32 : i32
  %1 = program_id() : i32
  %2 = elementwise.muli(%1, %0) : i32
  %3 = cast.extsi(%2) : i64
  %4 = const 1 : i64
  %5 = const 2.0 : f32
  %6 = const 31 : i64
  %7 = elementwise.addi(%3, %6) : i64
  %8 = const -2147483648 : i64
  %9 = cmp.sge(%3, %8) : i1
  %10 = const 2147483647 : i64
  %11 = cmp.sle(%7, %10) : i1
  %12 = elementwise.andi(%9, %11) : i1
  if(%12) {
    loop() {dims = [32], vec = 0} {
      ^(%13: i32):
      %14 = access(%x, %3, strides=[%4], indices=[%13]) {align = 16} : ptr<f32, hbm>
      %15 = elementwise.addi(%2, %13) : i32
      %16 = cmp.slt(%15, %n) : i1
      %17 = load(%14, mask=%16) : f32
      %18 = elementwise.mulf(%17, %5) : f32
      store(%14, %18, mask=%16)
      yield()
    }
    yield()
  } {
    %19 = alloc() {offset = 0} : buf<32xf32, sram, row, 64>
    loop() {dims = [32]} {
      ^(%20: i32):
      %21 = elementwise.addi(%2, %20) : i32
      %22 = cmp.slt(%21, %n) : i1
      %23 = elementwise.addptr(%x, %21) : ptr<f32, hbm>
      %24 = load(%23, mask=%22) : f32
      write(%19, %24, %20)
      yield()
    }
    loop() {dims = [32]} {
      ^(%25: i32):
      %26 = elementwise.addi(%2, %25) : i32
      %27 = elementwise.addptr(%x, %26) : ptr<f32, hbm>
      %28 = read(%19, %25) : f32
      %29 = elementwise.mulf(%28, %5) : f32
      %30 = cmp.slt(%26, %n) : i1
      store(%27, %29, mask=%30)
      yield()
    }
    free(%19)
    yield()
  }
  return()
}
""",
    )
    verify.verify(text.parse(shown, MACHINE))


def test_all_stages(dump):
    status, shown, _ = dump(":double", *GIVEN)
    assert status == 0
    parts = shown.split("==== ")
    assert [part.partition(" ====\n")[0] for part in parts] == ["", *STAGES]
    lines = (
        "tt.get_program_id x",
        "= program_id()",
        "= access(%x",
        "func @double.cost(",
        "define i32 @double(",
        "vmaskmovps",
    )
    for part, line in zip(parts[1:], lines):
        assert line in part


def test_after_each_pass(dump):
    status, shown, _ = dump(":double", *GIVEN, "--after-each-pass")
    assert status == 0
    titles = [line.strip("= ") for line in shown.splitlines() if line.startswith("==== ")]
    steps = [f"{'machine' if of_machine else 'tile'}, after {name}" for name, _, of_machine in passes.pipeline()]
    assert titles == ["ttir", "tile", *steps, *STAGES[3:]]


def test_target_and_debug(dump):
    shown = dump(":double", *GIVEN[:-1], "x86-64-v4", "--debug")[1]
    assert "zmm" in shown.partition("==== asm ====")[2]
    assert "n is not positive" in shown.partition("==== tile ====")[2]


def test_inside_of_an_autotuner(dump):
    status, shown, _ = dump(":tuned", "--signature", "x=*bf16", "--constexpr", "B=4", "--stage", "tile")
    assert (status, shown.splitlines()[0]) == (0, "func @tuned(%x: ptr<bf16, hbm>) {")


REFUSED = {
    "no file": ("_.py", [], 2),
    "which": ("", [], 2),
    "no kernel": (":add", [], 2),
    "unknown parameter": (":double", ["--signature", "y=i32"], 2),
    "unknown type": (":double", ["--signature", "x=float*"], 2),
    "no form": (":double", ["--signature", "x"], 2),
    "missing": (":double", ["--signature", "x=*fp32", "--constexpr", "B=32"], 2),
    "missing constexpr": (":double", ["--signature", "x=*fp32", "n=i32"], 2),
    "a type for a constexpr": (":double", ["--signature", "x=*fp32", "n=i32", "B=i32"], 2),
    "twice": (":double", ["--signature", "x=*fp32", "n=i32", "--constexpr", "n=1", "B=1"], 2),
    "no literal": (":double", ["--signature", "x=*fp32", "--constexpr", "n=a b"], 2),
    "Triton": (":wrong", ["--signature", "x=*fp32"], 1),
    "the tile IR": (":inline", ["--signature", "x=*i32"], 1),
    "SRAM": (":large", ["--signature", "x=*fp32", "--constexpr", "N=1024"], 1),
}


def test_what_is_refused(dump, tmp_path):
    """Nothing is printed but what is wrong, and what would be right."""
    said = []
    for name, (function, arguments, expected) in REFUSED.items():
        status, shown, wrong = dump(function, *arguments)
        assert (status, shown.partition("====")[0]) == (expected, ""), name
        wrong = re.sub(r"\.py:(\d+):\d+\b", r".py:\1", wrong)  # Triton 3.8 has other columns
        said.append(f"{name}: {wrong}".replace(str(tmp_path), "."))
    assert_expected_inline(
        "".join(said),
        """\
no file: accel: there is no file 'kernels.py_.py'
which: accel: 'kernels.py' has 5 functions under @triton.jit; name one of kernels.py:double, kernels.py:tuned, kernels.py:wrong, kernels.py:inline, kernels.py:large
no kernel: accel: 'kernels.py' has no kernel 'add'; it has kernels.py:double, kernels.py:tuned, kernels.py:wrong, kernels.py:inline, kernels.py:large
unknown parameter: accel: kernel 'double' has no parameter 'y'; it has x, n, B, F
unknown type: accel: type 'float*' of parameter 'x' is unknown; expected one of i1 i8 i16 i32 i64 u1 u8 u16 u32 u64 fp16 bf16 fp32 fp64 fp8e5 fp8e4nv fp8e4b8 fp8e5b16, with * before it for a pointer, and :16 behind it if 16 divides it
no form: accel: 'x' of --signature is not of the form name=value
missing: accel: parameter 'n' of kernel 'double' is not given; give it like --signature n=i32
missing constexpr: accel: parameter 'B' of kernel 'double' is not given; give it like --constexpr B=64
a type for a constexpr: accel: parameter 'B' of kernel 'double' is constexpr; give --constexpr B=VALUE
twice: accel: parameter 'n' of kernel 'double' has a type and a value; give one
no literal: accel: value 'a b' of parameter 'n' is no Python literal and no type as tl.float32; quote a string: "'a b'"
Triton: at 2:16:
def wrong(x):
    tl.store(x, y)
                ^
NameError('y is not defined')
the tile IR: accel: 'tt.elementwise_inline_asm' is not supported: inline assembly is for one GPU; write it in Triton's language (./kernels.py:25)
SRAM: accel: kernel 'large' needs 8388608 bytes of SRAM and a core has 2097152; the largest buffer is buf<1024x1024xf32, sram, row, 64> (4194304 bytes, ./kernels.py:30). Use smaller blocks.
""",
    )


def test_command(tmp_path):
    """As a program of its own, with no device."""
    (tmp_path / "kernels.py").write_text(SOURCE)
    ran = subprocess.run(
        [sys.executable, "-m", "torch_accel.triton", "dump", str(tmp_path / "kernels.py:double"), *GIVEN, "--stage", "ttir"],
        capture_output=True, text=True, timeout=600, env={**os.environ, "ACCEL_DEVICES": "0"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("module {\n  tt.func public @double(")
