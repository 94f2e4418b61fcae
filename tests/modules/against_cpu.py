"""Computes the same on accel and on the CPU and compares: bits, dtypes, shapes and strides."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from torch_accel.testing.held import bits

EXACT = {"rtol": 0, "atol": 0}


def leaves(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of nested tuples, lists, mappings and packed sequences; of a module those of its state_dict."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, nn.Module):
        yield from leaves(value.state_dict())
    elif isinstance(value, Mapping):
        for key in value:
            yield from leaves(value[key])
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from leaves(item)


def check_equal(actual: Any, expected: Any, accel: bool = True, **tolerances: float) -> None:
    """Every tensor of ``actual`` is on accel and has the bits of ``expected``'s, or is as near as ``tolerances`` say.

    ``accel=False``: where it is does not matter (batch sizes of packed sequences stay on the CPU).
    """
    mine, theirs = list(leaves(actual)), list(leaves(expected))
    assert len(mine) == len(theirs) > 0
    tolerances = tolerances or EXACT
    for a, b in zip(mine, theirs):
        assert a.is_accel or not accel or b.device.type == "accel"
        assert a.layout == b.layout and (a.layout != torch.strided or a.stride() == b.stride())
        torch.testing.assert_close(a.detach().cpu(), b.detach().cpu(), equal_nan=True, **tolerances)
        if tolerances == EXACT and a.layout == torch.strided:
            assert torch.equal(bits(a.cpu()), bits(b.cpu()))  # of zeros the sign, too


def place(value: Any, device: str) -> Any:
    """A copy on the device, with requires_grad; whatever is no tensor, module or container stays."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().to(device).requires_grad_(value.requires_grad)
    if isinstance(value, nn.Module):
        return copy.deepcopy(value).to(device)
    if isinstance(value, PackedSequence):
        return value.to(device)
    if isinstance(value, (tuple, list)):
        return type(value)(place(item, device) for item in value)
    return value


def ramp(y: torch.Tensor) -> torch.Tensor:
    """A gradient whose elements differ, made on the host."""
    return torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view(y.shape).to(y.device, y.dtype)


def step(module: Callable[..., Any], *inputs: Any) -> dict[str, Any]:
    """Outputs, gradients of the inputs, and, of a module, gradients of its parameters and its state afterwards."""
    outputs = module(*inputs)
    differentiable = [y for y in leaves(outputs) if y.requires_grad]
    torch.autograd.backward(differentiable, [ramp(y) for y in differentiable])
    result = {"outputs": outputs, "inputs": [x.grad for x in leaves(inputs) if x.grad is not None]}
    if isinstance(module, nn.Module):
        grads = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
        result |= {"grads": grads, "state": module.state_dict()}
    return result


def check_step(module: Any, *inputs: Any, **tolerances: float) -> None:
    """A forward and a backward of a copy on each device, from one seed, are the same."""
    results = []
    for device in ("accel", "cpu"):
        torch.manual_seed(0)
        results.append(step(place(module, device), *place(inputs, device)))
    check_equal(*results, accel=False, **tolerances)
