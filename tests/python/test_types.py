"""Tensor and storage types named by dtype, as torch.cuda has them."""

import pytest
import torch

DTYPES = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}
STORAGES = {
    "BFloat16Storage": torch.bfloat16,
    "BoolStorage": torch.bool,
    "ByteStorage": torch.uint8,
    "CharStorage": torch.int8,
    "ComplexDoubleStorage": torch.complex128,
    "ComplexFloatStorage": torch.complex64,
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "IntStorage": torch.int32,
    "LongStorage": torch.int64,
    "ShortStorage": torch.int16,
}


@pytest.mark.parametrize(("name", "dtype"), DTYPES.items())
def test_tensor_types(name, dtype):
    kind, x = getattr(torch.accel, name), torch.ones(2, 3, device="accel").to(dtype)
    assert x.type() == f"torch.accel.{name}" and repr(kind) == f"<class 'torch.accel.{name}'>"
    assert (
        isinstance(x, kind)
        and not isinstance(x.cpu(), kind)
        and not isinstance(x.cpu().numpy() if dtype != torch.bfloat16 else 1, kind)
    )
    assert [other for other in DTYPES if isinstance(x, getattr(torch.accel, other))] == [name]
    assert not isinstance(x.to_sparse(), kind)
    for converted in (torch.ones(2, 3).type(kind), torch.ones(2, 3).type(f"torch.accel.{name}")):
        assert converted.dtype == dtype and converted.device == torch.device("accel", 0)
        assert torch.equal(converted.cpu(), x.cpu())
    assert kind(2, 3).shape == (2, 3) and kind(2, 3).dtype == dtype and kind().numel() == 0
    assert kind([1, 0]).tolist() == [1, 0] and kind([1]).device == x.device
    assert kind(x).data_ptr() == x.data_ptr()


@pytest.mark.parametrize(("name", "dtype"), [item for item in DTYPES.items() if item[0] != "BoolTensor"])
def test_sparse_tensor_types(name, dtype):
    kind = getattr(torch.accel.sparse, name)
    x = torch.eye(3).to(dtype).to("accel").to_sparse()
    assert x.type() == f"torch.accel.sparse.{name}"
    assert isinstance(x, kind) and not isinstance(x.to_dense(), kind) and not isinstance(x.cpu(), kind)
    y = kind(torch.tensor([[0, 2]]), torch.tensor([1.0, 5.0]), (4,))
    assert isinstance(y, kind) and y.to_dense().tolist() == [1, 0, 5, 0]


def test_there_are_no_others():
    assert not hasattr(torch.accel.sparse, "BoolTensor")  # nor has torch.cuda.sparse
    assert {name for name in dir(torch.accel) if name.endswith("Tensor")} == set(DTYPES)
    assert {name for name in dir(torch.accel) if name.endswith("Storage")} == set(STORAGES)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize(("name", "dtype"), STORAGES.items())
def test_storage_types(name, dtype):
    kind = getattr(torch.accel, name)
    storage = kind(3)
    assert storage.dtype == dtype and storage.device.type == "accel" and len(storage) == 3
    x = torch.ones(2, device="accel").to(dtype)
    assert x.storage().type() == f"torch.accel.{name}" and isinstance(x.storage(), kind)
    assert not isinstance(x.cpu().storage(), kind)
    assert [other for other in STORAGES if isinstance(x.storage(), getattr(torch.accel, other))] == [name]
    assert kind(wrap_storage=x.untyped_storage()).data_ptr() == x.data_ptr()
    assert kind([1, 0]).tolist() == [1, 0]
