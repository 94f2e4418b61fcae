"""Liger-Kernel's operators: for each its arguments, and what it computes, in torch.

A case makes the arguments of ``Function.apply``; tensors that require a gradient are compared with theirs. A reference
takes the same arguments, in float64 on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

FLOATS = (torch.float32, torch.bfloat16)
ONE = (torch.float32,)


@dataclass(frozen=True)
class Case:
    function: str
    make: Callable[[], list[Any]]
    reference: Callable[..., Any]
    dtypes: tuple[torch.dtype, ...] = FLOATS
    note: str = ""


CASES: list[Case] = []


def case(function: str, make: Callable[[], list[Any]], note: str = "", dtypes=FLOATS):
    """Adds the decorated reference of ``function`` to the table."""

    def add(reference):
        CASES.append(Case(function, make, reference, dtypes, note))
        return reference

    return add


def leaf(*shape: int, scale: float = 1.0, shift: float = 0.0) -> torch.Tensor:
    return (torch.randn(shape) * scale + shift).requires_grad_()


def fixed(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def labels(n: int, classes: int, ignored: bool = True) -> torch.Tensor:
    target = torch.randint(0, classes, (n,))
    if ignored:
        target[1] = -100
    return target


# ---- Norms


def rms(x, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


@case("LigerRMSNormFunction", lambda: [leaf(3, 7, 100), leaf(100), 1e-6, 0.0, "llama", False])
@case("LigerRMSNormFunction", lambda: [leaf(9, 129), leaf(129), 1e-6, 1.0, "gemma", True], "gemma, in place")
@case("LigerRMSNormFunction", lambda: [leaf(9, 64), None, 1e-5, 0.0, "none", False], "no weight")
def rms_norm(x, w, eps, offset, *rest):
    return rms(x, eps) if w is None else rms(x, eps) * (w + offset)


@case("LigerFusedAddRMSNormFunction", lambda: [leaf(9, 100), leaf(9, 100), leaf(100), 1e-6, 0.0, "llama", False])
def fused_add_rms_norm(x, r, w, eps, offset, *rest):
    return rms(x + r, eps) * (w + offset), x + r


@case(
    "LigerModulatedRMSNormFunction",
    lambda: [leaf(6, 100), leaf(100), leaf(6, 100), leaf(6, 100), 1e-6, 0.0, "llama", False],
)
def modulated_rms_norm(x, w, scale, shift, eps, offset, *rest):
    return rms(x, eps) * (w + offset) * (1 + scale) + shift


@case("LigerLayerNormFunction", lambda: [leaf(4, 5, 100), leaf(100), leaf(100), 1e-5])
def layer_norm(x, w, b, eps):
    return F.layer_norm(x, x.shape[-1:], w, b, eps)


@case("LigerGroupNormFunction", lambda: [leaf(3, 6, 50), leaf(6), leaf(6), 6, 2, 1e-5])
def group_norm(x, w, b, channels, groups, eps):
    return F.group_norm(x, groups, w, b, eps)


@case("LigerPolyNormFunction", lambda: [leaf(9, 100), leaf(3), leaf(), 1e-6, False])
def poly_norm(x, w, b, eps, in_place):
    return w[0] * rms(x**3, eps) + w[1] * rms(x**2, eps) + w[2] * rms(x, eps) + b


@case("LigerDyTFunction", lambda: [leaf(9, 100), leaf(1), leaf(100), leaf(100)])
def dyt(x, alpha, gamma, beta):
    return gamma * torch.tanh(alpha * x) + beta


# ---- Activations


@case("LigerGELUMulFunction", lambda: [leaf(4, 9, 100), leaf(4, 9, 100)])
def geglu(a, b):
    return F.gelu(a, approximate="tanh") * b


@case("LigerSiLUMulFunction", lambda: [leaf(4, 9, 100), leaf(4, 9, 100)])
@case("LigerSiLUMulFunction", lambda: [leaf(9, 100), leaf(9, 100), 0.5, 2.0], "multipliers")
def swiglu(a, b, gate=1.0, down=1.0):
    return F.silu(a * gate) * b * down


@case("LigerFusedGateUpSiLUMulFunction", lambda: [leaf(9, 200), False])
def fused_gate_up(y, in_place):
    return swiglu(*y.chunk(2, -1))


@case("LigerReLUSquaredFunction", lambda: [leaf(9, 100)])
def relu_squared(x):
    return F.relu(x).square()


@case("LigerSoftmaxFunction", lambda: [leaf(9, 100)])
def softmax(x):
    return x.softmax(-1)


@case("LigerSparsemaxFunction", lambda: [leaf(9, 100), -1])
def sparsemax(x, dim):
    z = x.sort(dim, descending=True).values
    total = z.cumsum(dim) - 1
    k = torch.arange(1, x.shape[dim] + 1, dtype=x.dtype)
    size = (z * k > total).sum(dim, keepdim=True)
    return F.relu(x - total.gather(dim, size - 1) / size)


# ---- Rotary embeddings


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def angles(*shape: int) -> list[torch.Tensor]:
    """cos and sin for heads of size ``2 * shape[-1]``: both halves alike, as the kernels read the first alone."""
    angle = torch.rand(*shape) * 6
    return [torch.cat((angle, angle), -1).cos(), torch.cat((angle, angle), -1).sin()]


@case("LigerRopeFunction", lambda: [leaf(2, 3, 7, 20), leaf(2, 1, 7, 20), *angles(1, 7, 10)])
def rope(q, k, cos, sin):
    return rotate(q, cos, sin), rotate(k, cos, sin)


@case("LigerQwen2VLMRopeFunction", lambda: [leaf(2, 3, 7, 32), leaf(2, 1, 7, 32), *angles(3, 2, 7, 16), [4, 6, 6]])
def qwen2vl_mrope(q, k, cos, sin, sections):
    def merged(x):
        parts = x.split(sections * 2, -1)
        return torch.cat([part[i % 3] for i, part in enumerate(parts)], -1)[:, None]

    return rotate(q, merged(cos), merged(sin)), rotate(k, merged(cos), merged(sin))


@case(
    "LigerLlama4RopeFunction",
    lambda: [leaf(2, 7, 3, 20), leaf(2, 7, 1, 20), torch.polar(torch.ones(7, 10), torch.rand(7, 10))],
)
def llama4_rope(q, k, frequencies):
    def turned(x):
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * frequencies[:, None].to(pairs.dtype)).flatten(-2)

    return turned(q), turned(k)


# ---- Losses


def scaled_cross_entropy(x, target, weight, ignore, lse_scale, smoothing, reduction, softcap):
    if softcap is not None:
        x = softcap * torch.tanh(x / softcap)
    loss = F.cross_entropy(x, target, weight, ignore_index=ignore, label_smoothing=smoothing, reduction=reduction)
    kept = x[target != ignore].logsumexp(-1).square()
    return loss + lse_scale * (kept.mean() if reduction == "mean" else kept.sum())


@case("LigerCrossEntropyFunction", lambda: [leaf(9, 100), labels(9, 100), None, -100, 0.0, 0.0, "mean", None])
@case(
    "LigerCrossEntropyFunction",
    lambda: [leaf(9, 100), labels(9, 100), None, -100, 1e-4, 0.1, "sum", 30.0],
    "z loss, smoothing, softcap",
)
@case(
    "LigerCrossEntropyFunction",
    lambda: [leaf(9, 100), labels(9, 100), torch.rand(100), -100, 0.0, 0.0, "mean", None],
    "class weights",
)
def cross_entropy(x, target, *options):
    return scaled_cross_entropy(x, target, *options)


@case("LigerFusedLinearCrossEntropyFunction", lambda: [leaf(9, 40), leaf(100, 40), labels(9, 100), leaf(100)])
def fused_linear_cross_entropy(x, w, target, bias):
    return F.cross_entropy(x @ w.T + bias, target)


@case(
    "LigerVocabParallelCEFunction",
    lambda: [leaf(3, 3, 100), labels(9, 100).view(3, 3), None, -100, 0.0, "pytorch", "global"],
)
@case(
    "LigerVocabParallelCEFunction",
    lambda: [leaf(3, 3, 100), labels(9, 100).view(3, 3), None, -100, 0.1, "pytorch", "global"],
    "smoothing",
)
def vocab_parallel(x, target, group, ignore, smoothing, *rest):
    loss = F.cross_entropy(x.flatten(0, 1), target.flatten(), label_smoothing=smoothing, reduction="none")
    return loss.view_as(target)


@case("LigerFusedCETVDFunction", lambda: [leaf(9, 100), fixed(9, 100), labels(9, 100)])
def fused_ce_tvd(student, teacher, target):
    distance = (student.softmax(-1) - teacher.softmax(-1)).abs().sum(-1) / 2
    return F.cross_entropy(student, target, reduction="none"), distance * (target != -100)


def jensen_shannon(x, y, beta):
    """Of log probabilities ``x`` (the student's) and ``y``: a mean over the rows."""
    if beta == 0:
        return F.kl_div(x, y, reduction="batchmean", log_target=True)
    if beta == 1:
        return F.kl_div(y, x, reduction="batchmean", log_target=True)
    middle = torch.log(beta * y.exp() + (1 - beta) * x.exp())
    forward = F.kl_div(middle, y, reduction="batchmean", log_target=True)
    return beta * forward + (1 - beta) * F.kl_div(middle, x, reduction="batchmean", log_target=True)


def log_probabilities(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).log_softmax(-1)


for beta in (0.0, 0.3, 1.0):
    case(
        "LigerJSDFunction",
        lambda beta=beta: [log_probabilities(9, 100).requires_grad_(), log_probabilities(9, 100), None, beta],
        f"beta {beta}",
    )(lambda x, y, shift, beta: jensen_shannon(x, y, beta))


@case("LigerFusedLinearJSDFunction", lambda: [leaf(9, 40), leaf(100, 40), fixed(9, 50), fixed(100, 50), None, 0.3])
def fused_linear_jsd(x, w, teacher, teacher_w, shift, beta):
    return jensen_shannon((x @ w.T).log_softmax(-1), (teacher @ teacher_w.T).log_softmax(-1), beta)


@case(
    "LigerKLDivLossFunction", lambda: [leaf(9, 100), log_probabilities(9, 100).exp(), "batchmean", False], "batchmean"
)
@case("LigerKLDivLossFunction", lambda: [leaf(9, 100), log_probabilities(9, 100), "none", True], "none, log target")
def kl_div(x, y, reduction, log_target):
    return F.kl_div(x, y, reduction=reduction, log_target=log_target)


@case(
    "LigerFusedLinearKLDivFunction", lambda: [leaf(9, 40), leaf(100, 40), fixed(9, 100).softmax(-1), None, "batchmean"]
)
def fused_linear_kl_div(x, w, target, shift, reduction):
    return F.kl_div((x @ w.T).log_softmax(-1), target, reduction=reduction)


@case(
    "LigerTVDLossFunction",
    lambda: [torch.rand(9, 100).requires_grad_(), torch.rand(9, 100), labels(9, 100), "batchmean"],
)
def tvd(p, q, shift, reduction):
    kept = shift != -100
    return ((p - q).abs() / 2)[kept].sum() / kept.sum()


def grpo_arguments(beta: float = 0.04, kind: str = "grpo") -> list[Any]:
    mask = torch.ones(3, 5, dtype=torch.int32)
    mask[1, 3:] = 0
    logps = [log_probabilities(3, 5, 50)[..., 0].contiguous() for _ in range(2)]
    return [leaf(3, 6, 50), *logps, torch.randint(0, 50, (3, 5)), fixed(3), mask, 0.9, beta, 0.2, 0.4, False, kind]


@case("GrpoLossFunction", grpo_arguments)
@case("GrpoLossFunction", lambda: grpo_arguments(kind="sapo"), "sapo")
def grpo(logits, old, ref, ids, advantages, mask, temperature, beta, low, high, inplace, kind):
    logp = (logits[:, :-1] / temperature).log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    ratio, gain = (logp - old).exp(), advantages[:, None]
    if kind == "sapo":
        slope = torch.where(gain > 0, 1.0, 1.05).to(gain.dtype)
        loss, clipped = -(slope * (ratio - 1)).sigmoid() * 4 / slope * gain, torch.zeros_like(ratio)
    else:
        loss = -torch.minimum(ratio * gain, ratio.clamp(1 - low, 1 + high) * gain)
        clipped = ((ratio < 1 - low) & (gain < 0)) | ((ratio > 1 + high) & (gain > 0))
    kl = (ref - logp).exp() - (ref - logp) - 1
    reduced = (((loss + beta * kl) * mask).sum(-1) / mask.sum(-1)).mean()
    return reduced, ((kl * mask).sum() / mask.sum()).detach(), (clipped * mask).sum() / mask.sum()


# ---- Attention, embeddings, mixtures


@case("LigerAttnResFunction", lambda: [leaf(5, 2, 3, 40), leaf(40), leaf(40), 1e-6])
def attention_residuals(v, query, norm, eps):
    scores = (rms(v, eps) * norm * query).sum(-1, keepdim=True)
    return (scores.softmax(0) * v).sum(0)


@case("LigerEmbeddingFunction", lambda: [leaf(50, 40), torch.randint(0, 50, (3, 30))])
def embedding(table, indices):
    return table[indices]


@case(
    "LigerFusedNeighborhoodAttentionFunction",
    lambda: [leaf(2, 2, 20, 16), leaf(2, 2, 20, 16), leaf(2, 2, 20, 16), 5, 2],
)
def neighborhood_attention(q, k, v, size, dilation):
    distance = torch.arange(q.shape[-2])[:, None] - torch.arange(q.shape[-2])
    near = (distance.abs() <= size // 2 * dilation) & (distance % dilation == 0)
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~near, float("-inf"))
    return scores.softmax(-1) @ v


@case("LigerMultiTokenAttentionFunction", lambda: [leaf(2, 3, 20, 20), leaf(4, 3, 3, 3), leaf(4), 1, 1])
@case(
    "LigerMultiTokenAttentionFunction",
    lambda: [leaf(2, 3, 20, 20), leaf(4, 3, 3, 3), leaf(4), 1, 1, 1, 1, True],
    "sparse",
    ONE,
)
def multi_token_attention(scores, weight, bias, stride, padding, dilation=1, groups=1, sparse=False):
    future = torch.ones_like(scores, dtype=torch.bool).triu(1)
    if sparse:
        # A row at a time, over what it may see: -inf - -inf is NaN in the sums of the masked part.
        rows = [
            F.pad(sparsemax(scores[..., i, : i + 1], -1), (0, scores.shape[-1] - i - 1))
            for i in range(scores.shape[-2])
        ]
        probabilities = torch.stack(rows, -2)
    else:
        probabilities = scores.masked_fill(future, float("-inf")).softmax(-1)
    out = F.conv2d(probabilities, weight, bias, stride, padding, dilation, groups)
    return out.masked_fill(future[:, :1], 0)


def moe_arguments() -> list[Any]:
    weights = torch.rand(20, 2).softmax(-1).requires_grad_()
    choice = torch.stack([torch.randperm(4)[:2] for _ in range(20)]).int()
    return [leaf(20, 32), leaf(4, 2 * 24, 32, scale=0.2), leaf(4, 32, 24, scale=0.2), choice, weights]


@case("LigerFusedMoEFunction", moe_arguments)
def fused_moe(x, up, down, choice, weights):
    hidden = torch.einsum("th,tknh->tkn", x, up[choice.long()])
    return (torch.einsum("tki,tkhi->tkh", swiglu(*hidden.chunk(2, -1)), down[choice.long()]) * weights[..., None]).sum(
        1
    )


class Mlp(torch.nn.Module):
    """What the tiled MLP applies to each shard; its weights are constants."""

    def forward(self, x):
        return F.silu(x) * x


@case("LigerTiledMLPFunction", lambda: [Mlp.forward, Mlp(), leaf(2, 10, 40), 3])
def tiled_mlp(fn, module, x, shards):
    return fn(module, x)


@case("LigerMLPFunction", lambda: [leaf(2, 16, 32), leaf(64, 32), leaf(64, 32), leaf(32, 64)])
def mlp(x, gate, up, down):
    return swiglu(x @ gate.T, x @ up.T) @ down.T


@case("LigerFusedLinearScaledCrossEntropyFunction", lambda: [leaf(9, 40), leaf(100, 40), labels(9, 100)])
def fused_linear_scaled_cross_entropy_alone(x, w, target):
    return fused_linear_scaled_cross_entropy(x, w, target, None)


@case("LigerFusedLinearScaledCrossEntropyTPFunction", lambda: [leaf(9, 40), leaf(100, 40), labels(9, 100), None])
def fused_linear_scaled_cross_entropy(x, w, target, group):
    return F.cross_entropy(x @ w.T, target, reduction="none")


# ---- Manifold-constrained hyper-connections


@case("LigerMHCPreFunction", lambda: [leaf(2, 5, 4, 40), torch.rand(2, 5, 4).requires_grad_()])
def mhc_pre(x, h):
    return (x * h[..., None]).sum(-2)


@case("LigerMHCPostResFunction", lambda: [leaf(2, 5, 4, 40), leaf(2, 5, 40), leaf(2, 5, 4), leaf(2, 5, 4, 4)])
def mhc_post_res(x, out, post, res):
    return out[..., None, :] * post[..., None] + res @ x


@case(
    "LigerMHCCoeffsFunction",
    lambda: (
        [leaf(2, 5, 4, 40), leaf(160, 24, scale=0.1), leaf(24), *(leaf(shift=1.0) for _ in range(3)), True]
        + [20, 1e-6, 0.0, 1e-6, 2.0]
    ),
)
def mhc_coefficients(x, phi, b, pre, post, res, allow, steps, rms_eps, pre_eps, eps, multiplier):
    n = x.shape[-2]
    mixed = rms(x.flatten(-2), rms_eps) @ phi
    parts = [
        part * scale + bias
        for part, scale, bias in zip(mixed.split([n, n, n * n], -1), (pre, post, res), b.split([n, n, n * n]))
    ]
    matrix = parts[2].unflatten(-1, (n, n)).softmax(-1) + eps
    matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
    for _ in range(steps - 1):
        matrix = matrix / (matrix.sum(-1, keepdim=True) + eps)
        matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
    return parts[0].sigmoid() + pre_eps, parts[1].sigmoid() * multiplier, matrix
