"""state_dict, torch.save and pickles of modules: every way back, onto the same and onto other devices."""

import copy
import io
import pickle
from collections import OrderedDict

import pytest
import torch
from torch import nn

from tests.modules.against_cpu import check_equal, leaves
from tests.modules.test_move import Net, net, tensors

TOKENS = torch.tensor([1, 2, 2])


def saved(value, **options):
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    buffer.seek(0)
    return buffer


def other() -> Net:
    torch.manual_seed(1)
    return Net()


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("target", ["cpu", "accel"])
@pytest.mark.parametrize("source", ["cpu", "accel"])
def test_load_state_dict_across_devices(source, target, assign):
    state = net().to(source).state_dict()
    model = other().to(target)
    weight = model.table.weight
    assert str(model.load_state_dict(state, assign=assign)) == "<All keys matched successfully>"
    assert (model.table.weight is weight) == (not assign)
    assert all(t.device.type == (source if assign else target) for t in leaves(model.state_dict()))
    check_equal(model.state_dict(), net().state_dict(), accel=False)
    if assign:
        assert model.scales[0].data_ptr() == state["scales.0"].data_ptr() and model.scales[0].requires_grad
    else:
        assert model.head.weight is model.table.weight


def test_load_under_swap():
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model = other().to("accel")
        weight = model.scales[0]
        model.load_state_dict(net().state_dict())
        assert model.scales[0] is weight and weight.is_accel
        check_equal(model.state_dict(), net().state_dict())
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def test_a_state_dict_shares_memory_and_keeps_order():
    model = net().to("accel")
    state = model.state_dict()
    assert list(state) == list(net().state_dict()) and isinstance(state, OrderedDict) and state._metadata
    assert state["table.weight"].data_ptr() == state["head.weight"].data_ptr() == model.table.weight.data_ptr()
    assert "mask" not in state and not state["table.weight"].requires_grad
    assert model.state_dict(keep_vars=True)["table.weight"] is model.table.weight
    assert list(model.norm.state_dict(prefix="a.")) == ["a." + key for key in model.norm.state_dict()]


def test_what_does_not_fit_is_told_in_torchs_words():
    texts = []
    for device in ("accel", "cpu"):
        model = net().to(device)
        state = model.state_dict()
        state["steps"] = torch.zeros(2, device=device)
        state["extra"] = state.pop("scales.0")
        with pytest.raises(RuntimeError) as raised:
            model.load_state_dict(state)
        texts.append(str(raised.value))
        del state["steps"]
        missing, unexpected = model.load_state_dict(state, strict=False)
        texts[-1] += f"{missing} {unexpected}"
    assert texts[0] == texts[1] and "size mismatch for steps" in texts[0] and "extra" in texts[0]


def test_hooks_of_state_dicts():
    seen = []
    model = nn.Sequential(nn.Linear(2, 2)).to("accel")
    model[0].register_state_dict_pre_hook(lambda m, prefix, keep: seen.append(("save", prefix)))
    model[0].register_state_dict_post_hook(lambda m, state, prefix, _: state.update({prefix + "twice": m.bias * 2}))
    model[0].register_load_state_dict_pre_hook(lambda m, state, prefix, *_: seen.append(state.pop(prefix + "twice")))
    model.register_load_state_dict_post_hook(lambda m, keys: seen.append(keys.missing_keys))
    state = model.state_dict()
    assert state["0.twice"].is_accel
    model.load_state_dict(state)
    assert seen[0] == ("save", "0.") and seen[1].is_accel and seen[2] == []


class Extra(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.zeros(2, device="accel")

    def get_extra_state(self):
        return {"table": self.table, "epoch": 3}

    def set_extra_state(self, state):
        self.table, self.epoch = state["table"], state["epoch"]


def test_extra_state():
    module, new = Extra(), Extra()
    module.table.fill_(5)
    new.load_state_dict(torch.load(saved(module.state_dict()), weights_only=True))
    assert new.table.is_accel and new.table.tolist() == [5, 5] and new.epoch == 3


MAPS = {None: "accel", "cpu": "cpu", "accel": "accel", "accel:0": "accel"}


@pytest.mark.parametrize("map_location, where", MAPS.items(), ids=str)
@pytest.mark.parametrize("what", ["state_dict", "module"])
def test_saved_and_loaded(what, map_location, where):
    model = net().to("accel")
    model(TOKENS.accel()).sum().backward()
    buffer = saved(model.state_dict() if what == "state_dict" else model)
    loaded = torch.load(buffer, map_location=map_location, weights_only=what == "state_dict")
    assert all(t.device.type == where for t in leaves(loaded))
    check_equal(loaded, model, accel=False)
    if what == "module":
        assert loaded.head.weight is loaded.table.weight and loaded.mask.device.type == where
        assert loaded.scales[1].requires_grad is False and loaded.table.weight.grad is None  # as torch saves parameters
        out = loaded(TOKENS.to(where))
        assert torch.equal(out.cpu(), model(TOKENS.accel()).cpu())
    else:
        assert loaded["head.weight"].data_ptr() == loaded["table.weight"].data_ptr()


def test_saved_on_the_cpu_and_loaded_onto_accel():
    loaded = torch.load(saved(net()), map_location="accel", weights_only=False)
    check_equal(tensors(loaded), tensors(net()))
    mapped = torch.load(saved(net().state_dict()), map_location="accel", weights_only=True)
    model = other()
    model.load_state_dict(mapped, assign=True)
    check_equal(model, net())


def test_mmap_goes_to_accel(tmp_path):
    torch.save(net().state_dict(), tmp_path / "net.pt")
    with torch.device("meta"):
        model = Net()
    model.load_state_dict(torch.load(tmp_path / "net.pt", mmap=True, weights_only=True), assign=True)
    model.mask = torch.tensor([True, False])  # not persistent: nobody saved it
    check_equal(model.to("accel"), net())


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "torch.save": lambda m: torch.load(saved(m), weights_only=False),
}


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES.keys())
def test_copies_are_whole_and_apart(make):
    model = net().to("accel")
    model(TOKENS.accel()).sum().backward()
    clone = make(model)
    assert clone.table.weight.grad is None and model.table.weight.grad is not None  # as parameters are copied
    assert clone.head.weight is clone.table.weight and clone.again[0] is clone.head
    check_equal(clone, model)
    check_equal(clone.mask, model.mask)
    assert {n for n, p in clone.named_parameters() if p.requires_grad} == {
        n for n, p in model.named_parameters() if p.requires_grad
    }
    with torch.no_grad():
        clone.table.weight.zero_(), clone.steps.zero_()
    assert model.table.weight.abs().sum() > 0 and model.steps.item() == 3


def counted(module, inputs, output=None):
    module.calls = getattr(module, "calls", 0) + 1


def test_copies_keep_hooks():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).to("accel")
    model[0].register_forward_hook(counted)
    model[0].register_forward_pre_hook(counted)
    for clone in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        clone(torch.ones(1, 2, device="accel"))
        assert clone[0].calls == 2 and not hasattr(model[0], "calls")


def test_what_is_no_leaf_is_refused():
    module = nn.Linear(2, 2, device="accel")
    module.computed = module.weight * 2
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        copy.deepcopy(module)


def test_other_indices(script):
    script(
        """
        import io
        import torch
        from tests.modules.test_move import net, tensors
        from tests.modules.test_state_dict import saved
        model = net().to("accel:1")
        where = lambda value: {str(t.device) for t in tensors(value).values()}
        load = lambda location: torch.load(saved(model), map_location=location, weights_only=False)
        assert where(load(None)) == {"accel:1"} and where(load("accel:0")) == {"accel:0"}
        assert where(load({"accel:1": "accel:0"})) == {"accel:0"} and where(load("cpu")) == {"cpu"}
        torch.accel.set_device(1)
        assert where(load("accel")) == {"accel:1"}  # the current one
        other = net().to("accel:0")
        other.load_state_dict(model.state_dict())
        assert where(other) == {"accel:0"}
        other.load_state_dict(model.state_dict(), assign=True)
        assert other.steps.device == torch.device("accel:1")
        """,
        ACCEL_DEVICES=2,
    )
