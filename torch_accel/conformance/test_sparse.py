"""Every operator of ``op_db`` that has samples of a sparse layout, in each of its layouts."""

import itertools
from functools import partial
from typing import Any

import torch

from . import checks
from .calls import name_of
from .judge import judge
from .torch_internals import TestCase, instantiate, op_db, ops

LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
CHECKS = (checks.sparse_forward, checks.sparse_backward)
DTYPES = {
    checks.sparse_forward: (torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.int64, torch.bool),
    checks.sparse_backward: (torch.float32, torch.float64, torch.complex64),
}


def method(check: Any, layout: torch.layout) -> Any:
    """The test of one check in one layout."""
    label = str(layout).removeprefix("torch.")
    backward = check is checks.sparse_backward

    def test(self: Any, device: str, dtype: torch.dtype, op: Any) -> None:
        judge(check.__name__, f"{name_of(op)} {label}", dtype, partial(check, op, layout, dtype))

    test.__name__ = f"test_{check.__name__}_{label}"
    chosen = [op for op in op_db if op.supports_sparse_layout(layout) and (op.supports_autograd or not backward)]
    return ops(chosen, allowed_dtypes=DTYPES[check])(test)


METHODS = [method(check, layout) for check, layout in itertools.product(CHECKS, LAYOUTS)]
TestSparse = type("TestSparse", (TestCase,), {"__module__": __name__, **{m.__name__: m for m in METHODS}})
instantiate(TestSparse, globals())
