"""The autocast region of accel, and the decorators that custom autograd functions need in one."""

import functools
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["autocast", "custom_bwd", "custom_fwd", "get_amp_supported_dtype"]


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast("accel", dtype=...)`` accepts; with another it warns and does nothing."""
    return [torch.float16, torch.bfloat16]


class autocast(torch.autocast):
    """``torch.autocast("accel", ...)``: a context manager or decorator.

    Args:
        enabled: whether operators are cast in the region.
        dtype: the low precision, ``torch.float16`` (default) or ``torch.bfloat16``.
        cache_enabled: whether the casts of parameters are kept until the region ends.
    """

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True) -> None:
        super().__init__("accel", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: torch.dtype | None = None) -> Callable[..., Any]:
    """``torch.amp.custom_fwd(device_type="accel")``: for the ``forward`` of an ``autograd.Function``.

    Args:
        fwd: the function, if the decorator is used without arguments.
        cast_inputs: floating accel tensors are cast to it, and the function runs outside autocast.
    """
    return functools.partial(torch.amp.custom_fwd, device_type="accel")(fwd=fwd, cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """``torch.amp.custom_bwd(device_type="accel")``: ``backward`` runs in the autocast state of ``forward``."""
    return functools.partial(torch.amp.custom_bwd, device_type="accel")(bwd)
