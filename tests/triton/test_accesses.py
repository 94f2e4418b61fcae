"""Which arguments a kernel reads and writes through."""

import triton
import triton.language as tl

from torch_accel.triton import frontend
from torch_accel.triton.backend import accesses
from torch_accel.triton.ir import text

R, W = accesses.READ, accesses.WRITE


def modes(kernel, signature, constants=None):
    return accesses.of(frontend.tile_ir(kernel, signature, constants), kernel.fn.__name__)


@triton.jit
def add(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i, mask=i < n)
    tl.store(out + i, a + tl.load(y + i, mask=i < n), mask=i < n)


def test_loads_and_stores():
    signature = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "B": "constexpr"}
    assert modes(add, signature, {"B": 64}) == [R, R, W, 0]


@triton.jit
def product(a, b, c, sum, unused, K, B: tl.constexpr):
    i = tl.arange(0, B)
    a_at = a + i[:, None] * K + i[None, :]
    b_at = b + i[:, None] * B + i[None, :]
    acc = tl.zeros((B, B), tl.float32)
    for _ in range(0, K, B):
        acc = tl.dot(tl.load(a_at), tl.load(b_at), acc)
        a_at += B
        b_at += B * B
    c_at = c + i[:, None] * B + i[None, :]
    tl.store(c_at, acc + tl.load(c_at))
    tl.atomic_add(sum, tl.sum(tl.sum(acc, 0), 0))


def test_pointers_that_a_loop_carries():
    pointers = dict.fromkeys(("a", "b", "c", "sum", "unused"), "*fp32")
    assert modes(product, {**pointers, "K": "i32", "B": "constexpr"}, {"B": 16}) == [R, R, R | W, R | W, 0, 0]


@triton.jit
def choose(x, y, z, n):
    if n > 0:  # noqa: SIM108 -- a branch
        at = x
    else:
        at = y
    while n < 10:
        tl.store(at, n)
        at += 1
        n += 1
    tl.store(tl.where(n > 3, z, z + 1), n)


def test_branches_and_while():
    signature = {"x": "*i32", "y": "*i32", "z": "*i32", "n": "i32"}
    assert modes(choose, signature) == [W, W, W, 0]


@triton.jit
def table(pointers, out, address):
    other = tl.load(pointers).to(tl.pointer_type(tl.float32))
    tl.store(out, tl.load(other) + tl.load(address.to(tl.pointer_type(tl.float32))))


def test_pointers_of_other_origin_belong_to_no_argument():
    assert modes(table, {"pointers": "*i64", "out": "*fp32", "address": "i64"}) == [R, W, 0]


@triton.jit(noinline=True)
def helper(x):
    tl.store(x, 1)


@triton.jit
def caller(x, y):
    helper(x)
    tl.load(y)


def test_what_a_called_function_does_is_not_known():
    assert modes(caller, {"x": "*i32", "y": "*i32"})[0] == R | W


def test_views():
    module = text.parse(
        """
        func @k(%x: ptr<f32, hbm>, %y: ptr<f32, hbm>, %n: i64) {
          %0 = view(%x, %n, %n, %n) : view<16xf32>
          %1 = load(%0) : tile<16xf32>
          %2 = view(%y, %n, %n, %n) : view<16xf32>
          store(%2, %1)
          return()
        }
        """
    )
    assert accesses.of(module, "k") == [R, W, 0]
