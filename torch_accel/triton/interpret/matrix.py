"""Products of matrices. Along the shared dimension, each product is added by an fma, in ascending order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir.floats import decode, encode
from ..ir.types import BF16, F16, F32, F64, Scalar
from .arithmetic import fma, wrapped

Array = NDArray[Any]
GROUP = 32  # elements of the shared dimension that have one scale
# what the codes of e2m1 and the other kinds of scaled products stand for
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)
SCALED = {"e4m3": Scalar("f8e4m3fn"), "e5m2": Scalar("f8e5m2"), "bf16": BF16, "fp16": F16}


def dot(a: Array, b: Array, acc: Array, a_type: Scalar, b_type: Scalar, acc_type: Scalar) -> Array:
    """acc + a @ b over the last two dimensions. Smaller floats are widened to f32 and accumulated there."""
    if acc_type.is_int:
        return wrapped(acc_type, acc.astype(np.int64) + a.astype(np.int64) @ b.astype(np.int64))
    return accumulate(decode(a_type, a), decode(b_type, b), acc, acc_type)


def accumulate(a: Array, b: Array, acc: Array, acc_type: Scalar) -> Array:
    """acc + a @ b of numbers, where ``acc`` is stored."""
    inner = F64 if acc_type == F64 else F32
    total = decode(acc_type, acc)
    for k in range(a.shape[-1]):
        total = encode(inner, fma(*np.broadcast_arrays(a[..., :, k, None], b[..., k, None, :], total)))
    return encode(acc_type, total)


def unpack(bits: Array, kind: str, elem: Scalar, axis: int) -> Array:
    """Numbers (float32) of a scaled product's operand; e2m1 has two in a byte along ``axis``, the lower half first."""
    if kind == "e2m1":
        byte = np.moveaxis(bits.view(np.uint8), axis, -1)
        pairs = np.stack([E2M1[byte & 15], E2M1[byte >> 4]], axis=-1)
        return np.moveaxis(pairs.reshape(*byte.shape[:-1], -1), -1, axis)
    return decode(SCALED.get(kind, elem), bits.view(np.uint8) if elem.width == 8 else bits)


def scale(numbers: Array, exponents: Array | None) -> Array:
    """Numbers [.., K] times 2 ** (exponent - 127) of their group; the exponent 255 is NaN."""
    if exponents is None:
        return numbers
    code = exponents.view(np.uint8).astype(np.int32)
    factor = np.where(code == 255, np.nan, np.exp2((code - 127).astype(np.float64)))
    return (numbers * np.repeat(factor, GROUP, axis=-1)[..., : numbers.shape[-1]]).astype(np.float32)
