"""DLPack both ways, and what NumPy is told."""

import numpy as np
import pytest
import torch
from torch.utils.dlpack import DLDeviceType

from tests.memory import settled
from torch_accel.testing import hold_stream


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0)])
def test_a_capsule_shares_the_memory(version):
    x = torch.arange(12.0, device="accel").reshape(3, 4)[:, 1:]
    y = torch.from_dlpack(x.__dlpack__(max_version=version))
    assert (y.device, y.data_ptr(), y.shape, y.stride(), y.dtype) == (
        x.device,
        x.data_ptr(),
        x.shape,
        x.stride(),
        x.dtype,
    )
    y.fill_(7)
    assert x.tolist() == [[7] * 3] * 3


def test_from_dlpack_of_a_tensor():
    x = torch.arange(3, device="accel")
    for y in (torch.from_dlpack(x), torch.utils.dlpack.from_dlpack(x), torch.from_dlpack(x, device="accel:0")):
        assert y.data_ptr() == x.data_ptr() and y.device == x.device
    copy = torch.from_dlpack(x, copy=True)
    assert copy.data_ptr() != x.data_ptr() and copy.device == x.device and torch.equal(copy.cpu(), x.cpu())


def test_the_memory_lives_as_long_as_its_importer():
    before = settled()
    y = torch.from_dlpack(torch.ones(1000, device="accel"))
    assert torch.accel.memory_allocated() == before + 4096 and torch.equal(y.cpu(), torch.ones(1000))
    del y
    assert torch.accel.memory_allocated() == before


def test_devices():
    assert torch.ones(1, device="accel").__dlpack_device__() == (DLDeviceType.kDLExtDev, 0)
    assert torch.ones(1).__dlpack_device__() == (DLDeviceType.kDLCPU, 0)
    assert torch.nn.Parameter(torch.ones(1, device="accel")).__dlpack_device__() == (DLDeviceType.kDLExtDev, 0)


def test_the_second_device(script):
    script(
        """
        import torch
        x = torch.arange(4.0, device="accel:1")
        assert x.__dlpack_device__() == (12, 1)
        y = torch.from_dlpack(x)
        assert y.device == x.device and y.data_ptr() == x.data_ptr()
        z = torch.from_dlpack(x, device="accel:0")
        assert z.device.index == 0 and z.tolist() == [0, 1, 2, 3]
        """,
        ACCEL_DEVICES=2,
    )


def test_between_devices():
    x = torch.arange(3.0, device="accel")
    there = torch.from_dlpack(x, device="cpu")
    assert there.device.type == "cpu" and there.tolist() == [0, 1, 2]
    assert torch.from_dlpack(np.arange(3.0), device="accel").tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="without copying"):
        torch.from_dlpack(x, device="cpu", copy=False)


def test_what_dlpack_cannot_say_is_refused():
    x = torch.ones(2, device="accel")
    for value, text in (
        (x.clone().requires_grad_(), "Can't export tensors that require gradient"),
        (x.to(torch.complex64).conj(), "Can't export tensors with the conjugate bit set"),
        (x.reshape(1, 2).to_sparse(), "Can't export tensors with layout other than torch.strided"),
    ):
        with pytest.raises(BufferError, match=text):
            torch.from_dlpack(value)
    with pytest.raises(TypeError, match="stream must be ``int`` or ``none``"):
        x.__dlpack__(stream="1")
    with pytest.raises(
        BufferError, match=r"unsupported stream on accel: 12345; pass torch\.accel\.Stream\.accel_stream"
    ):
        x.__dlpack__(stream=12345)


@pytest.mark.parametrize("named", ["a stream", "the default", "none"])
def test_the_consumer_s_stream_waits(named, queued):
    side, consumer = torch.accel.Stream(), torch.accel.Stream()
    if named != "a stream":
        consumer = torch.accel.default_stream()
    handle = {"a stream": consumer.accel_stream, "the default": 1, "none": None}[named]
    x, y = torch.zeros(1000, device="accel"), torch.zeros(1000, device="accel")
    torch.accel.synchronize()
    with hold_stream(side):
        with torch.accel.stream(side):
            x.fill_(3)
            capsule = x.__dlpack__(stream=handle)
        with torch.accel.stream(consumer):
            y.copy_(torch.from_dlpack(capsule))
        assert not consumer.query()
    torch.accel.synchronize()
    assert torch.equal(y.cpu(), torch.full((1000,), 3.0))


def test_minus_one_means_no_wait(queued):
    side, consumer = torch.accel.Stream(), torch.accel.Stream()
    x = torch.zeros(10, device="accel")
    torch.accel.synchronize()
    with hold_stream(side):
        with torch.accel.stream(side):
            x.__dlpack__(stream=-1)
        assert consumer.query() and torch.accel.default_stream().query()


# NumPy's own words about torch's __array__.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_numpy_is_refused_and_told_what_to_do():
    x = torch.ones(2, device="accel")
    with pytest.raises(RuntimeError, match=r"Unsupported device in DLTensor"):
        np.from_dlpack(x)
    for use in (lambda: np.asarray(x), lambda: np.array(x), lambda: x.numpy(), lambda: np.add(x, 1)):
        with pytest.raises(TypeError, match=r"can't convert accel:0 device type tensor to numpy. Use Tensor.cpu\(\)"):
            use()
    assert x.numpy(force=True).tolist() == [1, 1]
