"""State of optimizers: from one device to another, its casts, and where the count of steps is kept."""

import copy
import io

import pytest
import torch


def trained(device="accel", dtype=torch.float32, steps=2, **options):
    """An AdamW after some steps, with its parameter."""
    p = torch.linspace(-1, 1, 6).to(device, dtype).requires_grad_()
    own = torch.optim.AdamW([p], lr=0.1, **options)
    for number in range(steps):
        p.grad = torch.linspace(1, 2, 6).to(device, dtype) * (number + 1)
        own.step()
    return p, own


def saved(own, **how):
    file = io.BytesIO()
    torch.save(own.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True, **how)


WAYS = {
    "plain": ({"foreach": False}, "cpu"),
    "foreach": ({"foreach": True}, "cpu"),
    "fused": ({"fused": True}, "accel"),
    "capturable": ({"capturable": True}, "accel"),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_count_of_steps_is_kept_where_cuda_keeps_it(way):
    options, where = WAYS[way]
    p, own = trained(**options)
    step = own.state[p]["step"]
    assert (step.device.type, step.dtype, step.item()) == (where, torch.float32, 2)


@pytest.mark.parametrize("source", WAYS)
@pytest.mark.parametrize("target", WAYS)
def test_a_loaded_count_follows_the_loading_optimizer(source, target):
    """The options are part of the state: those of the source win, unless the caller keeps their own."""
    _, there = trained(**WAYS[source][0])
    p, own = trained(steps=0, **WAYS[target][0])
    state = saved(there)
    for group in state["param_groups"]:
        group.update(foreach=None, fused=None, capturable=False)
        group.update(WAYS[target][0])
    own.load_state_dict(state)
    pinned = WAYS[target][1] == "accel"
    assert own.state[p]["step"].device.type == ("accel" if pinned else WAYS[source][1])
    p.grad = torch.ones(6, device="accel")
    own.step()
    assert own.state[p]["step"].item() == 3


@pytest.mark.parametrize("target", [torch.float64, torch.bfloat16])
def test_loading_casts_to_the_dtype_of_the_parameter_but_for_the_count(target):
    _, there = trained()
    p, own = trained("accel", target, steps=0, fused=True)
    state = saved(there)
    state["param_groups"][0].update(fused=True, foreach=None)
    own.load_state_dict(state)
    mine, theirs = own.state[p], next(iter(there.state.values()))
    assert {key: value.dtype for key, value in mine.items()} == {
        "step": torch.float32,
        "exp_avg": target,
        "exp_avg_sq": target,
    }
    assert torch.equal(mine["exp_avg"].cpu(), theirs["exp_avg"].cpu().to(target))


def test_loading_to_and_from_the_cpu_moves_the_state():
    p, own = trained()
    q, other = trained("cpu", steps=0)
    other.load_state_dict(own.state_dict())  # no file, no map_location: load_state_dict moves it
    for key, value in other.state[q].items():
        assert value.device.type == "cpu" and torch.equal(value, own.state[p][key].cpu()), key
    r, third = trained("accel", steps=0)
    third.load_state_dict(other.state_dict())
    assert third.state[r]["exp_avg"].device == r.device
    assert torch.equal(third.state[r]["exp_avg"].cpu(), other.state[q]["exp_avg"])


def test_a_saved_state_remembers_its_device_and_map_location_overrules_it():
    _, own = trained(fused=True)
    assert {t.device.type for t in saved(own)["state"][0].values()} == {"accel"}
    assert {t.device.type for t in saved(own, map_location="cpu")["state"][0].values()} == {"cpu"}


def test_a_deep_copy_trains_alone():
    p, own = trained()
    copied = copy.deepcopy(own)
    (q,) = copied.param_groups[0]["params"]
    assert q.device == p.device and q.data_ptr() != p.data_ptr()
    before = p.detach().clone()
    q.grad = torch.ones_like(q)
    copied.step()
    assert torch.equal(p.cpu(), before.cpu()) and not torch.equal(q.cpu(), before.cpu())
    assert own.state[p]["step"].item() == 2 and copied.state[q]["step"].item() == 3


def test_a_step_returns_what_its_closure_gives():
    p = torch.tensor([2.0], device="accel", requires_grad=True)
    own = torch.optim.SGD([p], lr=0.25, fused=True)

    def closure():
        assert torch.is_grad_enabled()
        own.zero_grad()
        loss = p.square().sum()
        loss.backward()
        return loss

    with torch.no_grad():
        loss = own.step(closure)
    assert loss.device.type == "accel" and loss.item() == 4.0 and p.item() == 1.0


def test_a_rate_that_is_a_tensor_of_the_device_is_read_at_each_step():
    p = torch.zeros(3, device="accel", requires_grad=True)
    p.grad = torch.ones_like(p)
    rate = torch.tensor(0.5, device="accel")
    own = torch.optim.SGD([p], lr=rate, fused=True)
    own.step()
    rate.fill_(0.25)
    own.step()
    assert p.tolist() == [-0.75] * 3
    scheduler = torch.optim.lr_scheduler.ExponentialLR(own, gamma=0.5)
    own.step()
    scheduler.step()
    assert own.param_groups[0]["lr"] is rate and rate.item() == 0.125


def test_what_fused_cannot_step_is_refused_in_torchs_words():
    p = torch.zeros(1, dtype=torch.complex64, device="accel", requires_grad=True)
    p.grad = torch.ones_like(p)
    with pytest.raises(RuntimeError, match="`fused=True` requires all the params to be floating point Tensors"):
        torch.optim.AdamW([p], fused=True).step()
    with pytest.raises(RuntimeError, match="`fused` and `foreach` cannot be `True` together"):
        torch.optim.AdamW([torch.zeros(1, device="accel")], fused=True, foreach=True)


def test_two_devices(script):
    """One optimizer over both, groups of their own, and a state that goes from one to the other."""
    script(
        """
        import copy
        import torch
        def parameters(devices):
            made = [torch.linspace(-1, 1, 6).to(d).requires_grad_() for d in devices]
            for p in made:
                p.grad = torch.linspace(1, 2, 6).to(p.device)
            return made
        options = [
            dict(foreach=False), dict(foreach=True), dict(fused=True), dict(capturable=True),
            dict(amsgrad=True, fused=True),
        ]
        for keywords in options:
            one = torch.optim.AdamW(expected := parameters(["accel:0"]), **keywords)
            both = torch.optim.AdamW(values := parameters(["accel:0", "accel:1", "accel:0"]), **keywords)
            for _ in range(3):
                one.step()
                both.step()
            assert [p.device.index for p in values] == [0, 1, 0]
            for p in values:
                assert torch.equal(p.cpu(), expected[0].cpu()), keywords
                for key, value in both.state[p].items():
                    assert torch.equal(value.cpu(), one.state[expected[0]][key].cpu())
                    assert value.device == p.device or (key == "step" and value.device.type == "cpu")

            other = torch.optim.AdamW(moved := parameters(["accel:1"]), **keywords)
            other.load_state_dict(copy.deepcopy(one.state_dict()))  # torch shares a count on the host
            moved[0].data.copy_(expected[0])
            for value in other.state[moved[0]].values():
                assert value.device in (moved[0].device, torch.device("cpu")), (keywords, other.state)
            other.step()
            one.step()
            assert torch.equal(moved[0].cpu(), expected[0].cpu())
        norm = torch.nn.utils.clip_grad_norm_(values, 1.0)
        norms = [torch.linalg.vector_norm(torch.linspace(1, 2, 6))] * 3
        assert norm.device == torch.device("accel:0")
        torch.testing.assert_close(norm.cpu(), torch.linalg.vector_norm(torch.stack(norms)))
        for p in values:
            torch.testing.assert_close(p.grad.cpu(), torch.linspace(1, 2, 6) / norm.item())
        """,
        ACCEL_DEVICES=2,
    )
