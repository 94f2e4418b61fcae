"""Storages: what torch.UntypedStorage and the typed shells around it do on accel, compared with the CPU."""

import copy
import io
import sys

import pytest
import torch

from tests.memory import settled

BYTES = list(range(24))


def both():
    """The same bytes on the CPU and on accel."""
    return [torch.UntypedStorage(BYTES, device=device) for device in ("cpu", "accel")]


OPERATIONS = {
    "len": len,
    "nbytes": lambda s: s.nbytes(),
    "size": lambda s: s.size(),
    "element size": lambda s: s.element_size(),
    "item": lambda s: (s[3], s[-1]),
    "slice": lambda s: s[2:5].tolist(),
    "iterate": list,
    "set item": lambda s: s.__setitem__(3, 200) or s.tolist(),
    "set slice": lambda s: s.__setitem__(slice(2, 9), 7) or s.tolist(),
    "fill": lambda s: s.fill_(5).tolist(),
    "clone": lambda s: (s.clone().tolist(), s.clone().data_ptr() == s.data_ptr()),
    "copy": lambda s: copy.copy(s).tolist(),
    "deepcopy": lambda s: (copy.deepcopy(s).tolist(), copy.deepcopy(s).device == s.device),
    "copy_ from cpu": lambda s: s.copy_(torch.UntypedStorage([9] * 24)).tolist(),
    "copy_ to cpu": lambda s: torch.UntypedStorage(24).copy_(s).tolist(),
    "copy_ non_blocking": lambda s: s.copy_(torch.UntypedStorage([9] * 24).pin_memory(), non_blocking=True).tolist(),
    "copy_ itself": lambda s: s.copy_(s).tolist(),
    "cpu": lambda s: s.cpu().tolist(),
    "new": lambda s: (s.new().nbytes(), s.new().device == s.device),
    "grow": lambda s: s.resize_(40)[:24].tolist(),
    "shrink": lambda s: s.resize_(7).tolist(),
    "empty": lambda s: (s.resize_(0).nbytes(), s.data_ptr()),
    "back from empty": lambda s: s.resize_(0).resize_(24).nbytes(),
    "float": lambda s: s.float().tolist(),
    "double": lambda s: s.double().tolist(),
    "int": lambda s: s.int().dtype,
    "bool": lambda s: s.bool().tolist(),
    "complex": lambda s: s.complex_float().tolist(),
    "bfloat16": lambda s: s.bfloat16().tolist(),
    "type": lambda s: s.type(),
    "resizable": lambda s: s.resizable(),
    "pinned": lambda s: s.is_pinned(),
    "equality": lambda s: (s == s, s == s.clone()),
    "bit pattern": lambda s: torch.empty(0, dtype=torch.float32, device=s.device).set_(s).tolist(),
}
for dtype in (
    torch.uint8,
    torch.bool,
    torch.int16,
    torch.bfloat16,
    torch.float32,
    torch.int64,
    torch.complex64,
    torch.complex128,
):
    OPERATIONS[f"byteswap {dtype}"] = lambda s, dtype=dtype: s.byteswap(dtype) or s.tolist()


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
def test_as_on_the_cpu(operation):
    expected, actual = (operation(storage) for storage in both())
    assert actual == expected


def test_byteswap_of_what_does_not_fill_the_last_element():
    for device in ("cpu", "accel"):
        with pytest.raises(RuntimeError, match="the length of data is not a multiple of 4"):
            torch.UntypedStorage(10, device=device).byteswap(torch.float32)


def test_typed_storages():
    for device in ("cpu", "accel"):
        storage = torch.TypedStorage([1, 2, 3], dtype=torch.int32, device=device)
        assert storage.fill_(2).tolist() == [2, 2, 2] and storage[1] == 2 and storage.nbytes() == 12
        storage[0] = 9
        assert storage.half().tolist() == [9, 2, 2] and storage.half().device == storage.device
        assert storage.pickle_storage_type() == "IntStorage"
    with pytest.raises(IndexError):
        storage[3]


def test_resizing_moves_the_bytes_and_frees_them():
    before = settled()
    x = torch.arange(1 << 18, dtype=torch.float32, device="accel")
    storage, old = x.untyped_storage(), x.data_ptr()
    storage.resize_(0)
    assert torch.accel.memory_allocated() == before and storage.nbytes() == 0
    assert x.shape == (1 << 18,) and x.stride() == (1,)  # a tensor without its bytes
    storage.resize_(1 << 20)
    x.fill_(3)
    storage.resize_(1 << 21)
    assert x.data_ptr() != old and torch.accel.memory_allocated() == before + (1 << 21)
    assert torch.equal(x.cpu(), torch.full((1 << 18,), 3.0))


def test_two_tensors_over_a_resized_storage():
    x = torch.arange(4.0, device="accel")
    y = x[1:3]
    x.untyped_storage().resize_(64)
    y.fill_(9)
    assert x.tolist() == [0, 9, 9, 3] and y.untyped_storage()._cdata == x.untyped_storage()._cdata


def test_a_storage_is_rewrapped():
    x = torch.arange(4.0, device="accel")
    again = torch.empty(0, device="accel").set_(x.untyped_storage(), 1, (3,), (1,))
    again.zero_()
    assert x.tolist() == [0, 0, 0, 0]
    typed = torch.TypedStorage(wrap_storage=x.untyped_storage(), dtype=torch.float32, _internal=True)
    assert typed.tolist() == [0] * 4 and typed.device == x.device


def test_files(tmp_path):
    _, storage = both()
    path = tmp_path / "bytes"
    with open(path, "wb") as file:
        storage._write_file(file, True, True, 1)
    read = torch.UntypedStorage(24, device="accel").fill_(0)
    with open(path, "rb") as file:
        read._set_from_file(file, 0, True, 1)
    assert read.tolist() == BYTES and read.device == storage.device
    mapped = torch.UntypedStorage.from_file(str(path), shared=False, nbytes=8)
    assert mapped.device.type == "cpu"


def test_sharing_as_a_storage_of_a_device():
    _, storage = both()
    assert storage.is_shared() and storage.share_memory_() is storage
    x = torch.ones(2, device="accel")
    assert x.is_shared() and x.share_memory_() is x
    assert torch.nn.Linear(2, 2).to("accel").share_memory().weight.is_accel
    assert torch.UntypedStorage._new_shared(5, device="accel").device.type == "accel"


def test_what_only_the_cpu_has():
    _, storage = both()
    for use, text in (
        (lambda: storage._share_fd_cpu_(), "only available on CPU"),
        (lambda: storage._share_filename_cpu_(), "only available on CPU"),
        (lambda: storage.pin_memory(), "only CPU memory can be pinned"),
        (lambda: storage.copy_(torch.UntypedStorage(8)), "size does not match"),
        (lambda: storage[24], "out of range"),
    ):
        with pytest.raises((RuntimeError, TypeError, IndexError), match=text):
            use()


def test_another_byte_order_is_loaded(monkeypatch):
    buffer = io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "byteorder", "big")  # what the file is marked with
        torch.save(torch.arange(3, dtype=torch.int32, device="accel"), buffer)
    for device in ("cpu", "accel", None):
        buffer.seek(0)
        loaded = torch.load(buffer, map_location=device)
        assert loaded.tolist() == [0, 1 << 24, 2 << 24] and loaded.device.type == (device or "accel")
