"""Operators defined by a NumPy function over the device's arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from . import _compat
from ._native import _C
from ._utils import TORCH_DTYPE, array_of

_Function = Callable[..., Any]


def _mutated(schema: torch._C.FunctionSchema) -> set[str]:
    return {a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write}


def _device_of(args: tuple[Any, ...]) -> torch.device:
    for arg in args:
        for value in arg if isinstance(arg, (list, tuple)) else (arg,):
            if isinstance(value, torch.Tensor) and value.device.type == "accel":
                return value.device
    raise RuntimeError("accel: a NumPy kernel needs an accel tensor among its arguments")


def _to_numpy(value: Any, writable: bool) -> Any:
    if isinstance(value, (list, tuple)):
        return [_to_numpy(item, writable) for item in value]
    if not isinstance(value, torch.Tensor):
        return value
    if value.device.type == "accel":
        return array_of(value, writable=writable)
    array: NDArray[Any] = value.detach().numpy()
    array.flags.writeable = writable
    return array


def _to_tensor(result: Any, device: torch.device) -> torch.Tensor:
    array = np.asarray(result)
    dtype = TORCH_DTYPE.get(array.dtype)
    if dtype is None:
        raise TypeError(
            f"accel: a NumPy kernel returned an array of dtype {array.dtype}, for which torch has none; "
            f"convert it with .astype()"
        )
    tensor = torch.empty(array.shape, dtype=dtype, device=device)
    array_of(tensor, writable=True)[...] = array
    return tensor


def _to_result(value: Any, kind: torch._C.JitType, device: torch.device) -> Any:
    if str(kind) == "Tensor":
        return _to_tensor(value, device)
    if str(kind) == "List[Tensor]":
        return [_to_tensor(item, device) for item in value]
    return value


def _arguments(
    schema: torch._C.FunctionSchema, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments as NumPy has them, with the defaults that the dispatcher leaves out."""
    mutated = _mutated(schema)
    positional, keywords = [], {}
    for place, argument in enumerate(schema.arguments):
        if argument.kwarg_only:
            value = kwargs.get(argument.name, argument.default_value)
            keywords[argument.name] = _to_numpy(value, argument.name in mutated)
        else:
            value = args[place] if place < len(args) else argument.default_value
            positional.append(_to_numpy(value, argument.name in mutated))
    return positional, keywords


def _run(function: _Function, schema: torch._C.FunctionSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    device = _device_of((*args, *kwargs.values()))
    kinds = [r.type for r in schema.returns]
    # Host code touches device bytes from here to the return: what is enqueued must have run, and memory must be free now.
    with _C._ExecuteNow():
        _C._synchronize_current_stream(device.index, "torch.accel.numpy_kernel")
        positional, keywords = _arguments(schema, args, kwargs)
        values = function(*positional, **keywords)
        if not kinds:
            return None
        if len(kinds) == 1:
            return _to_result(values, kinds[0], device)
        return tuple(_to_result(value, kind, device) for value, kind in zip(values, kinds, strict=True))


def numpy_kernel(schema: str) -> Callable[[_Function], _compat.CustomOpDef]:
    """Defines the operator ``torch.ops.ns.name`` on accel by a NumPy function::

        @torch_accel.numpy_kernel("demo::axpy(Tensor x, Tensor y, float a) -> Tensor")
        def axpy(x, y, a):
            return a * x + y

        axpy(torch.ones(3, device="accel"), torch.ones(3, device="accel"), 2.0)  # or torch.ops.demo.axpy(...)

    A call waits for the current stream, then runs the function on the calling thread. Tensors arrive as arrays over the
    device's own bytes, with their shape, dtype and strides: read-only, but writable where the schema says that the
    operator writes (``Tensor(a!) x``). Arrays are valid during the call only. What the function returns for ``Tensor``
    is copied into a new accel tensor of the array's shape and dtype (``Tensor[]``: a list of those; several results: a
    tuple); other results pass through. What it raises, the call raises.

    Args:
        schema: namespace, name, arguments and results, in the language of torch.library.define.

    Returns:
        A decorator; what it returns is called like the operator and has the methods of torch.library.custom_op's result:
        ``register_fake`` (for torch.compile and fake tensors), ``register_autograd``, ``register_vmap``,
        ``register_kernel`` (for other devices).

    Raises:
        RuntimeError: a schema that cannot be parsed.
        ValueError: a schema without a namespace.
        TypeError: at a call, an argument or a result whose dtype NumPy or torch does not have.
    """
    parsed = _compat.parse_schema(schema)
    if "::" not in parsed.name:
        raise ValueError(
            f"accel: the schema of a NumPy kernel needs a namespace, as in 'demo::{parsed.name}', got {schema!r}"
        )

    def decorate(function: _Function) -> _compat.CustomOpDef:
        @functools.wraps(function)
        def kernel(*args: Any, **kwargs: Any) -> Any:
            return _run(function, parsed, args, kwargs)

        return torch.library.custom_op(
            parsed.name,
            kernel,
            mutates_args=_mutated(parsed),
            device_types="accel",
            schema=schema[schema.index("(") :],
        )

    return decorate
