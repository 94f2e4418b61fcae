"""The subjects of Triton's tutorials 01 to 06, 08 and 10, in kernels and drivers of our own, on accel tensors."""

import pytest
import torch
import triton
import triton.language as tl
from torch.nn import functional as F

DEVICE = "accel"
pytestmark = pytest.mark.usefixtures("accel")


@triton.jit
def add(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@pytest.mark.parametrize("n", [1, 98_432])
def test_01_vector_addition(n):
    x, y = torch.rand(2, n)
    out = torch.empty(n, device=DEVICE)
    add[lambda meta: (triton.cdiv(n, meta["B"]),)](x.to(DEVICE), y.to(DEVICE), out, n, B=1024)
    assert torch.equal(out.cpu(), x + y)


@triton.jit
def softmax(x, out, x_stride, out_stride, rows, columns, B: tl.constexpr):
    """Programs that stay: each takes every so-many-th row."""
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        i = tl.arange(0, B)
        v = tl.load(x + row * x_stride + i, mask=i < columns, other=-float("inf"))
        e = tl.exp(v - tl.max(v, axis=0))
        tl.store(out + row * out_stride + i, e / tl.sum(e, axis=0), mask=i < columns)


def test_02_fused_softmax():
    x = torch.randn(183, 781)
    given = x.to(DEVICE)
    out = torch.empty_like(given)
    softmax[(8,)](given, out, given.stride(0), out.stride(0), 183, 781, B=triton.next_power_of_2(781))
    torch.testing.assert_close(out.cpu(), torch.softmax(x, 1), rtol=1e-6, atol=1e-7)


@triton.jit
def leaky(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.jit
def matmul(
    a, b, c, M, N, K, am, ak, bk, bn, cm, cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Programs of GROUP rows of tiles follow each other, so that they share tiles of b."""
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = pid // (GROUP * tiles_n)
    first = group * GROUP
    height = min(tiles_m - first, GROUP)
    pm = first + (pid % (GROUP * tiles_n)) % height
    pn = (pid % (GROUP * tiles_n)) // height
    m, n, k = (pm * BM + tl.arange(0, BM)) % M, (pn * BN + tl.arange(0, BN)) % N, tl.arange(0, BK)
    left, right = a + m[:, None] * am + k[None, :] * ak, b + k[:, None] * bk + n[None, :] * bn
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(K, BK)):
        rest = K - step * BK
        x = tl.load(left, mask=k[None, :] < rest, other=0.0)
        y = tl.load(right, mask=k[:, None] < rest, other=0.0)
        acc = tl.dot(x, y, acc)
        left += BK * ak
        right += BK * bk
    if ACTIVATION == "leaky":
        acc = leaky(acc)
    m, n = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN)
    tl.store(
        c + m[:, None] * cm + n[None, :] * cn, acc.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2])
@pytest.mark.parametrize("activation", ["", "leaky"])
def test_03_matrix_multiplication(dtype, activation):
    M, N, K = 130, 96, 70
    a, b = (torch.randn(M, K) * 0.5).to(dtype), (torch.randn(N, K) * 0.5).to(dtype).t()
    result = torch.float16 if dtype == torch.float8_e5m2 else dtype
    c = torch.empty(M, N, dtype=result, device=DEVICE)
    given = a.to(DEVICE), b.to(DEVICE)
    grid = (triton.cdiv(M, 32) * triton.cdiv(N, 32),)
    matmul[grid](
        *given, c, M, N, K, *given[0].stride(), *given[1].stride(), *c.stride(), BM=32, BN=32, BK=16, GROUP=2, ACTIVATION=activation
    )  # fmt: skip
    expected = a.double() @ b.double()
    expected = F.leaky_relu(expected, 0.01) if activation else expected
    close = {"rtol": 1e-5, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 8e-3, "atol": 8e-3}
    torch.testing.assert_close(c.cpu().double(), expected, **close)


@triton.jit
def dropout(x, out, n, p, seed, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    keep = tl.rand(seed, i) > p
    tl.store(out + i, tl.where(keep, tl.load(x + i, mask=i < n) / (1 - p), 0.0), mask=i < n)


def test_04_dropout_needs_no_memory():
    x = torch.randn(10_000, device=DEVICE)
    results = []
    for seed in (123, 123, 512):
        out = torch.empty_like(x)
        dropout[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), 0.5, seed, B=1024)
        results.append(out.cpu())
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])
    kept = results[0] != 0
    assert 0.47 < kept.float().mean() < 0.53
    torch.testing.assert_close(results[0][kept], x.cpu()[kept] * 2, rtol=0, atol=0)


@triton.jit
def norm_forward(x, y, w, b, mean, rstd, columns, eps, B: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((B,), tl.float32)
    for start in range(0, columns, B):
        i = start + tl.arange(0, B)
        total += tl.load(x + row * columns + i, mask=i < columns, other=0.0)
    mu = tl.sum(total, 0) / columns
    squares = tl.zeros((B,), tl.float32)
    for start in range(0, columns, B):
        i = start + tl.arange(0, B)
        d = tl.where(i < columns, tl.load(x + row * columns + i, mask=i < columns, other=0.0) - mu, 0.0)
        squares += d * d
    r = 1 / tl.sqrt(tl.sum(squares, 0) / columns + eps)
    tl.store(mean + row, mu)
    tl.store(rstd + row, r)
    for start in range(0, columns, B):
        i = start + tl.arange(0, B)
        v = tl.load(x + row * columns + i, mask=i < columns, other=0.0)
        scaled = (v - mu) * r * tl.load(w + i, mask=i < columns) + tl.load(b + i, mask=i < columns)
        tl.store(y + row * columns + i, scaled, mask=i < columns)


@triton.jit
def norm_backward(x, dy, w, mean, rstd, dx, dw, db, locks, columns, GROUP: tl.constexpr, B: tl.constexpr):
    """dx of a row; dw and db are added up in GROUP buffers, each behind a lock."""
    row, i = tl.program_id(0), tl.arange(0, B)
    inside = i < columns
    v = (tl.load(x + row * columns + i, mask=inside, other=0.0) - tl.load(mean + row)) * tl.load(rstd + row)
    g = tl.load(dy + row * columns + i, mask=inside, other=0.0)
    wg = tl.load(w + i, mask=inside, other=0.0) * g
    v = tl.where(inside, v, 0.0)
    c1, c2 = tl.sum(v * wg, 0) / columns, tl.sum(wg, 0) / columns
    tl.store(dx + row * columns + i, (wg - (v * c1 + c2)) * tl.load(rstd + row), mask=inside)
    which = row % GROUP
    lock, count = locks + which, locks + GROUP + which
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    at = which * columns + i
    written = inside & (tl.load(count) != 0)
    tl.store(count, 1)
    tl.store(dw + at, g * v + tl.load(dw + at, mask=written, other=0.0), mask=inside)
    tl.store(db + at, g + tl.load(db + at, mask=written, other=0.0), mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def norm_finish(parts, out, rows, columns, M: tl.constexpr, B: tl.constexpr):
    m, i = tl.arange(0, M)[:, None], (tl.program_id(0) * B + tl.arange(0, B))[None, :]
    v = tl.load(parts + m * columns + i, mask=(m < rows) & (i < columns), other=0.0)
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.sum(v, 0), mask=i < columns)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        y, (mean, rstd) = torch.empty_like(x), torch.empty(2, len(x), device=x.device)
        norm_forward[(len(x),)](x, y, w, b, mean, rstd, x.shape[1], 1e-5, B=64)
        ctx.save_for_backward(x, w, mean, rstd)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, w, mean, rstd = ctx.saved_tensors
        rows, columns = x.shape
        parts = torch.empty(2, 4, columns, device=x.device)
        locks = torch.zeros(8, dtype=torch.int32, device=x.device)
        dx, dw, db = torch.empty_like(x), torch.empty_like(w), torch.empty_like(w)
        block = triton.next_power_of_2(columns)
        norm_backward[(rows,)](
            x, dy.contiguous(), w, mean, rstd, dx, parts[0], parts[1], locks, columns, GROUP=4, B=block
        )
        for part, out in zip(parts, (dw, db)):
            norm_finish[(triton.cdiv(columns, 32),)](part, out, 4, columns, M=4, B=32)
        return dx, dw, db


def test_05_layer_norm():
    torch.manual_seed(5)
    values = torch.randn(37, 151), torch.rand(151), torch.rand(151)
    upstream = torch.randn(37, 151)
    ours = [v.to(DEVICE).requires_grad_() for v in values]
    wanted = [v.double().requires_grad_() for v in values]
    y = LayerNorm.apply(*ours)
    y.backward(upstream.to(DEVICE))
    expected = F.layer_norm(wanted[0], (151,), *wanted[1:])
    expected.backward(upstream.double())
    torch.testing.assert_close(y.cpu().double(), expected, rtol=1e-5, atol=1e-5)
    for mine, right in zip(ours, wanted):
        torch.testing.assert_close(mine.grad.cpu().double(), right.grad, rtol=1e-5, atol=2e-5)


@triton.jit
def attention(q, k, v, out, lse, S, scale, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(1) * S * D
    m, d, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    query = tl.load(q + head + m[:, None] * D + d[None, :], mask=m[:, None] < S, other=0.0)
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    end = (tl.program_id(0) + 1) * BM if CAUSAL else S
    for start in range(0, end, BN):
        at = start + n
        key = tl.load(k + head + at[None, :] * D + d[:, None], mask=at[None, :] < S, other=0.0)
        scores = tl.dot(query, key) * scale
        inside = at[None, :] < S
        if CAUSAL:
            inside = inside & (at[None, :] <= m[:, None])
        scores = tl.where(inside, scores, -float("inf"))
        new = tl.maximum(top, tl.max(scores, 1))
        p = tl.math.exp2(scores - new[:, None])
        shrink = tl.math.exp2(top - new)
        total = total * shrink + tl.sum(p, 1)
        value = tl.load(v + head + at[:, None] * D + d[None, :], mask=at[:, None] < S, other=0.0)
        acc = tl.dot(p.to(value.dtype), value, acc * shrink[:, None])
        top = new
    tl.store(
        out + head + m[:, None] * D + d[None, :], (acc / total[:, None]).to(out.dtype.element_ty), mask=m[:, None] < S
    )
    tl.store(lse + tl.program_id(1) * S + m, top + tl.math.log2(total), mask=m < S)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
def test_06_fused_attention(dtype, causal):
    B, H, S, D = 2, 2, 100, 32
    q, k, v = (torch.randn(B, H, S, D, dtype=dtype) for _ in range(3))
    out = torch.empty(B, H, S, D, dtype=dtype, device=DEVICE)
    lse = torch.empty(B, H, S, device=DEVICE)
    scale = 1.4426950408889634 / D**0.5
    attention[(triton.cdiv(S, 32), B * H)](
        *(t.to(DEVICE) for t in (q, k, v)), out, lse, S, scale, CAUSAL=causal, BM=32, BN=16, D=D
    )
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal)
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 4e-3, "atol": 4e-3}
    torch.testing.assert_close(out.cpu().double(), expected, **close)


@triton.jit
def grouped(a_at, b_at, c_at, sizes, strides, groups, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Products of several sizes in one launch: pointers, sizes and strides come from memory."""
    tile, done = tl.program_id(0), 0
    for g in range(groups):
        M, N, K = tl.load(sizes + g * 3), tl.load(sizes + g * 3 + 1), tl.load(sizes + g * 3 + 2)
        columns = tl.cdiv(N, BN)
        tiles = tl.cdiv(M, BM) * columns
        while (tile >= done) & (tile < done + tiles):
            a = tl.load(a_at + g).to(tl.pointer_type(tl.float32))
            b = tl.load(b_at + g).to(tl.pointer_type(tl.float32))
            c = tl.load(c_at + g).to(tl.pointer_type(tl.float32))
            lda, ldb, ldc = tl.load(strides + g * 3), tl.load(strides + g * 3 + 1), tl.load(strides + g * 3 + 2)
            m = ((tile - done) // columns) * BM + tl.arange(0, BM)[:, None]
            n = ((tile - done) % columns) * BN + tl.arange(0, BN)[None, :]
            acc = tl.zeros((BM, BN), tl.float32)
            for start in range(0, K, BK):
                k = start + tl.arange(0, BK)
                x = tl.load(a + m * lda + k[None, :], mask=(m < M) & (k[None, :] < K), other=0.0)
                y = tl.load(b + k[:, None] * ldb + n, mask=(k[:, None] < K) & (n < N), other=0.0)
                acc = tl.dot(x, y, acc)
            tl.store(c + m * ldc + n, acc, mask=(m < M) & (n < N))
            tile += tl.num_programs(0)
        done += tiles


def test_08_grouped_products():
    shapes = [(40, 33, 50), (16, 16, 16), (7, 64, 20)]
    a = [torch.randn(m, k) for m, n, k in shapes]
    b = [torch.randn(k, n) for m, n, k in shapes]
    on_device = [[t.to(DEVICE) for t in side] for side in (a, b)]
    c = [torch.empty(m, n, device=DEVICE) for m, n, k in shapes]
    tables = [torch.tensor([t.data_ptr() for t in side], device=DEVICE) for side in (*on_device, c)]
    sizes = torch.tensor(shapes, dtype=torch.int32).to(DEVICE)
    strides = torch.tensor([[k, n, n] for m, n, k in shapes], dtype=torch.int32).to(DEVICE)
    grouped[(3,)](*tables, sizes, strides, len(shapes), BM=16, BN=16, BK=16)
    for x, y, z in zip(a, b, c):
        torch.testing.assert_close(z.cpu().double(), x.double() @ y.double(), rtol=1e-5, atol=1e-5)


@triton.jit
def scaled_product(
    a, a_scale, b, b_scale, c, M, N, K, KIND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k, s = start + tl.arange(0, BK), start // 32 + tl.arange(0, BK // 32)
        x = tl.load(a + m[:, None] * K + k[None, :])
        y = tl.load(b + k[:, None] * N + n[None, :])
        xs = tl.load(a_scale + m[:, None] * (K // 32) + s[None, :])
        ys = tl.load(b_scale + n[:, None] * (K // 32) + s[None, :])
        acc = tl.dot_scaled(x, xs, KIND, y, ys, KIND, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc)


@pytest.mark.parametrize(("kind", "dtype"), [("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)])
def test_10_block_scaled_product(kind, dtype):
    M, N, K = 64, 32, 128
    a, b = torch.randn(M, K).to(dtype), torch.randn(K, N).to(dtype)
    a_scale, b_scale = (torch.randint(124, 131, (rows, K // 32), dtype=torch.uint8) for rows in (M, N))
    c = torch.empty(M, N, device=DEVICE)
    scaled_product[(2, 2)](
        *(t.to(DEVICE) for t in (a, a_scale, b, b_scale)), c, M, N, K, KIND=kind, BM=32, BN=16, BK=64
    )

    def widened(values, scales):
        return values.double() * torch.exp2(scales.double() - 127).repeat_interleave(32, 1)

    expected = widened(a, a_scale) @ widened(b.t(), b_scale).t()
    torch.testing.assert_close(c.cpu().double(), expected, rtol=1e-4, atol=1e-4)
