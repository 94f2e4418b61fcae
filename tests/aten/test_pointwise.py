"""The short cut of pointwise operators past their meta functions: what it takes, and what it must leave, is the CPU's."""

import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "csrc/aten/codegen"))
import generate  # noqa: E402

BINARY = sorted(name for name in generate.POINTWISE if name.endswith((".Tensor", "_backward")))
UNARY = sorted(generate.POINTWISE - set(BINARY))

#: pairs of operands: alike, and each way not to be
PAIRS = {
    "alike": lambda: (torch.rand(3, 4), torch.rand(3, 4)),
    "one tensor twice": lambda: (torch.rand(3, 4),) * 2,
    "double": lambda: (torch.rand(3, 4).double(), torch.rand(3, 4).double()),
    "half": lambda: (torch.rand(3, 4).half(), torch.rand(3, 4).half()),
    "bfloat16": lambda: (torch.rand(3, 4).bfloat16(), torch.rand(3, 4).bfloat16()),
    "empty": lambda: (torch.rand(0, 4), torch.rand(0, 4)),
    "two views": lambda: (torch.rand(6, 4)[:3], torch.rand(6, 4)[3:]),
    "0-dim": lambda: (torch.rand(()), torch.rand(())),
    "broadcast": lambda: (torch.rand(3, 4), torch.rand(4)),
    "transposed": lambda: (torch.rand(4, 3).t(), torch.rand(3, 4)),
    "both transposed": lambda: (torch.rand(4, 3).t(), torch.rand(4, 3).t()),
    "channels last": lambda: tuple(torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last) for _ in range(2)),
    "both formats at once": lambda: tuple(torch.rand(2, 3, 1, 1).to(memory_format=torch.channels_last) for _ in "xy"),
    "two dtypes": lambda: (torch.rand(3, 4), torch.rand(3, 4).double()),
    "integers": lambda: (torch.arange(1, 13).view(3, 4), torch.arange(1, 13).view(3, 4)),
    "bool": lambda: (torch.ones(3, 4, dtype=torch.bool), torch.ones(3, 4, dtype=torch.bool)),
    "complex": lambda: (torch.rand(3, 4, dtype=torch.cfloat), torch.rand(3, 4, dtype=torch.cfloat)),
    "a number": lambda: (torch.rand(3, 4), 2.5),
}


def outcome(call, *operands):
    """What the call returns, or the first line of its error."""
    try:
        result = call(*operands)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return result.cpu(), result.stride(), result.dtype


def same(expected, found) -> None:
    if isinstance(expected, str):
        assert found == expected
        return
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=0, equal_nan=True)
    assert found[1:] == expected[1:]


def on(device: str, operands: tuple) -> list:
    """Copies there; an operand that comes twice is one tensor there, too."""
    copies = {id(o): o.clone().to(device) for o in operands if isinstance(o, torch.Tensor)}
    return [copies.get(id(o), o) for o in operands]


def cases():
    """Operator and kind of operands, where that operator takes them."""
    for name in (*BINARY, *UNARY):
        base = name.partition(".")[0]
        for pair in PAIRS:
            # Only the kernel finds out that it cannot broadcast: there the error rises at the synchronisation.
            if "_backward" in name and pair in ("a number", "broadcast"):
                continue
            yield base, pair
            if hasattr(torch.ops.aten, f"{base}_"):
                yield f"{base}_", pair


@pytest.mark.parametrize(("name", "pair"), cases())
def test_results_and_errors_are_the_cpus(name: str, pair: str):
    operands = PAIRS[pair]()[: 1 if name.rstrip("_") in UNARY else 2]
    call = getattr(torch.ops.aten, name)
    same(outcome(call, *on("cpu", operands)), outcome(call, *on("accel", operands)))


@pytest.mark.parametrize("alpha", [2, 0.5, True, 1j])
@pytest.mark.parametrize("name", ["add", "sub"])
@pytest.mark.parametrize("inplace", [False, True])
def test_factors(name: str, alpha, inplace: bool):
    call = getattr(torch.Tensor, f"{name}_" if inplace else name)
    expected, found = (
        outcome(lambda x, y: call(x, y, alpha=alpha), *on(device, (torch.full((2, 2), 3.0), torch.ones(2, 2))))
        for device in ("cpu", "accel")
    )
    same(expected, found)


def test_a_part_of_ones_own_memory_is_refused():
    x = torch.rand(8, device="accel")
    with pytest.raises(
        RuntimeError, match="unsupported operation: some elements of the input tensor and the written-to"
    ):
        x[1:].add_(x[:-1])
    assert x[:4].add_(x[4:]).shape == (4,)  # apart in one storage
