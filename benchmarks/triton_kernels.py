"""The Triton kernels that are measured, each with a function that launches it on tensors; ``options`` are the launch's."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def _copy(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def _add(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def _gelu(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(out + i, 0.5 * v * (1 + tl.erf(v * 0.7071067811865476)), mask=i < n)


@triton.jit
def _softmax(x, out, columns, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * columns + i, mask=i < columns, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * columns + i, e / tl.sum(e, 0), mask=i < columns)


@triton.jit
def _layer_norm(x, w, b, out, columns, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * columns + i, mask=i < columns, other=0)
    mean = tl.sum(v, 0) / columns
    d = tl.where(i < columns, v - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(d * d, 0) / columns + 1e-5)
    y = d * scale * tl.load(w + i, mask=i < columns) + tl.load(b + i, mask=i < columns)
    tl.store(out + row * columns + i, y, mask=i < columns)


@triton.jit
def _matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    left, right = a + m[:, None] * K + k[None, :], b + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(left, mask=(m[:, None] < M) & (start + k[None, :] < K), other=0.0)
        y = tl.load(right, mask=(start + k[:, None] < K) & (n[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc)
        left += BK
        right += BK * N
    tl.store(c + m[:, None] * N + n[None, :], acc.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def _attention(q, k, v, out, S, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Causal, with a running maximum and sum."""
    head = tl.program_id(1) * S * D
    m, d, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    query = tl.load(q + head + m[:, None] * D + d[None, :])
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BM, BN):
        at = start + n
        key = tl.load(k + head + at[None, :] * D + d[:, None])
        scores = tl.where(at[None, :] <= m[:, None], tl.dot(query, key) * scale, -float("inf"))
        new = tl.maximum(top, tl.max(scores, 1))
        p = tl.math.exp2(scores - new[:, None])
        shrink = tl.math.exp2(top - new)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p, tl.load(v + head + at[:, None] * D + d[None, :]), acc * shrink[:, None])
        top = new
    tl.store(out + head + m[:, None] * D + d[None, :], acc / total[:, None])


def copy(x: torch.Tensor, out: torch.Tensor, block: int = 1024) -> None:
    """``out.copy_(x)``: contiguous tensors of one size."""
    _copy[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), B=block)


def add(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor, block: int = 1024, **options: Any) -> None:
    """``torch.add(x, y, out=out)``: contiguous tensors of one size."""
    _add[(triton.cdiv(x.numel(), block),)](x, y, out, x.numel(), B=block, **options)


def gelu(x: torch.Tensor, out: torch.Tensor, block: int = 1024) -> None:
    """The exact gelu, by erf."""
    _gelu[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), B=block)


def softmax(x: torch.Tensor, out: torch.Tensor, **options: Any) -> None:
    """Of the rows of a contiguous matrix."""
    rows, columns = x.shape
    _softmax[(rows,)](x, out, columns, B=triton.next_power_of_2(columns), **options)


def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Of the rows of a contiguous matrix."""
    rows, columns = x.shape
    _layer_norm[(rows,)](x, w, b, out, columns, B=triton.next_power_of_2(columns))


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    blocks: tuple[int, int, int] = (128, 128, 32),
    **options: Any,
) -> None:
    """``torch.mm(a, b, out=c)``: contiguous matrices."""
    (M, K), N = a.shape, b.shape[1]
    BM, BN, BK = blocks
    _matmul[(triton.cdiv(M, BM), triton.cdiv(N, BN))](a, b, c, M, N, K, BM=BM, BN=BN, BK=BK, **options)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
    """Causal attention of contiguous tensors (batch, heads, S, D); S a multiple of 64."""
    B, H, S, D = q.shape
    _attention[(S // 64, B * H)](q, k, v, out, S, 1.4426950408889634 / D**0.5, BM=64, BN=32, D=D)
