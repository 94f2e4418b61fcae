"""flex_attention in eager on accel equals the CPU's, and autograd's over the scores written out."""

import math

import pytest
import torch
from torch.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    noop_mask,
    or_masks,
)
from torch.nn.functional import scaled_dot_product_attention

import torch_accel

pytestmark = [
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*is_fx_tracing.*:UserWarning"),
]

BIAS = torch.linspace(-1, 1, 4 * 48).reshape(4, 48)
DOCUMENT = torch.tensor([0] * 10 + [1] * 25 + [2] * 13)

# each with the device that its buffers are on
SCORE_MODS = {
    "none": lambda device: None,
    "doubled": lambda device: lambda score, b, h, q, k: score * 2,
    "relative position": lambda device: lambda score, b, h, q, k: score + (q - k),
    "alibi": lambda device: lambda score, b, h, q, k: score + torch.exp2(-(h + 1.0)) * (k - q),
    "soft cap": lambda device: lambda score, b, h, q, k: 3 * torch.tanh(score / 3),
    "bias": lambda device, bias=BIAS: bias_mod(bias.to(device)),
}
MASK_MODS = {
    "none": lambda device: None,
    "causal": lambda device: lambda b, h, q, k: q >= k,
    "window": lambda device: and_masks(lambda b, h, q, k: q >= k, lambda b, h, q, k: q - k <= 5),
    "prefix": lambda device: or_masks(lambda b, h, q, k: q >= k, lambda b, h, q, k: k < 7),
    "per head": lambda device: lambda b, h, q, k: (q + h) % 2 == k % 2,
    "documents": lambda device: documents(DOCUMENT.to(device)),
    "rows that see nothing": lambda device: lambda b, h, q, k: (q % 3 > 0) & (q >= k),
}


def bias_mod(bias):
    return lambda score, b, h, q, k: score + bias[h, k]


def documents(ids):
    return lambda b, h, q, k: ids[q] == ids[k]


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch.compiler.reset()


@pytest.fixture
def untraced(monkeypatch):
    """The operator is called as it is; by default Dynamo traces the call first, also in eager."""
    from torch.nn.attention import flex_attention as module

    monkeypatch.setattr(module, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


@pytest.fixture
def cpu_has_a_backward(monkeypatch):
    """torch refuses gradients on the CPU, where its kernels are tested for inference only; they compute them."""
    from torch.nn.attention import flex_attention as module

    monkeypatch.setattr(module, "_validate_device", lambda query, key, value: None)


def tensors(heads=4, key_heads=4, length=48, key_length=48, size=16, dtype=torch.float32, value_size=None):
    shapes = (heads, length, size), (key_heads, key_length, size), (key_heads, key_length, value_size or size)
    return [torch.randn(2, *shape).to(dtype) for shape in shapes]


def call(device, operands, score="none", mask="none", backward=True, **options):
    leaves = [t.to(device).requires_grad_(backward) for t in operands]
    mask_mod = MASK_MODS[mask](device)
    block_mask = None
    if mask_mod is not None:
        heads, rows, columns = leaves[0].shape[1], leaves[0].shape[2], leaves[1].shape[2]
        block_mask = create_block_mask(mask_mod, None, heads, rows, columns, device=device, BLOCK_SIZE=16)
    gqa = leaves[0].shape[1] != leaves[1].shape[1]
    out = flex_attention(*leaves, SCORE_MODS[score](device), block_mask, enable_gqa=gqa, **options)
    if not backward:
        return [out]
    out.backward(torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(device, out.dtype))
    return [out.detach(), *(leaf.grad for leaf in leaves)]


def same(ours, theirs):
    for a, e in zip(ours, theirs, strict=True):
        assert a.device.type == "accel" and a.stride() == e.stride()
        assert torch.equal(a.cpu(), e)


@pytest.mark.parametrize("mask", MASK_MODS)
@pytest.mark.parametrize("score", SCORE_MODS)
def test_forward_equals_the_cpu(score, mask, untraced):
    operands = tensors()
    same(call("accel", operands, score, mask, backward=False), call("cpu", operands, score, mask, backward=False))


@pytest.mark.parametrize(
    "score, mask", [("none", "none"), ("soft cap", "causal"), ("bias", "none"), ("alibi", "documents")]
)
def test_gradients_equal_the_cpus(score, mask, cpu_has_a_backward):
    operands = tensors(key_heads=2)
    same(call("accel", operands, score, mask), call("cpu", operands, score, mask))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes_and_scale(dtype, cpu_has_a_backward):
    operands = tensors(length=20, key_length=33, value_size=8, dtype=dtype)
    same(call("accel", operands, "doubled", scale=0.3), call("cpu", operands, "doubled", scale=0.3))


def written_out(q, k, v, score="none", mask="none"):
    """Float64, without flex_attention's operators or vmap: indices broadcast."""
    q, k, v = (t.double().requires_grad_() for t in (q, k, v))
    groups = q.shape[1] // k.shape[1]
    keys, values = (t.repeat_interleave(groups, 1) for t in (k, v))
    scores = q @ keys.transpose(2, 3) / math.sqrt(q.shape[-1])
    b = torch.zeros((), dtype=torch.int64)
    h, i, j = (torch.arange(n).reshape(s) for n, s in zip(scores.shape[1:], ((-1, 1, 1), (-1, 1), (-1,)), strict=True))
    modify, see = SCORE_MODS[score]("cpu"), MASK_MODS[mask]("cpu")
    scores = scores if modify is None else modify(scores, b, h, i, j)
    seen = torch.ones_like(scores, dtype=torch.bool) if see is None else see(b, h, i, j).expand_as(scores)
    some = seen.any(-1, keepdim=True)
    scores = torch.where(seen, scores, torch.where(some, -math.inf, 0.0))
    out = (torch.softmax(scores, -1) * some) @ values
    out.backward(torch.linspace(-1, 1, out.numel(), dtype=torch.float64).reshape(out.shape))
    sums = torch.where(some[..., 0], torch.logsumexp(scores, -1), -math.inf)
    return [out.detach(), q.grad, k.grad, v.grad], sums.detach(), scores.amax(-1).detach()


@pytest.mark.parametrize(
    "score, mask, key_heads",
    [("alibi", "window", 4), ("bias", "prefix", 2), ("soft cap", "per head", 1), ("none", "rows that see nothing", 4)],
)
def test_against_the_scores_written_out(score, mask, key_heads):
    operands = tensors(key_heads=key_heads)
    ours = call("accel", operands, score, mask)
    for a, e in zip(ours, written_out(*operands, score, mask)[0], strict=True):
        torch.testing.assert_close(a.cpu().double(), e, rtol=2e-5, atol=2e-5)


def test_row_sums_and_largest_scores():
    operands = tensors()
    _, sums, largest = written_out(*operands, "soft cap", "causal")
    on_accel = [t.to("accel") for t in operands]
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 48, 48, device="accel", BLOCK_SIZE=16)
    out, aux = flex_attention(
        *on_accel, SCORE_MODS["soft cap"]("accel"), mask, return_aux=AuxRequest(lse=True, max_scores=True)
    )
    assert out.is_accel and aux.lse.is_accel and aux.max_scores.is_accel
    torch.testing.assert_close(aux.lse.cpu().double(), sums, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(aux.max_scores.cpu().double(), largest, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:return_lse is deprecated:FutureWarning")
def test_return_lse_and_its_gradient(cpu_has_a_backward):
    operands, results = tensors(), []
    for device in ("accel", "cpu"):
        leaves = [t.to(device).requires_grad_() for t in operands]
        out, sums = flex_attention(*leaves, return_lse=True)
        (out.sum() + sums.sin().sum()).backward()
        results.append([out.detach(), sums.detach(), *(leaf.grad for leaf in leaves)])
    same(*results)


def test_gradient_of_a_captured_bias():
    operands = [t.to("accel") for t in tensors()]
    bias = BIAS.to("accel").requires_grad_()
    flex_attention(*operands, bias_mod(bias)).sin().sum().backward()
    exact = BIAS.double().requires_grad_()
    q, k, v = (t.cpu().double() for t in operands)
    scaled_dot_product_attention(q, k, v, exact[None, :, None, :].expand(2, 4, 48, 48)).sin().sum().backward()
    torch.testing.assert_close(bias.grad.cpu().double(), exact.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mask", [name for name in MASK_MODS if name != "none"])
@pytest.mark.parametrize("block", [16, (8, 32), 128])
def test_block_masks_equal_the_cpus(mask, block):
    made = [
        create_block_mask(MASK_MODS[mask](d), 2, 4, 48, 80 if mask != "documents" else 48, d, block)
        for d in ("accel", "cpu")
    ]
    for name in BlockMask._TENSOR_ATTRS:
        ours, theirs = (getattr(m, name) for m in made)
        assert (ours is None) == (theirs is None)
        assert ours is None or (ours.is_accel and torch.equal(ours.cpu(), theirs))
    assert made[0].sparsity() == made[1].sparsity()
    assert str(made[0]) == str(made[1])
    assert torch.equal(made[0].to_dense().cpu(), made[1].to_dense())
    assert torch.equal(made[0].to("cpu").kv_indices, made[1].kv_indices)


def test_masks_are_made_on_accel_unless_told_otherwise():
    assert create_block_mask(noop_mask, 1, 1, 16, 16).kv_indices.is_accel
    assert create_mask(lambda b, h, q, k: q >= k, 1, 1, 4, 4, device="accel").is_accel


def test_a_slice_of_a_block_mask():
    operands = tensors(length=16)
    whole = create_block_mask(lambda b, h, q, k: q + 32 >= k, 2, 4, 48, 48, device="accel", BLOCK_SIZE=16)
    part = whole[:, :, :1]
    part.mask_mod = whole.mask_mod
    part.seq_lengths = (16, 48)
    ours = flex_attention(*(t.to("accel") for t in operands), block_mask=part)
    seen = torch.arange(16)[:, None] + 32 >= torch.arange(48)
    torch.testing.assert_close(ours.cpu(), scaled_dot_product_attention(*operands, seen), rtol=1e-5, atol=1e-6)


def test_autocast():
    operands, results = tensors(), []
    for device in ("accel", "cpu"):
        with torch.autocast(device, torch.bfloat16):
            results.append(flex_attention(*(t.to(device) for t in operands)))
    assert results[0].dtype == torch.bfloat16
    same(results[:1], results[1:])


def test_nested_tensors_are_refused_as_on_the_cpu():
    nested = torch.nested.nested_tensor_from_jagged(torch.randn(20, 2, 4), torch.tensor([0, 5, 20])).transpose(1, 2)
    for device in ("accel", "cpu"):
        with pytest.raises(NotImplementedError, match="flex_attention does not support NestedTensor inputs"):
            flex_attention(*[nested.to(device)] * 3)


def test_other_devices_are_refused_as_before():
    operands = [t.to("meta") for t in tensors()]
    with pytest.raises(ValueError, match="FlexAttention is only supported on CUDA, CPU, HPU, or MPS devices"):
        flex_attention(*operands)
    with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
        flex_attention(*(t.requires_grad_() for t in tensors()))
    with pytest.raises(ValueError, match="same device"):
        flex_attention(*(t.to(d) for t, d in zip(tensors(), ("accel", "accel", "cpu"))))


def test_nothing_falls_back():
    torch_accel.fallback_report(reset=True)
    call("accel", tensors(), "bias", "documents")
    assert torch_accel.fallback_report() == {}
