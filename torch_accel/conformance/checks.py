"""The checks of an operator of torch's databases: one function a kind of test, each comparing accel with the CPU."""

from __future__ import annotations

import difflib
import itertools
import re
import unittest
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from . import calls
from .calls import DEVICE, name_of, samples_of
from .compare import Outcome, Tally, attempt, normalised, seed
from .torch_internals import noncontiguous_like

#: operators that promise no values: shapes, strides and dtypes are compared
UNDEFINED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
#: the same for zero sizes: the result is memory that was never written
UNDEFINED_OF_NOTHING = {"nn.functional.multi_margin_loss", "nn.functional.multilabel_margin_loss", "resize_"}


def both(tally: Tally, label: object, run: Callable[[str], Any], **how: Any) -> None:
    """Compares ``run(device)`` with ``run("cpu")``; ``how``: see ``compare``."""
    tally.check(label, attempt(run, DEVICE), attempt(run, "cpu"), **how)


def _dense(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


# ---- Values


def forward_samples(op: Any, samples: Iterable[Any], tally: Tally, values: bool = True) -> None:
    """Results for given samples, their strides, and which arguments they alias."""
    values = values and name_of(op).split(".")[-1] not in UNDEFINED
    for index, sample in enumerate(samples):
        both(tally, index, partial(calls.result_and_aliasing, op, sample), values=values)


def forward(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Results, their strides, and which arguments they alias."""
    forward_samples(op, samples_of(op, dtype), tally)


def noncontiguous(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Every tensor argument is strided."""

    def strided(value: Any) -> Any:
        return noncontiguous_like(value) if _dense(value) else value

    forward_samples(op, (sample.transform(strided) for sample in samples_of(op, dtype)), tally)


def conj_view(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Every complex tensor argument is a conjugate view."""

    def conj(value: Any) -> Any:
        return value.conj_physical().conj() if _dense(value) and value.is_complex() else value

    forward_samples(op, (sample.transform(conj) for sample in samples_of(op, dtype)), tally)


def neg_view(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Every floating or complex tensor argument is a negated view."""

    def neg(value: Any) -> Any:
        suitable = _dense(value) and (value.is_floating_point() or value.is_complex())
        return torch._neg_view(value.neg()) if suitable else value

    forward_samples(op, (sample.transform(neg) for sample in samples_of(op, dtype)), tally)


def zero_size(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Every tensor is cut to nothing along the first dimension, then along the last."""

    def cut(dim: int) -> Iterator[Any]:
        def transform(value: Any) -> Any:
            return value.narrow(dim, 0, 0) if _dense(value) and value.dim() > 0 else value

        return (sample.transform(transform) for sample in samples_of(op, dtype))

    forward_samples(op, itertools.chain(cut(0), cut(-1)), tally, values=name_of(op) not in UNDEFINED_OF_NOTHING)


def _match(value: Any, wanted: Any) -> None:
    leaves = value if isinstance(value, tuple | list) else (value,)
    references = wanted if isinstance(wanted, tuple | list) else (wanted,)
    for leaf, one in zip(leaves, references, strict=True):
        expected = torch.as_tensor(one)
        expected = expected.reshape(leaf.shape) if expected.dim() == 0 else expected
        torch.testing.assert_close(leaf.cpu(), expected, check_dtype=False, equal_nan=True)


def reference(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """The NumPy function of the database: an oracle that shares no kernel with accel.

    Where the CPU's result differs from NumPy's, the reference is wrong for torch and decides nothing.
    """
    for index, sample in enumerate(samples_of(op, dtype)):
        plain = sample.numpy()
        wanted = attempt(op.ref, plain.input, *plain.args, **plain.kwargs)
        if wanted.error is None and attempt(_match, calls.result(op, sample, "cpu"), wanted.value).error is None:
            actual = attempt(lambda s, w: _match(calls.result(op, s, DEVICE), w), sample, wanted.value)
            tally.check(index, actual, Outcome())


# ---- Writing


def in_place(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """The method with an underscore: its result is its input, whose version moves."""
    for index, sample in enumerate(samples_of(op, dtype)):
        both(tally, index, partial(calls.in_place, op, sample))


def _other_dtype(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.float32
    return torch.int64 if dtype.is_floating_point else torch.bool if dtype != torch.bool else torch.uint8


#: name -> the out= tensor for an expected result
OUT_VARIANTS: dict[str, Callable[[torch.Tensor, str], torch.Tensor]] = {
    "same": lambda t, device: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device),
    "empty": lambda t, device: torch.empty(0, dtype=t.dtype, device=device),
    "strided": lambda t, device: torch.empty((*t.shape, 2), dtype=t.dtype, device=device)[..., 1],
    "wrong shape": lambda t, device: torch.empty((*t.shape, 2), dtype=t.dtype, device=device),
    "wrong dtype": lambda t, device: torch.empty(t.shape, dtype=_other_dtype(t.dtype), device=device),
}


def out(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """``out=`` of every kind: values, strides, memory kept or resized, warnings and errors."""
    values = name_of(op) not in UNDEFINED
    for index, sample in enumerate(samples_of(op, dtype)):
        plain = attempt(calls.result, op, sample, "cpu")
        if plain.error is not None or not all(isinstance(t, torch.Tensor) for t in tree_leaves(plain.value)):
            continue
        for variant, make in OUT_VARIANTS.items():
            both(tally, f"{index} {variant}", partial(calls.into, op, sample, plain.value, make), values=values)
        if attempt(calls.into_the_cpu, op, sample, plain.value).error is None:
            tally.fail(f"{index} wrong device", AssertionError("out= on the CPU is accepted"))
        else:
            tally.check(f"{index} wrong device", Outcome(), Outcome())


# ---- Errors


def _error_inputs(op: Any, device: str) -> list[Any]:
    seed()
    with torch.device(device):  # some are built without naming the device
        return list(op.error_inputs_func(op, device))


def errors(op: Any, dtype: torch.dtype | None, tally: Tally) -> None:
    """``error_inputs``, built on each device: the same error at the call, with the same text.

    Those that exist for devices only (operands on two devices) must raise what the database says.
    """

    def run(error_input: Any) -> Outcome:
        sample = error_input.sample_input
        return attempt(op.op, sample.input, *sample.args, **sample.kwargs)

    mine, theirs = _error_inputs(op, DEVICE), _error_inputs(op, "cpu")
    keys = [[normalised(f"{e.error_type} {e.error_regex}") for e in side] for side in (mine, theirs)]
    pairs = {}
    for block in difflib.SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_matching_blocks():
        pairs.update({block.a + k: block.b + k for k in range(block.size)})
    for index, error_input in enumerate(mine):
        actual = run(error_input)
        if index in pairs:
            expected = run(theirs[pairs[index]])
        elif isinstance(actual.error, error_input.error_type) and re.search(error_input.error_regex, str(actual.error)):
            expected = actual
        else:
            expected = Outcome(error=error_input.error_type(error_input.error_regex))
        tally.check(index, actual, expected)


# ---- Derivatives


def backward_samples(op: Any, samples: Iterable[Any], tally: Tally) -> None:
    """Gradients for given samples."""
    for index, sample in enumerate(samples):
        both(tally, index, partial(calls.gradients, op, sample), strides=False)


def backward(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Gradients of all inputs from seeded gradients of all outputs."""
    backward_samples(op, samples_of(op, dtype, requires_grad=True), tally)


def second_backward(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Gradients of gradients, of inputs and of the first gradients of outputs."""
    for index, sample in enumerate(samples_of(op, dtype, requires_grad=True)):
        both(tally, index, partial(calls.second_gradients, op, sample), strides=False)


def forward_mode(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Values and tangents under forward AD."""
    for index, sample in enumerate(samples_of(op, dtype, requires_grad=True)):
        both(tally, index, partial(calls.tangents, op, sample), strides=False)


# ---- Sparse layouts


def _made_sparse(op: Any, layout: torch.layout, dtype: torch.dtype, requires_grad: bool) -> Iterator[Any]:
    """Dense samples with a matrix as their only tensor, half of it zero, in a sparse layout."""
    blocks = {"blocksize": (1, 1)} if layout in (torch.sparse_bsr, torch.sparse_bsc) else {}
    for sample in samples_of(op, dtype):
        if _dense(sample.input) and sample.input.dim() == 2 and not calls.tensors((sample.args, sample.kwargs)):
            holes = torch.arange(sample.input.numel()).view(sample.input.shape) % 2 == 0
            value = sample.input.masked_fill(holes, 0).to_sparse(layout=layout, **blocks)
            sample.input = value.requires_grad_(requires_grad)
            yield sample


def sparse_samples(op: Any, layout: torch.layout, dtype: torch.dtype, requires_grad: bool) -> Iterator[Any]:
    """The samples of an operator with arguments of a sparse layout; made of dense ones if the database has none."""
    seed()
    try:
        yield from op.sample_inputs_sparse(layout, "cpu", dtype, requires_grad=requires_grad)
    except unittest.SkipTest:
        return
    except NotImplementedError:
        yield from _made_sparse(op, layout, dtype, requires_grad)


def sparse_forward(op: Any, layout: torch.layout, dtype: torch.dtype, tally: Tally) -> None:
    """Results for arguments of a sparse layout."""
    forward_samples(op, sparse_samples(op, layout, dtype, requires_grad=False), tally)


def sparse_backward(op: Any, layout: torch.layout, dtype: torch.dtype, tally: Tally) -> None:
    """Gradients for arguments of a sparse layout."""
    backward_samples(op, sparse_samples(op, layout, dtype, requires_grad=True), tally)
