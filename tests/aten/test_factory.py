"""Tensors without values: devices, options, deterministic fill, and the factories that stand on them."""

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.memory import settled

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.uint16,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.complex128,
]

INVALID = {
    "empty": lambda device: torch.empty(2, device=device),
    "empty_strided": lambda device: torch.empty_strided((2,), (1,), device=device),
    "_efficientzerotensor": lambda device: torch._efficientzerotensor((2,), device=device),
    "ones": lambda device: torch.ones(2, device=device),
    "tensor": lambda device: torch.tensor([1.0], device=device),
    "arange": lambda device: torch.arange(3, device=device),
    "tril_indices": lambda device: torch.tril_indices(3, 3, device=device),
    "randperm": lambda device: torch.randperm(3, device=device),
    "randn": lambda device: torch.randn(3, device=device),
    "to": lambda device: torch.ones(2).to(device),
    "empty_like": lambda device: torch.empty_like(torch.ones(2), device=device),
    "Generator": lambda device: torch.Generator(device),
}


@pytest.mark.parametrize("make", INVALID.values(), ids=INVALID.keys())
def test_index_out_of_range(make):
    with pytest.raises(RuntimeError, match=r"accel.*\b7\b"):
        make("accel:7")
    assert torch.ones(2, device="accel").sum().item() == 2  # the device stays usable


@pytest.mark.parametrize("device", ["accel:-1", "accel:x", "accel:300", "accelerator"])
def test_device_string(device):
    with pytest.raises(RuntimeError):
        torch.empty(2, device=device)


def test_index_is_resolved():
    for made in (torch.empty(2, device="accel"), torch.empty(2, device=0), torch.empty(2, device="accel:0")):
        assert made.device == torch.device("accel", 0) and made.is_accel


@pytest.mark.parametrize("make", [torch.empty, torch.ones, torch.randn, torch.full], ids=lambda f: f.__name__)
def test_pin_memory_is_rejected(make):
    arguments = ((2,), 1.0) if make is torch.full else ((2,),)
    with pytest.raises(RuntimeError, match=r"Only dense CPU tensors can be pinned.*accel:0"):
        make(*arguments, device="accel", pin_memory=True)
    with pytest.raises(RuntimeError, match="pinned"):
        torch.empty_strided((2,), (1,), device="accel", pin_memory=True)


def test_device_tensor_cannot_be_pinned():
    with pytest.raises(RuntimeError, match="pin"):
        torch.ones(2, device="accel").pin_memory()
    assert not torch.ones(2, device="accel").is_pinned()


def test_layout_is_rejected():
    with pytest.raises((NotImplementedError, RuntimeError), match="accel"):
        torch.empty((2, 2), layout=torch._mkldnn, device="accel")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype):
    made = torch.empty((3, 2), dtype=dtype, device="accel")
    assert made.dtype == dtype and made.is_contiguous() and made.untyped_storage().nbytes() == 6 * dtype.itemsize
    torch.testing.assert_close(torch.zeros(5, dtype=dtype, device="accel").cpu(), torch.zeros(5, dtype=dtype))
    torch.testing.assert_close(torch.ones(5, dtype=dtype, device="accel").cpu(), torch.ones(5, dtype=dtype))


@pytest.mark.parametrize(
    "size, memory_format",
    [((2, 3, 4, 5), torch.channels_last), ((2, 3, 4, 5, 6), torch.channels_last_3d), ((2, 3), torch.contiguous_format)],
    ids=str,
)
def test_memory_format(size, memory_format):
    made = torch.empty(size, device="accel", memory_format=memory_format)
    assert made.stride() == torch.empty(size, memory_format=memory_format).stride()
    assert torch.empty_like(made).stride() == made.stride()


@pytest.mark.parametrize(
    "size, stride", [((2, 3), (1, 2)), ((4,), (0,)), ((0, 3), (3, 1)), ((), ()), ((2, 2), (5, 2))], ids=str
)
def test_empty_strided(size, stride):
    made, expected = (torch.empty_strided(size, stride, device=device) for device in ("accel", "cpu"))
    assert (made.size(), made.stride()) == (expected.size(), expected.stride())
    assert made.untyped_storage().nbytes() == expected.untyped_storage().nbytes()


BAD = {
    "negative size": lambda device: torch.empty(-1, device=device),
    "strides of another rank": lambda device: torch.empty_strided((2, 2), (1,), device=device),
    "negative stride": lambda device: torch.empty_strided((2,), (-1,), device=device),
    "format of another rank": lambda device: torch.empty((2, 2), memory_format=torch.channels_last, device=device),
    "preserve": lambda device: torch.empty((2, 2), memory_format=torch.preserve_format, device=device),
    "overflow": lambda device: torch.empty((1 << 40, 1 << 40), device=device),
}


@pytest.mark.parametrize("make", BAD.values(), ids=BAD.keys())
def test_bad_arguments_as_the_cpu(make):
    with pytest.raises(Exception) as expected:
        make("cpu")
    with pytest.raises(expected.type) as raised:
        make("accel")
    assert str(raised.value) == str(expected.value)


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


FILLED = {
    "empty": lambda d, t: torch.empty(10, dtype=t, device=d),
    "empty_strided": lambda d, t: torch.empty_strided((3, 2), (1, 4), dtype=t, device=d),
    "resize_ from nothing": lambda d, t: torch.empty(0, dtype=t, device=d).resize_(7),
    "resize_ growth": lambda d, t: torch.ones(3, dtype=t, device=d).resize_(9),
    "resize_ of a view": lambda d, t: torch.ones(6, dtype=t, device=d)[4:].resize_(5),
    "empty_like": lambda d, t: torch.empty_like(torch.ones(4, dtype=t, device=d)),
    "new_empty": lambda d, t: torch.ones(4, dtype=t, device=d).new_empty(3),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int16, torch.bool], ids=str)
@pytest.mark.parametrize("make", FILLED.values(), ids=FILLED.keys())
def test_deterministic_fill(make, dtype, deterministic):
    # The independent word is torch's documentation: NaN for floating point and complex, else the largest value.
    made = make("accel", dtype)
    torch.testing.assert_close(made.cpu(), make("cpu", dtype), rtol=0, atol=0, equal_nan=True)
    last = made.reshape(-1)[-1].item()
    if dtype.is_floating_point or dtype.is_complex:
        assert last != last
    else:
        assert last == (True if dtype == torch.bool else torch.iinfo(dtype).max)


def test_deterministic_fill_can_be_left_out(deterministic):
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        x = torch.ones(4, device="accel")
        assert torch.equal(x.resize_(4).cpu(), torch.ones(4))
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True


FACTORIES = {
    "zeros": (lambda d: torch.zeros(2, 3, device=d), np.zeros((2, 3), np.float32)),
    "full": (lambda d: torch.full((2,), 7, device=d), np.full(2, 7)),
    "full of bool": (lambda d: torch.full((2,), True, device=d), np.full(2, True)),
    "arange": (lambda d: torch.arange(1, 9, 3, device=d), np.arange(1, 9, 3)),
    "linspace": (lambda d: torch.linspace(0, 1, 5, device=d), np.linspace(0, 1, 5, dtype=np.float32)),
    "eye": (lambda d: torch.eye(3, 2, device=d), np.eye(3, 2, dtype=np.float32)),
    "tril_indices": (lambda d: torch.tril_indices(3, 4, device=d), np.stack(np.tril_indices(3, 0, 4))),
    "triu_indices": (lambda d: torch.triu_indices(3, 4, 1, device=d), np.stack(np.triu_indices(3, 1, 4))),
    "tensor": (lambda d: torch.tensor([[1, 2], [3, 4]], device=d), np.array([[1, 2], [3, 4]])),
    "scalar_tensor": (lambda d: torch.scalar_tensor(3.5, device=d), np.float32(3.5)),
    "as_tensor": (lambda d: torch.as_tensor(np.arange(4), device=d), np.arange(4)),
    "complex": (lambda d: torch.tensor([1 + 2j], device=d), np.array([1 + 2j], np.complex64)),
    "hann_window": (lambda d: torch.hann_window(4, device=d), np.array([0, 0.5, 1, 0.5], np.float32)),
}


@pytest.mark.parametrize("make, expected", FACTORIES.values(), ids=FACTORIES.keys())
def test_values_against_numpy(make, expected):
    made = make("accel")
    assert made.is_accel
    np.testing.assert_allclose(made.cpu().numpy(), expected, rtol=1e-6)
    assert made.cpu().numpy().dtype == expected.dtype


def test_randperm_is_a_permutation():
    made = torch.randperm(1000, device="accel")
    assert made.is_accel
    np.testing.assert_array_equal(np.sort(made.cpu().numpy()), np.arange(1000))


def test_efficient_zero_tensor():
    zero = torch._efficientzerotensor((2, 3), device="accel")
    assert zero._is_zerotensor() and zero.device == torch.device("accel:0")
    assert torch.equal(zero.cpu(), torch.zeros(2, 3))
    assert torch.equal(zero.clone().cpu(), torch.zeros(2, 3))
    assert torch.equal((zero + torch.ones(3, device="accel")).cpu(), torch.ones(2, 3))
    target = torch.ones(2, 3, device="accel")
    assert torch.equal(target.copy_(zero).cpu(), torch.zeros(2, 3))
    with pytest.raises(RuntimeError, match="ZeroTensors are immutable"):
        zero.copy_(target)


def test_meta_needs_no_device_memory():
    before = settled()
    x = torch.empty(1 << 40, device="meta")
    assert torch.empty_like(x, device="meta").device.type == "meta" and settled() == before
    with pytest.raises(NotImplementedError, match="meta"):
        torch.empty(3, device="meta").to("accel")
    made = torch.nn.Linear(3, 2, device="meta").to_empty(device="accel")
    assert made.weight.is_accel and made.weight.shape == (2, 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(8, device="accel"),
        lambda: torch.empty_strided((8,), (1,), device="accel"),
        lambda: torch.ones(8, device="accel") + 1,
        lambda: torch.ones(8).to("accel"),
        lambda: torch.empty(8, device="accel:0").clone(),
    ],
)
def test_fake_tensors_have_the_current_index(make):
    before = settled()
    with FakeTensorMode():
        assert make().device == torch.device("accel", 0)
    assert settled() == before


def test_no_memory_for_no_elements():
    before = settled()
    made = [torch.empty(size, device="accel") for size in ((0,), (3, 0), (0, 2, 0))]
    assert settled() == before and all(t.data_ptr() == 0 for t in made)


def test_default_device():
    with torch.device("accel"):
        assert torch.ones(2).is_accel and torch.nn.Linear(2, 2).weight.is_accel
    assert torch.ones(2).device.type == "cpu"
