"""The operators of torch's operator database that take sparse tensors, on accel against the CPU.

``operators(layout)`` are of the same interface as OpInfo with samples of that layout, for
:func:`torch_accel.testing.op_db.check_operator`. Run as a program it prints a line per layout and every failure::

    ACCEL_RNG=cpu python -m torch_accel.testing.sparse_db --samples 5
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import SkipTest

import torch

from .op_db import Failure, check_operator

LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16, torch.complex64)


class SparseOperator:
    """An OpInfo whose samples are of a sparse layout."""

    def __init__(self, op: Any, layout: torch.layout) -> None:
        self.op = op.op
        self.name = op.full_name if hasattr(op, "full_name") else op.name
        self.dtypes = op.dtypes
        self._info = op
        self._layout = layout

    def sample_inputs(self, device: str, dtype: torch.dtype, requires_grad: bool = False) -> Iterator[Any]:
        """The OpInfo's own sparse samples, or else its dense matrices in this layout."""
        try:
            yield from self._info.sample_inputs_sparse(self._layout, device, dtype, requires_grad=requires_grad)
        except (NotImplementedError, SkipTest):  # no sample function, or none for this layout
            for sample in self._info.sample_inputs(device, dtype, requires_grad=requires_grad):
                if isinstance(sample.input, torch.Tensor) and sample.input.dim() == 2 and 0 not in sample.input.shape:
                    sample.input = _to_layout(sample.input, self._layout)
                    yield sample


def _to_layout(matrix: torch.Tensor, layout: torch.layout) -> torch.Tensor:
    blocksize = (1, 1) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None
    return matrix.to_sparse(layout=layout, blocksize=blocksize)


def operators(layout: torch.layout) -> list[SparseOperator]:
    """All operators of ``op_db`` that claim to take tensors of ``layout``."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [SparseOperator(op, layout) for op in op_db if op.supports_sparse_layout(layout)]


def check_layout(layout: torch.layout, samples: int) -> tuple[int, int, list[Failure]]:
    """Compares up to ``samples`` samples of each operator and dtype; (samples run, bit-equal, failures)."""
    run = exact = 0
    failures: list[Failure] = []
    for op in operators(layout):
        for dtype in DTYPES:
            if dtype in op.dtypes:
                ran, equal, _, failed = check_operator(op, dtype, samples)
                run, exact = run + ran, exact + equal
                failures += failed
    return run, exact, failures


def main(argv: list[str] | None = None) -> int:
    """The program; returns the number of failures."""
    parser = argparse.ArgumentParser(prog="python -m torch_accel.testing.sparse_db", description=__doc__)
    parser.add_argument("--samples", type=int, default=5, help="samples per operator, dtype and layout")
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    count = 0
    for layout in LAYOUTS:
        run, exact, failures = check_layout(layout, options.samples)
        print(f"{layout}: samples {run - len(failures)}/{run}, bit-equal {exact}/{run}")
        for failure in failures:
            print(f"  {failure.op} {failure.dtype} sample {failure.sample}: {failure.reason}")
        count += len(failures)
    return count


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
