"""Everything private of torch that the suite uses, in one place. Checked on torch 2.13.0."""

import contextlib
import importlib
import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

os.environ.setdefault(
    "PYTORCH_TEST_WITH_SLOW", "1"
)  # read at the import; slow on the CPU is seconds, not a reason to skip

import torch
from torch.testing._internal import common_optimizers
from torch.testing._internal.common_device_type import (
    OpDTypes,
    PrivateUse1TestBase,
    instantiate_device_type_tests,
    ops,
)
from torch.testing._internal.common_methods_invocations import (
    foreach_binary_op_db,
    foreach_other_op_db,
    foreach_pointwise_op_db,
    foreach_reduce_op_db,
    foreach_unary_op_db,
)
from torch.testing._internal.common_methods_invocations import (
    op_db as every_operator,
)
from torch.testing._internal.common_modules import module_db, modules
from torch.testing._internal.common_optimizers import optim_db, optims
from torch.testing._internal.common_utils import TestCase, noncontiguous_like

__all__ = [
    "OpDTypes",
    "TestCase",
    "capturable_on_the_cpu",
    "foreach_op_db",
    "instantiate",
    "module_db",
    "modules",
    "noncontiguous_like",
    "op_db",
    "ops",
    "optim_db",
    "optimizer_error_inputs",
    "optimizer_inputs",
    "optims",
]

#: all but those that compile CUDA source at run time: torch's own decorators skip them everywhere else
op_db = [op for op in every_operator if not op.name.startswith("jiterator_")]

foreach_op_db = [
    *foreach_unary_op_db,
    *foreach_binary_op_db,
    *foreach_pointwise_op_db,
    *foreach_reduce_op_db,
    *foreach_other_op_db,
]


def instantiate(test_class: type, scope: dict[str, Any]) -> None:
    """Makes the tests of a template for accel in ``scope``, under names that do not depend on what ran before."""
    # torch puts the device's name into the class only once some test class was set up.
    PrivateUse1TestBase.setUpClass()
    instantiate_device_type_tests(test_class, scope, only_for="privateuse1")


def optimizer_inputs(info: Any, dtype: torch.dtype) -> list[Any]:
    """All sets of options of an optimizer; the database gives those with ``capturable`` to CUDA only."""
    return info.optim_inputs_func("cuda", dtype)


def optimizer_error_inputs(info: Any, device: str, dtype: torch.dtype, role: str) -> list[Any]:
    """Wrong options and parameters on ``device``: those that the database has for a device of type ``role``."""
    with mock.patch.object(common_optimizers, "_get_device_type", lambda _: role):
        return info.optim_error_inputs_func(device, dtype)


@contextlib.contextmanager
def capturable_on_the_cpu() -> Iterator[None]:
    """Optimizers take ``capturable=True`` for parameters on the CPU, which nothing but a list of devices forbids."""
    with contextlib.ExitStack() as stack:
        for name in ("adadelta", "adam", "adamax", "asgd", "nadam", "radam", "rmsprop", "rprop"):
            module = importlib.import_module(f"torch.optim.{name}")
            plain = module._get_capturable_supported_devices

            def extended(*args: Any, plain: Any = plain, **kwargs: Any) -> list[str]:
                return [*plain(*args, **kwargs), "cpu"]

            stack.enter_context(mock.patch.object(module, "_get_capturable_supported_devices", extended))
        yield
