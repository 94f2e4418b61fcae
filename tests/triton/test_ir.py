"""The tile IR's text, its verifier, and the reader of Triton's IR, on small modules."""

import pytest
import triton
import triton.language as tl
from expecttest import assert_expected_inline

from torch_accel.triton import frontend
from torch_accel.triton.ir import lower_ttir, opcodes, printer, reader, text, verify
from torch_accel.triton.ir.core import IRError
from torch_accel.triton.ir.ops import OPERATORS
from torch_accel.triton.ir.types import Constant, Tile
from torch_accel.triton.ir.types import Scalar as S


@triton.jit
def example(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    if n < 0:
        return
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y, tl.sum(v, 0))


def test_text_of_a_kernel():
    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "B": "constexpr"}
    module = lower_ttir.lower(
        reader.read(frontend.ttir(example, signature, {"B": 16}, {(0,): [["tt.divisibility", 16]]}))
    )
    assert_expected_inline(
        printer.text(module),
        """\
func @example(%x: ptr<f32, hbm>, %y: ptr<f32, hbm>, %n: i32) {arguments = [{"divisibility": 16}, {}, {}]} {
  %0 = const 0.0 : tile<16xf32>
  %1 = const 0 : i32
  %2 = const 16 : i32
  %i = program_id() : i32
  %i.1 = elementwise.muli(%i, %2) : i32
  %i.2 = iota() {end = 16} : tile<16xi32>
  %i.3 = splat(%i.1) : tile<16xi32>
  %i.4 = elementwise.addi(%i.3, %i.2) : tile<16xi32>
  %3 = cmp.slt(%n, %1) : i1
  if(%3) {
    yield()
  } {
    %v = splat(%n) : tile<16xi32>
    %v.1 = cmp.slt(%i.4, %v) : tile<16xi1>
    %v.2 = splat(%x) : tile<16xptr<f32, hbm>>
    %v.3 = elementwise.addptr(%v.2, %i.4) : tile<16xptr<f32, hbm>>
    %v.4 = load(%v.3, mask=%v.1, other=%0) : tile<16xf32>
    %4 = reduce(%v.4) {axis = 0} : f32 {
      ^(%5: f32, %6: f32):
      %7 = elementwise.addf(%5, %6) : f32
      yield(%7)
    }
    store(%y, %4)
    yield()
  }
  return()
}
""",
    )


GOOD = """func @f(%x: ptr<f32, hbm>, %n: i32) {
  %0 = const 0 : i32
  %1 = const 1 : i32
  %i = iota() {end = 4} : tile<4xi32>
  %p = splat(%x) : tile<4xptr<f32, hbm>>
  %q = elementwise.addptr(%p, %i) : tile<4xptr<f32, hbm>>
  %v = load(%q) : tile<4xf32>
  %s = for(%0, %n, %1, %v) : tile<4xf32> {
    ^(%k: i32, %a: tile<4xf32>):
    %b = elementwise.addf(%a, %a) {contract = true} : tile<4xf32>
    yield(%b)
  }
  store(%q, %s)
  return()
}
"""
# What is replaced, by what, and what the verifier or the reader says.
WRONG = [
    ("elementwise.addf(%a, %a)", "elementwise.addf(%a, %i)", "'elementwise': an operand's type is tile<4xi32>, expected tile<4xf32>"),
    ("elementwise.addf", "elementwise.addi", "'elementwise': the elements is float, expected int"),
    ("elementwise.addf", "elementwise.plus", "'elementwise': no opcode 'plus'"),
    ("addf(%a, %a)", "addf(%a)", "'elementwise': the number of operands is 1, expected 2"),
    ("{end = 4}", "{end = 5}", "'iota': the result type is tile<4xi32>, expected tile<5xi32>"),
    ("{end = 4}", "", "'iota': attribute 'end' is missing"),
    ("{end = 4}", "{end = 4, step = 2}", "'iota': no attribute 'step'"),
    ("yield(%b)", "yield()", r"'for': region 0: what it gives is \(\), expected \(tile<4xf32>\)"),
    ("    yield(%b)\n", "", "'for': region 0: does not end with yield"),
    ("yield(%b)", "return()", "'for': region 0: does not end with yield"),
    ("%a: tile<4xf32>", "%a: f32", "'for': region 0: the type of the arguments is"),
    ("store(%q, %s)", "store(%q, %i)", "'store': the type at the address is tile<4xf32>, expected tile<4xi32>"),
    ("store(%q, %s)", "store(%q, %s, mask=%i)", "'store': the mask's type is tile<4xi32>, expected tile<4xi1>"),
    ("store(%q, %s)", "store(%q)", "'store': 1 operands do not fit 'address value mask\\?'"),
    ("load(%q)", "load(%x)", "'load': the type at the address is f32, expected tile<4xf32>"),
    ("return()", "return(%n)", "'return': the result type is"),
    ("  store(%q, %s)", "  return()", "'return' is not at the end of its block"),
    ("store(%q, %s)", 'call() {callee = "g"}', "'call': no function 'g'"),
]  # fmt: skip


def test_good_module():
    module = text.parse(GOOD)
    verify.verify(module)
    assert printer.text(module) == GOOD


@pytest.mark.parametrize("old, new, message", WRONG, ids=[new for _, new, _ in WRONG])
def test_verifier(old, new, message):
    assert GOOD.count(old) == 1
    with pytest.raises(IRError, match=message):
        verify.verify(text.parse(GOOD.replace(old, new)))


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("%v = load", "%v = lod", "line 7: expected an operator instead of 'lod'"),
        ("store(%q, %s)", "store(%q, %t)", "line 13: expected a definition of %t before its use"),
        ("%v = load(%q) : tile<4xf32>", "%q = load(%q) : tile<4xf32>", "line 7: expected a new name instead of %q"),
        ("%v = load(%q) : tile<4xf32>", "%v = load(%q) : tile<4xf12>", "line 7: expected a type at 'f12>'"),
        ("%v = load(%q) : tile<4xf32>", "load(%q) : tile<4xf32>", "line 7: expected an operation at ': tile<4xf32>'"),
        ("  return()\n}\n", "  return()\n", "line 15: expected an operation"),
    ],
)
def test_syntax_errors_show_the_line(old, new, message):
    with pytest.raises(SyntaxError, match=f"accel: the tile IR, {message}"):
        text.parse(GOOD.replace(old, new))


def test_dominance():
    module = text.parse(GOOD)
    operations = module.regions[0].block.operations[0].regions[0].block.operations
    operations.insert(0, operations.pop(5))  # the load, before what it reads
    with pytest.raises(IRError, match="'load': operand 0 is used before its definition"):
        verify.verify(module)


RAW = """"builtin.module"() ({
  "tt.func"() <{function_type = (i1, i32) -> i32, sym_name = "f", sym_visibility = "private"}> ({
  ^bb0(%c: i1, %x: i32):
    "cf.cond_br"(%c, %x)[^bb1, ^bb2] <{operandSegmentSizes = array<i32: 1, 0, 1>}> : (i1, i32) -> () loc("f.py":1:2)
  ^bb1:  // a comment
    %0:2 = "tt.call"(%y, %y) <{callee = @"g<1>"}> : (i32, i32) -> (i32, i32)
    "cf.br"(%0#1)[^bb2] : (i32) -> ()
  ^bb2(%z: i32):
    "tt.return"(%z) : (i32) -> ()
  }) {noinline = true} : () -> ()
}) : () -> ()
"""


def test_reader_checks_dominance_over_branches():
    good = RAW.replace("%y, %y", "%x, %x")
    verify.verify_ssa(reader.read(good))
    with pytest.raises(SyntaxError, match="Triton's IR, line 10: expected definitions of %y"):
        reader.read(RAW)
    # Defined in a block that does not lie on every way.
    late = good.replace('"tt.return"(%z)', '"tt.return"(%0#0)')
    with pytest.raises(IRError, match=r"'tt.return': operand 0 is used before its definition"):
        verify.verify_ssa(reader.read(late))


@pytest.mark.parametrize(
    "old, new, message",
    [
        ('"builtin.module"', "module", "line 1: expected the generic form"),
        (
            "(i32, i32) -> (i32, i32)",
            "(i32, i64) -> (i32, i32)",
            "expected an operand of type i32, which is printed as i64",
        ),
        ("%0:2", "%0", "expected 2 results"),
        ('loc("f.py":1:2)', "loc(#loc7)", "line 4: expected a definition of #loc7"),
        (
            "function_type = (i1, i32)",
            "function_type = (i1, tensor<4xi32, #blocked>)",
            "expected no layout: the IR of a GPU is not read",
        ),
    ],
)
def test_reader_refuses(old, new, message):
    with pytest.raises(SyntaxError, match=message):
        reader.read(RAW.replace("%y, %y", "%x, %x").replace(old, new))


def test_loops_of_branches_are_refused():
    loop = RAW.replace("%y, %y", "%x, %x").replace('"tt.return"(%z) : (i32) -> ()', '"cf.br"(%z)[^bb2] : (i32) -> ()')
    with pytest.raises(IRError, match="a branch goes back; loops must be 'for' or 'while'"):
        lower_ttir.lower(reader.read(loop))


def test_early_returns_are_lowered_once():
    """However deep they nest, no operation is written twice."""
    depth = 12
    blocks = ["  ^bb0(%c: i1, %x: i32):\n", f'    "cf.cond_br"(%c)[^in0, ^out{depth}] : (i1) -> ()\n']
    for level in range(depth):
        after = f"in{level + 1}" if level + 1 < depth else "last"
        blocks.append(f'  ^in{level}:\n    "cf.cond_br"(%c)[^ret{level}, ^{after}] : (i1) -> ()\n')
        blocks.append(f'  ^ret{level}:\n    "tt.return"(%x) : (i32) -> ()\n')
    blocks.append(f'  ^last:\n    "cf.br"()[^out{depth}] : () -> ()\n')
    blocks.append(
        f'  ^out{depth}:\n    %y = "arith.muli"(%x, %x) : (i32, i32) -> i32\n    "tt.return"(%y) : (i32) -> ()\n'
    )
    body = "".join(blocks).replace(" : (i1) -> ()", " <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (i1) -> ()")
    head = RAW[: RAW.index("  ^bb0")]
    lowered = lower_ttir.lower(reader.read(head + body + "  }) {noinline = true} : () -> ()\n}) : () -> ()\n"))
    verify.verify(lowered)
    assert [op.attributes["opcode"] for op in lowered.walk() if op.name == "elementwise"] == ["muli"]
    assert sum(op.name == "if" for op in lowered.walk()) == depth + 2


def constants(body):
    module = reader.read(
        f'"builtin.module"() ({{\n %0 = "arith.constant"() <{{value = {body}}}> : () -> i1\n}}) : () -> ()\n'
    )
    return module.regions[0].block.operations[0].attributes["value"]


@pytest.mark.parametrize(
    "body, type, bits",
    [
        ("1.500000e+00 : f32", S("f32"), (0x3FC00000,)),
        ("0xFF800001 : f32", S("f32"), (0xFF800001,)),
        ("0x7FF8000000000000 : f64", S("f64"), (0x7FF8000000000000,)),
        ("-0.000000e+00 : bf16", S("bf16"), (0x8000,)),
        ("0x7C00 : f16", S("f16"), (0x7C00,)),
        ("4.480000e+02 : f8E4M3FN", S("f8e4m3fn"), (0x7E,)),
        ("dense<[[1, -2], [3, 4]]> : tensor<2x2xi8>", Tile((2, 2), S("i8")), (1, 254, 3, 4)),
        ("dense<true> : tensor<4xi1>", Tile((4,), S("i1")), (1,)),
        ('dense<"0x0100FFFF"> : tensor<2xi16>', Tile((2,), S("i16")), (1, 0xFFFF)),
        ("dense<-1.0> : tensor<f32>", Tile((), S("f32")), (0xBF800000,)),
    ],
)
def test_constants_keep_their_bits(body, type, bits):
    assert constants(body) == Constant(type, bits)


@pytest.mark.parametrize(
    "name", ["f64", "f32", "f16", "bf16", "f8e5m2", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2fnuz", "i8", "i1"]
)
def test_printed_constants_keep_their_bits(name):
    elem = S(name)
    count = 1 << min(elem.width, 10)
    bits = tuple(sorted({index * ((1 << elem.width) - 1) // max(count - 1, 1) for index in range(count)}))
    shown = f"func @f() {{\n  %0 = const {printer.constant(Constant(Tile((len(bits),), elem), bits))} : tile<{len(bits)}x{name}>\n  return()\n}}\n"
    module = text.parse(shown)
    assert module.regions[0].block.operations[0].regions[0].block.operations[0].attributes["value"].bits == bits
    assert printer.text(module) == shown


def test_numbers_of_triton_enumerations():
    """The generic form prints enumerations as numbers; the names are compared with Triton's own."""
    from triton._C.libtriton import ir

    def members(enum):
        return {int(value): name.lower() for name, value in enum.__members__.items()}

    assert members(ir.ATOMIC_OP) == opcodes.ATOMICS
    assert {k: v.replace("acq_rel", "acquire_release") for k, v in opcodes.SEMANTICS.items()} == members(
        ir.MEM_SEMANTIC
    )
    ours = {"device": "gpu", "core": "cta", "system": "system"}
    assert {k: ours[v] for k, v in opcodes.SCOPES.items()} == members(ir.MEM_SYNC_SCOPE)
    assert {k: v or "none" for k, v in opcodes.CACHES.items()} == members(ir.CACHE_MODIFIER)
    assert {k: f"evict_{v}" if v else "normal" for k, v in opcodes.EVICTIONS.items()} == members(ir.EVICTION_POLICY)
    assert members(ir.INPUT_PRECISION) == opcodes.PRECISIONS
    assert members(ir.ROUNDING_MODE) == opcodes.ROUNDINGS
    assert members(ir.ScaleDotElemTypeTY) == opcodes.SCALED_KINDS


def test_every_operator_says_what_it_does():
    for name, operator in OPERATORS.items():
        assert operator.effects <= {"read", "write", "sync", "host"}, name
        assert not operator.terminator or operator.results == 0, name
        assert not operator.primary or operator.primary in operator.attributes, name
