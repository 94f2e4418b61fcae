"""The checks of an operator of torch's databases: one function a kind of test, each comparing accel with the CPU."""

from __future__ import annotations

import difflib
import itertools
import re
import unittest
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves, tree_map_only

from .compare import Outcome, Replica, Tally, aliasing, attempt, normalised
from .torch_internals import noncontiguous_like

DEVICE = "accel"

#: operators whose tensors after the first stay on the CPU for every device
INDICES_ON_CPU = {"tensor_split"}
#: operators that promise no values: shapes, strides and dtypes are compared
UNDEFINED = {
    *("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"),
    *("resize_", "resize_as_"),  # what they add is uninitialised
}

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def name_of(op: Any) -> str:
    """The operator with its variant."""
    return str(getattr(op, "full_name", op.name))


def place(op: Any, sample: Any, device: str) -> Arguments:
    """The arguments of a sample on a device."""
    replica = Replica(device)
    first = replica(sample.input)
    if op.name in INDICES_ON_CPU:
        return (first, *sample.args), dict(sample.kwargs)
    return (first, *replica(sample.args)), replica(sample.kwargs)


def call(function: Callable[..., Any], arguments: Arguments, device: str) -> Any:
    """Calls with the device as the default one if no argument tells it."""
    args, kwargs = arguments
    if kwargs.get("device") is not None or tensors((args, kwargs)):
        return function(*args, **kwargs)
    with torch.device(device):
        return function(*args, **kwargs)


def _samples(op: Any, dtype: torch.dtype, requires_grad: bool = False) -> Iterator[Any]:
    return op.sample_inputs("cpu", dtype, requires_grad=requires_grad)


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of a structure."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def both(tally: Tally, label: object, run: Callable[[str], Any], **how: bool) -> None:
    """Compares ``run(device)`` with ``run("cpu")``; ``how``: see ``compare``."""
    actual = attempt(lambda: run(DEVICE))
    expected = attempt(lambda: run("cpu"))
    tally.check(label, actual, expected, **how)


# ---- Values


def forward_samples(op: Any, samples: Iterable[Any], tally: Tally) -> None:
    """Results for given samples, their strides, and which arguments they alias."""
    values = name_of(op).split(".")[-1] not in UNDEFINED
    for index, sample in enumerate(samples):

        def run(device: str, sample: Any = sample) -> Any:
            arguments = place(op, sample, device)
            result = call(op.op, arguments, device)
            return result, aliasing(arguments, result)

        both(tally, index, run, values=values)


def forward(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Results, their strides, and which arguments they alias."""
    forward_samples(op, _samples(op, dtype), tally)


def noncontiguous(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Every tensor argument is strided."""

    def strided(value: Any) -> Any:
        dense = isinstance(value, torch.Tensor) and value.layout == torch.strided
        return noncontiguous_like(value) if dense else value

    forward_samples(op, (sample.transform(strided) for sample in _samples(op, dtype)), tally)


def _viewed(op: Any, dtype: torch.dtype, view: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[Any]:
    def transform(value: Any) -> Any:
        suitable = isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
        return view(value) if suitable and value.layout == torch.strided else value

    return (sample.transform(transform) for sample in _samples(op, dtype))


def conj_view(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Every complex tensor argument is a conjugate view."""
    forward_samples(op, _viewed(op, dtype, lambda t: t.conj_physical().conj() if t.is_complex() else t), tally)


def neg_view(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Every floating tensor argument is a negated view."""
    forward_samples(op, _viewed(op, dtype, lambda t: torch._neg_view(t.neg())), tally)


def zero_size(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Every tensor is cut to nothing along the first dimension, then along the last."""

    def cut(dim: int) -> Iterator[Any]:
        def transform(value: Any) -> Any:
            whole = isinstance(value, torch.Tensor) and value.dim() > 0 and value.layout == torch.strided
            return value.narrow(dim, 0, 0) if whole else value

        return (sample.transform(transform) for sample in _samples(op, dtype))

    forward_samples(op, itertools.chain(cut(0), cut(-1)), tally)


def reference(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """The NumPy function of the database: an oracle that shares no kernel with accel.

    Where the CPU's result differs from NumPy's, the reference is wrong for torch and decides nothing.
    """

    def matches(result: Any, wanted: Any) -> None:
        leaves = result if isinstance(result, tuple | list) else (result,)
        references = wanted if isinstance(wanted, tuple | list) else (wanted,)
        for leaf, one in zip(leaves, references, strict=True):
            expected = torch.as_tensor(one).reshape(leaf.shape) if torch.as_tensor(one).dim() == 0 else one
            torch.testing.assert_close(leaf.cpu(), torch.as_tensor(expected), check_dtype=False, equal_nan=True)

    for index, sample in enumerate(_samples(op, dtype)):

        def run(device: str, sample: Any = sample) -> Any:
            return call(op.op, place(op, sample, device), device)

        plain = sample.numpy()
        wanted = attempt(lambda plain=plain: op.ref(plain.input, *plain.args, **plain.kwargs))  # type: ignore[misc]
        if wanted.error is not None:
            continue
        try:
            matches(run("cpu"), wanted.value)
        except Exception:
            continue
        actual = attempt(lambda run=run, wanted=wanted: matches(run(DEVICE), wanted.value))  # type: ignore[misc]
        tally.check(index, actual, Outcome())


# ---- Writing


def in_place(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """The method with an underscore: its result is its input, whose version moves."""
    function = op.get_inplace()
    for index, sample in enumerate(_samples(op, dtype)):

        def run(device: str, sample: Any = sample) -> Any:
            args, kwargs = place(op, sample, device)
            before = [t._version for t in tensors(args[0])]
            result = function(*args, **kwargs)
            moved = [t._version - v for t, v in zip(tensors(args[0]), before, strict=True)]
            return args[0], result is args[0], moved

        both(tally, index, run)


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
    for index, sample in enumerate(_samples(op, dtype)):
        args, kwargs = place(op, sample, "cpu")
        plain = attempt(lambda args=args, kwargs=kwargs: op.op(*args, **kwargs))  # type: ignore[misc]
        if plain.error is not None or not all(isinstance(t, torch.Tensor) for t in tree_leaves(plain.value)):
            continue
        for variant, make in OUT_VARIANTS.items():

            def run(device: str, sample: Any = sample, make: Any = make, plain: Any = plain.value) -> Any:
                args, kwargs = place(op, sample, device)
                target = tree_map_only(torch.Tensor, lambda t: make(t, device).fill_(1), plain)
                target = target if isinstance(target, torch.Tensor) else tuple(target)
                before = [t.data_ptr() for t in tensors(target)]
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    op.op(*args, **kwargs, out=target)
                kept = [t.data_ptr() == p for t, p in zip(tensors(target), before, strict=True)]
                texts = sorted({normalised(str(w.message)) for w in caught if "resized" in str(w.message)})
                return target, kept if variant != "empty" else None, texts  # noqa: B023

            both(tally, f"{index} {variant}", run, values=values)

        def elsewhere(sample: Any = sample, plain: Any = plain.value) -> Any:
            args, kwargs = place(op, sample, DEVICE)
            if not any(t.device.type == DEVICE for t in tensors((args, kwargs))):
                raise RuntimeError("no operand on the device")
            target = tree_map_only(torch.Tensor, torch.empty_like, plain)
            op.op(*args, **kwargs, out=target if isinstance(target, torch.Tensor) else tuple(target))

        wrong = attempt(elsewhere)
        if wrong.error is None:
            tally.fail(f"{index} wrong device", AssertionError("out= on the CPU is accepted"))
        else:
            tally.check(f"{index} wrong device", Outcome(), Outcome())


# ---- Errors


def _error_inputs(op: Any, device: str) -> list[Any]:
    with torch.device(device):  # some are built without naming the device
        return list(op.error_inputs(device))


def errors(op: Any, dtype: torch.dtype | None, tally: Tally) -> None:
    """``error_inputs``, built on each device: the same error at the call, with the same text.

    Those that exist for devices only (operands on two devices) must raise what the database says.
    """

    def run(error_input: Any) -> Outcome:
        sample = error_input.sample_input
        return attempt(lambda: op.op(sample.input, *sample.args, **sample.kwargs))

    mine, theirs = _error_inputs(op, DEVICE), _error_inputs(op, "cpu")
    keys = [[normalised(f"{e.error_type} {e.error_regex}") for e in side] for side in (mine, theirs)]
    pairs = {}
    for block in difflib.SequenceMatcher(None, *keys, autojunk=False).get_matching_blocks():
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


def seeded(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Random tensors of the same shapes, the same on every device."""
    generator = torch.Generator().manual_seed(1)
    result = []
    for t in tensors:
        if t.layout == torch.strided and not t.is_nested:
            result.append(torch.randn(t.shape, dtype=t.dtype, generator=generator).to(t.device))
        else:
            result.append(torch.ones_like(t))
    return result


def _graph(op: Any, sample: Any, device: str) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    args, kwargs = place(op, sample, device)
    inputs = [t for t in tensors((args, kwargs)) if t.requires_grad]
    torch.manual_seed(0)
    result = op.op(*args, **kwargs)
    outputs = [t for t in tensors(sample.output_process_fn_grad(result)) if t.requires_grad]
    return inputs, outputs


class _Join(torch.autograd.Function):
    """One root for several outputs: its backward gives each its cotangent.

    With several roots the engine's thread of a device may start before all of them are in its queue; gradients then add
    up in another order than on the CPU.
    """

    @staticmethod
    def forward(ctx: Any, count: int, *outputs_and_cotangents: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*outputs_and_cotangents[count:])
        return torch.zeros((), device=outputs_and_cotangents[0].device)

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> Any:
        return (None, *ctx.saved_tensors, *(None for _ in ctx.saved_tensors))


def grad(
    outputs: list[torch.Tensor], inputs: list[torch.Tensor], cotangents: list[torch.Tensor], create_graph: bool = False
) -> tuple[torch.Tensor | None, ...]:
    """``torch.autograd.grad``, adding up in the same order on every device."""
    root = _Join.apply(len(outputs), *outputs, *cotangents)  # type: ignore[no-untyped-call]
    return torch.autograd.grad(root, inputs, create_graph=create_graph, allow_unused=True)


def gradients(op: Any, sample: Any, device: str) -> Any:
    """Gradients of all inputs from seeded gradients of all outputs; None if there are none."""
    inputs, outputs = _graph(op, sample, device)
    if not inputs or not outputs:
        return None
    return grad(outputs, inputs, seeded(outputs))


def backward_samples(op: Any, samples: Iterable[Any], tally: Tally) -> None:
    """Gradients for given samples."""
    for index, sample in enumerate(samples):
        both(tally, index, lambda device, sample=sample: gradients(op, sample, device), strides=False)


def backward(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Gradients of all inputs from seeded gradients of all outputs."""
    backward_samples(op, _samples(op, dtype, requires_grad=True), tally)


def second_backward(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Gradients of gradients, of inputs and of the first gradients of outputs.

    The engine orders nodes by a counter of the thread that made them; those of the first gradients come from a device's
    own thread, so the second ones may add up in another order.
    """
    for index, sample in enumerate(_samples(op, dtype, requires_grad=True)):

        def run(device: str, sample: Any = sample) -> Any:
            inputs, outputs = _graph(op, sample, device)
            if not inputs or not outputs:
                return None
            cotangents = [t.requires_grad_() for t in seeded(outputs)]
            first = grad(outputs, inputs, cotangents, create_graph=True)
            again = [t for t in first if t is not None and t.requires_grad]
            if not again:
                return first
            return first, grad(again, inputs + cotangents, seeded(again))

        both(tally, index, run, strides=False, reordered=True)


def forward_mode(op: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Values and tangents under forward AD."""
    for index, sample in enumerate(_samples(op, dtype, requires_grad=True)):

        def run(device: str, sample: Any = sample) -> Any:
            args, kwargs = place(op, sample, device)
            with forward_ad.dual_level():
                inputs = [t for t in tensors((args, kwargs)) if t.requires_grad]
                tangents = iter(seeded(inputs))

                def dual(t: torch.Tensor) -> torch.Tensor:
                    return forward_ad.make_dual(t.detach(), next(tangents)) if t.requires_grad else t

                args, kwargs = tree_map_only(torch.Tensor, dual, (args, kwargs))
                torch.manual_seed(0)
                result = op.op(*args, **kwargs)
                return [tuple(forward_ad.unpack_dual(t)) for t in tensors(result)]

        both(tally, index, run, strides=False)


# ---- Sparse layouts


def sparse_samples(op: Any, layout: torch.layout, dtype: torch.dtype, requires_grad: bool) -> Iterator[Any]:
    """The samples of an operator with arguments of a sparse layout; none if the database has none."""
    try:
        yield from op.sample_inputs_sparse(layout, "cpu", dtype, requires_grad=requires_grad)
    except unittest.SkipTest:
        return


def sparse_forward(op: Any, layout: torch.layout, dtype: torch.dtype, tally: Tally) -> None:
    """Results for arguments of a sparse layout."""
    forward_samples(op, sparse_samples(op, layout, dtype, requires_grad=False), tally)


def sparse_backward(op: Any, layout: torch.layout, dtype: torch.dtype, tally: Tally) -> None:
    """Gradients for arguments of a sparse layout."""
    backward_samples(op, sparse_samples(op, layout, dtype, requires_grad=True), tally)
