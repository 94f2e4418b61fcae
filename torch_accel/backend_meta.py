"""Flags that a chip's software hangs on a tensor: c10::BackendMeta of torch, from Python."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from . import _compat

__all__ = ["set_tensor_flags", "tensor_flags"]

_MATH_BITS = frozenset({"conj", "neg"})  # torch saves these in the same dictionary


def _expect_accel(tensor: torch.Tensor) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"torch.accel: flags are of a tensor, but got {type(tensor).__name__}")
    if tensor.device.type != "accel":
        raise ValueError(f"torch.accel: flags are of tensors on accel, but this one is on {tensor.device}")


def tensor_flags(tensor: torch.Tensor) -> dict[str, bool]:
    """The flags that :func:`set_tensor_flags`, or a C++ extension by ``accel::set_tensor_flags``, hung on a tensor.

    Raises:
        TypeError, ValueError: it is no tensor on accel.
    """
    _expect_accel(tensor)
    return {name: on for name, on in _compat.tensor_metadata(tensor).items() if name not in _MATH_BITS}


def set_tensor_flags(tensor: torch.Tensor, flags: Mapping[str, bool]) -> None:
    """Replaces the flags of a tensor. An empty mapping takes them away.

    They belong to the tensor and not to its memory: ``detach()`` and ``.data`` take a copy of them along, ``torch.save`` and pickle
    keep them, and loading onto another kind of device drops them. Views, copies and results of operators have none.

    Args:
        tensor: a tensor on accel, of any dtype and layout.
        flags: a bool by name; torch has room for no other values.

    Raises:
        TypeError: no tensor, or a flag that is no bool with a str as its name.
        ValueError: another device, or a name that torch uses (conj, neg).
    """
    _expect_accel(tensor)
    for name, on in flags.items():
        if not isinstance(name, str) or not isinstance(on, bool):
            raise TypeError(f"torch.accel: a flag is a bool by name, but got {name!r}: {on!r}")
        if name in _MATH_BITS:
            raise ValueError(f"torch.accel: the flag {name!r} is torch's own; choose another name")
    _compat.set_tensor_metadata(tensor, dict(flags))
