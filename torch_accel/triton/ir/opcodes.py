"""Opcodes of the operators that stand for many: elementwise, cast, cmp, atomic_rmw. Integers have no sign; the opcode has.

``docs/semantics.md`` states what each computes.
"""

from __future__ import annotations

# opcode: (operands, elements they are made for)
ELEMENTWISE: dict[str, tuple[int, str]] = {
    **dict.fromkeys(("addi", "subi", "muli", "divsi", "divui", "remsi", "remui", "mulhiui"), (2, "int")),
    **dict.fromkeys(("andi", "ori", "xori", "shli", "shrsi", "shrui"), (2, "int")),
    **dict.fromkeys(("minsi", "minui", "maxsi", "maxui"), (2, "int")),
    **dict.fromkeys(("addf", "subf", "mulf", "divf", "remf"), (2, "float")),
    # maximumf and minimumf give NaN when an operand is NaN; maxnumf and minnumf give the other operand.
    **dict.fromkeys(("maximumf", "minimumf", "maxnumf", "minnumf"), (2, "float")),
    **dict.fromkeys(("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "erf"), (1, "float")),
    **dict.fromkeys(("floor", "ceil", "absf", "negf"), (1, "float")),
    "absi": (1, "int"),
    "fma": (3, "float"),
    "addptr": (2, "ptr"),  # address + index of an element
}

# kind: (elements of the operand, elements of the result)
CASTS = {
    "extsi": ("int", "int"),
    "extui": ("int", "int"),
    "trunci": ("int", "int"),
    "sitofp": ("int", "float"),
    "uitofp": ("int", "float"),
    "fptosi": ("float", "int"),
    "fptoui": ("float", "int"),
    "float": ("float", "float"),
}

_SIGNED = ("eq", "ne", "slt", "sle", "sgt", "sge")
_UNSIGNED = ("ult", "ule", "ugt", "uge")
# In the order of MLIR's numbers.
INT_PREDICATES = (*_SIGNED, *_UNSIGNED)
FLOAT_PREDICATES = (
    *("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord"),
    *("ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true"),
)

# Triton's enumerations, which the generic form prints as numbers. Tests compare them with Triton's bindings.
ATOMICS = {1: "and", 2: "or", 3: "xor", 4: "add", 5: "fadd", 6: "max", 7: "min", 8: "umax", 9: "umin", 10: "xchg"}
SEMANTICS = {1: "relaxed", 2: "acquire", 3: "release", 4: "acq_rel"}
SCOPES = {1: "device", 2: "core", 3: "system"}
CACHES = {1: "", 2: "ca", 3: "cg", 4: "wb", 5: "cs", 6: "wt", 7: "cv"}
EVICTIONS = {1: "", 2: "first", 3: "last"}
PRECISIONS = {0: "tf32", 1: "tf32x3", 2: "ieee", 3: "bf16x3", 4: "bf16x6"}
ROUNDINGS = {0: "rtz", 1: "rtne"}
SCALED_KINDS = {0: "e4m3", 1: "e5m2", 2: "e2m3", 3: "e3m2", 4: "e2m1", 5: "bf16", 6: "fp16"}
