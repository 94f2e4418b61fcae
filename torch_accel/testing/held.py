"""Runs an operator behind a held stream and compares it with the CPU: the check of a row of the shape table."""

import contextlib
import os
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

from .._native import _C
from ..conformance.compare import Replica
from ..fallback import fallback_report
from . import hold_stream


def copied(value: Any, device: str) -> Any:
    """The same arguments on `device`, over storage of their own with the same layout."""

    def copy(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        storage = torch.empty(0, dtype=leaf.dtype).set_(leaf.untyped_storage().clone())
        own = storage.as_strided(leaf.size(), leaf.stride(), leaf.storage_offset())
        return own if device == "cpu" else Replica(device).tensor(own)

    return tree_map(copy, value)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor's elements, in row-major order."""
    dense = tensor.detach().resolve_conj().clone(memory_format=torch.contiguous_format)
    return dense.reshape(-1).view(torch.uint8)


def same(actual: Any, expected: Any) -> None:
    """Asserts equal bits, dtypes, shapes and strides of two structures of tensors."""
    mine, theirs = tree_flatten(actual)[0], tree_flatten(expected)[0]
    assert len(mine) == len(theirs)
    for i, (a, e) in enumerate(zip(mine, theirs)):
        if not isinstance(e, torch.Tensor):
            assert a == e or a is e
            continue
        assert a.device.type == "accel"
        assert (a.dtype, a.shape, a.stride()) == (e.dtype, e.shape, e.stride()), f"tensor {i}"
        assert torch.equal(bits(a.cpu()), bits(e)), f"tensor {i} differs"


def _runs() -> int:
    """How often a record of an out-of-place launch runs."""
    return 2 if os.environ.get("ACCEL_REPLAY_TWICE") == "1" else 1


def check_held(op: Callable[..., Any], *arguments: Any, misplaced: int = 0, **options: Any) -> None:
    """`op` is queued without a wait, and results and written arguments are the CPU's, bit for bit and in its strides.

    `misplaced`: results that the kernel cannot make in their place.
    """
    host, host_options = copied((arguments, options), "cpu")
    expected = op(*host, **host_options)
    fallback_report(reset=True)
    for held in (False, True):  # a call that falls back would wait for the held stream for ever
        device, device_options = copied((arguments, options), "accel")
        torch.accelerator.synchronize()
        before = _C._misplaced_results()
        with hold_stream() if held else contextlib.nullcontext():
            actual = op(*device, **device_options)
        torch.accelerator.synchronize()
        assert fallback_report() == {}
        same((actual, device, device_options), (expected, host, host_options))
        # The first run may teach which of the kernel's allocations are its results.
        assert not held or _C._misplaced_results() - before == misplaced * _runs()


def check_refused(op: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """`op` raises at the call what the CPU raises."""
    host, host_options = copied((arguments, options), "cpu")
    device, device_options = copied((arguments, options), "accel")
    errors: list[Exception | None] = []
    for args, kwargs in ((host, host_options), (device, device_options)):
        try:
            op(*args, **kwargs)
            errors.append(None)
        except Exception as error:
            errors.append(error)
    theirs, mine = errors
    assert theirs is not None, "the CPU accepts this call"
    assert type(mine) is type(theirs) and str(mine) == str(theirs), f"{mine!r} instead of {theirs!r}"
