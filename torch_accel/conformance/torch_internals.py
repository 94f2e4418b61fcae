"""Everything private of torch that the suite uses, in one place. Checked on torch 2.13.0."""

import os
from typing import Any

os.environ.setdefault(
    "PYTORCH_TEST_WITH_SLOW", "1"
)  # read at the import; slow on the CPU is seconds, not a reason to skip

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
from torch.testing._internal.common_utils import TestCase, noncontiguous_like

__all__ = [
    "OpDTypes",
    "TestCase",
    "foreach_op_db",
    "instantiate",
    "module_db",
    "modules",
    "noncontiguous_like",
    "op_db",
    "ops",
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
