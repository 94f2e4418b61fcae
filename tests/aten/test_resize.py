"""resize_, set_ and storages that grow and shrink: torch's rules, with the bytes on the device."""

import pytest
import torch

from tests.memory import settled
from torch_accel.testing import fallback_mode, hold_stream


@pytest.fixture(autouse=True)
def no_fallback():
    with fallback_mode("error"):
        yield


def both(make):
    return make("cpu"), make("accel")


def same(host, device):
    assert (host.shape, host.stride(), host.storage_offset()) == (
        device.shape,
        device.stride(),
        device.storage_offset(),
    )
    assert host.untyped_storage().nbytes() == device.untyped_storage().nbytes()


RESIZE = {
    "grow": ((4,), lambda x: x.resize_(9)),
    "shrink": ((9,), lambda x: x.resize_(4)),
    "reshape": ((4, 3), lambda x: x.resize_(2, 6)),
    "same": ((4, 3), lambda x: x.resize_(4, 3)),
    "to nothing": ((4,), lambda x: x.resize_(0)),
    "to nothing of rank 2": ((4,), lambda x: x.resize_(0, 5)),
    "from nothing": ((0,), lambda x: x.resize_(3, 2)),
    "to 0-dim": ((4,), lambda x: x.resize_(())),
    "of 0-dim": ((), lambda x: x.resize_(3)),
    "of a view": ((8,), lambda x: x[2:5].resize_(4)),
    "of a view past the end": ((8,), lambda x: x[6:].resize_(5)),
    "of a transposed": ((3, 4), lambda x: x.t().resize_(4, 3)),
    "of a transposed to another": ((3, 4), lambda x: x.t().resize_(3, 5)),
    "of an expanded": ((1, 4), lambda x: x.expand(3, 4).resize_(4)),
    "of a view of nothing": ((8,), lambda x: x[8:].resize_(0, 2)),
    "channels last": ((4,), lambda x: x.resize_(2, 3, 4, 5, memory_format=torch.channels_last)),
    "as_": ((4,), lambda x: x.resize_as_(torch.empty(2, 3, device=x.device))),
    "as_ with a format": (
        (4,),
        lambda x: x.resize_as_(
            torch.empty((2, 3, 2, 2), device=x.device, memory_format=torch.channels_last),
            memory_format=torch.preserve_format,
        ),
    ),
}


@pytest.mark.parametrize("shape, resize", RESIZE.values(), ids=RESIZE.keys())
def test_resize(shape, resize):
    count = torch.Size(shape).numel()

    def make(device):
        x = torch.arange(float(count), device="cpu").to(device).reshape(shape)
        y = resize(x)
        return x, y

    (host, host_result), (device, device_result) = both(make)
    same(host_result, device_result)
    assert host.untyped_storage().nbytes() == device.untyped_storage().nbytes()
    # What was there before is there afterwards.
    assert device.untyped_storage().cpu()[: count * 4].tolist() == host.untyped_storage()[: count * 4].tolist()


ERRORS = {
    "negative": lambda d: torch.ones(4, device=d).resize_(-1),
    "preserve format": lambda d: torch.ones(4, device=d).resize_(2, memory_format=torch.preserve_format),
    "format of another rank": lambda d: torch.ones(4, device=d).resize_(2, memory_format=torch.channels_last),
    "overflow": lambda d: torch.ones(4, device=d).resize_(1 << 62, 1 << 62),
    "requires grad": lambda d: torch.ones(4, device=d, requires_grad=True).resize_(3),
    "set_ to a negative offset": lambda d: torch.ones(4, device=d).set_(
        torch.ones(4, device=d).untyped_storage(), -1, (2,), (1,)
    ),
    "set_ with strides of another rank": lambda d: torch.ones(4, device=d).set_(
        torch.ones(4, device=d).untyped_storage(), 0, (2, 2), (1,)
    ),
    "set_ to another dtype": lambda d: torch.ones(4, device=d).set_(torch.ones(4, device=d, dtype=torch.int32)),
}


@pytest.mark.parametrize("call", ERRORS.values(), ids=ERRORS.keys())
def test_errors_are_the_cpus(call):
    with pytest.raises(Exception) as expected:
        call("cpu")
    with pytest.raises(expected.type) as raised:
        call("accel")
    assert str(raised.value).splitlines()[0] == str(expected.value).splitlines()[0].replace("cpu", "accel")


def test_too_large_is_out_of_memory():
    x = torch.ones(4, device="accel")
    with pytest.raises(torch.OutOfMemoryError, match="accel"):
        x.resize_(1 << 45)
    y = torch.ones(4, device="accel")
    with pytest.raises(torch.OutOfMemoryError, match="accel"):
        y.untyped_storage().resize_(1 << 47)
    assert torch.equal(y.cpu(), torch.ones(4))  # untouched


def test_resize_frees_in_stream_order():
    # The old block is read by queued work while resize_ moves its bytes: both see the values of their turn.
    x = torch.zeros(1000, device="accel")
    torch.accel.synchronize()
    with hold_stream():
        x.fill_(1)
        seen = torch.empty(1000, device="accel").copy_(x)
        x.fill_(2)
        x.resize_(100_000)
        x[1000:].fill_(3)
        assert not torch.accel.current_stream().query()
    assert torch.equal(seen.cpu(), torch.ones(1000))
    assert torch.equal(x.cpu(), torch.cat([torch.full((1000,), 2.0), torch.full((99_000,), 3.0)]))


SET = {
    "set_ to a tensor": lambda x, y: x.set_(y),
    "set_ to a view": lambda x, y: x.set_(y[2:5]),
    "set_ to a transposed": lambda x, y: x.set_(y.view(2, 5).t()),
    "set_ to a storage": lambda x, y: x.set_(y.untyped_storage()),
    "set_ with a geometry": lambda x, y: x.set_(y.untyped_storage(), 2, (2, 3), (4, 1)),
    "set_ with sizes only": lambda x, y: x.set_(y.untyped_storage(), 1, (3, 2)),
    "set_ past the end": lambda x, y: x.set_(y.untyped_storage(), 4, (9,)),
    "set_ to a tensor with a geometry": lambda x, y: x.set_(y, 3, (2, 2), (1, 2)),
    "set_ to nothing": lambda x, y: x.set_(),
}


@pytest.mark.parametrize("set_", SET.values(), ids=SET.keys())
def test_set(set_):
    def make(device):
        y = torch.arange(10.0).to(device)
        x = torch.ones(3).to(device)
        result = set_(x, y)
        assert result is x
        return x, y

    (host, host_source), (device, device_source) = both(make)
    same(host, device)
    if host.numel():
        assert device.data_ptr() == device_source.data_ptr() + (host.data_ptr() - host_source.data_ptr())
        device.fill_(7)
        host.fill_(7)
        assert torch.equal(device_source.cpu()[:10], host_source[:10])


def test_set_refuses_another_device():
    with pytest.raises(RuntimeError, match=r"accel"):
        torch.ones(3, device="accel").set_(torch.ones(3).untyped_storage())
    with pytest.raises(RuntimeError, match=r"accel"):
        torch.ones(3).set_(torch.ones(3, device="accel").untyped_storage())


def test_set_shares_and_releases():
    before = settled()
    x = torch.ones(1 << 20, device="accel")
    x.set_(torch.zeros(4, device="accel"))
    assert torch.accel.memory_allocated() < before + (1 << 20)
    assert x.tolist() == [0, 0, 0, 0]


def test_storage_resize():
    # What FSDP does: metadata stays while the memory goes and comes.
    x = torch.arange(float(1 << 18)).to("accel")
    view = x[100:]
    allocated = settled()
    storage = x.untyped_storage()
    storage.resize_(0)
    assert torch.accel.memory_allocated() == allocated - (1 << 20) and storage.nbytes() == 0
    assert x.shape == (1 << 18,) and x.data_ptr() == 0 and view.storage_offset() == 100
    storage.resize_(1 << 20)
    assert torch.accel.memory_allocated() == allocated and x.data_ptr() != 0
    x.fill_(3)
    assert view[0].item() == 3


def test_storage_growth_keeps_the_prefix():
    x = torch.arange(100.0).to("accel")
    address = x.data_ptr()
    x.untyped_storage().resize_(1 << 20)
    assert x.data_ptr() != address and torch.equal(x.cpu(), torch.arange(100.0))
    x.untyped_storage().resize_(40)
    assert x.untyped_storage().nbytes() == 40
    assert x.untyped_storage().cpu().tolist() == torch.arange(10.0).untyped_storage().tolist()


def test_storage_of_size_zero_is_seen_by_all_tensors():
    x = torch.ones(8, device="accel")
    y = x.view(2, 4)
    x.untyped_storage().resize_(0)
    assert y.untyped_storage().nbytes() == 0 and y.data_ptr() == 0


def test_storage_methods():
    x = torch.arange(6, dtype=torch.uint8).to("accel")
    storage = x.untyped_storage()
    assert storage.device == torch.device("accel:0") and storage.tolist() == [0, 1, 2, 3, 4, 5] and len(storage) == 6
    copy = storage.clone()
    copy.fill_(9)
    assert copy.tolist() == [9] * 6 and x.tolist() == [0, 1, 2, 3, 4, 5]
    storage.copy_(copy)
    assert x.tolist() == [9] * 6
    assert storage.cpu().device.type == "cpu" and storage[2] == 9
    assert torch.UntypedStorage(4, device="accel").device.type == "accel"


def test_resize_of_a_parameter_under_no_grad():
    p = torch.nn.Parameter(torch.ones(4, device="accel"))
    with torch.no_grad(), pytest.raises(RuntimeError) as raised:
        p.resize_(8)
    with torch.no_grad(), pytest.raises(RuntimeError) as expected:
        torch.nn.Parameter(torch.ones(4)).resize_(8)
    assert str(raised.value) == str(expected.value)
