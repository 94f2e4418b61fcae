"""Operands whose conj or neg bit is set: every layer of operators sees the values, and writes through the bit."""

import pytest
import torch

from torch_accel.testing import fallback_mode

BASE = torch.complex(torch.arange(12.0) - 4, torch.arange(12.0) * 2 + 1).reshape(3, 4)
BITS = {
    "conj": lambda z: z.conj(),
    "neg": lambda z: z.conj().imag,
    "conj and neg": lambda z: torch._neg_view(z.conj()),
    "strided conj": lambda z: z[:, ::2].conj(),
    "transposed neg": lambda z: z.conj().imag.t(),
}
bits = pytest.mark.parametrize("view", BITS.values(), ids=BITS.keys())


def index(x):
    return torch.tensor([1, 0, 1], device=x.device)


READERS = {
    "generated": lambda x: x * x + torch.sin(x),
    "generated, by a 0-dim CPU operand": lambda x: x / torch.tensor(2.0),
    "generated reduction": lambda x: x.sum(0),
    "generated product": lambda x: x @ x.mT,
    "foreach": lambda x: torch._foreach_mul([x, x[0]], 2.0),
    "shape function": lambda x: torch.where(x.real > 1, x, 0),
    "list": lambda x: torch.cat([x, x, x + 1]),
    "roll": lambda x: torch.roll(x, 1, 0),
    "index_select": lambda x: x.index_select(0, index(x)),
    "index": lambda x: x[index(x)],
    "masked_select": lambda x: x[x.real > 1],
    "dot products": lambda x: (torch.vdot(x[0], x[1]), torch.dot(x[0], x[1])),
    "norm": lambda x: torch.linalg.vector_norm(x, 2),
    "fft": lambda x: torch.fft.fft(x, dim=0),
    "fallback": lambda x: torch.nonzero(x),
    "fallback with results": lambda x: torch.linalg.slogdet(x[:2, :2]),
    "view": lambda x: torch.view_as_real(x.resolve_conj()) if x.is_complex() else x.reshape(-1, 1),
    "cast": lambda x: x.to(torch.complex128),
    "item": lambda x: torch.tensor(x[1, 1].item()),
    "clone": lambda x: (x.clone(), x.contiguous(), x.reshape(-1)),
    "to the CPU": lambda x: x.cpu(),
}


def flat(result):
    return list(result) if isinstance(result, (list, tuple)) else [result]


@bits
@pytest.mark.parametrize("call", READERS.values(), ids=READERS.keys())
def test_read(call, view):
    with fallback_mode("allow"):
        plain = view(BASE).resolve_conj().resolve_neg().clone()
        assert not plain.is_conj() and not plain.is_neg()
        device = BASE.to("accel")
        x = view(device)
        assert x.is_conj() or x.is_neg()
        for mine, theirs in zip(flat(call(x)), flat(call(plain)), strict=True):
            torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-6, atol=1e-6)
        assert torch.equal(device.cpu(), BASE)  # read, not resolved in place


WRITERS = {
    "generated": lambda x, v: x.mul_(3).add_(v),
    "fill": lambda x, v: x.fill_(5),
    "zero": lambda x, v: x[0].zero_(),
    "copy": lambda x, v: x.copy_(v),
    "copy from the CPU": lambda x, v: x.copy_(v.cpu()),
    "out=": lambda x, v: torch.add(v, 1, out=x),
    "out= of a reduction": lambda x, v: torch.sum(v, 1, out=x[:, 0]),
    "out= of a list": lambda x, v: torch.cat([v[:1], v[1:]], out=x),
    "index_put": lambda x, v: x.index_put_((index(x)[:2],), v[:2]),
    "index_add": lambda x, v: x.index_add_(0, index(x), v[index(x)]),
    "masked_fill": lambda x, v: x.masked_fill_(v.real > 1, 7),
    "set item": lambda x, v: x.__setitem__((slice(None), 1), 9),
    "squares": lambda x, v: x.pow_(2),
}


@bits
@pytest.mark.parametrize("call", WRITERS.values(), ids=WRITERS.keys())
def test_written(call, view):
    bases, texts = [], []
    for base in (BASE.clone(), BASE.to("accel")):
        x = view(base)
        value = (torch.ones_like(view(BASE)).resolve_conj().resolve_neg() * 2).to(base.device)
        with fallback_mode("allow"):
            call(x, value)
        bases.append(base.cpu())
        texts.append((x.is_conj(), x.is_neg(), x._version, base._version))
    assert torch.equal(*bases) and texts[0] == texts[1]
    assert not torch.equal(bases[0], BASE)


@bits
def test_lists_in_place_are_refused_in_torchs_words(view):
    texts = []
    for base in (BASE.clone(), BASE.to("accel")):
        with pytest.raises(
            RuntimeError, match=r"Please materialize all the (conjugate|negation) input tensor"
        ) as raised:
            torch._foreach_add_([view(base)], 1.0)
        texts.append(str(raised.value))
        assert torch.equal(base.cpu(), BASE)
    assert texts[0] == texts[1]


@bits
def test_gradients(view):
    gradients = []
    for device in ("cpu", "accel"):
        z = BASE.clone().to(device).detach().requires_grad_()
        x = view(z * 1)
        (x * x.abs()).sum().abs().backward()
        gradients.append(z.grad.cpu())
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)
