"""The checks of a module of torch's ``module_db``: one function a kind of test, each comparing accel with the CPU."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from .checks import both, seeded, tensors
from .compare import Replica, Tally
from .torch_internals import noncontiguous_like


def _inputs(info: Any, dtype: torch.dtype, training: bool, requires_grad: bool = False) -> Iterator[Any]:
    torch.manual_seed(0)
    for item in info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=requires_grad, training=training):
        if item.forward_input is not None:
            yield item


def _build(info: Any, item: Any, dtype: torch.dtype, training: bool) -> torch.nn.Module:
    """The module of one input, on the CPU."""
    torch.manual_seed(0)
    constructor = item.constructor_input
    module = info.module_cls(*copy.deepcopy(constructor.args), **copy.deepcopy(constructor.kwargs))
    return module.to(dtype).train(training)


def _call(module: torch.nn.Module, item: Any, device: str) -> tuple[Any, list[torch.Tensor]]:
    args, kwargs = Replica(device)((item.forward_input.args, item.forward_input.kwargs))
    torch.manual_seed(0)
    return module(*args, **kwargs), [t for t in tensors((args, kwargs)) if t.requires_grad]


def _state(module: torch.nn.Module) -> dict[str, Any]:
    return {name: value.detach() for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)}


def forward(info: Any, dtype: torch.dtype, training: bool, tally: Tally) -> None:
    """Outputs, and buffers that the call changes."""
    for index, item in enumerate(_inputs(info, dtype, training)):

        def run(device: str, item: Any = item) -> Any:
            module = _build(info, item, dtype, training).to(device)
            return _call(module, item, device)[0], _state(module)

        both(tally, index, run)


def noncontiguous(info: Any, dtype: torch.dtype, training: bool, tally: Tally) -> None:
    """Inputs and parameters are strided."""

    def strided(t: torch.Tensor) -> torch.Tensor:
        return noncontiguous_like(t) if t.dim() > 0 and t.numel() > 1 else t

    for index, item in enumerate(_inputs(info, dtype, training)):
        item.forward_input.args = tree_map_only(torch.Tensor, strided, item.forward_input.args)
        item.forward_input.kwargs = tree_map_only(torch.Tensor, strided, item.forward_input.kwargs)

        def run(device: str, item: Any = item) -> Any:
            module = _build(info, item, dtype, training).to(device)
            if not info.is_lazy:
                for parameter in module.parameters():
                    parameter.data = strided(parameter.data)
            return _call(module, item, device)[0]

        both(tally, index, run)


def backward(info: Any, dtype: torch.dtype, training: bool, tally: Tally) -> None:
    """Gradients of parameters and inputs."""
    for index, item in enumerate(_inputs(info, dtype, training, requires_grad=True)):

        def run(device: str, item: Any = item) -> Any:
            module = _build(info, item, dtype, training).to(device)
            result, inputs = _call(module, item, device)
            outputs = [t for t in tensors(result) if t.requires_grad]
            sources = [*inputs, *(p for p in module.parameters() if p.requires_grad)]
            if not outputs or not sources:
                return None
            return torch.autograd.grad(outputs, sources, seeded(outputs), allow_unused=True)

        both(tally, index, run)


def transfer(info: Any, dtype: torch.dtype, training: bool, tally: Tally) -> None:
    """``to(device)`` moves all parameters and buffers, there and back, and construction on the device fills alike."""
    for index, item in enumerate(_inputs(info, dtype, training)):

        def there(device: str, item: Any = item) -> Any:
            module = _build(info, item, dtype, training)
            uninitialised = info.is_lazy
            return [] if uninitialised else _state(module.to(device))

        def back(device: str, item: Any = item) -> Any:
            module = _build(info, item, dtype, training).to(device).to("cpu")
            if any(t.device.type != "cpu" for t in module.state_dict().values() if isinstance(t, torch.Tensor)):
                raise AssertionError("to('cpu') left a tensor on the device")
            return [] if info.is_lazy else _state(module.to(device))

        def born(device: str, item: Any = item) -> Any:
            torch.manual_seed(0)
            with torch.device(device):
                args, kwargs = Replica(device)((item.constructor_input.args, item.constructor_input.kwargs))
                module = info.module_cls(*args, **kwargs)
            return [] if info.is_lazy else _state(module)

        for name, run in (("there", there), ("back", back), ("born", born)):
            both(tally, f"{index} {name}", run)


def pickling(info: Any, dtype: torch.dtype, training: bool, tally: Tally) -> None:
    """Pickled, copied and saved modules stay on their device and compute the same."""

    def copies() -> dict[str, Callable[[torch.nn.Module], torch.nn.Module]]:
        return {"pickle": lambda m: pickle.loads(pickle.dumps(m)), "deepcopy": copy.deepcopy}

    for index, item in enumerate(_inputs(info, dtype, training)):
        for name, duplicate in copies().items():

            def run(device: str, item: Any = item, duplicate: Any = duplicate) -> Any:
                module = _build(info, item, dtype, training).to(device)
                _call(module, item, device)
                second = duplicate(module)
                devices = {t.device.type for t in tree_leaves(second.state_dict()) if isinstance(t, torch.Tensor)}
                if not devices <= {device}:
                    raise AssertionError(f"a tensor of the copy is on {devices}")
                return _call(second, item, device)[0]

            both(tally, f"{index} {name}", run)
