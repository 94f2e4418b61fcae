"""Which layer of accel runs an operator: told by the kernel that torch's dispatcher holds for it."""

from __future__ import annotations

import functools
import re
from collections import defaultdict

from .._compat import computed_kernel, has_computed_kernel, operator_names
from .._native import _C

#: layer -> what it means, in the order of the pages that list them
LAYERS = {
    "generated": "generated at the build from torch's description of structured operators; queued",
    "shape function": "its shapes are computed on the host by a row of one table; queued",
    "hand-written": "a kernel of its own in csrc/aten; queued, but for those that answer to the host",
    "composite": "made of other operators by torch, for every device",
    "fallback": "the CPU's kernel runs on device memory while the caller waits",
    "error": "no kernel for accel nor for the CPU, or one for the host's processor only: an error names accel",
}


@functools.cache
def _shape_functions() -> frozenset[str]:
    return frozenset(f"aten::{name}" for name in _C._shape_function_operators())


def layer_of(operator: str) -> str:
    """The layer of an operator with its overload, as ``aten::add.Tensor``."""
    where = computed_kernel(operator, "PrivateUse1")
    if operator in _shape_functions():
        return "shape function"
    if re.search(r"structured_\d+\.cpp", where):
        return "generated"
    if "csrc/aten/register.cpp" in where:
        packed = operator.startswith("aten::fbgemm_")
        return "fallback" if has_computed_kernel(operator, "CPU") and not packed else "error"
    if "csrc/" in where and "[kernel]" in where and "/torch/csrc/" not in where:
        return "hand-written"
    return "composite" if "[math kernel]" in where or "[default backend kernel]" in where else "error"


def base_name(operator: str) -> str:
    """The operator without namespace and overload."""
    return operator.removeprefix("aten::").split(".")[0]


def operators() -> dict[str, dict[str, str]]:
    """Base name -> {operator with overload: layer}, of every operator that torch describes for backends."""
    result: dict[str, dict[str, str]] = defaultdict(dict)
    for name in operator_names():
        result[base_name(name)][name] = layer_of(name)
    return dict(sorted(result.items()))
