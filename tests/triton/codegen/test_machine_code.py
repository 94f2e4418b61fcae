"""Forms of the machine IR that the passes make rarely or not at all: native code against the machine interpreter, bit for bit."""

import itertools

import numpy as np
import pytest

from tests.triton.codegen.native import Kernel
from tests.triton.corpus import run
from torch_accel.triton.interpret import machine
from torch_accel.triton.ir import text
from torch_accel.triton.machine import verify
from torch_accel.triton.machine.ops import MACHINE

HEAD = "func @k(%x: ptr<f32, hbm>, %y: ptr<f32, hbm>, %n: i32, %s: i64) {{frame = {sram}, sram = {sram}}} {{\n"
CONSTANTS = "".join(f"  %c{value} = const {value} : i64\n" for value in (0, 1, 2, 64)) + "  %m1 = const -1 : i64\n"


def access(pointer, offset, strides, indices, name="p"):
    return f"%{name} = access({pointer}, {offset}, strides=[{strides}], indices=[{indices}]) : ptr<f32, hbm>\n"


def copy_loop(dims, vec, source, target, mask="", value="%v"):
    """A nest that copies: source and target are the strides and the offset of the accesses."""
    names = ", ".join(f"%i{axis}: i32" for axis in range(len(dims)))
    indices = ", ".join(f"%i{axis}" for axis in range(len(dims)))
    given = f", mask={mask}" if mask else ""
    return (
        f"  loop() {{dims = {list(dims)}, vec = {vec}}} {{\n    ^({names}):\n"
        + "    %g = cmp.slt(%i0, %n) : i1\n    "
        + access("%x", *source, indices, name="p")
        + f"    %v = load(%p{given}) : f32\n    "
        + access("%y", *target, indices, name="q")
        + f"    store(%q, {value}{given})\n    yield()\n  }}\n"
    )


def reduction(count, vector, op, around="", vec=-1, extra=""):
    body = (
        f"    %r = vreduce() {{count = {count}{'' if vector else ', vector = false'}{extra}}} : f32 {{\n      ^(%j: i32):\n"
        f"      {access('%x', '%c0', '%c1, %s' if around else '%c1', '%j, %i0' if around else '%j')}"
        f"      %v = load(%p) : f32\n      yield(%v)\n    }} {{\n      ^(%a: f32, %b: f32):\n"
        f"      %t = elementwise.{op}(%a, %b) : f32\n      yield(%t)\n    }}\n"
    )
    store = f"    {access('%y', '%c0', '%c1', '%i0', name='q')}    store(%q, %r)\n    yield()\n  }}\n"
    return f"  loop() {{dims = [{around or 1}], vec = {vec}}} {{\n    ^(%i0: i32):\n{body}{store}"


def scan(count, reverse, vec, around):
    return f"""  loop() {{dims = [{around}], vec = {vec}}} {{
    ^(%i0: i32):
    vscan() {{count = {count}, reverse = {str(reverse).lower()}, vector = {str(vec < 0).lower()}}} {{
      ^(%j: i32):
      {access("%x", "%c0", "%c1, %c64", "%j, %i0")}
      %v = load(%p) : f32
      yield(%v)
    }} {{
      ^(%a: f32, %b: f32):
      %t = elementwise.subf(%a, %b) : f32
      yield(%t)
    }} {{
      ^(%k: i32, %w: f32):
      {access("%y", "%c0", "%c1, %c64", "%k, %i0", name="q")}
      store(%q, %w)
      yield()
    }}
    yield()
  }}
"""


BUFFER = """  %b = alloc() {{offset = 64}} : buf<{shape}xf32, sram, row, 64>
  loop() {{dims = [{dims}], vec = {first}}} {{
    ^(%i0: i32, %i1: i32):
    {load}    %v = load(%p) : f32
    write(%b, %v, {places})
    yield()
  }}
  loop() {{dims = [{dims}], vec = {second}}} {{
    ^(%j0: i32, %j1: i32):
    %w = read(%b, {again}) : f32
    {store}    store(%q, %w)
    yield()
  }}
  free(%b)
"""


def through_buffer(first, second, places="%i0, %i1", shape="16x32"):
    return BUFFER.format(
        shape=shape, dims="16, 32", first=first, second=second, places=places, again=places.replace("%i", "%j"),
        load=access("%x", "%c0", "%c64, %c1", "%i0, %i1"), store=access("%y", "%c0", "%c64, %c1", "%j0, %j1", name="q"),
    )  # fmt: skip


FORMS = {
    **{
        f"copy-{'x'.join(map(str, dims))}-{vec}-{strides}-{bool(mask)}": copy_loop(
            dims, vec, ("%c0" if "m1" not in strides else "%c64", strides), ("%c2", "%c64, %c1"), mask
        )
        for dims, vec, strides, mask in itertools.product(
            [(16, 32), (3, 8), (7, 12), (1, 64), (32, 1)],
            [-1, 0, 1],
            ["%c64, %c1", "%c1, %c64", "%c2, %s", "%c0, %c0", "%c1, %c0", "%s, %m1"],
            ["", "%g"],
        )
    },
    "one element": copy_loop((), -1, ("%c2", ""), ("%c1", "")).replace("%i0", "%n"),
    "last lane wins": copy_loop((64,), 0, ("%c0", "%c1"), ("%c1", "%c0")),
    "last masked lane wins": copy_loop((64,), 0, ("%c0", "%c1"), ("%c1", "%c0"), "%g"),
    "last lane wins in a buffer": """  %b = alloc() {offset = 0} : buf<4xf32, sram, row, 64>
  %z = const 2 : i32
  loop() {dims = [64], vec = 0} {
    ^(%i0: i32):
    """ + access("%x", "%c0", "%c1", "%i0") + """    %v = load(%p) : f32
    write(%b, %v, %z)
    yield()
  }
  %w = read(%b, %z) : f32
  store(%y, %w)
  free(%b)
""",
    **{
        f"reduce-{count}-{vector}-{op}": reduction(count, vector, op)
        for count, vector, op in itertools.product([1, 2, 3, 12, 16, 24, 48, 64, 96, 100, 128, 640], [True, False], ["addf", "subf"])
    },
    **{f"reduce-lanes-{lanes}-{more}": reduction(256, True, "subf", extra=f", lanes = {lanes}, accumulators = {more}") for lanes in (8, 16) for more in (1, 2)},
    **{f"reduce-in-lanes-{count}-{size}": reduction(count, False, "addf", size, 0) for count in (3, 64, 130) for size in (4, 16, 48)},
    **{f"reduce-in-loop-{count}-{size}": reduction(count, True, "subf", size) for count in (4, 16, 32, 64, 96, 128) for size in (5, 16, 48)},
    **{f"scan-{count}-{reverse}-{vec}": scan(count, reverse, vec, 16) for count in (1, 5, 64) for reverse in (False, True) for vec in (-1, 0)},
    **{f"buffer-{first}-{second}": through_buffer(first, second) for first in (-1, 0, 1) for second in (-1, 0, 1)},
    "buffer, transposed": through_buffer(1, 0, "%i1, %i0", "32x16"),
    "buffer, a diagonal": through_buffer(-1, 1, "%i1, %i1", "32x32"),
    "buffer, a column": through_buffer(0, 0, "%i0, %z", "16x4").replace("  loop()", "  %z = const 3 : i32\n  loop()", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_form(name):
    module = text.parse(HEAD.format(sram=8192) + CONSTANTS + FORMS[name] + "  return()\n}\n", MACHINE)
    verify.verify(module)
    rng = np.random.default_rng(0)
    given = [rng.normal(size=6000).astype(np.float32), np.zeros(6000, np.float32), 5, 3]
    want = run(machine.run, module, "k", (1,), given)
    kernel = Kernel.of_machine(module, "k")
    got, fault = kernel.run((1,), given)
    assert fault is None
    assert np.any(want[1])
    np.testing.assert_array_equal(got[1].view(np.uint32), want[1].view(np.uint32))
