"""The table of torch's kernels that run as they are on sparse and nested accel tensors."""

import re
from pathlib import Path

import pytest
import torch

SOURCE = Path(__file__).resolve().parents[2] / "csrc/aten/neutral.cpp"
KEYS = {
    "kAnyLayout": {"Sparse", "SparseCsr"},
    "kCoo": {"Sparse"},
    "kCompressed": {"SparseCsr"},
    "kNested": {"NestedTensor"},
}


def names(table):
    body = re.search(rf"{table} = std::to_array<std::string_view>\({{(.*?)}}\)", SOURCE.read_text(), re.DOTALL).group(1)
    return re.findall(r'"([^"]+)"', body)


def has_kernel(name, key):
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key)


@pytest.mark.parametrize("table", KEYS)
def test_each_name_is_a_kernel_of_the_cpu(table):
    listed = names(table)
    assert len(listed) > 5 and listed == sorted(listed) and len(set(listed)) == len(listed)
    for name in listed:
        for kind in KEYS[table]:
            assert has_kernel(name, f"{kind}CPU"), f"{name} has no kernel for {kind}CPU"
            assert has_kernel(name, f"{kind}PrivateUse1"), f"{name} has none for {kind}PrivateUse1"


def test_each_function_keeps_zeros():
    """Else it could not be computed on the values alone."""
    for name in names("kUnary"):
        kinds = ("SparseCPU", "SparseCsrCPU", "NestedTensorCPU")
        assert any(has_kernel(f"{name}{form}", kind) for form in ("", "_", ".out") for kind in kinds), name
        assert getattr(torch, name)(torch.zeros(1)).float().item() == 0
