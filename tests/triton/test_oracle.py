"""The tile interpreter against Triton's own (TRITON_INTERPRET=1), an oracle for integers, float32 and float64."""

import numpy as np
import pytest

from tests.triton.corpus import cases, run_both

SCRIPT = """
    import sys, warnings
    import numpy as np, torch
    from tests.triton.corpus import cases, copied
    warnings.simplefilter("ignore")
    results = {{}}
    for name in {names!r}:
        case = cases()[name]
        types = case.types()
        given = [torch.from_numpy(v) if isinstance(v, np.ndarray) else v for v in copied(case.arguments())]
        named = dict(zip((n for n in types if types[n] != "constexpr"), given))
        case.kernel[case.grid](**named, **case.constants)
        results.update({{f"{{name}}/{{i}}": v.numpy() for i, v in enumerate(given) if isinstance(v, torch.Tensor)}})
    np.savez({path!r}, **results)
"""
# It keeps bf16 and the 8-bit floats as other types, or rounds toward zero.
SMALL_FLOATS = ("bf16", "fp16", "fp8")
FAILS = {
    "int_ops-u8": "it wraps -1 in Python, which raises",
    "int_ops-u32": "the same",
    "int_ops-u64": "the same",
    "mapped": "it has no map_elementwise",
    "returning_early": "the same",
}
# Where it differs, and why: by the kernel's name, or by the case's.
DIFFERS = {
    "float_ops": "NaN in its maximum is NaN under both rules",
    "more_math": "the same, and its float to int does not saturate",
    "float_ops_f32": "its fma rounds twice",
    "math_functions": "NumPy's float32 functions are off by ulps",
    "int_ops": "its x % 0 is 0",
    **{f"cast-{old}-{new}": "its float to int does not saturate" for old in ("fp32", "fp64") for new in ("i8", "i16", "i32", "i64", "u8", "u32")},
    **dict.fromkeys(("row_sum", "softmax", "welford"), "its sums are NumPy's, in another order"),
    "reduce_with_branch": "the combination is not associative: the order decides",
    **dict.fromkeys(("product-fp32", "batched", "matmul", "attention"), "its products are NumPy's, in another order"),
}  # fmt: skip
ROUNDING = (
    "row_sum",
    "softmax",
    "welford",
    "product-fp32",
    "batched",
    "matmul",
    "attention",
    "float_ops_f32",
    "math_functions",
)
NAMES = [
    name
    for name, case in cases().items()
    if name not in FAILS and not any(small in type for type in case.types().values() for small in SMALL_FLOATS)
]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    return tmp_path_factory.mktemp("oracle") / "results.npz"


@pytest.mark.parametrize("name", NAMES)
def test_same_as_triton_interpreter(name, oracle, script):
    if not oracle.exists():  # one process for all cases
        script(SCRIPT.format(names=NAMES, path=str(oracle)), timeout=240, TRITON_INTERPRET=1)
    case = cases()[name]
    ours = run_both(case)[1]
    theirs = np.load(oracle)
    reason = DIFFERS.get(name) or DIFFERS.get(case.kernel.fn.__name__)
    same = [
        np.array_equal(v, theirs[f"{name}/{i}"], equal_nan=v.dtype.kind == "f")
        for i, v in enumerate(ours)
        if isinstance(v, np.ndarray)
    ]
    if case.rtol or name.startswith(ROUNDING):
        for i, v in enumerate(ours):
            if isinstance(v, np.ndarray):
                np.testing.assert_allclose(v, theirs[f"{name}/{i}"], rtol=2e-4, atol=case.atol)
    assert all(same) or case.rtol or reason, "it differs, and DIFFERS has no reason"


def test_every_reason_is_needed(oracle, script):
    """A reason whose cases all agree is out of date."""
    if not oracle.exists():
        script(SCRIPT.format(names=NAMES, path=str(oracle)), timeout=240, TRITON_INTERPRET=1)
    theirs = np.load(oracle)
    needed = set()
    for name in NAMES:
        reason = name if name in DIFFERS else cases()[name].kernel.fn.__name__
        if reason in DIFFERS and reason not in needed:
            ours = run_both(cases()[name])[1]
            if not all(
                np.array_equal(v, theirs[f"{name}/{i}"], equal_nan=v.dtype.kind == "f")
                for i, v in enumerate(ours)
                if isinstance(v, np.ndarray)
            ):
                needed.add(reason)
    assert needed == set(DIFFERS)
