"""Tensor and storage types named by dtype, as torch.cuda.FloatTensor: for isinstance, ``x.type(...)`` and old programs."""

from __future__ import annotations

from typing import Any

import torch

from . import _compat

_DTYPES = {
    "BFloat16": torch.bfloat16,
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
}
_COMPLEX = {"ComplexDouble": torch.complex128, "ComplexFloat": torch.complex64}


class _TensorType(type):
    """A type without instances of its own: tensors of its dtype and layout on accel count as its instances."""

    dtype: torch.dtype
    layout: torch.layout

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and instance.device.type == "accel"
            and instance.dtype == cls.dtype
            and instance.layout == cls.layout
        )

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        if cls.layout == torch.sparse_coo:
            return torch.sparse_coo_tensor(*args, **{"dtype": cls.dtype, "device": "accel", **kwargs})
        return torch.empty(0, dtype=cls.dtype, device="accel").new(*args, **kwargs)

    def __repr__(cls) -> str:
        return f"<class '{cls.__name__}'>"


def tensor_types(prefix: str, layout: torch.layout) -> dict[str, type]:
    """``FloatTensor`` and so on, whose full names begin with ``prefix``."""
    doc = "Tensors of {} on accel. Called: as torch.{}Tensor, on the current device. Prefer ``torch.empty(..., device='accel')``."
    return {
        f"{name}Tensor": _TensorType(
            f"{prefix}.{name}Tensor", (), {"dtype": dtype, "layout": layout, "__doc__": doc.format(dtype, name)}
        )
        for name, dtype in _DTYPES.items()
    }


def storage_types() -> dict[str, type]:
    """``FloatStorage`` and so on."""
    return {
        f"{name}Storage": _compat.legacy_storage_type(
            f"{name}Storage", dtype, f"Typed storage of {dtype} on accel. Prefer torch.UntypedStorage."
        )
        for name, dtype in (_DTYPES | _COMPLEX).items()
    }
