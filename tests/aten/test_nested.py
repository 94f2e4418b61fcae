"""Nested tensors on accel, strided and jagged: construction, operators and gradients equal the CPU's."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F

import torch_accel
from tests.aten.layouts import both
from torch_accel.testing import hold_stream, wait_report

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")

torch.manual_seed(0)
PARTS = [torch.randn(2, 4), torch.randn(3, 4), torch.randn(1, 4)]
WEIGHT = torch.randn(4, 4)
STRIDED, JAGGED = torch.strided, torch.jagged


@pytest.fixture(autouse=True)
def no_leaked_workspace():
    before = torch_accel._C._leaked_workspace_bytes()
    yield
    assert torch_accel._C._leaked_workspace_bytes() == before


@pytest.fixture(params=[STRIDED, JAGGED], ids=["strided", "jagged"])
def layout(request):
    return request.param


def nested(device, layout=STRIDED, parts=PARTS, requires_grad=False):
    parts = [part.clone() for part in parts]
    return torch.nested.nested_tensor(parts, device=device, layout=layout, requires_grad=requires_grad)


def parts_of(tensor):
    return list(tensor.unbind())


MAKE = {
    "constructor": lambda la, d: nested(d, la),
    "as_nested_tensor": lambda la, d: torch.nested.as_nested_tensor([p.to(d) for p in PARTS], layout=la),
    "from the host": lambda la, d: nested("cpu", la).to(d),
    "clone": lambda la, d: nested(d, la).clone(),
    "dtype": lambda la, d: nested(d, la).to(torch.bfloat16),
    "zeros_like": lambda la, d: torch.zeros_like(nested(d, la)),
    "ones_like": lambda la, d: torch.ones_like(nested(d, la)),
    "detach": lambda la, d: nested(d, la, requires_grad=True).detach(),
    "contiguous": lambda la, d: nested(d, la).contiguous(),
}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE.keys())
def test_making(make, layout):
    made = make(layout, "accel")
    assert made.is_nested and made.is_accel and made.layout == layout
    both(lambda device: parts_of(make(layout, device)))


def test_moving_to_the_host(layout):
    for part, expected in zip(nested("accel", layout).cpu().unbind(), PARTS, strict=True):
        assert torch.equal(part, expected)


# Both layouts, with gradients with respect to the nested tensor and the weight.
DIFFERENTIABLE = {
    "itself": lambda a, w: a,
    "add": lambda a, w: a + a,
    "sub": lambda a, w: a - a * 3,
    "mul": lambda a, w: a * a,
    "div": lambda a, w: a / 3,
    "neg": lambda a, w: -a,
    "relu": lambda a, w: torch.relu(a),
    "sin": lambda a, w: torch.sin(a),
    "gelu": lambda a, w: F.gelu(a),
    "silu": lambda a, w: F.silu(a),
    "linear": lambda a, w: F.linear(a, w),
    "linear with bias": lambda a, w: F.linear(a, w, w[0]),
    "softmax": lambda a, w: torch.softmax(a, -1),
    "layer_norm": lambda a, w: F.layer_norm(a, (4,), w[0], w[1]),
    "unbind": lambda a, w: a.unbind()[1] @ w,
    "clone": lambda a, w: a.clone() * 2,
}
STRIDED_ONLY = {
    "matmul of nested": lambda a, w: torch.matmul(a, a.transpose(1, 2)),
    "bmm": lambda a, w: torch.bmm(a, a.transpose(1, 2)),
    "select": lambda a, w: a[1],
    "sum": lambda a, w: torch.sum(a, -1, keepdim=True),
    "view": lambda a, w: a.view(3, -1, 2, 2).view(3, -1, 4),
}
JAGGED_ONLY = {
    "matmul": lambda a, w: a @ w,
    "bmm": lambda a, w: torch.bmm(a, w.expand(3, 4, 4)),
    "broadcast": lambda a, w: a * w[0],
    "sigmoid": lambda a, w: torch.sigmoid(a),
    "exp": lambda a, w: torch.exp(a),
    "sum of all": lambda a, w: a.sum(),
    "mean": lambda a, w: a.mean(-1),
    "softmax over the ragged dimension": lambda a, w: torch.softmax(a, 1),
    "amax": lambda a, w: a.amax(-1),
    "values": lambda a, w: a.values() * 2,
    "tanh": lambda a, w: torch.tanh(a),
    "chunk": lambda a, w: a.chunk(2, -1)[1],
    "cat": lambda a, w: torch.cat([a, a], -1),
    "where": lambda a, w: torch.where(a > 0, a, a * 2),
    "masked_fill": lambda a, w: a.masked_fill(a > 0, 1.0),
    "heads": lambda a, w: a.unflatten(-1, (2, 2)).transpose(1, 2).transpose(1, 2).flatten(-2),
}


def check_with_gradients(function, layout):
    def call(device):
        a = nested(device, layout, requires_grad=True)
        w = WEIGHT.clone().to(device).requires_grad_()
        out = function(a, w)
        out = torch.nested.to_padded_tensor(out, 0.0) if out.is_nested else out
        out.pow(2).sum().backward()
        return out, parts_of(a.grad), [] if w.grad is None else [w.grad]

    both(call)


@pytest.mark.parametrize("function", DIFFERENTIABLE.values(), ids=DIFFERENTIABLE.keys())
def test_operators_and_gradients(function, layout):
    check_with_gradients(function, layout)


@pytest.mark.parametrize("function", STRIDED_ONLY.values(), ids=STRIDED_ONLY.keys())
def test_strided_operators_and_gradients(function):
    check_with_gradients(function, STRIDED)


@pytest.mark.parametrize("function", JAGGED_ONLY.values(), ids=JAGGED_ONLY.keys())
def test_jagged_operators_and_gradients(function):
    check_with_gradients(function, JAGGED)


def from_mask(device):
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]], device=device).bool()
    return torch._nested_tensor_from_mask(torch.ones(2, 3, 4, device=device), mask)


OTHERS = {
    "relu_": lambda d: parts_of(nested(d).relu_()),
    "add_": lambda d: parts_of(nested(d).add_(nested(d))),
    "zero_": lambda d: parts_of(nested(d).zero_()),
    "fill_": lambda d: parts_of(nested(d).fill_(2.0)),
    "copy_": lambda d: parts_of(nested(d).copy_(nested(d) * 2)),
    "copy_ from the host": lambda d: parts_of(nested(d).copy_(nested("cpu") * 2)),
    "comparison": lambda d: parts_of(nested(d) > 0),
    "logical_not": lambda d: parts_of(torch.logical_not(nested(d))),
    "masked_fill": lambda d: parts_of(nested(d).masked_fill(nested(d) > 0, 1.0)),
    "cat": lambda d: parts_of(torch.cat([nested(d), nested(d)], 0)),
    "transpose": lambda d: parts_of(nested(d).transpose(1, 2).contiguous()),
    "unsqueeze": lambda d: parts_of(nested(d).unsqueeze(1)),
    "select of the last": lambda d: parts_of(nested(d).select(2, 0)),
    "embedding": lambda d: parts_of(
        F.embedding(nested(d, parts=[torch.tensor([1, 2]), torch.tensor([0])]), WEIGHT.to(d))
    ),
    "from a mask": lambda d: parts_of(from_mask(d)),
    "from padded": lambda d: parts_of(
        torch._nested_from_padded(torch.ones(2, 3, 4, device=d), torch.tensor([[2, 4], [1, 4]]))
    ),
    "from padded like": lambda d: parts_of(
        torch._nested_from_padded_and_nested_example(torch.ones(3, 3, 4, device=d), nested(d))
    ),
    "of numbers": lambda d: parts_of(nested(d, parts=[torch.tensor(1.0), torch.tensor(2.0)])),
    "padded with a value and a size": lambda d: torch.nested.to_padded_tensor(nested(d), -1.0, (4, 5, 6)),
    "tanh": lambda d: parts_of(torch.tanh(nested(d))),
    "chunk": lambda d: [part for chunk in nested(d).chunk(2, -1) for part in chunk.unbind()],
    "jagged sum": lambda d: parts_of(nested(d, JAGGED).sum(-1)),
    "jagged sum over the ragged dimension": lambda d: nested(d, JAGGED).sum(1),
    "jagged mean over the ragged dimension": lambda d: nested(d, JAGGED).mean(1),
    "jagged deepcopy": lambda d: parts_of(copy.deepcopy(nested(d, JAGGED))),
    "jagged select": lambda d: parts_of(nested(d, JAGGED).select(-1, 1)),
    "jagged from offsets": lambda d: parts_of(
        torch.nested.nested_tensor_from_jagged(WEIGHT.to(d), torch.tensor([0, 1, 4], device=d))
    ),
    "jagged masked_select": lambda d: parts_of(torch.nested.masked_select(WEIGHT.to(d), WEIGHT.to(d) > 0)),
    "jagged narrow": lambda d: parts_of(
        torch.nested.narrow(
            WEIGHT.reshape(2, 4, 2).to(d),
            1,
            torch.tensor([0, 1], device=d),
            torch.tensor([2, 1], device=d),
            layout=JAGGED,
        )
    ),
}


@pytest.mark.parametrize("call", OTHERS.values(), ids=OTHERS.keys())
def test_other_operators(call):
    both(call)


def test_against_the_parts(layout):
    """Each part is computed alone, as a dense tensor: no code of nested tensors."""
    result = F.linear(nested("accel", layout), WEIGHT.to("accel")).relu()
    for part, dense in zip(result.unbind(), PARTS, strict=True):
        torch.testing.assert_close(part.cpu(), (dense @ WEIGHT.t()).clamp(min=0))


def test_views_share_memory():
    base = nested("accel")
    base.unbind()[1].fill_(7)
    base.transpose(1, 2)[0].zero_()
    expected = [torch.zeros(2, 4), torch.full((3, 4), 7.0), PARTS[2]]
    for part, right in zip(base.unbind(), expected, strict=True):
        assert torch.equal(part.cpu(), right)


def test_metadata_is_on_the_host():
    made = nested("accel")
    expected = nested("cpu")
    for name in ("_nested_tensor_size", "_nested_tensor_strides", "_nested_tensor_storage_offsets"):
        metadata = getattr(made, name)()
        assert metadata.is_cpu and torch.equal(metadata, getattr(expected, name)())
    result = torch.sum(made, -1, keepdim=True)  # by the CPU's kernel
    assert result._nested_tensor_size().tolist() == [[2, 1], [3, 1], [1, 1]]


@pytest.mark.parametrize("fast", [True, False])
def test_transformer_encoder(fast):
    """Its fast path makes a nested tensor of a padded batch."""

    def call(device):
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=fast).eval().to(device)
        padding = torch.tensor([[0, 0, 1], [0, 1, 1]], device=device).bool()
        with torch.no_grad():
            return model(torch.stack([PARTS[1], PARTS[1] * 2]).to(device), src_key_padding_mask=padding)

    both(call)


def test_saving(layout):
    file = io.BytesIO()
    torch.save(nested("accel", layout), file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert loaded.is_accel and loaded.layout == layout
    for part, expected in zip(loaded.unbind(), PARTS, strict=True):
        assert torch.equal(part.cpu(), expected)


def test_printing():
    assert "device='accel:0'" in str(nested("accel"))
    assert "device='accel:0'" in str(nested("accel", JAGGED))


def test_devices_do_not_mix():
    with pytest.raises(RuntimeError, match="same device"):
        nested("accel") + nested("cpu")


def test_strided_operators_wait_for_nothing(queued):
    made, weight, host = nested("accel"), WEIGHT.to("accel"), nested("cpu")
    before = wait_report()
    with hold_stream():
        assert made.size(0) == 3 and made.dim() == 3 and made.numel() == 24
        moved, product = host.to("accel"), F.linear(made, weight)
        total = torch.nested.to_padded_tensor((product + product).sin(), 0.0)
        parts = made.unbind()
        assert wait_report() == before
    expected = F.linear(host, WEIGHT)
    assert torch.equal(total.cpu(), torch.nested.to_padded_tensor((expected + expected).sin(), 0.0))
    for part, right, theirs in zip(parts, PARTS, moved.unbind(), strict=True):
        assert torch.equal(part.cpu(), right) and torch.equal(theirs.cpu(), right)
