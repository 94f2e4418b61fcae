"""The machine IR's text and its verifier, on a small module."""

import pytest

from torch_accel.triton.ir import printer, text
from torch_accel.triton.ir.core import IRError
from torch_accel.triton.machine import verify
from torch_accel.triton.machine.ops import MACHINE

GOOD = """func @softmax(%x: ptr<f32, hbm>, %y: ptr<f32, hbm>, %n: i32, %t: buf<4xi32, sram, row, 64>) {frame = 4352, sram = 4352} {
  %0 = const 1 : i64
  %row = program_id() : i32
  %1 = elementwise.muli(%row, %n) : i32
  %2 = cast.extsi(%1) : i64
  %e = alloc() {offset = 0} : buf<1024xf32, sram, row, 64>
  %f = recast(%e) : buf<32x32xf32, sram, row, 64>
  %g = alloc() {offset = 4096} : buf<4xi32, sram, row, 64>
  %c = data [1, 2, 3, 5] : buf<4xi32, const, row, 64>
  copy(%g, %c)
  loop() {dims = []} {
    %m = vreduce() {count = 1024} : f32 {
      ^(%i: i32):
      %3 = const 0xFF800000 : f32
      %p = access(%x, %2, strides=[%0], indices=[%i]) {align = 16} : ptr<f32, hbm>
      %4 = cmp.slt(%i, %n) : i1
      %v = load(%p, mask=%4, other=%3) : f32
      yield(%v)
    } {
      ^(%a: f32, %b: f32):
      %5 = elementwise.maxnumf(%a, %b) : f32
      yield(%5)
    }
    loop() {dims = [1024], vec = 0} {
      ^(%j: i32):
      write(%e, %m, %j)
      yield()
    }
    vscan() {count = 1024, reverse = true} {
      ^(%k: i32):
      %6 = read(%e, %k) : f32
      yield(%6)
    } {
      ^(%7: f32, %8: f32):
      %9 = elementwise.addf(%7, %8) : f32
      yield(%9)
    } {
      ^(%10: i32, %11: f32):
      write(%e, %11, %10)
      yield()
    }
    yield()
  }
  free(%g)
  free(%e)
  return()
}
"""
# What is replaced, by what, and what the verifier says.
WRONG = [
    ("vec = 0", "vec = 1", "'loop': vec is 1, expected a dimension or -1"),
    ("dims = [1024]", "dims = [0]", r"'loop': dims is \[0\]"),
    ("^(%j: i32)", "^(%j: i64)", "'loop': region 0: the type of the arguments is"),
    ("write(%e, %m, %j)", "write(%e, %m, %j, %j)", "'write': the indices' types is"),
    ("write(%e, %m, %j)", "write(%e, %j, %j)", "'write': the element type is i32, expected f32"),
    ("write(%e, %m, %j)", "write(%c, %j, %j)", "'write': it writes to const"),
    ("write(%e, %m, %j)", "copy(%g, %c)", "'copy': it stands in a loop over lanes"),
    ("copy(%g, %c)", "copy(%e, %c)", "'copy': the source is"),
    ("copy(%g, %c)", "copy(%c, %g)", "'copy': it writes to const"),
    ("copy(%g, %c)", "%q = poison() : tile<4xi32>", "'poison': a result is tile<4xi32>, expected a scalar or a pointer"),
    ("buf<32x32xf32, sram", "buf<32x31xf32, sram", "'recast': element type, space, layout and number of elements is"),
    ("{offset = 4096}", "{offset = 4100}", "'alloc': offset is 4100, expected a multiple of 64"),
    ("strides=[%0]", "strides=[%0, %0]", "'access': the number of indices is 1, expected 2"),
    ("%4 = cmp", "%z = access(%x, %2, strides=[%2], indices=[%row]) : ptr<f32, hbm>\n      %4 = cmp", "'access': an index is no index argument of a body around"),
    ("%2, strides=[%0]", "%w, strides=[%0]", "'access': base, offset or a stride is defined in a body whose index it has"),
    ("  free(%g)\n", "", "'return': a buffer of its block is never freed"),
    ("  free(%g)\n", "  free(%t)\n", "'free': the buffer is not of an alloc of this block"),
    ("copy(%g, %c)\n", "free(%g)\n  copy(%g, %c)\n", "'copy': it uses a buffer after its free"),
    ("  free(%e)\n", "  free(%e)\n  copy(%f, %f)\n", "'copy': it uses a buffer after its free"),
]  # fmt: skip


def test_good_module():
    module = text.parse(GOOD, MACHINE)
    verify.verify(module)
    assert printer.text(module, operators=MACHINE) == GOOD


@pytest.mark.parametrize("old, new, message", WRONG, ids=[one[1] for one in WRONG])
def test_verifier(old, new, message):
    assert GOOD.count(old) == 1
    changed = GOOD.replace(old, new).replace("%3 = const", "%w = cast.extsi(%i) : i64\n      %3 = const", 1)
    with pytest.raises(IRError, match=message):
        verify.verify(text.parse(changed, MACHINE))


def test_buffers_cross_no_control_flow():
    carried = GOOD.replace(
        "  copy(%g, %c)\n", "  %r = for(%n, %n, %n, %g) : buf<4xi32, sram, row, 64> {\n    ^(%s: i32, %u: buf<4xi32, sram, row, 64>):\n    yield(%u)\n  }\n"
    )  # fmt: skip
    with pytest.raises(IRError, match="'for': a result is buf<4xi32, sram, row, 64>, expected a scalar or a pointer"):
        verify.verify(text.parse(carried, MACHINE))


def test_tile_operators_are_not_of_the_machine():
    with pytest.raises(SyntaxError, match="expected an operator instead of 'iota'"):
        text.parse(GOOD.replace("copy(%g, %c)", "%q = iota() {end = 4} : tile<4xi32>"), MACHINE)


def test_every_operator_says_what_it_does():
    for name, operator in MACHINE.items():
        assert operator.effects <= {"read", "write", "sync", "host"}, name
        assert not operator.primary or operator.primary in operator.attributes, name
