"""The checks of a module of torch's ``module_db``: one function a kind of test, each comparing accel with the CPU.

A module in a narrow dtype may take another path on a device (fused cells keep gates in float32, the CPU's do not). What
is not close to the CPU then has to be at least as close to float64.
"""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from .calls import DEVICE, grad, seeded, tensors
from .compare import Replica, Tally, attempt, seed
from .torch_internals import noncontiguous_like

#: computes on a device, in float64 instead of the dtype of the test if the second argument says so
Run = Callable[[str, bool], Any]
NARROW = (torch.bfloat16, torch.float16)


def _both(tally: Tally, label: object, run: Run, dtype: torch.dtype, **how: Any) -> None:
    actual, expected = attempt(run, DEVICE, False), attempt(run, "cpu", False)
    oracle = (lambda: run("cpu", True)) if dtype in NARROW else None
    tally.check(label, actual, expected, oracle, **how)


def _inputs(info: Any, dtype: torch.dtype, training: bool, requires_grad: bool = False) -> Iterator[Any]:
    seed()
    for item in info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=requires_grad, training=training
    ):
        if item.forward_input is not None:
            yield item


class _Case:
    """A module of the database with one of its inputs."""

    def __init__(self, info: Any, item: Any, dtype: torch.dtype, training: bool) -> None:
        self.info, self.item, self.dtype, self.training = info, item, dtype, training

    def build(self, device: str, wide: bool = False) -> torch.nn.Module:
        """The module, made on the CPU and moved."""
        seed()
        constructor = self.item.constructor_input
        module = self.info.module_cls(*copy.deepcopy(constructor.args), **copy.deepcopy(constructor.kwargs))
        module = module.to(self.dtype).train(self.training).to(device)
        return module.to(torch.float64) if wide else module

    def inputs(self, device: str, wide: bool = False) -> tuple[Any, Any]:
        """Arguments of the call, on the device."""

        def widen(t: torch.Tensor) -> torch.Tensor:
            narrow = wide and t.dtype == self.dtype
            return t.detach().double().requires_grad_(t.requires_grad) if narrow else t

        forward_input = self.item.forward_input
        placed = Replica(device)((forward_input.args, forward_input.kwargs))
        return tree_map_only(torch.Tensor, widen, placed)


#: for checks of a module's state, which its inputs hardly change (one module has 857 of them)
FEW = 12


def _cases(
    info: Any, dtype: torch.dtype, training: bool, requires_grad: bool = False, limit: int | None = None
) -> Iterator[tuple[int, _Case]]:
    for index, item in enumerate(itertools.islice(_inputs(info, dtype, training, requires_grad), limit)):
        yield index, _Case(info, item, dtype, training)


def _call(module: torch.nn.Module, inputs: tuple[Any, Any]) -> Any:
    seed()
    return module(*inputs[0], **inputs[1])


def _state(module: torch.nn.Module) -> dict[str, Any]:
    return {name: value.detach() for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)}


def forward(info: Any, dtype: torch.dtype, training: bool, tally: Tally) -> None:
    """Outputs, and buffers that the call changes."""
    for index, case in _cases(info, dtype, training):

        def run(device: str, wide: bool, case: _Case = case) -> Any:
            module = case.build(device, wide)
            return _call(module, case.inputs(device, wide)), _state(module)

        _both(tally, index, run, dtype)


def noncontiguous(info: Any, dtype: torch.dtype, training: bool, tally: Tally) -> None:
    """Inputs and parameters are strided."""

    def strided(t: torch.Tensor) -> torch.Tensor:
        return noncontiguous_like(t) if t.dim() > 0 and t.numel() > 1 else t

    for index, case in _cases(info, dtype, training):
        forward_input = case.item.forward_input
        forward_input.args, forward_input.kwargs = tree_map_only(
            torch.Tensor, strided, (forward_input.args, forward_input.kwargs)
        )

        def run(device: str, wide: bool, case: _Case = case) -> Any:
            module = case.build(device, wide)
            if not info.is_lazy:
                for parameter in module.parameters():
                    parameter.data = strided(parameter.data)
            return _call(module, case.inputs(device, wide))

        _both(tally, index, run, dtype)


def backward(info: Any, dtype: torch.dtype, training: bool, tally: Tally) -> None:
    """Gradients of parameters and inputs."""
    for index, case in _cases(info, dtype, training, requires_grad=True):

        def run(device: str, wide: bool, case: _Case = case) -> Any:
            module, inputs = case.build(device, wide), case.inputs(device, wide)
            outputs = [t for t in tensors(_call(module, inputs)) if t.requires_grad]
            sources = [t for t in (*tensors(inputs), *module.parameters()) if t.requires_grad]
            if not outputs or not sources:
                return None
            return grad(outputs, sources, seeded(outputs))

        _both(tally, index, run, dtype, strides=False)


def transfer(info: Any, dtype: torch.dtype, training: bool, tally: Tally) -> None:
    """``to(device)`` moves all parameters and buffers, there and back; construction on the device fills them alike."""
    if info.is_lazy:  # nothing to move before the first call
        return

    for index, case in _cases(info, dtype, training, limit=FEW):

        def there(device: str, wide: bool, case: _Case = case) -> Any:
            return _state(case.build(device))

        def back(device: str, wide: bool, case: _Case = case) -> Any:
            module = case.build(device).to("cpu")
            if any(t.device.type != "cpu" for t in _state(module).values()):
                raise AssertionError("to('cpu') left a tensor on the device")
            return _state(module.to(device))

        def born(device: str, wide: bool, case: _Case = case) -> Any:
            seed()
            constructor = case.item.constructor_input
            args, kwargs = Replica(device)((constructor.args, constructor.kwargs))
            with torch.device(device):
                return _state(info.module_cls(*args, **kwargs))

        for name, run in (("there", there), ("back", back), ("born", born)):
            _both(tally, f"{index} {name}", run, dtype)


def pickling(info: Any, dtype: torch.dtype, training: bool, tally: Tally) -> None:
    """Pickled and copied modules stay on their device and compute the same."""
    duplicates: dict[str, Callable[[torch.nn.Module], torch.nn.Module]] = {
        "pickle": lambda m: pickle.loads(pickle.dumps(m)),
        "deepcopy": copy.deepcopy,
    }
    for index, case in _cases(info, dtype, training, limit=FEW):
        for name, duplicate in duplicates.items():

            def run(device: str, wide: bool, case: _Case = case, duplicate: Any = duplicate) -> Any:
                module = case.build(device, wide)
                _call(module, case.inputs(device, wide))
                second = duplicate(module)
                devices = {t.device.type for t in _state(second).values()}
                if not devices <= {device}:
                    raise AssertionError(f"a tensor of the copy is on {devices}")
                return _call(second, case.inputs(device, wide))

            _both(tally, f"{index} {name}", run, dtype)
