"""Every module of ``module_db``: see module_checks.py for what each kind of test compares."""

import copy
from functools import partial
from typing import Any

import torch

from . import module_checks
from .judge import judge
from .torch_internals import TestCase, instantiate, module_db, modules

CHECKS = (
    module_checks.forward,
    module_checks.noncontiguous,
    module_checks.backward,
    module_checks.transfer,
    module_checks.pickling,
)

DTYPES = (torch.float32, torch.bfloat16)


def widened(info: Any) -> Any:
    """A module of the database with all of DTYPES: the database names float32 and float64 for nearly every one."""
    info = copy.copy(info)
    info.dtypes = DTYPES
    return info


def method(check: Any) -> Any:
    """The test of one check."""

    def test(self: Any, device: str, dtype: torch.dtype, module_info: Any, training: bool) -> None:
        mode = "train" if training else "eval"
        name = f"{module_info.name} {mode}" if module_info.train_and_eval_differ else module_info.name
        judge(f"module_{check.__name__}", name, dtype, partial(check, module_info, dtype, training))

    test.__name__ = f"test_{check.__name__}"
    return modules([widened(info) for info in module_db], allowed_dtypes=DTYPES)(test)


TestModules = type(
    "TestModules", (TestCase,), {"__module__": __name__, **{f"test_{c.__name__}": method(c) for c in CHECKS}}
)
instantiate(TestModules, globals())
