"""``x.data = y``: tensors of the CPU and of accel take each other's place; what torch refuses stays refused."""

import pytest
import torch
from torch import nn

KINDS = {
    "float": lambda: torch.arange(6.0).reshape(2, 3),
    "bfloat16": lambda: torch.arange(6.0).reshape(2, 3).bfloat16(),
    "another shape": lambda: torch.arange(5.0),
    "transposed": lambda: torch.arange(6.0).reshape(2, 3).t(),
    "a view at an offset": lambda: torch.arange(12.0)[5:],
    "expanded": lambda: torch.ones(1, 3).expand(4, 3),
    "empty": lambda: torch.empty(0, 3),
    "0-dim": lambda: torch.tensor(7.0),
    "complex": lambda: torch.complex(torch.ones(2), torch.zeros(2)),
    "conjugated": lambda: torch.complex(torch.ones(2), torch.ones(2)).conj(),
    "a gradient's": lambda: torch.ones(3, requires_grad=True),
}


@pytest.mark.parametrize("source, target", [("cpu", "accel"), ("accel", "cpu"), ("accel", "accel")])
@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
def test_data_takes_the_place(make, source, target):
    value = make().detach()
    new = value.to(target)
    p = nn.Parameter(torch.ones(2, 3, dtype=value.dtype, device=source))
    p.data = new
    assert p.device.type == target and p.requires_grad and p.is_leaf and isinstance(p, nn.Parameter)
    assert p.data_ptr() == new.data_ptr() and p.stride() == new.stride()
    assert p.storage_offset() == new.storage_offset() and p.is_conj() == new.is_conj()
    assert torch.equal(p.detach().cpu(), value)


def test_a_parameter_in_use_moves():
    p = nn.Parameter(torch.arange(3.0))
    p.sum().backward()
    p.grad = None
    p.data = p.data.to("accel")
    (p * p).sum().backward()  # the accumulator of the gradient was made for the CPU
    assert p.grad.is_accel and p.grad.tolist() == [0, 2, 4]
    p.grad = None
    p.data = p.data.cpu()
    (p * p).sum().backward()
    assert p.grad.device.type == "cpu" and p.grad.tolist() == [0, 2, 4]


def test_hooks_stay():
    seen = []
    p = nn.Parameter(torch.ones(2))
    p.register_hook(lambda grad: seen.append(grad.device.type))
    p.register_post_accumulate_grad_hook(lambda q: seen.append(q.grad.device.type))
    p.data = p.data.to("accel")
    p.sum().backward()
    assert seen == ["accel", "accel"]


def test_a_gradient_of_another_device_is_refused():
    p = nn.Parameter(torch.ones(2, device="accel"))
    with pytest.raises(RuntimeError, match="gradient with device type 'cpu' to a tensor with device type 'accel'"):
        p.grad = torch.ones(2)
    p.grad = torch.ones(2, device="accel")
    p.grad.data = torch.zeros(2)  # torch does not look
    assert p.grad.device.type == "cpu"


def test_views_of_the_old_data_stay_where_they_were():
    x = torch.zeros(4)
    view = x[1:]
    x.data = torch.ones(4, device="accel")
    view.fill_(5)
    assert x.tolist() == [1] * 4 and view.tolist() == [5] * 3 and view.device.type == "cpu"


REFUSED = {
    "dense by sparse": (lambda d: torch.ones(2, device=d), lambda d: torch.eye(2, device=d).to_sparse()),
    "dense by compressed": (lambda d: torch.ones(2, device=d), lambda d: torch.eye(2, device=d).to_sparse_csr()),
    "sparse by dense": (lambda d: torch.eye(2, device=d).to_sparse(), lambda d: torch.ones(2, device=d)),
    "dense by meta": (lambda d: torch.ones(2, device=d), lambda d: torch.ones(2, device="meta")),
    "meta by dense": (lambda d: torch.ones(2, device="meta"), lambda d: torch.ones(2, device=d)),
}


@pytest.mark.parametrize("old, new", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_what_has_another_layout_is_refused_in_torchs_words(old, new):
    texts = []
    for device in ("accel", "cpu"):
        x = old(device)
        with pytest.raises(RuntimeError) as raised:
            x.data = new(device)
        texts.append(str(raised.value))
    assert texts[0] == texts[1] and "incompatible tensor type" in texts[0]


def test_sparse_data_on_one_device():
    x = torch.eye(2, device="accel").to_sparse()
    x.data = torch.full((2, 2), 3.0, device="accel").to_sparse()
    assert x.to_dense().tolist() == [[3, 3], [3, 3]]


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("source, target", [("cpu", "accel"), ("accel", "cpu"), ("accel", "accel")])
def test_compressed_data_is_refused(source, target):
    # SparseCsrTensorImpl has no shallow copy of its own (torch 2.13): indices and values would stay, and the device not
    x = torch.eye(2).to_sparse_csr().to(source)
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        x.data = torch.full((2, 2), 3.0).to_sparse_csr().to(target)
    assert x.device.type == source and x.to_dense().tolist() == [[1, 0], [0, 1]]


def test_coo_data_across_devices_is_refused_by_torch():
    # SparseTensorImpl::shallow_copy_from knows a list of backends that no operator can extend (torch 2.13)
    x = torch.eye(2).to_sparse()
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        x.data = torch.eye(2).to_sparse().to("accel")
