"""Every optimizer of ``optim_db``: see optimizer_checks.py for what each kind of test compares."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from . import optimizer_checks as checks
from .judge import judge
from .torch_internals import TestCase, instantiate, optim_db, optims

REAL = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
NARROW = (torch.float32, torch.bfloat16)


def _every(info: Any) -> bool:
    return not info.only_supports_sparse_grads


def _with(implementation: str) -> Callable[[Any], bool]:
    return lambda info: implementation in info.supported_impls


#: check -> its dtypes, and the optimizers that it takes
KINDS: dict[Any, tuple[Sequence[torch.dtype], Callable[[Any], bool]]] = {
    checks.forloop: (REAL, _every),
    checks.foreach: (REAL, _with("foreach")),
    checks.fused: (REAL, _with("fused")),
    checks.differentiable: ((torch.float32, torch.float64), _with("differentiable")),
    checks.device_options: (NARROW, _every),
    checks.groups: (NARROW, lambda info: _every(info) and info.supports_param_groups),
    checks.sparse: (NARROW, lambda info: info.supports_sparse or info.only_supports_sparse_grads),
    checks.reference: ((torch.float64,), _every),
    checks.schedulers: (NARROW, _every),
    checks.travel: (NARROW, _every),
    checks.errors: ((torch.float32,), lambda info: info.optim_error_inputs_func is not None),
}
COMPLEX = {checks.forloop, checks.foreach, checks.differentiable}


def method(check: Any, suffix: str, dtypes: Sequence[torch.dtype], infos: list[Any]) -> dict[str, Any]:
    """The test of one check, by its name."""

    def test(self: Any, device: str, dtype: torch.dtype, optim_info: Any) -> None:
        judge(f"optimizer_{check.__name__}", optim_info.name, dtype, partial(check, optim_info, dtype))

    test.__name__ = f"test_{check.__name__}{suffix}"
    test.__doc__ = check.__doc__
    return {test.__name__: optims(infos, dtypes=dtypes)(test)}


METHODS: dict[str, Any] = {}
for check, (dtypes, applies) in KINDS.items():
    chosen = [info for info in optim_db if applies(info)]
    METHODS |= method(check, "", dtypes, chosen)
    if check in COMPLEX:
        METHODS |= method(check, "_complex", (torch.complex64,), [info for info in chosen if info.supports_complex])
TestOptimizers = type("TestOptimizers", (TestCase,), {"__module__": __name__, **METHODS})
instantiate(TestOptimizers, globals())
