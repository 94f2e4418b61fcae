"""The kinds of tests of operators: which operators of a database and which dtypes each of them takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from . import checks
from .calls import name_of
from .compare import Tally
from .judge import judge
from .torch_internals import OpDTypes, TestCase, ops


def _every(op: Any) -> bool:
    """Applies to all operators."""
    return True


@dataclass(frozen=True)
class Kind:
    """One kind of test."""

    #: compares one operator in one dtype
    check: Callable[[Any, Any, Tally], None]
    #: the dtypes it takes, of those that the category offers; None: all
    dtypes: Sequence[torch.dtype] | None = None
    #: the operators it takes
    applies: Callable[[Any], bool] = _every
    #: dtypes of the forward, of the backward, or no dtype at all
    category: Any = OpDTypes.supported

    @property
    def name(self) -> str:
        """The name in test ids and in known_failures.py."""
        return self.check.__name__


_NARROW = (torch.float32, torch.int64, torch.complex64)
_WRITTEN = (torch.float32, torch.int64, torch.bfloat16, torch.complex64)
_DIFFERENTIABLE = (torch.float32, torch.float64, torch.bfloat16, torch.complex64)
_EXACT = (torch.float64, torch.int64, torch.complex128)  # in a narrower dtype NumPy is no oracle
_BACKWARD = OpDTypes.supported_backward

KINDS = (
    Kind(checks.forward),
    Kind(checks.noncontiguous, _NARROW),
    Kind(checks.conj_view, (torch.complex64,)),
    Kind(checks.neg_view, (torch.float32, torch.complex64)),
    Kind(checks.zero_size, (torch.float32, torch.int64)),
    Kind(checks.reference, _EXACT, lambda op: callable(op.ref)),
    Kind(checks.in_place, _WRITTEN, lambda op: op.get_inplace() is not None),
    Kind(checks.out, _WRITTEN, lambda op: op.supports_out),
    Kind(checks.errors, None, lambda op: op.error_inputs_func is not None, OpDTypes.none),
    Kind(checks.backward, _DIFFERENTIABLE, category=_BACKWARD),
    Kind(checks.forward_mode, (torch.float32, torch.complex64), lambda op: op.supports_forward_ad, _BACKWARD),
    Kind(checks.second_backward, (torch.float32, torch.complex64), lambda op: op.supports_gradgrad, _BACKWARD),
)

#: of lists of tensors
FOREACH_KINDS = (
    Kind(checks.forward),
    Kind(checks.in_place, None, lambda op: op.get_inplace() is not None),
    Kind(checks.backward, _DIFFERENTIABLE, lambda op: op.supports_autograd, _BACKWARD),
)


def _method(kind: Kind, database: Sequence[Any]) -> Callable[..., None]:
    def test(self: TestCase, device: str, op: Any, dtype: torch.dtype | None = None) -> None:
        judge(kind.name, name_of(op), dtype, partial(kind.check, op, dtype))

    test.__name__ = f"test_{kind.name}"
    test.__doc__ = kind.check.__doc__
    chosen = [op for op in database if kind.applies(op)]
    return ops(chosen, dtypes=kind.category, allowed_dtypes=kind.dtypes)(test)


def operator_tests(name: str, database: Sequence[Any], kinds: Sequence[Kind], module: str) -> type[TestCase]:
    """A template for ``instantiate_device_type_tests``: a method for each kind of test."""
    methods = {f"test_{kind.name}": _method(kind, database) for kind in kinds}
    return type(name, (TestCase,), {**methods, "__module__": module})
