"""Translation validation over the corpus: every kernel gives the same bits at every level and after every pass."""

import numpy as np
import pytest
import triton
import triton.language as tl

from tests.triton.corpus import cases, modules, run
from torch_accel.triton import frontend, passes
from torch_accel.triton.interpret import machine, tile
from torch_accel.triton.interpret.launch import launch
from torch_accel.triton.interpret.validate import validate
from torch_accel.triton.ir import lower_ttir, printer, reader, text, verify
from torch_accel.triton.machine.ops import MACHINE

NAMES = list(cases())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fuse", [False, True], ids=["plain", "fused"])
def test_every_level_gives_the_same_bits(name, fuse):
    case = cases()[name]
    validate(modules(name)[0], case.kernel.fn.__name__, case.grid, case.arguments(), fuse=fuse)


@pytest.mark.parametrize("name", NAMES)
def test_prints_what_it_reads(name):
    module = passes.machine_ir(modules(name)[1])
    for locations in (False, True):
        shown = printer.text(module, locations, MACHINE)
        assert printer.text(text.parse(shown, MACHINE), locations, MACHINE) == shown


@triton.jit
def noisy(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.device_print("v ", v)
    tl.store(y + i, v + 1, mask=i < n)


def test_launch_runs_the_machine_level():
    x, y, said = np.arange(6, dtype=np.float32), np.zeros(6, np.float32), []
    launch(noisy, (2,), x, y, 6, B=4, level="machine", say=said.append)
    np.testing.assert_array_equal(y, x + 1)
    assert said[5] == "pid (1, 0, 0) idx (1) v: 5.000000"


def test_launch_validates_when_it_is_asked_to(monkeypatch):
    monkeypatch.setenv("TRITON_ACCEL_VERIFY", "each")
    x, y, said = np.arange(6, dtype=np.float32), np.zeros(6, np.float32), []
    launch(noisy, (2,), x, y, 6, B=4, say=said.append)
    np.testing.assert_array_equal(y, x + 1)
    assert len(said) == 8


@triton.jit
def add_one(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + i) + 1)


def test_validation_keeps_arrays_that_share_memory(monkeypatch):
    monkeypatch.setenv("TRITON_ACCEL_VERIFY", "each")
    whole = np.arange(16, dtype=np.int32)
    launch(add_one, (1,), whole, whole[1:9], B=8)
    np.testing.assert_array_equal(whole, [0, *range(1, 9), *range(9, 16)])
    launch(add_one, (1,), whole[4:12], whole, B=8)
    np.testing.assert_array_equal(whole, [*range(5, 13), *range(8, 16)])


@triton.jit
def tiles_of_while(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    a, b, p = tl.load(x + i), i, x + i
    while tl.sum(a) < n:
        a, b = a + b, a
        p += 1
        if tl.max(b) > 20:
            b = tl.load(p)
            tl.store(x + i, b * 2)
    tl.store(y + i, a - b + tl.load(p))


@pytest.mark.parametrize("noalias", [False, True])
def test_arguments_that_share_no_memory_need_no_test(noalias):
    module = frontend.tile_ir(add_one, {"x": "*i32", "y": "*i32", "B": "constexpr"}, {"B": 8})
    module.regions[0].block.operations[0].attributes["arguments"] = [{}, {"noalias": noalias}]
    names = [op.name for op in passes.machine_ir(module).walk()]
    assert ("if" in names, names.count("loop")) == ((False, 1) if noalias else (True, 3))


@triton.jit
def long_chain(x, y, N: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    for k in tl.static_range(N):
        v = v * 3 + (v ^ k)
    tl.store(y + i, v)


@pytest.mark.parametrize(
    "kernel, signature, constants, numbers",
    [
        (tiles_of_while, "x:*i32 y:*i32 n:i32", {"B": 8}, (900,)),
        (long_chain, "x:*i32 y:*i32", {"B": 4, "N": 400}, ()),
    ],
    ids=["while", "long"],
)
def test_tiles_in_control_flow(kernel, signature, constants, numbers):
    known = dict(part.split(":") for part in signature.split())
    types = {name: known.get(name, "constexpr") for name in kernel.arg_names}
    given = [np.arange(64, dtype=np.int32), np.zeros(64, np.int32), *numbers]
    validate(reader.read(frontend.ttir(kernel, types, constants)), kernel.fn.__name__, (1,), given)
    assert given[1].any()


# Triton passes no tiles to functions that it does not inline; the tile IR does.
CALLS = """func @main(%x: ptr<i32, hbm>, %y: ptr<i32, hbm>) {
  %i = iota() {end = 8} : tile<8xi32>
  %p = splat(%x) : tile<8xptr<i32, hbm>>
  %q = elementwise.addptr(%p, %i) : tile<8xptr<i32, hbm>>
  %v = load(%q) : tile<8xi32>
  %0 = const 3 : i32
  %a, %top = call(%v, %0) {callee = "scaled"} : tile<8xi32>, i32
  %1 = elementwise.addi(%a, %v) : tile<8xi32>
  %b, %2 = call(%1, %top) {callee = "scaled"} : tile<8xi32>, i32
  %r = splat(%y) : tile<8xptr<i32, hbm>>
  %s = elementwise.addptr(%r, %i) : tile<8xptr<i32, hbm>>
  %3 = elementwise.subi(%b, %a) : tile<8xi32>
  store(%s, %3)
  return()
}
func @scaled(%v: tile<8xi32>, %f: i32) -> (tile<8xi32>, i32) {public = false} {
  %0 = splat(%f) : tile<8xi32>
  %1 = elementwise.muli(%v, %0) : tile<8xi32>
  %2 = reduce(%1) {axis = 0} : i32 {
    ^(%3: i32, %4: i32):
    %5 = elementwise.addi(%3, %4) : i32
    yield(%5)
  }
  %6 = splat(%2) : tile<8xi32>
  %7 = scan(%v) {axis = 0} : tile<8xi32> {
    ^(%8: i32, %9: i32):
    %10 = elementwise.addi(%8, %9) : i32
    yield(%10)
  }
  %11 = elementwise.addi(%7, %6) : tile<8xi32>
  return(%11, %2)
}
"""


@pytest.mark.parametrize("fuse", [False, True], ids=["plain", "fused"])
def test_tiles_of_calls(fuse):
    module = text.parse(CALLS)
    verify.verify(module)
    given = [np.arange(8, dtype=np.int32), np.zeros(8, np.int32)]
    want = run(tile.run, module, "main", (1,), given)
    made = passes.machine_ir(module, fuse=fuse)
    got = run(machine.run, made, "main", (1,), given)
    np.testing.assert_array_equal(got[1], want[1])
    main, scaled = made.regions[0].block.operations
    sizes = [(op.attributes["frame"], op.attributes["sram"]) for op in (main, scaled)]
    assert sizes[0][1] == -(-sizes[0][0] // 64) * 64 + sizes[1][1] and sizes[1][0] == sizes[1][1] > 0


@triton.jit
def grouped_matmul(a, b, c, m, n, k, sam, sbk, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Triton's tutorial: pointers that move, and rows modulo the size."""
    pid, columns = tl.program_id(0), tl.cdiv(n, BN)
    pm, pn = pid // columns, pid % columns
    i, j, r = (pm * BM + tl.arange(0, BM)) % m, (pn * BN + tl.arange(0, BN)) % n, tl.arange(0, BK)
    ap, bp = a + i[:, None] * sam + r[None, :], b + r[:, None] * sbk + j[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for at in range(tl.cdiv(k, BK)):
        x = tl.load(ap, mask=r[None, :] < k - at * BK, other=0.0)
        y = tl.load(bp, mask=r[:, None] < k - at * BK, other=0.0)
        acc = tl.dot(x, y, acc)
        ap += BK
        bp += BK * sbk
    cm, cn = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN)
    tl.store(c + scm * cm[:, None] + cn[None, :], acc, mask=(cm[:, None] < m) & (cn[None, :] < n))


def grouped_matmul_ir():
    signature = (
        dict.fromkeys(grouped_matmul.arg_names, "i32")
        | dict.fromkeys("abc", "*fp32")
        | dict.fromkeys(("BM", "BN", "BK"), "constexpr")
    )
    return reader.read(frontend.ttir(grouped_matmul, signature, {"BM": 8, "BN": 8, "BK": 8}))


@pytest.mark.parametrize("sizes", [(16, 16, 16), (20, 12, 30)])
def test_matmul_of_the_tutorial(sizes):
    m, n, k = sizes
    rng = np.random.default_rng(0)
    a, b, c = rng.random((m, k), np.float32), rng.random((k, n), np.float32), np.zeros((m, n), np.float32)
    grid = (-(-m // 8) * -(-n // 8),)
    validate(grouped_matmul_ir(), "grouped_matmul", grid, [a, b, c, m, n, k, k, n, n])
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_matmul_of_the_tutorial_has_affine_loads():
    """Pointers that move are scalars, their tests stand before the loop, the product is accumulated in place."""
    module = passes.machine_ir(lower_ttir.lower(grouped_matmul_ir()))
    known = list(module.walk())
    assert [str(op.result.type) for op in known if op.name == "alloc"] == [
        "buf<8x8xf32, sram, row, 64>" for _ in ("acc", "x", "y")
    ]
    (loop,) = (op for op in known if op.name == "for")
    inside = loop.regions[0].block.operations
    assert [op.name for op in inside if op.name not in ("elementwise", "cast", "cmp", "const")] == [
        *("alloc", "if", "alloc", "if", "mma", "free", "free", "yield")
    ]
    for versions in (op for op in inside if op.name == "if"):
        assert versions.operands[0].owner.parent is not loop.regions[0].block
        fast, slow = (
            {op.operands[0].owner.name for outer in region.block.operations for op in outer.walk() if op.name == "load"}
            for region in versions.regions
        )
        assert (fast, slow) == ({"access"}, {"elementwise"})


@triton.jit
def large(x, y, B: tl.constexpr):
    i, j = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    v = tl.load(x + i * B + j)
    tl.store(y + i * B + j, tl.sum(v, 0)[None, :] + tl.cumsum(v, 1))


def test_too_little_sram():
    """Triton's autotuner catches its own class and tries the next configuration."""
    import pickle

    from triton.runtime.errors import OutOfResources

    module = frontend.tile_ir(large, {"x": "*fp32", "y": "*fp32", "B": "constexpr"}, {"B": 256})
    with pytest.raises(OutOfResources) as raised:
        passes.machine_ir(module, sram=100_000)
    message = str(raised.value)
    assert "accel: kernel 'large' needs " in message
    assert " bytes of SRAM and a core has 100000; the largest buffer is buf<256x256x" in message
    assert message.endswith("Use smaller blocks.")
    assert str(pickle.loads(pickle.dumps(raised.value))) == message
