"""Philox 4x32-10, tl.rand and tl.randn in NumPy: what the device's random numbers are compared with."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
import torch

FLOATING = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGRAL = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
SEED = 0x0123456789ABCDEF

philox_only = pytest.mark.skipif(os.environ.get("ACCEL_RNG", "philox") == "cpu", reason="tests the Philox numbers")


def philox(key: int, index: np.ndarray) -> list[np.ndarray]:
    """The four words of Philox 4x32-10 for each 64-bit index."""
    mask = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    index = np.asarray(index, dtype=np.uint64)
    c = [index & mask, index >> shift, np.zeros_like(index), np.zeros_like(index)]
    return rounds(c, key & 0xFFFFFFFF, key >> 32)


def rounds(c: list[np.ndarray], k0: int, k1: int) -> list[np.ndarray]:
    mask = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    for _ in range(10):
        a = np.uint64(0xD2511F53) * c[0]
        b = np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> shift) ^ c[1] ^ np.uint64(k0), b & mask, (a >> shift) ^ c[3] ^ np.uint64(k1), a & mask]
        k0 = (k0 + 0x9E3779B9) & 0xFFFFFFFF
        k1 = (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def call_key(seed: int, offset: int) -> int:
    """The key of the call that finds its generator at (seed, offset)."""
    r0, r1, _, _ = philox(seed, np.array([offset]))
    return int(r0[0]) | int(r1[0]) << 32


def to_uniform(word: np.ndarray) -> np.ndarray:
    x = word.astype(np.uint32).view(np.int32)
    return np.where(x < 0, -x - 1, x).astype(np.float32) * np.float32(4.6566127342e-10)


def rand(key: int, n: int) -> np.ndarray:
    """tl.rand(key, arange(n))."""
    return to_uniform(philox(key, np.arange(n))[0])


def log32(u: np.ndarray) -> np.ndarray:
    return np.log(u.astype(np.longdouble)).astype(np.float32)


def randn(key: int, n: int) -> np.ndarray:
    """tl.randn(key, arange(n)), log and cos correctly rounded to float32."""
    r0, r1, _, _ = philox(key, np.arange(n))
    u1 = np.maximum(np.float32(1.0e-7), to_uniform(r0))
    theta = np.float32(6.283185307179586) * to_uniform(r1)
    radius = np.sqrt(np.float32(-2.0) * log32(u1))
    return radius * np.cos(theta.astype(np.longdouble)).astype(np.float32)


def generator(seed: int = SEED) -> torch.Generator:
    return torch.Generator("accel").manual_seed(seed)


def fill(
    call: Callable[..., torch.Tensor], *args: float, n: int = 5003, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """`call`(tensor, *args) at the start of SEED's stream, on the host."""
    return call(torch.empty(n, device="accel", dtype=dtype), *args, generator=generator()).cpu()


def layouts(n: int) -> list[torch.Tensor]:
    """Tensors of n * n elements whose bytes lie differently."""
    return [
        torch.empty(n, n, device="accel"),
        torch.empty(n, n, device="accel").t(),
        torch.empty(n, 2 * n, device="accel")[:, ::2],
        torch.empty(n, 1, n, 1, device="accel").to(memory_format=torch.channels_last),
        torch.empty(3, n, n, device="accel")[1],
    ]


#: of the first call of SEED's stream
KEY = call_key(SEED, 0)
