"""scaled_dot_product_attention: the CPU's choice of kernel and its bits; dropout against a formula."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

from torch_accel.testing import hold_stream

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
MASKS = {
    "none": lambda b, h, n, s: {},
    "causal": lambda b, h, n, s: {"is_causal": True},
    "bool": lambda b, h, n, s: {"attn_mask": torch.rand(n, s) > 0.3},
    "bool, rows that see nothing": lambda b, h, n, s: {"attn_mask": (torch.arange(n) % 2 == 0)[:, None].expand(n, s)},
    "float": lambda b, h, n, s: {"attn_mask": torch.randn(b, 1, n, s)},
    "float per head": lambda b, h, n, s: {"attn_mask": torch.randn(b, h, n, s)},
    "scale": lambda b, h, n, s: {"scale": 0.3},
}
#: query shape, key heads, key length
SHAPES = {
    "square": ((2, 4, 16, 8), 4, 16),
    "odd": ((1, 3, 7, 5), 3, 13),
    "one row": ((2, 2, 1, 8), 2, 9),
    "grouped": ((2, 6, 8, 4), 2, 8),
    "one key head": ((1, 4, 5, 8), 1, 6),
    "long": ((1, 2, 130, 16), 2, 70),
}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def draw(shape, key_heads, length, dtype):
    b, _, _, e = shape
    return [torch.randn(s).to(dtype) for s in (shape, (b, key_heads, length, e), (b, key_heads, length, e))]


def run(device, tensors, options, layout=lambda t: t):
    leaves = [layout(t).to(device).requires_grad_() for t in tensors]
    options = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    out = attention(*leaves, **options)
    out.backward(torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(device, out.dtype))
    return [out.detach(), *(leaf.grad for leaf in leaves)]


def check(ours, cpus):
    for a, e in zip(ours, cpus, strict=True):
        assert a.stride() == e.stride()
        assert torch.equal(a.cpu(), e)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_cpu(shape, mask, dtype):
    query, key_heads, length = SHAPES[shape]
    tensors = draw(query, key_heads, length, DTYPES[dtype])
    options = MASKS[mask](query[0], query[1], query[2], length)
    if options.get("attn_mask") is not None and options["attn_mask"].is_floating_point():
        options["attn_mask"] = options["attn_mask"].to(DTYPES[dtype])
    if key_heads != query[1]:
        options["enable_gqa"] = True
    check(run("accel", tensors, options), run("cpu", tensors, options))


@pytest.mark.parametrize("shape", [(2, 0, 3, 4), (0, 2, 3, 4), (2, 2, 0, 4), (2, 2, 3, 0)])
def test_nothing(shape):
    tensors = [torch.randn(shape) for _ in range(3)]
    check(run("accel", tensors, {}), run("cpu", tensors, {}))


def test_layouts():
    tensors = draw((2, 4, 6, 8), 4, 6, torch.float32)
    for layout in (
        lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
        lambda t: t[:, :, ::2],
        lambda t: t[..., :4],
        lambda t: t.transpose(2, 3).contiguous().transpose(2, 3),
    ):
        check(run("accel", tensors, {}, layout), run("cpu", tensors, {}, layout))


def test_choice_is_the_cpus():
    q = torch.randn(2, 4, 8, 16)
    half_heads = torch.randn(2, 2, 8, 16)
    mask = torch.randn(8, 8)
    cases = [
        ((q, q, q), {}),
        ((q, half_heads, half_heads), {"enable_gqa": True}),
        ((q, half_heads, half_heads), {}),
        ((q, q, q, mask), {}),
        ((q, q, q, mask.clone().requires_grad_()), {}),
        ((q, q, q, mask[:4]), {}),
        ((q[0], q[0], q[0]), {}),
        ((q, q[:, :, :0], q[:, :, :0]), {}),
        ((q, q, torch.randn(2, 4, 8, 32)), {}),
        ((q[..., :0], q[..., :0], q[..., :0]), {}),
        ((q.transpose(-1, -2), q.transpose(-1, -2), q.transpose(-1, -2)), {}),
        ((q[:1], q, q), {}),
        ((q.half(), q.half(), q.half()), {}),
        ((q.half(), q, q), {}),
        ((q.to(torch.complex64), q.to(torch.complex64), q.to(torch.complex64)), {}),
    ]
    flash, overrideable = SDPBackend.FLASH_ATTENTION.value, SDPBackend.OVERRIDEABLE.value
    chosen = []
    for arguments, options in cases:
        expected = torch._fused_sdp_choice(*arguments, **options)
        moved = [a.detach().to("accel").requires_grad_(a.requires_grad) for a in arguments]
        actual = torch._fused_sdp_choice(*moved, **options)
        assert actual == (overrideable if expected == flash else expected)
        chosen.append(actual)
    assert {overrideable, SDPBackend.MATH.value} <= set(chosen)


def test_sdpa_kernel_selects():
    tensors = draw((2, 4, 16, 8), 4, 16, torch.float32)
    names = {}

    def kernels(backend):
        from torch.utils._python_dispatch import TorchDispatchMode

        class Record(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                names.setdefault(backend, []).append(func.__name__.split(".")[0])
                return func(*args, **(kwargs or {}))

        with sdpa_kernel(backend), Record():
            return attention(*(t.to("accel") for t in tensors))

    results = {b: kernels(b) for b in (SDPBackend.OVERRIDEABLE, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH)}
    assert "_scaled_dot_product_fused_attention_overrideable" in names[SDPBackend.OVERRIDEABLE]
    assert "_scaled_dot_product_flash_attention_for_cpu" in names[SDPBackend.FLASH_ATTENTION]
    assert "bmm" in names[SDPBackend.MATH] or "matmul" in names[SDPBackend.MATH]
    for result in results.values():
        torch.testing.assert_close(result, results[SDPBackend.OVERRIDEABLE])
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION), pytest.raises(RuntimeError, match="No viable backend"):
        attention(*(t.to("accel") for t in tensors))


def test_is_queued():
    q = torch.randn(2, 2, 8, 4, device="accel", requires_grad=True)
    with hold_stream():
        out = attention(q, q, q, is_causal=True)
        dropped = attention(q, q, q, dropout_p=0.5)
        (out.sum() + dropped.sum()).backward()
    assert q.grad.isfinite().all()


# ---- Dropout


def reference(q, k, v, mask, causal, scale, factor, grad):
    """Forward and gradients in float64 with the given factors of the weights; arrays as in attention()."""
    groups = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
    scores = q @ k.swapaxes(2, 3) * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[2:], bool)), scores, -np.inf)
    largest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    total = weights.sum(-1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    out = (weights * factor) @ v
    grad_v = (weights * factor).swapaxes(2, 3) @ grad
    grad_weights = grad @ v.swapaxes(2, 3) * factor
    grad_scores = weights * (grad_weights - (grad_weights * weights).sum(-1, keepdims=True)) * scale
    grad_k = grad_scores.swapaxes(2, 3) @ q

    def fold(g):
        return g.reshape(g.shape[0], -1, groups, *g.shape[2:]).sum(2)

    return out, grad_scores @ k, fold(grad_k), fold(grad_v)


def factors(shape, p):
    """The factors that attention draws next: its weights' elements in order, kept where the uniform draw is < 1 - p."""
    state = torch.accel.get_rng_state()
    uniform = torch.rand(shape, device="accel").cpu().numpy()
    torch.accel.set_rng_state(state)
    return np.where(uniform < np.float32(1 - p), 1 / (1 - p), 0)


@pytest.mark.parametrize("mask", ["none", "causal", "bool", "bool, rows that see nothing", "float"])
@pytest.mark.parametrize("shape", SHAPES)
def test_dropout_is_the_formula(shape, mask):
    query, key_heads, length = SHAPES[shape]
    b, h, n, e = query
    tensors = draw(query, key_heads, length, torch.float32)
    options = MASKS[mask](b, h, n, length)
    p = 0.25
    factor = factors((b, h, n, length), p)
    ours = run("accel", tensors, {**options, "dropout_p": p, "enable_gqa": key_heads != h})
    grad = torch.linspace(-1, 1, b * h * n * e).reshape(query).double().numpy()
    given = options.get("attn_mask")
    expected = reference(
        *(t.double().numpy() for t in tensors),
        None if given is None else given.numpy() if given.dtype == torch.bool else given.double().numpy(),
        options.get("is_causal", False),
        1 / math.sqrt(e),
        factor,
        grad,
    )
    for a, x in zip(ours, expected, strict=True):
        torch.testing.assert_close(a.cpu().double(), torch.from_numpy(x), rtol=1e-4, atol=1e-5)
    assert (factor == 0).any() and (factor > 0).any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dropout_in_other_dtypes(dtype):
    tensors = draw((1, 2, 9, 8), 2, 9, torch.float32)
    torch.accel.manual_seed(5)
    single = run("accel", [t.to(DTYPES[dtype]).float() for t in tensors], {"dropout_p": 0.5})
    torch.accel.manual_seed(5)
    other = run("accel", [t.to(DTYPES[dtype]) for t in tensors], {"dropout_p": 0.5})
    for a, x in zip(other, single, strict=True):
        assert a.dtype == DTYPES[dtype]
        torch.testing.assert_close(a.float(), x, rtol=2e-2, atol=2e-2)


def test_dropout_follows_the_accel_seed_and_no_other():
    tensors = draw((2, 4, 16, 8), 4, 16, torch.float32)
    results = []
    for accel_seed, cpu_seed in itertools.product((1, 2), (3, 4)):
        torch.manual_seed(cpu_seed)
        torch.accel.manual_seed(accel_seed)
        before = torch.get_rng_state()
        results.append(run("accel", tensors, {"dropout_p": 0.3})[0].cpu())
        assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(results[0], results[1]) and torch.equal(results[2], results[3])
    assert not torch.equal(results[0], results[2])


def test_dropout_does_not_depend_on_threads():
    tensors = draw((2, 4, 200, 8), 4, 100, torch.float32)
    threads = torch.get_num_threads()
    results = []
    for n in (1, 2):
        torch.set_num_threads(n)
        torch.accel.manual_seed(0)
        results.append([t.cpu() for t in run("accel", tensors, {"dropout_p": 0.3})])
    torch.set_num_threads(threads)
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0)


@pytest.mark.parametrize("p", [0.0, 0.2])
def test_memory_is_linear_in_the_sequence(p):
    def peak(n):
        q = torch.randn(1, 2, n, 8, device="accel", requires_grad=True)
        torch.accel.reset_peak_memory_stats()
        before = torch.accel.memory_allocated()
        attention(q, q, q, dropout_p=p).sum().backward()
        return torch.accel.max_memory_allocated() - before

    assert peak(1024) < 3 * peak(512)


@pytest.mark.full
@pytest.mark.parametrize("p", [0.0, 0.1])
def test_a_sequence_of_16384_with_8_heads_takes_less_than_2_gib(p):
    q = torch.randn(1, 8, 16384, 16, device="accel", requires_grad=True)
    torch.accel.reset_peak_memory_stats()
    attention(q, q, q, dropout_p=p, is_causal=True).sum().backward()
    torch.accel.synchronize()
    assert q.grad.isfinite().all()
    assert torch.accel.max_memory_allocated() < 2 * 2**30


def test_refuses_the_gradient_of_a_mask_in_words():
    q = torch.randn(1, 1, 4, 4, device="accel")
    zero = torch.zeros((), dtype=torch.int64)
    with pytest.raises(NotImplementedError, match=r"accel: .* no gradient of its mask; use .*SDPBackend.MATH"):
        torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward(
            q, q, q, q, q, [True, True, True, True], q, q[..., 0], zero, zero, 4, 4, 0.0, False, zero, zero
        )
