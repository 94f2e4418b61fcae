"""Faults planted in the lowering and in the tile interpreter, one at a time: the comparison with the raw interpreter finds each.

The raw interpreter decodes Triton's IR by itself: these are the faults that a decoder of one's own is there to find.
"""

import numpy as np
import pytest

from tests.triton.corpus import cases, modules, run
from torch_accel.triton.interpret import fold, raw, tile
from torch_accel.triton.interpret.engine import KernelFault
from torch_accel.triton.ir import lower_ttir, opcodes, verify
from torch_accel.triton.ir.core import IRError


def emitted(name, count=None, **attributes):
    """A rule that lowers to ``name`` with the first ``count`` operands."""
    return lambda low, op: low.emit(op, name, attributes, [low.values[value] for value in op.operands[:count]])


def gave(function):
    return lambda engine, op, args: [function(op, *args)]


SWAPS = {
    ("arith.addi", "arith.subi"): "int_ops-i32",
    ("arith.divsi", "arith.divui"): "int_ops-i8",
    ("arith.remsi", "arith.remui"): "int_ops-i16",
    ("arith.shrsi", "arith.shrui"): "int_ops-i32",
    ("arith.minsi", "arith.minui"): "int_ops-i64",
    ("arith.maxsi", "arith.maxui"): "int_ops-i8",
    ("arith.andi", "arith.ori"): "int_ops-i32",
    ("arith.ori", "arith.xori"): "int_ops-i32",
    ("arith.extsi", "arith.extui"): "cast-i8-i32",
    ("arith.sitofp", "arith.uitofp"): "cast-i8-fp32",
    ("arith.fptosi", "arith.fptoui"): "cast-fp32-i8",
    ("arith.maxnumf", "arith.minnumf"): "float_ops",
    ("arith.maximumf", "arith.maxnumf"): "more_math",
    ("arith.minimumf", "arith.minnumf"): "float_ops",
    ("math.exp", "math.exp2"): "math_functions",
    ("math.floor", "math.ceil"): "float_ops_f32",
    ("tt.mulhiui", "arith.muli"): "mul_high-32",
}
ENTRIES = {
    "no mask of a load": (lower_ttir.RULES, "tt.load", emitted("load", 1), "add"),
    "no other of a load": (lower_ttir.RULES, "tt.load", emitted("load", 2), "masked_other"),
    "no mask of a store": (lower_ttir.RULES, "tt.store", emitted("store", 2), "add"),
    "no mask of a histogram": (lower_ttir.RULES, "tt.histogram", emitted("histogram", 1), "count"),
    "no rounding of a cast": (lower_ttir.RULES, "tt.fp_to_fp", emitted("cast", kind="float"), "cast_toward_zero-fp16"),
    "bounds without sign": (lower_ttir.RULES, "scf.for", emitted("for", unsigned=True), "nested"),
    "no reverse": (lower_ttir.RENAMED, "tt.scan", ("scan", {"axis": "axis"}), "scans-i32-True"),
    "no start": (lower_ttir.RENAMED, "tt.make_range", ("iota", {"end": "end"}), "range_from"),
    "no axis of a program": (lower_ttir.RENAMED, "tt.get_program_id", ("program_id", {}), "grid_places"),
    "no axis of a grid": (lower_ttir.RENAMED, "tt.get_num_programs", ("num_programs", {}), "grid_places"),
    "join turned": (tile.HANDLERS, "join", gave(lambda op, a, b: np.stack([b, a], -1)), "join_split"),
    "cat turned": (tile.HANDLERS, "cat", gave(lambda op, a, b: np.concatenate([b, a])), "concatenate"),
    "shape not transposed": (tile.HANDLERS, "trans", gave(lambda op, a: a.reshape(op.results[0].type.shape)), "transpose"),
    "another axis": (tile.HANDLERS, "gather", gave(lambda op, a, i: np.take_along_axis(a, i % 4, 0)), "pick-axis1"),
    "split turned": (tile.HANDLERS, "split", lambda engine, op, args: [args[0][..., 1], args[0][..., 0]], "join_split"),
    "branches turned": (tile.HANDLERS, "if", lambda engine, op, args: engine.region(op.regions[bool(args[0])]), "tile_condition-9"),
    "another order": (
        tile.HANDLERS, "reduce", lambda engine, op, args: fold.reduce(engine.combine(op), args, op.attributes["axis"], 8), "row_sum-axis1",
    ),
}  # fmt: skip
_INT, _FLOAT = opcodes.INT_PREDICATES, opcodes.FLOAT_PREDICATES
TABLES = {
    "sign of comparisons": ("INT_PREDICATES", (*_INT[:6], *_INT[2:6]), "comparisons-u16"),
    "less and less or equal": ("INT_PREDICATES", ("eq", "ne", "sle", "slt", *_INT[4:]), "comparisons-i32"),
    "NaN of comparisons": ("FLOAT_PREDICATES", [p.replace("o", "u", 1) if p[0] == "o" and p != "ord" else p for p in _FLOAT], "comparisons-fp32"),
    "sign of atomics": ("ATOMICS", opcodes.ATOMICS | {6: "umax", 7: "umin"}, "atomics_int-i32"),
    "kind of atomics": ("ATOMICS", opcodes.ATOMICS | {4: "xor"}, "atomics_int-i32"),
    "formats of scaled products": ("SCALED_KINDS", opcodes.SCALED_KINDS | {0: "e5m2"}, "scaled-e4m3"),
}  # fmt: skip


def agree(name):
    """Whether a module that is lowered now computes what the raw interpreter does."""
    case, (module, _) = cases()[name], modules(name)
    kernel = case.kernel.fn.__name__
    want = run(raw.run, module, kernel, case.grid, case.arguments())
    try:
        lowered = lower_ttir.lower(module)
        verify.verify(lowered)
        got = run(tile.run, lowered, kernel, case.grid, case.arguments())
    except (IRError, KernelFault):
        return False
    return all(a.tobytes() == b.tobytes() for a, b in zip(want, got) if isinstance(a, np.ndarray))


@pytest.mark.parametrize("pair", SWAPS, ids=lambda pair: " for ".join(pair))
def test_operator_for_another(pair, monkeypatch):
    one, other = pair
    assert agree(SWAPS[pair])
    first, second = lower_ttir.SIMPLE[one], lower_ttir.SIMPLE[other]
    monkeypatch.setitem(lower_ttir.SIMPLE, one, second)
    monkeypatch.setitem(lower_ttir.SIMPLE, other, first)
    assert not agree(SWAPS[pair])


@pytest.mark.parametrize("fault", ENTRIES)
def test_wrong_entry(fault, monkeypatch):
    table, key, value, name = ENTRIES[fault]
    assert agree(name)
    monkeypatch.setitem(table, key, value)
    assert not agree(name)


@pytest.mark.parametrize("fault", TABLES)
def test_wrong_table(fault, monkeypatch):
    table, value, name = TABLES[fault]
    assert agree(name)
    monkeypatch.setattr(lower_ttir, table, value)
    assert not agree(name)
