"""Compares accel with the CPU over torch's operator database (``op_db``), sample by sample.

Run as a program it prints a table and, with ``--json``, writes every failure::

    ACCEL_RNG=cpu python -m torch_accel.testing.op_db --samples 3

The denominator is all of ``op_db``: an operator without a usable sample, or one that cannot run here,
counts as a failure. Random operators are compared too, since ``ACCEL_RNG=cpu`` draws the CPU's numbers.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

from .._native import _C

#: operators whose further tensors stay on the CPU for every device
INDICES_ON_CPU = {"tensor_split"}
#: the dtypes that the first-light figure counts
DTYPES = (torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64)


@dataclass(frozen=True)
class Failure:
    """One sample on which accel and the CPU differ."""

    #: operator, with its variant
    op: str
    #: dtype of the sample
    dtype: str
    #: index of the sample, -1 if the samples could not be made
    sample: int
    #: what went wrong: first line of the error
    reason: str


def to_device(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """A copy of a strided CPU tensor with the same storage layout: offset, strides, overlap, conj and neg bits."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        return tensor.to(device)
    requires_grad = tensor.requires_grad
    tensor = tensor.detach()
    plain = torch._neg_view(tensor) if tensor.is_neg() else tensor
    plain = plain.conj() if plain.is_conj() else plain
    storage = torch.empty(0, dtype=plain.dtype).set_(plain.untyped_storage())
    copy = storage.to(device).as_strided(plain.size(), plain.stride(), plain.storage_offset())
    copy = copy.conj() if tensor.is_conj() else copy
    copy = torch._neg_view(copy) if tensor.is_neg() else copy
    return copy.requires_grad_(requires_grad)


def _move(value: Any, device: str) -> Any:
    def convert(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return to_device(leaf, device)
        if leaf in ("cpu", torch.device("cpu")):
            return torch.device(device)
        return leaf

    return tree_map(convert, value)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return (
        tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)
    )


def members(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The dense tensors that a tensor of any layout consists of; those of a COO tensor once it is coalesced."""
    if tensor.is_nested:
        return list(tensor.unbind())
    if tensor.layout == torch.sparse_coo:
        tensor = tensor.coalesce()
        return [tensor.indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor]


def compare(actual: Any, expected: Any) -> bool:
    """True if bit-equal; raises AssertionError if not even close."""
    actual_leaves, actual_spec = tree_flatten(actual)
    expected_leaves, expected_spec = tree_flatten(expected)
    if len(actual_leaves) != len(expected_leaves):
        raise AssertionError(f"structure {actual_spec} instead of {expected_spec}")
    exact = True
    for a, e in zip(actual_leaves, expected_leaves, strict=True):
        if not isinstance(e, torch.Tensor):
            if a != e and not (a != a and e != e):
                raise AssertionError(f"{a!r} instead of {e!r}")
            continue
        if a.device.type == "cpu":
            raise AssertionError("the result is on the CPU")
        host = a.detach().cpu()
        e = e.detach()
        if host.layout != e.layout:
            raise AssertionError(f"{host.layout} instead of {e.layout}")
        for mine, theirs in zip(members(host), members(e), strict=True):
            if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
                raise AssertionError(f"{mine.dtype}{list(mine.shape)} instead of {theirs.dtype}{list(theirs.shape)}")
            if not torch.equal(_bits(mine), _bits(theirs)):
                exact = False
                torch.testing.assert_close(mine, theirs, equal_nan=True)
    return exact


def _run(name: str, function: Callable[..., Any], sample: Any, device: str) -> Any:
    args = (sample.input, *sample.args)
    kwargs = sample.kwargs
    if device != "cpu":
        if name in INDICES_ON_CPU:
            args = (_move(args[0], device), *args[1:])
        else:
            args, kwargs = _move((args, kwargs), device)
    torch.manual_seed(0)
    return function(*args, **kwargs)


def _is_undefined(name: str) -> bool:
    # empty and its kin promise no values: only shapes and dtypes can be compared.
    return name.split(".")[-1] in {
        "empty",
        "empty_like",
        "empty_strided",
        "empty_permuted",
        "new_empty",
        "new_empty_strided",
    }


def _fallbacks() -> int:
    return sum(times for _, times in _C._fallback_counts())


def check_operator(
    op: Any, dtype: torch.dtype, samples: int, device: str = "accel"
) -> tuple[int, int, int, list[Failure]]:
    """Runs up to `samples` sample inputs of an OpInfo on the CPU and on `device`.

    Returns (samples run, samples bit-equal, samples without a fallback, failures).
    """
    name = op.full_name if hasattr(op, "full_name") else op.name
    run = exact = queued = 0
    failures = []

    def fail(index: int, error: BaseException) -> None:
        lines = [line for line in str(error).splitlines() if line.strip()]
        failures.append(Failure(name, str(dtype), index, f"{type(error).__name__}: {lines[0][:200] if lines else ''}"))

    try:
        inputs: list[Any] = []
        torch.manual_seed(0)
        for sample in op.sample_inputs("cpu", dtype, requires_grad=False):
            if len(inputs) == samples:
                break
            inputs.append(sample)
    except Exception as error:  # a broken sample generator is a failure like any other
        fail(-1, error)
        return run, exact, queued, failures
    for index, sample in enumerate(inputs):
        # Both sides start from their own copies: in-place operators must not see the other's result.
        before = _fallbacks()
        try:
            actual = _run(name, op.op, sample, device)
        except Exception as error:
            actual = error
        queued += _fallbacks() == before
        try:
            expected = _run(name, op.op, sample, "cpu")
        except Exception as error:
            expected = error
        run += 1
        if isinstance(expected, Exception):
            same = type(actual) is type(expected)
            exact += same
            if not same:
                fail(index, AssertionError(f"the CPU raises {expected!r}, accel gives {actual!r}"))
            continue
        try:
            if isinstance(actual, Exception):
                raise actual
            if _is_undefined(name):
                actual, expected = tree_map(lambda t: torch.zeros_like(t), (actual, expected))
            exact += compare(actual, expected)
        except Exception as error:
            fail(index, error)
    return run, exact, queued, failures


def _selected(shard: int, shards: int, names: list[str]) -> Iterator[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    for index, op in enumerate(sorted(op_db, key=lambda o: (o.name, o.variant_test_name))):
        full = op.full_name if hasattr(op, "full_name") else op.name
        if index % shards == shard and (not names or full in names):
            yield op


def main(argv: list[str] | None = None) -> int:
    """The program; returns the number of operators that differ."""
    parser = argparse.ArgumentParser(prog="python -m torch_accel.testing.op_db", description=__doc__)
    parser.add_argument("--samples", type=int, default=3, help="samples per operator and dtype")
    parser.add_argument("--shard", default="0/1", help="K/N: every N-th operator, from the K-th")
    parser.add_argument("--json", help="write the result to this file")
    parser.add_argument("--op", action="append", default=[], help="only this operator (repeatable)")
    options = parser.parse_args(argv)
    shard, shards = map(int, options.shard.split("/"))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    failures: list[Failure] = []
    operators = run = exact = queued = 0
    for op in _selected(shard, shards, options.op):
        operators += 1
        for dtype in DTYPES:
            if dtype in op.dtypes:
                counts = check_operator(op, dtype, options.samples)
                run, exact, queued = run + counts[0], exact + counts[1], queued + counts[2]
                failures += counts[3]
    failed = {f.op for f in failures}
    print(
        f"operators {operators - len(failed)}/{operators}, samples {run - len(failures)}/{run}, "
        f"bit-equal {exact}/{run}, without a fallback {queued}/{run}"
    )
    for reason, times in Counter(f.reason.split(":")[0] for f in failures).most_common():
        print(f"  {times:5d} {reason}")
    for failure in failures:
        print(f"  {failure.op} {failure.dtype} sample {failure.sample}: {failure.reason}")
    if options.json:
        result: dict[str, Any] = {"operators": operators, "samples": run, "exact": exact, "queued": queued}
        result["failures"] = [asdict(f) for f in failures]
        with open(options.json, "w") as file:
            json.dump(result, file, indent=1)
    return len(failed)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
