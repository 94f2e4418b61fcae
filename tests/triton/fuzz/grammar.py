"""The operators of the generated kernels: how each is written in Triton, of which elements, and what comes out.

A name is the tile IR's opcode, kind, predicate or operator, so that a test can look for it in the IR.
"""

from __future__ import annotations

from dataclasses import dataclass

# element: (Triton's type, pointer's type in a signature)
TYPES = {
    **{f"i{width}": (f"tl.int{width}", f"i{width}") for width in (1, 8, 16, 32, 64)},
    "f16": ("tl.float16", "fp16"),
    "bf16": ("tl.bfloat16", "bf16"),
    "f32": ("tl.float32", "fp32"),
    "f64": ("tl.float64", "fp64"),
    "f8e4m3fn": ("tl.float8e4nv", "fp8e4nv"),
    "f8e5m2": ("tl.float8e5", "fp8e5"),
}
INTS, FLOATS, WIDE = ("i8", "i16", "i32", "i64"), ("f16", "bf16", "f32", "f64"), ("f32", "f64")
ANY = ("i1", *INTS, *FLOATS, "f8e4m3fn", "f8e5m2")

HEADER = """\
import triton
import triton.language as tl


@triton.jit
def _add(a, b):
    return a + b


@triton.jit
def _max(a, b):
    return tl.where(a > b, a, b)


@triton.jit
def _xor(a, b):
    return a ^ b


@triton.jit
def _least(a, i, b, j):
    first = (a < b) | ((a == b) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit(noinline=True)
def _called(a, b):
    return a * 3 - b


@triton.jit
def _twice(a):
    if a > 0:
        return a + a
    else:
        return a

"""


@dataclass(frozen=True)
class Operator:
    """``text`` has lines that end with ``{v} = ...``: {a} {b} {c} are operands, {w} another one of its ``second`` type,
    {S} the shape, {C} the elements, {P} times {Q} are the elements too, {A} an axis, {L} its size, {t} the type, {u} the type without sign, {r} the result's.

    ``ir`` is (operation, attribute) under which the tile IR has it; ``result`` "" is the operand's own type.
    """

    name: str
    text: str
    types: tuple[str, ...]
    ir: tuple[str, str] = ("elementwise", "opcode")
    result: str = ""
    second: str = ""
    approximate: bool = False

    def seen(self) -> str:
        """The name in the IR."""
        return self.name.split("-")[0]


def _unsigned(text: str) -> str:
    for name in "ab":
        text = text.replace(f"{{{name}}}", f"{{{name}}}.to({{u}}, bitcast=True)")
    return text


def _table() -> list[Operator]:
    found = []

    def add(name: str, text: str, types: tuple[str, ...], *ir: str, **more: object) -> None:
        where = ir if len(ir) == 2 else ("elementwise", "opcode") if not ir else (ir[0], "")
        found.append(Operator(name, text if "{v" in text else f"{{v}} = {text}", types, where, **more))  # type: ignore[arg-type]

    for name, text in {"addi": "{a} + {b}", "subi": "{a} - {b}", "muli": "{a} * {b}", "divsi": "{a} // {b}", "remsi": "{a} % {b}", "shli": "{a} << {b}", "shrsi": "{a} >> {b}", "minsi": "tl.minimum({a}, {b})", "maxsi": "tl.maximum({a}, {b})"}.items():  # fmt: skip
        add(name, text, INTS)
    for name, text in {"divui": "{a} // {b}", "remui": "{a} % {b}", "shrui": "{a} >> {b}", "minui": "tl.minimum({a}, {b})", "maxui": "tl.maximum({a}, {b})"}.items():  # fmt: skip
        add(name, f"({_unsigned(text)}).to({{t}}, bitcast=True)", INTS)
    for name, sign in (("andi", "&"), ("ori", "|"), ("xori", "^")):
        add(name, f"{{a}} {sign} {{b}}", ("i1", *INTS))
    add("mulhiui", f"tl.umulhi({_unsigned('{a}, {b}')}).to({{t}}, bitcast=True)", ("i32", "i64"))
    add("absi", "tl.abs({a})", INTS)
    for name, text in {"addf": "{a} + {b}", "subf": "{a} - {b}", "mulf": "{a} * {b}"}.items():
        add(name, text, FLOATS)
    add("divf", "{a} / {b}", WIDE)
    add("remf", "{a} % {b}", WIDE)
    add("fma", "tl.fma({a}, {b}, {c})", FLOATS)
    for name, function, rule in (("maxnumf", "maximum", "NONE"), ("minnumf", "minimum", "NONE"), ("maximumf", "maximum", "ALL"), ("minimumf", "minimum", "ALL")):  # fmt: skip
        add(name, f"tl.{function}({{a}}, {{b}}, propagate_nan=tl.PropagateNan.{rule})", ("f16", "f32", "f64"))
    add("absf", "tl.abs({a})", FLOATS)
    for name in ("floor", "ceil"):
        add(name, f"tl.{name}({{a}})", WIDE)
    add("sqrt", "tl.sqrt({a})", WIDE)
    for name in ("exp", "exp2", "log", "log2", "sin", "cos", "erf", "rsqrt"):
        add(name, f"tl.{name}({{a}})", WIDE, approximate=True)
    ordered = (("slt", "<"), ("sle", "<="), ("sgt", ">"), ("sge", ">="))
    for name, sign in (("eq", "=="), ("ne", "!="), *ordered):
        add(name, f"{{a}} {sign} {{b}}", INTS, "cmp", "predicate", result="i1")
    for name, sign in ordered:
        add(name.replace("s", "u", 1), _unsigned(f"{{a}} {sign} {{b}}"), INTS, "cmp", "predicate", result="i1")
    for name, sign in (("oeq", "=="), ("une", "!="), ("olt", "<"), ("ole", "<="), ("ogt", ">"), ("oge", ">=")):
        add(name, f"{{a}} {sign} {{b}}", FLOATS, "cmp", "predicate", result="i1")
    for old, new in (("i8", "i64"), ("i16", "i32"), ("i32", "i64"), ("i1", "i32")):
        if old != "i1":  # to i1 Triton compares
            add(f"trunci-{old}", "{a}.to({r})", (new,), "cast", "kind", result=old)
            add(f"extsi-{new}", "{a}.to({r})", (old,), "cast", "kind", result=new)
        add(
            f"extui-{new}",
            ("{a}" if old == "i1" else _unsigned("{a}")) + ".to({r})",
            (old,),
            "cast",
            "kind",
            result=new,
        )
    for new in FLOATS:
        add(f"sitofp-{new}", "{a}.to({r})", INTS, "cast", "kind", result=new)
        add(f"uitofp-{new}", _unsigned("{a}") + ".to({r})", INTS, "cast", "kind", result=new)
    for new in INTS:
        # Triton widens the smaller ones first
        add(f"fptosi-{new}", "{a}.to({r})", WIDE, "cast", "kind", result=new)
        add(f"fptoui-{new}", "{a}.to({u}).to({r}, bitcast=True)", WIDE, "cast", "kind", result=new)
    for old in (*FLOATS, "f8e4m3fn", "f8e5m2"):
        for new in FLOATS:
            if new != old:
                add(f"float-{new}", "{a}.to({r})", (old,), "cast", "kind", result=new)
    for new in ("f8e4m3fn", "f8e5m2", "f16", "bf16"):
        add(f"float-{new}", "{a}.to({r})", ("f32",), "cast", "kind", result=new)
    add("float-f16-rtz", '{a}.to({r}, fp_downcast_rounding="rtz")', ("f32",), "cast", "kind", result="f16")
    # of what a NaN has in it nothing is said: only numbers become integers
    for old, new in (("f16", "i16"), ("bf16", "i16"), ("f32", "i32"), ("f64", "i64")):
        add(f"bitcast-{new}", "tl.where({a} == {a}, {a}, 0).to({r}, bitcast=True)", (old,), "bitcast", result=new)
    add("select", "tl.where({w}, {a}, {b})", ANY, "select", second="i1")
    # shapes
    add("trans", "tl.reshape(tl.trans(tl.reshape({a}, ({P}, {Q}))), {S})", ANY, "trans")
    shaped = "tl.where(tl.arange(0, {P})[None, :] % 2 == 0, tl.reshape({a}, ({Q}, {P})), tl.reshape({b}, ({Q}, {P})))"
    add("reshape", f"tl.reshape({shaped}, {{S}})", ANY, "reshape")
    halves = "{v}_l, {v}_h = tl.split(tl.reshape({a}, ({C} // 2, 2)))\n"
    add("split", halves + "{v} = tl.reshape(tl.join({v}_h, {v}_l), {S})", ANY, "split")
    add("join", halves + "{v} = tl.reshape(tl.trans(tl.join({v}_l, {v}_h)), {S})", ANY, "join")
    add("cat", halves + "{v} = tl.reshape(tl.cat({v}_h, {v}_l, can_reorder=True), {S})", ANY, "cat")
    add("gather", "tl.gather({a}, {w} & ({L} - 1), {A})", ANY, "gather", second="i32")
    add("map", "tl.map_elementwise(_twice, {a})", ("i32", "i64", "f32", "f64"), "map")
    add("call", "{a} + _called(s, n)", ("i32",), "call")  # of scalars: Triton allows no others
    # reductions: of floats their order shows
    for name in ("_add", "_max", "_xor"):
        types = ("i1", *INTS) if name == "_xor" else (*INTS, *FLOATS)
        add(
            f"reduce{name}", f"tl.broadcast_to(tl.reduce({{a}}, {{A}}, {name}, keep_dims=True), {{S}})", types, "reduce"
        )
        for way in (False, True):
            reverse = "_reverse" if way else ""
            add(
                f"scan{name}{reverse}".replace("_", "-"),
                f"tl.associative_scan({{a}}, {{A}}, {name}, reverse={way})",
                types,
                "scan",
            )
    pair = "{v}_x, {v}_i = tl.reduce(({a}, {w}), {A}, _least, keep_dims=True)\n{v} = "
    add("reduce-pair", pair + "tl.broadcast_to({v}_x, {S})", (*INTS, *FLOATS), "reduce", second="i32")
    for name in ("argmax", "argmin"):
        add(
            f"reduce-{name}",
            f"tl.broadcast_to(tl.{name}({{a}}, {{A}}, keep_dims=True), {{S}})",
            ("i32", "i64", "f32", "f64"),
            "reduce",
            result="i32",
        )
    add(
        "histogram",
        "tl.reshape(tl.histogram(tl.reshape({a} & (2 * {C} - 1), ({C},)), {C}, mask=tl.reshape({w}, ({C},))), {S})",
        ("i32",),
        "histogram",
        second="i1",
    )
    product = "{v} = tl.reshape(tl.dot(tl.reshape({a}, ({P}, {Q})), tl.trans(tl.reshape({b}, ({P}, {Q}))){more}), ({P} * {P},))\n{v} = tl.gather({v}, tl.reshape({i} % ({P} * {P}), ({C},)), 0)\n{v} = tl.reshape({v}, {S})"
    add("dot", product.replace("{more}", ""), ("f16", "bf16", "f32"), "dot", result="f32")
    add("dot", product.replace("{more}", ""), ("i8",), "dot", result="i32")
    add("dot", product.replace("{more}", ", out_dtype=tl.float64"), ("f64",), "dot")
    return [replaced(one) for one in found]


def replaced(one: Operator) -> Operator:
    """Names without underscores."""
    return Operator(one.name.replace("_", "-"), one.text, one.types, one.ir, one.result, one.second, one.approximate)


OPERATORS = _table()
# kind: (types, kind under which it is written)
ATOMICS = {
    "add": ("i32", "i64"),
    "fadd": ("f16", "f32", "f64"),
    "max": ("i32", "i64", "f32", "f64"),
    "min": ("i32", "i64", "f32", "f64"),
    "umax": ("i32", "i64"),
    "umin": ("i32", "i64"),
    "and": ("i32", "i64"),
    "or": ("i32", "i64"),
    "xor": ("i32", "i64"),
    "xchg": ("i32", "i64", "f32", "f64"),
    "cas": ("i32", "i64"),
}
ACCESSES = ("contiguous", "strided", "transposed", "gathered", "modulo")
MASKS = ("no mask", "prefix", "arbitrary")
ALIASES = ("may alias", "in place")
CONTROLS = ("for", "if", "while", "early return")
PAIRS = [(one, type) for one in OPERATORS for type in one.types]
