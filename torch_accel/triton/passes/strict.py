"""What a GPU does not promise, shown: a pass over the tile IR for kernels that are to run on GPUs too.

A masked lane of a load without ``other`` gets poison where accel gives 0, and float32 operands of a product in tf32 are rounded to
its 10 bits of mantissa, as the PTX instruction ``cvt.rna.tf32.f32`` does (ties away from zero), where accel computes in float32.
"""

from __future__ import annotations

from ..ir.core import Operation, Value
from ..ir.ops import attribute, groups
from ..ir.types import F32, I1, I32, Constant, Ptr, Scalar, Type, element, with_element

_KEPT = 0xFFFFE000  # sign, exponent and 10 bits of a float32
_HALF = 0x1000  # half of the last bit that is kept


def strict(module: Operation) -> Operation:
    """The module, changed in place."""
    for op in list(module.walk()):
        if op.name == "load" and groups(op)["mask"] and not groups(op)["other"]:
            op.operands.append(_constant(op, op.result.type, poison(element(op.result.type))))
            op.segments = None
        if op.name == "dot" and attribute(op, "precision") == "tf32" and element(op.operands[0].type) == F32:
            op.operands[:2] = [_rounded(op, operand) for operand in op.operands[:2]]
    return module


def poison(elem: Type) -> int:
    """The bits of a masked lane: NaN of a float, and of all others a number or an address that nobody means."""
    width = elem.width if isinstance(elem, Scalar) else 64
    assert isinstance(elem, (Scalar, Ptr))
    if isinstance(elem, Scalar) and elem.is_float:
        return 0x80 if elem.name.endswith("fnuz") else (1 << width) - 1
    return 0xA5A5_A5A5_A5A5_A5A5 & ((1 << width) - 1)


def _rounded(before: Operation, operand: Value) -> Value:
    """To nearest, ties away from zero; infinities and NaNs stay."""
    ints = with_element(operand.type, I32)
    half, kept = (_constant(before, ints, bits) for bits in (_HALF, _KEPT))
    bits = before.insert_before("bitcast", [operand], ints)
    more = before.insert_before("elementwise", [bits, half], ints, {"opcode": "addi"})
    cut = before.insert_before("elementwise", [more, kept], ints, {"opcode": "andi"})
    number = before.insert_before("bitcast", [cut], operand.type)
    nan = before.insert_before("cmp", [operand, operand], with_element(operand.type, I1), {"predicate": "uno"})
    return before.insert_before("select", [nan, operand, number], operand.type)


def _constant(before: Operation, type: Type, bits: int) -> Value:
    return before.insert_before("const", [], type, {"value": Constant(type, (bits,))})
