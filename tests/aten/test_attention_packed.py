"""Attention over packed sequences (nested tensors of jagged layout, varlen_attn) equals attention over each sequence."""

import math
from collections import Counter

import pytest
import torch
from torch.nested import nested_tensor_from_jagged
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.varlen import AuxRequest, varlen_attn, varlen_attn_out
from torch.nn.functional import scaled_dot_product_attention as attention

from tests.aten.test_attention import factors, reference
from torch_accel.fallback import fallback_report
from torch_accel.testing import hold_stream, wait_report

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
LENGTHS = {
    "several": [3, 1, 5],
    "one": [6],
    "equal": [4, 4],
    "with an empty one": [2, 0, 3],
    "long": [70, 130],
}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def offsets_of(lengths):
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()])


def packed(lengths, heads, size=8, dtype=torch.float32):
    return torch.randn(sum(lengths), heads, size).to(dtype)


def one_by_one(tensors, lengths, key_lengths, **options):
    """CPU: each sequence alone, by the dense operator; forward and gradients."""
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    parts = zip(*(leaf.split(n) for leaf, n in zip(leaves, (lengths, key_lengths, key_lengths))), strict=True)
    out = torch.cat(
        [attention(*(p.transpose(0, 1)[None] for p in part), **options)[0].transpose(0, 1) for part in parts]
    )
    out.backward(torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(out.dtype))
    return [out.detach(), *(leaf.grad for leaf in leaves)]


def jagged(device, tensors, lengths, key_lengths, **options):
    """The same through one nested call."""
    leaves = [t.detach().to(device).requires_grad_() for t in tensors]
    offsets = offsets_of(lengths).to(device)
    key_offsets = offsets if key_lengths == lengths else offsets_of(key_lengths).to(device)
    query = nested_tensor_from_jagged(leaves[0], offsets).transpose(1, 2)
    key, value = (nested_tensor_from_jagged(leaf, key_offsets).transpose(1, 2) for leaf in leaves[1:])
    out = attention(query, key, value, **options)
    assert out.is_nested and out.shape[:2] == query.shape[:2] and out.shape[2] == query.shape[2]
    out = out.transpose(1, 2).values()
    out.backward(torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(out.dtype).to(device))
    return [out.detach(), *(leaf.grad for leaf in leaves)]


def same(ours, expected, **tolerances):
    for a, e in zip(ours, expected, strict=True):
        assert a.is_accel
        torch.testing.assert_close(a.cpu(), e, **(tolerances or {"rtol": 0, "atol": 0}))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}], ids=str)
@pytest.mark.parametrize("heads, key_heads", [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
def test_jagged_equals_each_sequence_alone(lengths, heads, key_heads, options, dtype):
    tensors = [packed(lengths, h, dtype=DTYPES[dtype]) for h in (heads, key_heads, key_heads)]
    options = {**options, "enable_gqa": heads != key_heads}
    present = [n for n in lengths if n]
    same(jagged("accel", tensors, lengths, lengths, **options), one_by_one(tensors, present, present, **options))


@pytest.mark.parametrize("causal", [False, True])
def test_keys_of_other_lengths(causal):
    lengths, key_lengths = [3, 5, 2, 4], [4, 1, 2, 9]
    tensors = [packed(lengths, 4), packed(key_lengths, 2), packed(key_lengths, 2)]
    options = {"is_causal": causal, "enable_gqa": True}
    same(
        jagged("accel", tensors, lengths, key_lengths, **options), one_by_one(tensors, lengths, key_lengths, **options)
    )


def test_queries_without_keys_give_zero():
    tensors = [packed([3, 2], 2), packed([0, 4], 2), packed([0, 4], 2)]
    out, grad_query, *_ = jagged("accel", tensors, [3, 2], [0, 4])
    assert (out[:3] == 0).all() and (grad_query[:3] == 0).all()
    same([out[3:]], one_by_one([tensors[0][3:], *tensors[1:]], [2], [4])[:1])


@pytest.mark.parametrize("size, value_size", [(8, 8), (5, 5), (8, 3)])
def test_jagged_equals_the_cpus(size, value_size):
    lengths = [3, 1, 5]
    tensors = [packed(lengths, 4, size), packed(lengths, 4, size), packed(lengths, 4, value_size)]
    same(jagged("accel", tensors, lengths, lengths), jagged("cpu", tensors, lengths, lengths), rtol=1e-5, atol=1e-6)


def test_slices_of_one_projection():
    """As in a model: queries, keys and values are parts of one tensor."""
    lengths = [3, 5]
    whole = torch.randn(8, 3, 2, 8)

    def call(device):
        leaf = whole.to(device).requires_grad_()
        parts = [nested_tensor_from_jagged(p, offsets_of(lengths).to(device)) for p in leaf.unbind(1)]
        offsets = parts[0].offsets()
        parts = [nested_tensor_from_jagged(p.values(), offsets).transpose(1, 2) for p in parts]
        out = attention(*parts).transpose(1, 2).values()
        out.square().sum().backward()
        return [out.detach(), leaf.grad]

    leaf = whole.clone().requires_grad_()
    out = torch.cat(
        [attention(*(t.transpose(0, 1)[None] for t in p.unbind(1)))[0].transpose(0, 1) for p in leaf.split(lengths)]
    )
    out.square().sum().backward()
    same(call("accel"), [out.detach(), leaf.grad])


def test_autocast():
    lengths = [3, 5]
    tensors = [packed(lengths, 2) for _ in range(3)]
    with torch.autocast("accel", torch.bfloat16):
        ours = jagged("accel", tensors, lengths, lengths, is_causal=True)
    expected = one_by_one([t.bfloat16() for t in tensors], lengths, lengths, is_causal=True)
    assert ours[0].dtype == torch.bfloat16 and ours[1].dtype == torch.float32
    same(ours, [expected[0], *(e.float() for e in expected[1:])])


def test_with_math_only_it_is_torchs_own_form_which_refuses_what_it_lacks():
    lengths = [3, 5]
    tensors = [packed(lengths, 2) for _ in range(3)]
    with sdpa_kernel(SDPBackend.MATH):
        same(jagged("accel", tensors, lengths, lengths), jagged("cpu", tensors, lengths, lengths))
        for device in ("accel", "cpu"):
            with pytest.raises(RuntimeError, match="No viable backend for scaled_dot_product_attention was found"):
                jagged(device, tensors, lengths, lengths, is_causal=True)


@pytest.mark.parametrize("arguments", [{"attn_mask": torch.ones(3, 3).bool()}, {"enable_gqa": False}], ids=str)
def test_refuses_in_the_cpus_words(arguments):
    lengths = [3, 5]
    tensors = [packed(lengths, 4), packed(lengths, 2), packed(lengths, 2)]
    errors = []
    for device in ("cpu", "accel"):
        with pytest.raises(Exception) as raised:
            jagged(device, tensors, lengths, lengths, **arguments)
        errors.append((raised.type, str(raised.value).replace(device, "").split("[ torch.")[0]))
    assert errors[0] == errors[1]


def test_jagged_is_queued(queued):
    lengths = [3, 5]
    tensors = [packed(lengths, 2) for _ in range(3)]
    leaves = [t.to("accel").requires_grad_() for t in tensors]
    offsets = offsets_of(lengths).to("accel")
    torch.accel.synchronize()
    fallback_report(reset=True)
    before = wait_report()
    with hold_stream():
        parts = [nested_tensor_from_jagged(leaf, offsets).transpose(1, 2) for leaf in leaves]
        out = attention(*parts, is_causal=True).transpose(1, 2).values()
        out.backward(torch.ones_like(out))
        assert wait_report() == before
    assert fallback_report() == Counter()
    out_cpu = one_by_one(tensors, lengths, lengths, is_causal=True)[0]
    assert torch.equal(out.detach().cpu(), out_cpu)


# ---- Dropout


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("key_heads", [2, 1])
def test_dropout_is_the_formula(key_heads, causal):
    """The draws of a sequence follow those of the one before: element (head, row, column) in order."""
    lengths, p = [3, 1, 5], 0.4
    tensors = [packed(lengths, 2), packed(lengths, key_heads), packed(lengths, key_heads)]
    draws = factors((sum(2 * n * n for n in lengths),), p)
    ours = jagged("accel", tensors, lengths, lengths, dropout_p=p, is_causal=causal, enable_gqa=key_heads != 2)
    grads = torch.linspace(-1, 1, ours[0].numel()).reshape(ours[0].shape)
    expected, first = [], 0
    for q, k, v, grad in zip(*(t.split(lengths) for t in (*tensors, grads)), strict=True):
        n = len(q)
        factor = draws[first : first + 2 * n * n].reshape(1, 2, n, n)
        first += 2 * n * n
        dense = [t.transpose(0, 1)[None].double().numpy() for t in (q, k, v, grad)]
        results = reference(*dense[:3], None, causal, 1 / math.sqrt(8), factor, dense[3])
        expected.append([torch.from_numpy(r)[0].transpose(0, 1) for r in results])
    same([t.double() for t in ours], [torch.cat(e) for e in zip(*expected)], rtol=1e-4, atol=1e-5)
    assert (draws == 0).any() and (draws > 0).any()


def test_dropout_follows_the_seed():
    lengths = [30, 50]
    tensors = [packed(lengths, 2) for _ in range(3)]
    results = []
    for s in (1, 1, 2):
        torch.accel.manual_seed(s)
        results.append(jagged("accel", tensors, lengths, lengths, dropout_p=0.5))
    same(results[1], [t.cpu() for t in results[0]])
    assert not torch.equal(results[1][0], results[2][0])


# ---- torch.nn.attention.varlen


def window_mask(rows, columns, left, right):
    """Which columns a row sees: the diagonal ends in the lower right corner."""
    distance = torch.arange(columns)[None, :] - torch.arange(rows)[:, None] - (columns - rows)
    seen = torch.ones(rows, columns, dtype=torch.bool)
    if left >= 0:
        seen &= distance >= -left
    if right >= 0:
        seen &= distance <= right
    return seen


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (2, 0), (1, 1), (0, -1)])
@pytest.mark.parametrize("key_heads", [4, 2])
def test_varlen_attn_equals_each_sequence_under_a_mask(window, key_heads):
    lengths, key_lengths = [3, 7, 2], [5, 7, 1]
    tensors = [packed(lengths, 4), packed(key_lengths, key_heads), packed(key_lengths, key_heads)]
    leaves = [t.to("accel").requires_grad_() for t in tensors]
    cu, cu_keys = (offsets_of(n).int().to("accel") for n in (lengths, key_lengths))
    out, sums = varlen_attn(
        *leaves, cu, cu_keys, 7, 7, window_size=window, enable_gqa=key_heads != 4, return_aux=AuxRequest(lse=True)
    )
    grad = torch.randn(out.shape)
    out.backward(grad.to("accel"))
    host = [t.double().requires_grad_() for t in tensors]
    expected, expected_sums = [], []
    for q, k, v in zip(*(t.split(n) for t, n in zip(host, (lengths, key_lengths, key_lengths))), strict=True):
        q, k, v = (t.transpose(0, 1) for t in (q, k, v))
        k, v = (t.repeat_interleave(4 // key_heads, 0) for t in (k, v))
        seen = window_mask(q.shape[1], k.shape[1], *window)
        scores = (q @ k.transpose(1, 2) / math.sqrt(8)).masked_fill(~seen, -math.inf)
        weights = torch.where(seen.any(-1)[:, None], torch.softmax(scores, -1), 0.0)
        expected.append((weights @ v).transpose(0, 1))
        expected_sums.append(torch.where(seen.any(-1), torch.logsumexp(scores, -1), 0.0))
    theirs = torch.cat(expected)
    # softmax over nothing has no gradient to compare
    if all(window_mask(m, n, *window).any(-1).all() for m, n in zip(lengths, key_lengths)):
        theirs.backward(grad.double())
        same([leaf.grad.double() for leaf in leaves], [t.grad for t in host], rtol=1e-4, atol=1e-5)
    same([out.double(), sums.double()], [theirs.detach(), torch.cat(expected_sums, 1).detach()], rtol=1e-5, atol=1e-6)


def test_varlen_attn_of_a_part_of_the_keys():
    lengths, key_lengths = [2, 1], [6, 5]
    tensors = [packed(lengths, 2), packed(key_lengths, 2), packed(key_lengths, 2)]
    used = torch.tensor([4, 3], dtype=torch.int32)
    cu, cu_keys = (offsets_of(n).int().to("accel") for n in (lengths, key_lengths))
    arguments = (*(t.to("accel") for t in tensors), cu, cu_keys, 2, 6)
    with torch.no_grad():
        out = varlen_attn(*arguments, seqused_k=used.to("accel"))
        into = torch.empty_like(out)
        assert varlen_attn_out(into, *arguments, seqused_k=used.to("accel")) is into
    keys = torch.cat([t[:n] for t, n in zip(tensors[1].split(key_lengths), used)])
    values = torch.cat([t[:n] for t, n in zip(tensors[2].split(key_lengths), used)])
    expected = one_by_one([tensors[0], keys, values], lengths, used.tolist())[0]
    same([out, into], [expected, expected])


# ---- The operators themselves


def test_without_offsets_every_sequence_has_one_length():
    q, k, v = (torch.randn(2, n, h, 8) for n, h in ((5, 4), (7, 2), (7, 2)))
    expected = attention(*(t.transpose(1, 2) for t in (q, k, v)), enable_gqa=True).transpose(1, 2)
    on_accel = [t.to("accel") for t in (q, k, v)]
    flash = torch.ops.aten._flash_attention_forward(*on_accel, None, None, 5, 7, 0.0, False, False)
    efficient = torch.ops.aten._efficient_attention_forward(*on_accel, None, None, None, None, None, 0.0, 0, True)
    same([flash[0], efficient[0]], [expected, expected])
    sums = torch.logsumexp(q.transpose(1, 2) @ k.transpose(1, 2).repeat_interleave(2, 1).mT / math.sqrt(8), -1)
    assert flash[1].shape == (2, 4, 5) and efficient[1].shape == (2, 4, 32)
    same([flash[1], efficient[1][..., :5]], [sums, sums], rtol=1e-5, atol=1e-6)


def test_refuses_in_words_that_name_accel():
    q = torch.randn(4, 2, 8, device="accel")
    cu = torch.tensor([0, 4], device="accel")
    flash, efficient = torch.ops.aten._flash_attention_forward, torch.ops.aten._efficient_attention_forward
    cases = [
        (lambda: flash(q, q, q.double(), cu, cu, 4, 4, 0.0, False, False), "of one floating point dtype of 16 bits"),
        (lambda: flash(q, q, q, None, None, 4, 4, 0.0, False, False), r"expects \(batch, length, heads, features\)"),
        (lambda: flash(q, q[:, :0], q[:, :0], cu, cu, 4, 4, 0.0, False, False), "a multiple of their heads"),
        (lambda: flash(q, q, q, cu, cu[:1], 4, 4, 0.0, False, False), "integer offsets of one length"),
        (lambda: flash(q, q, q, cu, cu, 4, 4, 0.0, False, True), "makes no debug mask"),
        (lambda: flash(q, q, q, cu, cu, 4, 4, 0.0, False, False, block_table=cu[None]), "nor a block_table"),
        (lambda: efficient(q[None], q[None], q[None], q, cu, cu, 4, 4, 0.0, 0), "has no bias"),
        (lambda: efficient(q[None], q[None], q[None], None, cu, cu, 4, 4, 0.0, 3), "a custom_mask_type of 0"),
        (lambda: efficient(q[None], q[None], q[None], None, cu, cu, 4, 4, 0.0, 0, window_size=2), "no window_size"),
    ]
    for call, text in cases:
        with pytest.raises(RuntimeError, match=f"accel: _(flash|efficient)_attention_forward .*{text}"):
            call()
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        flash(q, q, q, cu.cpu(), cu, 4, 4, 0.0, False, False)
