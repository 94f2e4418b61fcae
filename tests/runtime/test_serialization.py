"""torch.save and load, pickles, copies. Modules: tests/modules."""

import copy
import io
import pickle
from unittest import mock

import numpy as np
import pytest
import torch


def saved(value, **options):
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    buffer.seek(0)
    return buffer


DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn]


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_round_trip(dtype, zipped):
    if dtype == torch.float8_e4m3fn and not zipped:
        pytest.skip("the legacy format has no float8")
    x = torch.arange(6).reshape(2, 3).to(dtype).to("accel")
    y = torch.load(saved(x, _use_new_zipfile_serialization=zipped), weights_only=zipped)
    assert y.device == x.device and y.dtype == dtype and y.data_ptr() != x.data_ptr()
    assert torch.equal(y.cpu().view(torch.uint8), x.cpu().view(torch.uint8))


MAPS = {
    "cpu": "cpu",
    "device": torch.device("cpu"),
    "accel": "accel",
    "accel:0": "accel:0",
    "dict": {"accel:0": "cpu"},
    "function": lambda storage, location: storage.cpu(),
}


@pytest.mark.parametrize("map_location", MAPS.values(), ids=MAPS.keys())
def test_map_location(map_location):
    for device in ("cpu", "accel"):
        x = torch.arange(5.0).to(device)
        y = torch.load(saved(x), map_location=map_location)
        to_cpu = map_location in ("cpu", torch.device("cpu")) or device == "cpu" or not isinstance(map_location, str)
        assert y.device.type == ("accel" if str(map_location).startswith("accel") else "cpu" if to_cpu else device)
        assert torch.equal(y.cpu(), torch.arange(5.0))


FORMS = {
    "nothing": (None, "accel:0"),
    "cpu": ("cpu", "cpu"),
    "accel": ("accel", "accel:0"),
    "accel:0": ("accel:0", "accel:0"),
    "device": (torch.device("accel", 0), "accel:0"),
    "meta": ("meta", "meta"),
    "dict": ({"accel:0": "cpu", "cpu": "accel:0"}, "cpu"),
    "other keys": ({"cpu": "accel:0"}, "accel:0"),
    "function": (lambda storage, location: storage.accel() if location == "accel:0" else None, "accel:0"),
    "declining function": (lambda storage, location: None, "accel:0"),
}


@pytest.mark.parametrize("mapped", [False, True], ids=["read", "mmap"])
@pytest.mark.parametrize("weights_only", [False, True], ids=["pickle", "weights"])
@pytest.mark.parametrize(("form", "device"), FORMS.values(), ids=FORMS.keys())
def test_every_form_of_map_location(tmp_path, form, device, weights_only, mapped):
    x = torch.arange(6.0).to("accel").reshape(2, 3)
    torch.save({"x": x, "views": [x[1], x.t()]}, tmp_path / "x.pt")
    loaded = torch.load(tmp_path / "x.pt", map_location=form, weights_only=weights_only, mmap=mapped)
    y, (row, transposed) = loaded["x"], loaded["views"]
    assert {str(t.device) for t in (y, row, transposed)} == {device}
    assert (y.shape, transposed.stride(), row.storage_offset()) == (x.shape, (1, 3), 3)
    if device != "meta":
        assert torch.equal(y.cpu(), x.cpu()) and transposed.tolist() == x.t().tolist()
        row.fill_(9)
        assert y.tolist() == [[0, 1, 2], [9, 9, 9]]  # one storage
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    "value",
    [
        torch.nn.Parameter(torch.ones(2)),
        torch.ones(2, requires_grad=True),
        torch.tensor(3, dtype=torch.int16),
        torch.empty(0, 4),
        torch.tensor([[0, 1.0], [2, 0]]).to_sparse(),
        torch.tensor([[0, 1.0], [2, 0]]).to_sparse_csr(),
    ],
    ids=["parameter", "leaf", "scalar", "empty", "coo", "csr"],
)
def test_kinds_of_tensors(value):
    x = value.detach().to("accel").requires_grad_(value.requires_grad)
    x = torch.nn.Parameter(x) if isinstance(value, torch.nn.Parameter) else x
    y = torch.load(saved(x), weights_only=True)
    assert (type(y), y.device, y.dtype, y.shape, y.layout) == (type(x), x.device, x.dtype, x.shape, x.layout)
    assert y.requires_grad == x.requires_grad
    assert torch.equal(y.detach().cpu().to_dense(), value.detach().to_dense())


def test_other_things_on_the_device():
    generator = torch.Generator("accel").manual_seed(3)
    state = torch.load(saved(generator.get_state()), weights_only=True)
    again = torch.Generator("accel")
    again.set_state(state)
    draws = [torch.rand(4, device="accel", generator=g).tolist() for g in (generator, again)]
    assert draws[0] == draws[1]
    assert torch.load(saved(torch.device("accel:0")), weights_only=True) == torch.device("accel:0")


def test_storages_are_tagged_and_restored():
    storage = torch.arange(3, dtype=torch.uint8).to("accel").untyped_storage()
    assert torch.serialization.location_tag(storage) == "accel:0"
    host = torch.UntypedStorage([4, 5])
    assert torch.serialization.location_tag(host) == "cpu"
    for tag in ("accel", "accel:0"):
        restored = torch.serialization.default_restore_location(host, tag)
        assert restored.device == torch.device("accel", 0) and restored.tolist() == [4, 5]
    assert torch.serialization.default_restore_location(storage, "cpu").tolist() == [0, 1, 2]


def test_a_tensor_that_is_pickled_by_its_values():
    """torch's way for backends without storages: files made so are read here."""
    x = torch.arange(6.0, device="accel").reshape(2, 3)
    with mock.patch.object(torch._C, "_has_storage", return_value=False):
        assert x._reduce_ex_internal(2)[0] is torch._utils._rebuild_device_tensor_from_cpu_tensor
        buffer = saved(x)
        copied = copy.deepcopy(x)
    for y in (torch.load(buffer, weights_only=True), copied):
        assert (y.device, y.dtype) == (x.device, x.dtype) and torch.equal(y, x) and y.data_ptr() != x.data_ptr()
    # and by way of NumPy, as torch 2.0 wrote them
    numpy = torch._utils._rebuild_device_tensor_from_numpy(np.ones((2, 2)), torch.float32, "accel:0", True)
    assert numpy.is_accel and numpy.dtype == torch.float32 and numpy.requires_grad and numpy.sum().item() == 4


def test_skipped_data_is_filled_in_later(tmp_path):
    with torch.serialization.skip_data():
        torch.save(torch.arange(4.0, device="accel"), tmp_path / "x.pt")
    y = torch.load(tmp_path / "x.pt")
    assert y.device == torch.device("accel:0") and y.shape == (4,)


def test_load_into_a_device_context():
    with torch.device("accel"):
        assert torch.load(saved(torch.ones(3)), weights_only=True).sum().item() == 3


def test_views_share_after_loading():
    x = torch.arange(10.0).to("accel")
    a, b, c = torch.load(saved((x, x[2:5], x.view(2, 5).t())))
    assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() == c.untyped_storage().data_ptr()
    a.fill_(1)
    assert b.tolist() == [1, 1, 1] and c.shape == (5, 2) and c.stride() == (1, 5)


def test_math_bits_survive():
    z = torch.tensor([1 + 2j, 3 - 1j], device="accel")
    for x in (z.conj(), z.conj().imag):
        y = torch.load(saved(x))
        assert (y.is_conj(), y.is_neg()) == (x.is_conj(), x.is_neg()) and torch.equal(y.cpu(), x.cpu())


def test_save_waits_for_queued_work():
    x = torch.zeros(100_000, device="accel")
    torch.accel._sleep(20_000_000)
    x.fill_(4)
    assert torch.equal(torch.load(saved(x), map_location="cpu"), torch.full((100_000,), 4.0))


def test_too_large_an_index_is_explained(script):
    done = script(
        """
        import io, torch
        buffer = io.BytesIO()
        torch.save(torch.ones(3, device="accel:1"), buffer)
        open(path := __import__("tempfile").mktemp(), "wb").write(buffer.getvalue())
        print(path)
        """,
        ACCEL_DEVICES=2,
    )
    path = done.stdout.strip()
    with pytest.raises(RuntimeError) as raised:
        torch.load(path)
    assert "accel" in str(raised.value) and "1" in str(raised.value) and "map_location" in str(raised.value)
    assert torch.load(path, map_location="cpu").tolist() == [1, 1, 1]
    assert torch.load(path, map_location={"accel:1": "accel:0"}).device == torch.device("accel:0")
    without = script(
        f"""
        import torch
        try:
            torch.load({path!r})
        except RuntimeError as error:
            print(error)
        assert torch.load({path!r}, map_location="cpu").tolist() == [1, 1, 1]
        """,
        ACCEL_DEVICES=0,
    )
    assert "accel" in without.stdout and "map_location" in without.stdout


def test_pickle_and_deepcopy():
    x = torch.arange(6.0).to("accel")[1:5]
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert y.device == x.device and torch.equal(y.cpu(), x.cpu()) and y.data_ptr() != x.data_ptr()
    assert copy.copy(x).data_ptr() == x.data_ptr()
    p = torch.nn.Parameter(x)
    q = copy.deepcopy(p)
    assert isinstance(q, torch.nn.Parameter) and q.is_accel and q.requires_grad
    memo = copy.deepcopy([x, x])
    assert memo[0] is memo[1]


def test_deepcopy_of_a_storage_keeps_sharing():
    x = torch.zeros(4, device="accel")
    a, b = copy.deepcopy((x, x[1:]))
    b.fill_(1)
    assert a.tolist() == [0, 1, 1, 1] and x.tolist() == [0, 0, 0, 0]


def test_state_dict_round_trip():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Flatten(), torch.nn.Linear(8, 2)
    )
    model.to("accel")
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    x = torch.randn(3, 1, 4, 4).to("accel")

    def step(model, optimizer):
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.item()

    step(model, optimizer)
    buffer = saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    other = copy.deepcopy(model)
    for p in other.parameters():
        torch.nn.init.zeros_(p)
    other_optimizer = torch.optim.AdamW(other.parameters(), 0.1)
    state = torch.load(buffer, map_location="cpu", weights_only=True)
    other.load_state_dict(state["model"])
    other_optimizer.load_state_dict(state["optimizer"])
    assert all(p.is_accel for p in other.parameters())
    assert all(s["exp_avg"].is_accel for s in other_optimizer.state.values())
    assert [step(model, optimizer) for _ in range(3)] == [step(other, other_optimizer) for _ in range(3)]
    assigned = torch.nn.Linear(8, 2, device="meta")
    assigned.load_state_dict({k[2:]: v for k, v in model.state_dict().items() if k.startswith("3.")}, assign=True)
    assert assigned.weight.is_accel and torch.equal(assigned.weight.cpu(), model[3].weight.cpu())
