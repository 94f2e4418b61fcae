"""The npu: kernels of the corpus give the bits of the tile IR there, whenever its DMA moves; how it stages, tiles and doubles."""

import zlib

import numpy as np
import pytest
from expecttest import assert_expected_inline

from tests.triton import npu
from tests.triton.corpus import cases, modules, run
from torch_accel.triton import frontend, passes
from torch_accel.triton.interpret import dma, machine
from torch_accel.triton.interpret.engine import KernelFault
from torch_accel.triton.interpret.launch import launch
from torch_accel.triton.interpret.memory import Memory
from torch_accel.triton.interpret.validate import validate
from torch_accel.triton.ir import printer, text
from torch_accel.triton.ir.core import IRError
from torch_accel.triton.machine import verify
from torch_accel.triton.machine.ops import MACHINE
from torch_accel.triton.passes import buffers
from torch_accel.triton.passes import npu as chip
from torch_accel.triton.target import CPU, NPU

NAMES = list(cases())
# By name, so that a new kernel changes no other's place in it.
ALWAYS = ("matmul", "attention", "softmax")
SAMPLE = [name for name in NAMES if zlib.crc32(name.encode()) % 3 == 0 or name in ALWAYS]


@pytest.mark.parametrize("name", [*SAMPLE, *(case.name for case in npu.CASES)])
def test_the_bits_of_the_tile_level(name):
    npu.compare(name)


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fuse", [False, True], ids=["plain", "fused"])
def test_the_bits_of_the_tile_level_after_every_pass(name, fuse):
    case = cases()[name]
    validate(modules(name)[0], case.kernel.fn.__name__, case.grid, case.arguments(), fuse=fuse, target=NPU)


@pytest.mark.parametrize("name", ["softmax", "matmul", "turned", "summed-63"])
def test_prints_what_it_reads(name):
    shown = printer.text(npu.npu_ir(name), operators=MACHINE)
    again = text.parse(shown, MACHINE)
    verify.verify(again, NPU)
    assert printer.text(again, operators=MACHINE) == shown


def test_launch_takes_a_target():
    rng = np.random.default_rng(0)
    x, y = npu.ints(700, rng), np.zeros(700, np.int32)
    for when in ("late", "early", 7):
        y[:] = 0
        launch(npu.copy, (3,), x, y, 700, B=256, level="machine", target=NPU, dma=when)
        np.testing.assert_array_equal(x, y)
    with pytest.raises(ValueError, match="target 'npu' has code at the level 'machine'; level is 'tile'"):
        launch(npu.copy, (3,), x, y, 700, B=256, target=NPU)
    with pytest.raises(ValueError, match="dma is 'never', expected 'early', 'late' or a seed"):
        launch(npu.copy, (3,), x, y, 700, B=256, level="machine", target=NPU, dma="never")


def doubled(module):
    """How many of a module's buffers have two slots."""
    return len({op.operands[0] for op in module.walk() if op.name == "slot"})


def moved(name, monkeypatch):
    """Transfers of all programs of a case, and how many of the text are of windows, of addresses, with a mask, and in two slots."""
    started = []
    start = dma.Dma.start
    monkeypatch.setattr(dma.Dma, "start", lambda self, *given: started.append(self) or start(self, *given))
    module, case = npu.npu_ir(name), npu.known()[name]
    run(machine.run, module, case.kernel.fn.__name__, case.grid, case.arguments())
    names = [op.name for op in module.walk()]
    masked = sum(op.name == "dma_start" and len(op.segments) == 4 and op.segments[3] for op in module.walk())
    counts = [names.count("window"), names.count("indexed"), masked, doubled(module), names.count("mma")]
    return f"{name}: {len(started)} moved; {counts[0]} windows, {counts[1]} indexed, {counts[2]} masked, {counts[3]} doubled, {counts[4]} mma"


def test_what_kernels_move(monkeypatch):
    lines = [moved(name, monkeypatch) for name in ("copy", "copy-large", "softmax", "matmul", "attention")]
    assert_expected_inline(
        "\n".join(lines),
        """\
copy: 6 moved; 2 windows, 2 indexed, 2 masked, 0 doubled, 0 mma
copy-large: 16 moved; 3 windows, 2 indexed, 2 masked, 2 doubled, 0 mma
softmax: 9 moved; 3 windows, 0 indexed, 0 masked, 0 doubled, 0 mma
matmul: 36 moved; 5 windows, 3 indexed, 3 masked, 2 doubled, 1 mma
attention: 28 moved; 6 windows, 4 indexed, 0 masked, 2 doubled, 2 mma""",
    )


def test_how_many_kernels_are_doubled():
    modules = {name: npu.npu_ir(name) for name in (*ALWAYS, *(case.name for case in npu.CASES))}
    found = [name for name, module in modules.items() if doubled(module)]
    assert_expected_inline(
        f"{len(found)} of {len(modules)}: {', '.join(found)}",
        """7 of 15: matmul, attention, copy-large, tripled, summed-63, summed-3, summed-41""",
    )


def test_tiles_fit():
    """A nest whose buffers take 1 MiB goes through SRAM in tiles, in smaller ones through less."""
    counts = []
    for sram in (NPU.sram, 1 << 18, 1 << 17):
        module = npu.npu_ir("tripled", sram=sram)
        assert module.regions[0].block.operations[0].attributes["sram"] <= sram
        (dims,) = {tuple(op.attributes["dims"]) for op in module.walk() if op.name == "loop"}
        counts.append((*dims, doubled(module)))
        npu.compare("tripled", module)
    assert counts == [(1 << 15, 2), (1 << 13, 2), (1 << 12, 2)]


def test_nothing_fits():
    from triton.runtime.errors import OutOfResources

    module = lambda: frontend.tile_ir(npu.row_total, {"x": "*fp32", "y": "*fp32", "N": "constexpr"}, {"N": 1 << 19})  # noqa: E731
    passes.machine_ir(module(), target=CPU)
    with pytest.raises(OutOfResources, match="needs 2097152 bytes of SRAM and a core has 1048576"):
        passes.machine_ir(module(), target=NPU)


# A program that is right, and ways to break it.
RIGHT = """func @main(%x: ptr<i32, hbm>, %y: ptr<i32, hbm>, %n: i32) {frame = 256, sram = 256, arguments = [{"noalias": true}, {}, {}]} {
  %zero = const 0 : i32
  %one = const 1 : i32
  %a = const 0 : i32
  %b = const 1 : i32
  %first = const 0 : i64
  %step = const 1 : i64
  %eight = const 8 : i64
  %any = cmp.slt(%zero, %n) : i1
  %buf = alloc() {offset = 0} : buf<2x8xi32, sram, row, 64>
  %out = alloc() {offset = 64} : buf<8xi32, sram, row, 64>
  %s0 = slot(%buf, %a) : buf<8xi32, sram, row, 64>
  %w0 = window(%x, %first, strides=[%step]) : buf<8xi32, hbm, strided, 1>
  %t0 = dma_start(%s0, %w0, go=%any) : token
  %t9, %s8, %s9 = for(%zero, %n, %one, %t0, %a, %b) : token, i32, i32 {
    ^(%i: i32, %t: token, %now: i32, %other: i32):
    %next = elementwise.addi(%i, %one) : i32
    %more = cmp.slt(%next, %n) : i1
    %wide = cast.extsi(%next) : i64
    %at = elementwise.muli(%wide, %eight) : i64
    %s2 = slot(%buf, %other) : buf<8xi32, sram, row, 64>
    %w1 = window(%x, %at, strides=[%step]) : buf<8xi32, hbm, strided, 1>
    %t1 = dma_start(%s2, %w1, go=%more) : token
    dma_wait(%t)
    %s1 = slot(%buf, %now) : buf<8xi32, sram, row, 64>
    loop() {dims = [8], vec = 0} {
      ^(%k: i32):
      %v = read(%s1, %k) : i32
      %r = elementwise.addi(%v, %one) : i32
      write(%out, %r, %k)
      yield()
    }
    %wide.0 = cast.extsi(%i) : i64
    %at.0 = elementwise.muli(%wide.0, %eight) : i64
    %w2 = window(%y, %at.0, strides=[%step]) : buf<8xi32, hbm, strided, 1>
    %t2 = dma_start(%w2, %out) {queue = 3} : token
    dma_wait(%t2)
    yield(%t1, %other, %now)
  }
  dma_wait(%t9)
  free(%buf)
  free(%out)
  return()
}
"""
WRONG = {
    "a load not waited for": ("    dma_wait(%t)\n", "", "it uses a buffer that a DMA is filling"),
    "a store not waited for": ("    dma_wait(%t2)\n", "", "a DMA is under way in some of its turns only"),
    "the last not waited for": ("  dma_wait(%t9)\n", "", "it changes a buffer|it uses a buffer that a DMA is filling"),
    "waited for twice": ("  dma_wait(%t9)\n", "  dma_wait(%t9)\n  dma_wait(%t9)\n", "a token is used that is not under way"),
    "the same slot": ("%s2 = slot(%buf, %other)", "%s2 = slot(%buf, %now)", "it uses a buffer that a DMA is filling"),
    "slots that do not alternate": ("yield(%t1, %other, %now)", "yield(%t1, %now, %other)", "it uses a buffer that a DMA is filling|of another buffer"),
    "the slot that is filled": ("%s1 = slot(%buf, %now)", "%s1 = slot(%buf, %other)", "it uses a buffer that a DMA is filling"),
    "a wait too late": ("    dma_wait(%t2)\n    yield(%t1, %other, %now)\n  }\n  dma_wait(%t9)", "    yield(%t2, %other, %now)\n  }\n  dma_wait(%t9)", "it changes a buffer that a DMA is reading|in some of its turns only"),
    "a load that the store may change": ('"noalias": true', '"noalias": false', "it may access memory that a DMA is moving"),
    "no such queue": ("queue = 3", "queue = 4", "the queue is 4, npu has 4"),
    "a lane that loads": ("%v = read(%s1, %k) : i32", "%v = load(%x) : i32", "a lane accesses hbm, which npu does by DMA only"),
    "a window that is read": ("read(%s1, %k)", "read(%w1, %k)", "it accesses hbm, which only a DMA does"),
    "from hbm to hbm": ("dma_start(%w2, %out)", "dma_start(%w2, %w1)", "it moves from hbm to hbm"),
    "a bound of no dimension": ("%w2 = window(%y, %at.0, strides=[%step])", "%w2 = window(%y, %at.0, strides=[%step], starts=[%zero], limits=[%n]) {bounds = [1], compare = [\"slt\"]}", "a bound is of dimension 1"),
}  # fmt: skip


def test_a_program_that_is_right():
    verify.verify(text.parse(RIGHT, MACHINE), NPU)


@pytest.mark.parametrize("name", WRONG)
def test_the_verifier_finds(name):
    old, new, message = WRONG[name]
    assert RIGHT.count(old) == 1
    with pytest.raises(IRError, match=message):
        verify.verify(text.parse(RIGHT.replace(old, new), MACHINE), NPU)


def result(shown, when):
    """What a program of text makes of 24 numbers, by a schedule; the fault, if it has one."""
    x, y, memory = np.arange(24, dtype=np.int32), np.zeros(24, np.int32), Memory()
    given = [memory.add(x, "x"), memory.add(y, "y"), 3]
    try:
        machine.run(text.parse(shown, MACHINE), "main", (1,), given, memory, schedule=when)
    except KernelFault as fault:
        return str(fault)
    return y.tolist()


def test_the_interpreter_shows_a_missing_wait():
    """Moved early, nothing shows but that a transfer is left; moved late, the turns read what was there before."""
    assert result(RIGHT, "early") == result(RIGHT, "late") == result(RIGHT, 5) == list(range(1, 25))
    assert "3 DMA of the program are not waited for" in result(RIGHT.replace("    dma_wait(%t)\n", ""), "early")
    swapped = RIGHT.replace("    dma_wait(%t)\n", "").replace(
        "    dma_wait(%t2)\n", "    dma_wait(%t2)\n    dma_wait(%t)\n"
    )
    assert result(swapped, "early") == list(range(1, 25)) != result(swapped, "late")
    same = RIGHT.replace("%s2 = slot(%buf, %other)", "%s2 = slot(%buf, %now)")
    assert result(same, "early") != result(same, "late")


def test_products_that_are_no_multiple():
    """Blocks of 32 and what is left of 40 x 24 times 24 x 48, and batches."""
    shown = """func @main(%x: ptr<f32, hbm>) {{
  %c = alloc() : buf<2x40x48xf32, sram, row, 64>
  %a = alloc() : buf<2x40x{k}xf32, sram, row, 64>
  %b = alloc() : buf<2x{k}x48xf32, sram, row, 64>
  loop() {{dims = [2, 40, 48], vec = 2}} {{
    ^(%i: i32, %j: i32, %l: i32):
    %0 = elementwise.muli(%j, %l) : i32
    %1 = elementwise.addi(%0, %i) : i32
    %2 = cast.sitofp(%1) : f32
    write(%c, %2, %i, %j, %l)
    yield()
  }}
  loop() {{dims = [2, 40, {k}], vec = 2}} {{
    ^(%i.1: i32, %j.1: i32, %l.1: i32):
    %3 = elementwise.subi(%j.1, %l.1) : i32
    %4 = cast.sitofp(%3) : f32
    %5 = elementwise.sin(%4) : f32
    write(%a, %5, %i.1, %j.1, %l.1)
    yield()
  }}
  loop() {{dims = [2, {k}, 48], vec = 2}} {{
    ^(%i.2: i32, %j.2: i32, %l.2: i32):
    %6 = elementwise.addi(%j.2, %l.2) : i32
    %7 = cast.sitofp(%6) : f32
    %8 = elementwise.cos(%7) : f32
    write(%b, %8, %i.2, %j.2, %l.2)
    yield()
  }}
  mma(%c, %a, %b)
  %9 = const 0 : i64
  %10 = const 1 : i64
  %11 = const 48 : i64
  %12 = const 1920 : i64
  loop() {{dims = [2, 40, 48], vec = 2}} {{
    ^(%i.3: i32, %j.3: i32, %l.3: i32):
    %13 = read(%c, %i.3, %j.3, %l.3) : f32
    %14 = access(%x, %9, strides=[%12, %11, %10], indices=[%i.3, %j.3, %l.3]) : ptr<f32, hbm>
    store(%14, %13)
    yield()
  }}
  free(%c)
  free(%a)
  free(%b)
  return()
}}
"""
    for k in (24, 65):
        module = text.parse(shown.format(k=k), MACHINE)
        got = []
        for target in (CPU, NPU):
            made = module
            for _, one, _ in chip.passes(target, target.sram) if target is NPU else ():
                made = one(made)
            buffers.plan(made, target.sram)
            verify.verify(made, target)
            x, memory = np.zeros((2, 40, 48), np.float32), Memory()
            machine.run(made, "main", (1,), [memory.add(x)], memory)
            got.append(x)
        np.testing.assert_array_equal(got[0].view(np.int32), got[1].view(np.int32))
