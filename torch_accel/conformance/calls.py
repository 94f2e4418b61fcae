"""One sample of an operator run on one device: forward, written to, differentiated. The checks compare what comes back."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves, tree_map_only

from .compare import Replica, aliasing, normalised, seed

DEVICE = "accel"

#: operators whose tensors after the first stay on the CPU for every device
INDICES_ON_CPU = {"tensor_split"}

#: The engine orders nodes by a counter of the thread that made them. A device's first gradients, differentiable ones, are made
#: on a thread of the device; this is the CPU's, so that second gradients add up in the same order on both.
_ENGINE = ThreadPoolExecutor(1)

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def name_of(op: Any) -> str:
    """The operator with its variant."""
    return str(getattr(op, "full_name", op.name))


def samples_of(op: Any, dtype: torch.dtype, requires_grad: bool = False, limit: int | None = None) -> list[Any]:
    """The sample inputs of an operator on the CPU, the same in every process.

    Not by ``op.sample_inputs``, which looks through the stack for the name of the test, to seed every sample with it.
    """
    seed()
    return list(itertools.islice(op.sample_inputs_func(op, "cpu", dtype, requires_grad), limit))


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of a structure."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


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
    if kwargs.get("device") is not None or tensors(arguments):
        return function(*args, **kwargs)
    with torch.device(device):
        return function(*args, **kwargs)


def result(op: Any, sample: Any, device: str) -> Any:
    """What the operator gives."""
    return call(op.op, place(op, sample, device), device)


def result_and_aliasing(op: Any, sample: Any, device: str) -> Any:
    """What the operator gives, and which arguments it aliases."""
    arguments = place(op, sample, device)
    value = call(op.op, arguments, device)
    return value, aliasing(arguments, value)


# ---- Writing


def in_place(op: Any, sample: Any, device: str) -> Any:
    """The input after the method with an underscore, whether it is the result, and how far versions moved."""
    args, kwargs = place(op, sample, device)
    before = [t._version for t in tensors(args[0])]
    value = op.get_inplace()(*args, **kwargs)
    moved = [t._version - v for t, v in zip(tensors(args[0]), before, strict=True)]
    return args[0], value is args[0], moved


def _targets(plain: Any, make: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    made = tree_map_only(torch.Tensor, make, plain)
    return made if isinstance(made, torch.Tensor) else tuple(made)


def into(op: Any, sample: Any, plain: Any, make: Callable[[torch.Tensor, str], torch.Tensor], device: str) -> Any:
    """``out=`` tensors after the call, which of them kept their memory, and what was said about resizing.

    Args:
        plain: the results without ``out=``.
        make: gives the ``out=`` tensor on a device for one of them.
    """
    args, kwargs = place(op, sample, device)
    target = _targets(plain, lambda t: make(t, device).fill_(1))
    before = [t.data_ptr() for t in tensors(target)]
    empty = [t.numel() == 0 for t in tensors(target)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        op.op(*args, **kwargs, out=target)
    kept = [none or t.data_ptr() == p for t, p, none in zip(tensors(target), before, empty, strict=True)]
    texts = sorted({normalised(str(w.message)) for w in caught if "resized" in str(w.message)})
    return target, kept, texts


def into_the_cpu(op: Any, sample: Any, plain: Any) -> None:
    """``out=`` on the CPU with operands on the device: must raise."""
    args, kwargs = place(op, sample, DEVICE)
    if not any(t.device.type == DEVICE for t in tensors((args, kwargs))):
        raise RuntimeError("no operand on the device")
    op.op(*args, **kwargs, out=_targets(plain, torch.empty_like))


# ---- Derivatives


def seeded(like: list[torch.Tensor]) -> list[torch.Tensor]:
    """Random tensors of the same shapes, the same on every device; of other layouts than strided, the values themselves."""
    generator = torch.Generator().manual_seed(1)
    made = []
    for t in like:
        if t.layout == torch.strided and not t.is_nested:
            made.append(torch.randn(t.shape, dtype=t.dtype, generator=generator).to(t.device))
        else:
            made.append(t.detach().clone())
    return made


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
    root = _Join.apply(len(outputs), *outputs, *cotangents)
    run = partial(torch.autograd.grad, root, inputs, create_graph=create_graph, allow_unused=True)
    return _ENGINE.submit(run).result() if create_graph else run()


def _graph(op: Any, sample: Any, device: str) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    arguments = place(op, sample, device)
    inputs = [t for t in tensors(arguments) if t.requires_grad]
    seed()
    value = op.op(*arguments[0], **arguments[1])
    outputs = [t for t in tensors(sample.output_process_fn_grad(value)) if t.requires_grad]
    return inputs, outputs


def gradients(op: Any, sample: Any, device: str) -> Any:
    """Gradients of all inputs from seeded gradients of all outputs; None if there are none."""
    inputs, outputs = _graph(op, sample, device)
    return grad(outputs, inputs, seeded(outputs)) if inputs and outputs else None


def second_gradients(op: Any, sample: Any, device: str) -> Any:
    """The gradients, and theirs with respect to inputs and to the gradients of the outputs."""
    with ThreadPoolExecutor(1) as fresh:  # its counter begins at 0, on every device
        inputs, outputs = fresh.submit(_graph, op, sample, device).result()
    if not inputs or not outputs:
        return None
    cotangents = [t.requires_grad_() for t in seeded(outputs)]
    first = grad(outputs, inputs, cotangents, create_graph=True)
    again = [t for t in first if t is not None and t.requires_grad]
    return (first, grad(again, inputs + cotangents, seeded(again))) if again else first


def tangents(op: Any, sample: Any, device: str) -> Any:
    """Values and tangents of the results from seeded tangents of the inputs."""
    args, kwargs = place(op, sample, device)
    with forward_ad.dual_level():
        given = iter(seeded([t for t in tensors((args, kwargs)) if t.requires_grad]))

        def dual(t: torch.Tensor) -> torch.Tensor:
            return forward_ad.make_dual(t.detach(), next(given)) if t.requires_grad else t

        args, kwargs = tree_map_only(torch.Tensor, dual, (args, kwargs))
        seed()
        return [tuple(forward_ad.unpack_dual(t)) for t in tensors(op.op(*args, **kwargs))]
