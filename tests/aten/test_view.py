"""Every view operator aliases: what is written through the view is seen in the base, and the other way round."""

import pytest
import torch

from torch_accel.testing import fallback_mode, hold_stream


def base(dtype=torch.float32):
    values = torch.arange(24.0).reshape(2, 3, 4)
    return torch.complex(values, -values / 2) if dtype.is_complex else values.clone()


VIEWS = {
    "alias": lambda x: torch.ops.aten.alias(x),
    "as_strided": lambda x: x.as_strided((3, 2), (2, 5), 3),
    "as_strided as torch.as_strided": lambda x: torch.as_strided(x, (2, 2), (4, 1), 1),
    "view": lambda x: x.view(4, 6),
    "view of inferred size": lambda x: x.view(-1),
    "view_as": lambda x: x.view_as(x.reshape(6, 4)),
    "view to a wider dtype": lambda x: x.view(torch.float64),
    "view to a narrower dtype": lambda x: x.view(torch.int16),
    "view to an equal dtype": lambda x: x.view(torch.int32),
    "reshape": lambda x: x.reshape(6, 4),
    "_reshape_alias": lambda x: torch.ops.aten._reshape_alias(x, [6, 4], [4, 1]),
    "flatten": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(2, (2, 2)),
    "ravel": lambda x: x.ravel(),
    "unfold": lambda x: x.unfold(2, 2, 2),
    "transpose": lambda x: x.transpose(0, 2),
    "t": lambda x: x[0].t(),
    "mT": lambda x: x.mT,
    "permute": lambda x: x.permute(2, 0, 1),
    "movedim": lambda x: x.movedim(0, 2),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "select": lambda x: x.select(1, 2),
    "slice": lambda x: x[:, 1:, ::2],
    "index by int": lambda x: x[1, 2],
    "0-dim": lambda x: x[1, 2, 3],
    "index by None": lambda x: x[:, None, 1],
    "index by Ellipsis": lambda x: x[..., 1:3],
    "narrow": lambda x: x.narrow(2, 1, 2),
    "squeeze": lambda x: x[:1].squeeze(),
    "squeeze of a dim": lambda x: x[:1].squeeze(0),
    "squeeze of dims": lambda x: x[:1, :1].squeeze((0, 1)),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "diagonal": lambda x: x.diagonal(1, 1, 2),
    "detach": lambda x: x.detach(),
    "split": lambda x: x.split(2, 1)[1],
    "split of sizes": lambda x: x.split([1, 3], 2)[1],
    "split_with_sizes": lambda x: torch.split_with_sizes(x, [1, 2], 1)[1],
    "tensor_split": lambda x: x.tensor_split(3, 2)[2],
    "chunk": lambda x: x.chunk(2, 2)[1],
    "hsplit": lambda x: torch.hsplit(x, 3)[1],
    "unbind": lambda x: x.unbind(2)[3],
    "expand (row)": lambda x: x[1, 2].unsqueeze(0).expand(1, 4),
    "expand_as": lambda x: x.expand_as(x),
    "contiguous of contiguous": lambda x: x.contiguous(),
    "to of the same": lambda x: x.to("accel") if x.is_accel else x.to("cpu"),
    "real of real": lambda x: torch.real(x),
    "view_as_complex": lambda x: torch.view_as_complex(x.view(2, 3, 2, 2)),
    "view of a view": lambda x: x[1].t()[1:].unsqueeze(0),
    "lift": lambda x: torch.ops.aten.lift(x),
    "data": lambda x: x.data,
}
COMPLEX_VIEWS = {
    "view_as_real": lambda x: torch.view_as_real(x),
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
    "conj": lambda x: x.conj(),
    "imag of conj (neg bit)": lambda x: x.conj().imag,
    "_neg_view": lambda x: torch._neg_view(x),
    "adjoint": lambda x: x.adjoint(),
    "mH": lambda x: x.mH,
    "conj of slice": lambda x: x[:, 1].conj(),
    "view to real dtype": lambda x: x.view(torch.float32),
}
ALL = [(torch.float32, view) for view in VIEWS.values()] + [(torch.complex64, view) for view in COMPLEX_VIEWS.values()]


@pytest.mark.parametrize("dtype, view", ALL, ids=[*VIEWS, *COMPLEX_VIEWS])
def test_aliases(dtype, view):
    with fallback_mode("error"):  # a view that went through the CPU's kernel would be slow, not wrong
        host, device = base(dtype), base(dtype).to("accel")
        expected, actual = view(host), view(device)
        assert actual.is_accel
        assert actual.untyped_storage().data_ptr() == device.untyped_storage().data_ptr()
        for attribute in ("shape", "dtype", "is_conj", "is_neg", "stride", "storage_offset", "_is_view"):
            mine, theirs = getattr(actual, attribute), getattr(expected, attribute)
            assert (mine() if callable(mine) else mine) == (theirs() if callable(theirs) else theirs), attribute
        torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0, equal_nan=True)
        actual.fill_(7)  # through the view
        expected.fill_(7)
        assert torch.equal(device.cpu(), host)
        device.zero_()  # through the base
        assert torch.equal(actual.cpu(), torch.zeros_like(expected))


@pytest.mark.parametrize("dtype, view", ALL, ids=[*VIEWS, *COMPLEX_VIEWS])
def test_write_by_copy_and_operator(dtype, view):
    host, device = base(dtype), base(dtype).to("accel")
    value = torch.full_like(view(host), 3).contiguous()
    for tensor in (host, device):
        written = view(tensor)
        written.copy_(value)
        written.add_(1)
    assert torch.equal(device.cpu().view(torch.uint8), host.view(torch.uint8))


def test_multi_output_views_alias():
    x = torch.zeros(4, 6, device="accel")
    for part in (*x.split(2), *x.chunk(3, 1), *x.unbind(), *x.tensor_split((1, 3))):
        part += 1
    assert torch.equal(x.cpu(), torch.full((4, 6), 4.0))


def test_version_counter_is_shared():
    x = torch.zeros(4, device="accel")
    view = x[1:]
    before = x._version
    view.add_(1)  # a fallback
    view[0].fill_(2)  # queued
    assert view._version == x._version == before + 2
    assert x.data._version == 0  # .data starts afresh


def test_in_place_on_a_chain_of_views_with_autograd():
    grads = []
    for device in ("cpu", "accel"):
        leaf = torch.arange(12.0, device=device, requires_grad=True)
        y = leaf * 1
        y.view(3, 4)[1:].t()[2].mul_(3)
        (y * torch.arange(12.0, device=device)).sum().backward()
        grads.append(leaf.grad.cpu())
    assert torch.equal(*grads)


def test_overlapping_windows():
    # as_strided with an offset and overlaps, read by an operator.
    host, device = torch.arange(10.0), torch.arange(10.0, device="accel")
    windows = [x.as_strided((4, 3), (2, 1), 1) for x in (host, device)]
    assert torch.equal(windows[1].cpu(), windows[0])
    index = torch.tensor([3, 0, 3])
    assert torch.equal(windows[1].index_select(0, index.to("accel")).cpu(), windows[0].index_select(0, index))
    assert torch.equal((windows[1] + windows[1]).cpu(), windows[0] * 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.view(5, 5),
        lambda x: x.t().view(-1),
        lambda x: x.as_strided((2,), (-1,)),
        lambda x: x.as_strided((100,), (1,)),
        lambda x: x.unfold(0, 9, 1),
        lambda x: x.select(0, 4),
        lambda x: x.narrow(0, 2, 3),
        lambda x: x.transpose(0, 2),
        lambda x: x[:, :3].view(torch.float64),
        lambda x: torch.view_as_complex(x),
        lambda x: torch.view_as_real(x),
        lambda x: x.squeeze(3),
        lambda x: x.split([1, 1]),
        lambda x: x.diagonal(0, 0, 0),
        lambda x: x[4],
        lambda x: x.expand(5, 6),
    ],
)
def test_errors_are_the_cpus(call):
    with pytest.raises(Exception) as expected:
        call(torch.arange(24.0).reshape(4, 6)[:, ::2][:, :3])
    with pytest.raises(expected.type) as raised:
        call(torch.arange(24.0, device="accel").reshape(4, 6)[:, ::2][:, :3])
    assert str(raised.value) == str(expected.value)


def test_views_of_nothing():
    x = torch.empty(0, 3, device="accel")
    assert x.view(3, 0).shape == (3, 0) and x.t().shape == (3, 0) and x[:, 1].shape == (0,)
    assert x.unfold(1, 2, 1).shape == (0, 2, 2) and torch.view_as_real(x.to(torch.complex64)).shape == (0, 3, 2)


def test_record_stream_on_a_shifted_view():
    side = torch.accel.Stream()
    x = torch.zeros(1 << 18, device="accel")
    torch.accel.synchronize()
    address = x.data_ptr()
    with hold_stream(side):
        with torch.accel.stream(side):
            copy = torch.empty_like(x).copy_(x)
        x[12345:].record_stream(side)
        del x
        again = torch.ones(1 << 18, device="accel")
        assert again.data_ptr() != address  # the block waits for the side stream
    side.synchronize()
    assert torch.equal(copy.cpu(), torch.zeros(1 << 18))


def test_record_stream_twice_and_of_nothing():
    side = torch.accel.Stream()
    x = torch.ones(4, device="accel")
    x.record_stream(side)
    x.t().record_stream(side)
    torch.empty(0, device="accel").record_stream(side)
    assert x.sum().item() == 4
    with pytest.raises((TypeError, RuntimeError, NotImplementedError)):
        torch.ones(2).record_stream(side)
