"""Runs one call on the CPU and behind a held stream on accel: it must be queued, exact, and laid out alike."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

from torch_accel._native import _C
from torch_accel.conformance.compare import Replica
from torch_accel.testing import fallback_mode, hold_stream


def on_accel(value: Any) -> Any:
    """`value` with its tensors on accel, in the same layout."""
    return tree_map(lambda leaf: Replica("accel").tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf, value)


def describe(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg()


def compare(device: Any, host: Any) -> None:
    """Asserts equal bits and equal layout of two structures of tensors."""
    for a, e in zip(tree_leaves(device), tree_leaves(host), strict=True):
        if not isinstance(e, torch.Tensor):
            assert a == e
            continue
        assert a.device.type == "accel" and describe(a) == describe(e)
        a, e = (
            t.detach()
            .resolve_conj()
            .resolve_neg()
            .clone(memory_format=torch.contiguous_format)
            .reshape(-1)
            .view(torch.uint8)
            for t in (a.cpu(), e)
        )
        assert torch.equal(a, e)


def held(call: Callable[..., Any], *inputs: Any, again: tuple[Any, ...] = ()) -> tuple[Any, int]:
    """``call(*inputs)`` behind a held stream, where a wait would be for ever; and how many results were copied.

    What falls back is told by a first ``call(*again)``, which must not change `inputs`.
    """
    with fallback_mode("error"):
        call(*again)
        torch.accel.synchronize()
        before = _C._misplaced_results()
        with hold_stream():
            result = call(*inputs)
        torch.accel.synchronize()
    return result, _C._misplaced_results() - before


def check(call: Callable[..., Any], *inputs: Any, misplaced: int = 0) -> Any:
    """Compares ``call(*inputs)`` with the CPU, what it writes into its inputs included, and returns the CPU's result.

    ``misplaced`` results may be copied to where they belong, because their kernel makes others of that size first.
    """
    copies = on_accel(inputs)
    result, copied = held(call, *copies, again=on_accel(inputs))
    expected = call(*inputs)
    compare((result, copies), (expected, inputs))
    assert copied <= misplaced  # where its results are made is learned from the first call
    return expected


def check_error(call: Callable[..., Any], *inputs: Any) -> None:
    """Asserts that ``call(*inputs)`` raises at the call what it raises on the CPU."""
    with pytest.raises(Exception) as expected:
        call(*inputs)
    with pytest.raises(type(expected.value)) as raised:
        call(*on_accel(inputs))
    assert str(raised.value).replace("accel:0", "cpu") == str(expected.value)


def layouts(*sizes: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Values around zero, with ties, in each layout of tensors of these sizes that kernels tell apart."""
    count = int(torch.tensor(sizes).prod()) if sizes else 1
    values = (torch.arange(count) * 7 % 11 - 5).to(dtype) / (2 if dtype.is_floating_point or dtype.is_complex else 1)
    if dtype.is_complex:
        values = values + 1j * values.flip(0)
    plain = values.to(dtype).reshape(sizes)
    result = [plain]
    if len(sizes) >= 2:
        result.append(plain.transpose(0, -1).contiguous().transpose(0, -1))
        result.append(plain.repeat_interleave(2, -1)[..., ::2])
    if len(sizes) == 4:
        result.append(plain.contiguous(memory_format=torch.channels_last))
    if len(sizes) == 5:
        result.append(plain.contiguous(memory_format=torch.channels_last_3d))
    return result
