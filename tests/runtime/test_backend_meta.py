"""Flags on tensors (c10::BackendMeta): what takes them along and what does not."""

import copy
import io
import pickle

import pytest
import torch
from torch.accel import set_tensor_flags, tensor_flags

FLAGS = {"packed": True, "resident": False}


def flagged(x):
    set_tensor_flags(x, FLAGS)
    return x


def loaded(x, **options):
    buffer = io.BytesIO()
    torch.save(x, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True, **options)


def test_none_is_the_default_and_the_way_back():
    x = torch.ones(3, device="accel")
    assert tensor_flags(x) == {}
    assert tensor_flags(flagged(x)) == FLAGS
    set_tensor_flags(x, {"other": True})
    assert tensor_flags(x) == {"other": True}
    set_tensor_flags(x, {})
    assert tensor_flags(x) == {}


@pytest.mark.parametrize(
    "taken", [torch.Tensor.detach, lambda x: x.data, lambda x: pickle.loads(pickle.dumps(x)), loaded]
)
def test_goes_along(taken):
    x = flagged(torch.ones(3, device="accel"))
    y = taken(x)
    assert tensor_flags(y) == FLAGS
    set_tensor_flags(y, {"packed": False})  # of its own
    assert tensor_flags(x) == FLAGS


@pytest.mark.parametrize("made", [torch.clone, torch.neg, copy.deepcopy, lambda x: x[1:], lambda x: x.view(3, 1)])
def test_stays_behind(made):
    x = flagged(torch.ones(3, device="accel"))
    assert tensor_flags(made(x)) == {} and tensor_flags(x) == FLAGS


def test_writing_keeps_them():
    x = flagged(torch.ones(3, device="accel"))
    x.add_(1).resize_(5)[0] = 7
    assert tensor_flags(x) == FLAGS


def test_beside_the_math_bits():
    x = flagged(torch.tensor([1 + 2j, 3 - 1j], device="accel").conj())
    y = loaded(x)
    assert tensor_flags(y) == FLAGS and y.is_conj() and torch.equal(y.cpu(), x.cpu())


def test_a_module_and_where_it_is_loaded():
    layer = torch.nn.Linear(2, 2, device="accel")
    flagged(layer.weight)
    state = loaded(layer.state_dict())
    assert tensor_flags(state["weight"]) == FLAGS and tensor_flags(state["bias"]) == {}
    on_cpu = loaded(layer.state_dict(), map_location="cpu")
    assert torch._utils.get_tensor_metadata(on_cpu["weight"]) == {}
    assert torch.equal(on_cpu["weight"], layer.weight.detach().cpu())


@pytest.mark.parametrize(
    ("tensor", "flags", "error", "text"),
    [
        ([1.0], {}, TypeError, "flags are of a tensor, but got list"),
        (torch.ones(1), {"a": True}, ValueError, "flags are of tensors on accel, but this one is on cpu"),
        (None, {"a": 1}, TypeError, "a flag is a bool by name, but got 'a': 1"),
        (None, {3: True}, TypeError, "a flag is a bool by name, but got 3: True"),
        (None, {"neg": True}, ValueError, "the flag 'neg' is torch's own; choose another name"),
    ],
)
def test_errors(tensor, flags, error, text):
    x = torch.ones(1, device="accel") if tensor is None else tensor
    with pytest.raises(error) as raised:
        set_tensor_flags(x, flags)
    assert str(raised.value) == f"torch.accel: {text}"
