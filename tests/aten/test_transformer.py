"""nn.MultiheadAttention and the Transformer's modules: the fast path of inference, and training, equal the CPU's."""

import copy

import pytest
import torch
from torch import nn

import torch_accel
from tests.aten.layouts import both
from torch_accel.fallback import fallback_report
from torch_accel.testing import hold_stream, wait_report
from torch_accel.testing.held import check_held, check_refused

pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning"),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning"),
]

PADDING = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0], [0, 0, 1, 1, 1]]).bool()
MASKS = {
    "none": {},
    "padding": {"padding": PADDING},
    "float padding": {"padding": torch.zeros(3, 5).masked_fill(PADDING, -torch.inf)},
    "scores": {"mask": torch.ones(5, 5).triu(1).bool()},
    "float scores": {"mask": torch.full((5, 5), -torch.inf).triu(1)},
    "scores of each head": {"mask": torch.rand(3 * 2, 5, 5, generator=torch.Generator().manual_seed(0)) > 0.8},
    "both": {"padding": PADDING, "mask": torch.ones(5, 5).triu(1).bool()},
}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def moved(arguments, device):
    return {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}


def compare(module, call, training, exact=True):
    """`call(module, device)` -> tensors that begin with the output, on accel as on the CPU; gradients too in training."""
    results = []
    for device in ("accel", "cpu"):
        own = copy.deepcopy(module).to(device).train(training)
        with torch.set_grad_enabled(training):
            outputs = [t for t in call(own, device) if t is not None]
        if training:
            outputs[0].square().sum().backward()
            outputs = [t.detach() for t in outputs] + [p.grad for p in own.parameters() if p.grad is not None]
        results.append(outputs)
    for a, e in zip(*results, strict=True):
        assert a.is_accel and a.shape == e.shape
        if exact and not training:
            assert torch.equal(a.cpu(), e)
        else:
            torch.testing.assert_close(a.cpu(), e, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("options", [{}, {"need_weights": False}, {"average_attn_weights": False}], ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_multihead_attention_on_itself(mask, options, training):
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(3, 5, 8)

    def call(module, device):
        given = moved(MASKS[mask], device)
        own = x.to(device)
        return module(own, own, own, key_padding_mask=given.get("padding"), attn_mask=given.get("mask"), **options)

    compare(module, call, training)


VARIANTS = {
    "sequence first": {},
    "without bias": {"bias": False, "batch_first": True},
    "added keys": {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
    "other sizes": {"kdim": 6, "vdim": 7, "batch_first": True},
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_multihead_attention_on_others(variant, training):
    options = VARIANTS[variant]
    module = nn.MultiheadAttention(8, 4, **options)
    query, key, value = (
        torch.randn(3, n, size) for n, size in ((5, 8), (7, options.get("kdim", 8)), (7, options.get("vdim", 8)))
    )
    if not options.get("batch_first"):
        query, key, value = (t.transpose(0, 1) for t in (query, key, value))
    compare(module, lambda m, device: m(*(t.to(device) for t in (query, key, value))), training)


@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"activation": "gelu"}], ids=str)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_encoder_layer(mask, training, options):
    module = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, **options)
    x = torch.randn(3, 5, 8)

    def call(module, device):
        given = moved(MASKS[mask], device)
        return [module(x.to(device), src_mask=given.get("mask"), src_key_padding_mask=given.get("padding"))]

    compare(module, call, training)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("mask", ["none", "padding", "float padding", "both"])
def test_encoder(mask, nested, training):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    module = nn.TransformerEncoder(layer, 2, nn.LayerNorm(8), enable_nested_tensor=nested)
    x = torch.randn(3, 5, 8)

    def call(module, device):
        given = moved(MASKS[mask], device)
        return [module(x.to(device), mask=given.get("mask"), src_key_padding_mask=given.get("padding"))]

    compare(module, call, training)


def test_padded_rows_of_the_fast_path_are_zero_and_the_others_are_of_each_sequence_alone():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    module = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(3, 5, 8)
    with torch.no_grad():
        alone = [module(x[i : i + 1, : int((~PADDING[i]).sum())])[0] for i in range(3)]
        out = module.to("accel")(x.to("accel"), src_key_padding_mask=PADDING.to("accel")).cpu()
    assert (out[PADDING] == 0).all()
    for row, sequence in zip(out, alone, strict=True):
        torch.testing.assert_close(row[: len(sequence)], sequence, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder(norm_first, training):
    layer = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=norm_first)
    module = nn.TransformerDecoder(layer, 2)
    target, memory = torch.randn(3, 4, 8), torch.randn(3, 5, 8)

    def call(module, device):
        causal = nn.Transformer.generate_square_subsequent_mask(4, device=device)
        return [
            module(
                target.to(device),
                memory.to(device),
                tgt_mask=causal,
                tgt_is_causal=True,
                tgt_key_padding_mask=torch.zeros(3, 4, device=device).masked_fill(
                    PADDING[:, 1:].to(device), -torch.inf
                ),
                memory_key_padding_mask=PADDING.to(device),
            )
        ]

    compare(module, call, training)


@pytest.mark.parametrize("training", [False, True])
def test_transformer(training):
    module = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0)
    source, target = torch.randn(5, 3, 8), torch.randn(4, 3, 8)

    def call(module, device):
        mask = module.generate_square_subsequent_mask(4, device=device)
        return [
            module(source.to(device), target.to(device), tgt_mask=mask, src_key_padding_mask=PADDING.to(device)),
        ]

    compare(module, call, training)


def test_dropout_in_training_follows_the_accel_seed():
    module = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True).to("accel")
    x = torch.randn(3, 5, 8, device="accel")
    results = []
    for s in (1, 1, 2):
        torch.accel.manual_seed(s)
        module.zero_grad()
        out = module(x)
        out.square().sum().backward()
        results.append([out.detach(), *(p.grad for p in module.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(results[0], results[1], strict=True))
    assert not torch.equal(results[0][0], results[2][0])


# ---- What waits


@pytest.mark.parametrize("mask", [None, "padding", "mask"])
@pytest.mark.parametrize("kind", ["attention", "layer"])
def test_the_fast_path_is_queued(kind, mask, queued):
    x = torch.randn(3, 5, 8)
    given = {"padding": PADDING, "mask": MASKS["scores"]["mask"]}.get(mask)
    if kind == "attention":
        module = nn.MultiheadAttention(8, 2, batch_first=True).eval()
        names = {"padding": "key_padding_mask", "mask": "attn_mask"}
        operands = 3
    else:
        module = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
        names = {"padding": "src_key_padding_mask", "mask": "src_mask"}
        operands = 1
    arguments = {} if mask is None else {names[mask]: given}
    with torch.no_grad():
        expected = module(*[x] * operands, **arguments)
        module, own, arguments = module.to("accel"), x.to("accel"), moved(arguments, "accel")
        fallback_report(reset=True)
        torch.accel.synchronize()
        before = wait_report()
        with hold_stream():
            out = module(*[own] * operands, **arguments)
            assert wait_report() == before
    assert fallback_report() == {}
    for a, e in zip(*(r if kind == "attention" else (r,) for r in (out, expected)), strict=True):
        assert torch.equal(a.cpu(), e)


def test_a_nested_encoder_waits_for_the_lengths_only(queued):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    module = nn.TransformerEncoder(layer, 3).eval().to("accel")
    x = torch.randn(3, 5, 8, device="accel")
    padding = PADDING.to("accel")
    with torch.no_grad():
        module(x, src_key_padding_mask=padding)
        fallback_report(reset=True)
        module(x, src_key_padding_mask=padding)
        assert set(fallback_report()) == {
            "aten::_nested_tensor_from_mask",
            "aten::_nested_tensor_from_mask_left_aligned",
        }
        nested = torch._nested_tensor_from_mask(x, padding.logical_not())
        torch.accel.synchronize()
        before = wait_report()
        with hold_stream():
            for layer in module.layers:
                nested = layer(nested)
            padded = torch.nested.to_padded_tensor(nested, 0.0, (3, 5, 8))
            assert wait_report() == before
        assert torch.equal(padded, module(x, src_key_padding_mask=padding))


# ---- The operators themselves


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_transform_bias_rescale_qkv(dtype):
    qkv, bias = torch.randn(2, 5, 24).to(dtype), torch.randn(24).to(dtype)
    check_held(torch.ops.aten._transform_bias_rescale_qkv, qkv, bias, 2)
    check_held(torch.ops.aten._transform_bias_rescale_qkv, qkv.transpose(0, 1), bias, 4)
    query, key, value = torch.ops.aten._transform_bias_rescale_qkv(qkv.to("accel"), bias.to("accel"), 2)
    parts = (qkv + bias).double().unflatten(2, (3, 2, 4)).permute(2, 0, 3, 1, 4)
    for a, e in zip((query, key, value), (parts[0] / 2, *parts[1:]), strict=True):
        torch.testing.assert_close(a.cpu().double(), e, rtol=1e-2, atol=1e-2)


def test_transform_bias_rescale_qkv_refuses():
    check_refused(torch.ops.aten._transform_bias_rescale_qkv, torch.ones(2, 5, 24).long(), torch.ones(24).long(), 2)
    with pytest.raises(RuntimeError, match=r"accel: _transform_bias_rescale_qkv expects \(batch, length, 3 \* heads"):
        torch.ops.aten._transform_bias_rescale_qkv(
            torch.ones(2, 5, 25, device="accel"), torch.ones(25, device="accel"), 2
        )


@pytest.mark.parametrize(
    "kind, shape", [(0, (5, 5)), (1, (3, 5)), (2, (3, 2, 5, 5))], ids=["scores", "keys", "as the input"]
)
def test_masked_softmax(kind, shape):
    mask = torch.rand(shape) > 0.6
    check_held(torch.ops.aten._masked_softmax, torch.randn(3, 2, 5, 5), mask, 3, kind)
    check_held(torch.ops.aten._masked_softmax, torch.randn(3, 2, 5, 5), mask, mask_type=kind)
    check_refused(torch.ops.aten._masked_softmax, torch.randn(3, 2, 5, 5), mask[1:], 3, kind)
    if kind < 2:
        check_refused(torch.ops.aten._masked_softmax, torch.randn(3, 2, 5, 5), mask, 3, kind + 1)


@pytest.mark.parametrize("fuse", [False, True])
def test_nested_from_padded(fuse, queued):
    sizes = torch.tensor([[2, 8], [5, 8], [0, 8]])
    padded = torch.randn(3, 2, 5, 4) if fuse else torch.randn(3, 5, 8)
    expected = torch._nested_from_padded(padded, sizes.clone(), fuse)
    on_accel = padded.to("accel")
    torch.accel.synchronize()
    fallback_report(reset=True)
    with hold_stream():
        made = torch._nested_from_padded(on_accel, sizes, fuse)
        sizes.zero_()  # the record has a copy, and so has the result
    assert fallback_report() == {}
    dense = padded.transpose(1, 2).flatten(2) if fuse else padded
    for n, a, e, row in zip((2, 5, 0), made.unbind(), expected.unbind(), dense, strict=True):
        assert torch.equal(a.cpu(), e) and torch.equal(e, row[:n])


@pytest.mark.parametrize("sizes", [[[6, 8]] * 3, [[2, 9]] * 3, [[2, 8]] * 2, [[2]] * 3], ids=str)
def test_nested_from_padded_raises_what_the_cpu_raises(sizes):
    errors = []
    for device in ("cpu", "accel"):
        with pytest.raises(RuntimeError) as raised:
            torch._nested_from_padded(torch.randn(3, 5, 8, device=device), torch.tensor(sizes))
        errors.append(str(raised.value))
    assert errors[0] == errors[1]


def test_nested_multihead_attention():
    """As called with nested tensors; the weights are padded."""
    module = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    def call(device):
        own = copy.deepcopy(module).to(device)
        torch.manual_seed(0)
        x = torch.nested.nested_tensor([torch.randn(n, 8) for n in (2, 5, 1)]).to(device)
        with torch.no_grad():
            out, weights = own(x, x, x)
        return [*out.unbind(), weights]

    both(call)


def test_no_leaked_workspace():
    before = torch_accel._C._leaked_workspace_bytes()
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    module = nn.TransformerEncoder(layer, 2).eval().to("accel")
    with torch.no_grad():
        module(torch.randn(3, 5, 8, device="accel"), src_key_padding_mask=PADDING.to("accel"))
    torch.accel.synchronize()
    assert torch_accel._C._leaked_workspace_bytes() == before
