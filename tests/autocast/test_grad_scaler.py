"""GradScaler("accel"): growth, backoff, skipped steps, several optimizers and devices, state, refusals."""

import pickle

import pytest
import torch

import torch_accel
from torch_accel.testing import fallback_mode, hold_stream, wait_report

INF, NAN = float("inf"), float("nan")


def parameter(value=1.0, device="accel", dtype=torch.float32):
    return torch.full((3,), value, device=device, dtype=dtype, requires_grad=True)


def iterate(scaler, pairs, bad=None):
    """Scales, differentiates and steps each (parameter, optimizer); the gradient of pair number `bad` is infinite."""
    for number, (p, own) in enumerate(pairs):
        own.zero_grad()
        scaler.scale(p.sum() * (INF if number == bad else 1.0)).backward()
    for _, own in pairs:
        scaler.step(own)
    scaler.update()


def pair(lr=0.5, **options):
    p = parameter()
    return p, torch.optim.SGD([p], lr=lr, **options)


WAYS = [{"fused": True}, {"foreach": True}, {"foreach": False}]
ways = pytest.mark.parametrize("way", WAYS, ids=["fused", "foreach", "plain"])


def test_defaults_are_cudas():
    scaler = torch_accel.amp.GradScaler()
    assert scaler.state_dict() == {
        "scale": 65536.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": 0,
    }
    assert torch.accel.amp.GradScaler is torch_accel.amp.GradScaler
    assert isinstance(scaler, torch.amp.GradScaler) and scaler.is_enabled()


def test_the_scale_is_a_tensor_of_the_device_of_the_first_loss():
    scaler = torch.amp.GradScaler("accel", init_scale=8.0)
    scaled = scaler.scale([torch.ones(2, device="accel"), (torch.ones((), device="accel", dtype=torch.float16),)])
    assert type(scaled) is list and type(scaled[1]) is tuple
    assert scaled[0].tolist() == [8.0, 8.0] and scaled[1][0].item() == 8.0
    assert scaler._scale.device == torch.device("accel:0") and scaler._scale.dtype == torch.float32


@ways
def test_the_state_machine(way):
    """Growth after two good steps in a row; an infinite gradient halves the scale, skips the step, starts again."""
    scaler = torch.amp.GradScaler("accel", init_scale=4.0, growth_factor=3.0, backoff_factor=0.5, growth_interval=2)
    p, own = pair(**way)
    expected = 1.0
    for bad, scale, tracker in [
        (None, 4.0, 1),
        (None, 12.0, 0),
        (0, 6.0, 0),
        (None, 6.0, 1),
        (0, 3.0, 0),
        (None, 3.0, 1),
        (None, 9.0, 0),
    ]:
        iterate(scaler, [(p, own)], bad)
        expected -= 0.0 if bad == 0 else 0.5
        assert (scaler.get_scale(), scaler._get_growth_tracker()) == (scale, tracker)
        assert p.tolist() == [expected] * 3


@ways
@pytest.mark.parametrize("bad", [INF, -INF, NAN])
def test_one_bad_element_skips_the_step_and_keeps_the_state(bad, way):
    p = parameter()
    q = parameter(2.0)
    own = torch.optim.AdamW([p, q], lr=0.1, **way)
    scaler = torch.amp.GradScaler("accel", init_scale=4.0)
    scaler.scale(p.sum() + q.sum()).backward()
    scaler.step(own)
    scaler.update()
    before = [t.detach().clone() for t in (p, q, *own.state[p].values())]
    own.zero_grad()
    scaler.scale(p.sum() + q.sum()).backward()
    q.grad[1] = bad
    scaler.step(own)
    scaler.update()
    after = [p, q, *own.state[p].values()]
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(after, before, strict=True))
    assert scaler.get_scale() == 2.0


def test_an_infinity_in_one_optimizer_skips_that_one_and_backs_off_for_all():
    for way in WAYS:
        pairs = [pair(**way), pair(**way)]
        scaler = torch.amp.GradScaler("accel", init_scale=4.0)
        iterate(scaler, pairs, bad=1)
        assert pairs[0][0].tolist() == [0.5] * 3 and pairs[1][0].tolist() == [1.0] * 3
        assert scaler.get_scale() == 2.0


@ways
def test_unscaled_gradients_can_be_clipped_before_the_step(way):
    p, own = pair(lr=1.0, **way)
    scaler = torch.amp.GradScaler("accel", init_scale=1024.0)
    scaler.scale((p * torch.tensor([3.0, 4.0, 0.0], device="accel")).sum()).backward()
    assert p.grad.tolist() == [3072.0, 4096.0, 0.0]
    scaler.unscale_(own)
    assert p.grad.tolist() == [3.0, 4.0, 0.0]
    assert torch.nn.utils.clip_grad_norm_([p], 1.0).item() == 5.0
    scaler.step(own)
    scaler.update()
    torch.testing.assert_close(p.cpu(), torch.tensor([0.4, 0.2, 1.0]), rtol=1e-5, atol=1e-5)


def test_gradients_accumulate_under_one_scale():
    p, own = pair(lr=1.0)
    scaler = torch.amp.GradScaler("accel", init_scale=16.0)
    for _ in range(3):
        scaler.scale(p.sum() / 4).backward()
    scaler.step(own)
    scaler.update()
    assert p.tolist() == [0.25] * 3


def test_misuse_is_refused_in_torchs_words():
    scaler = torch.amp.GradScaler("accel")
    p, own = pair()
    for call, name in ((scaler.unscale_, "unscale_"), (scaler.step, "step")):
        with pytest.raises(AssertionError, match=f"Attempted {name} but _scale is None"):
            call(own)
    with pytest.raises(AssertionError, match="Attempted update but _scale is None"):
        scaler.update()
    scaler.scale(p.sum()).backward()
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update"):
        scaler.update()
    with pytest.raises(RuntimeError, match="Closure use is not currently supported if GradScaler is enabled"):
        scaler.step(own, closure=lambda: None)
    scaler.unscale_(own)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) has already been called on this optimizer"):
        scaler.unscale_(own)
    with pytest.raises(AssertionError, match="may only be pickled at the beginning"):
        pickle.dumps(scaler)
    scaler.step(own)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) is being called after step\(\)"):
        scaler.unscale_(own)
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called since the last update"):
        scaler.step(own)
    own.zero_grad()
    scaler.update()
    with pytest.raises(AssertionError, match="No inf checks were recorded for this optimizer"):
        scaler.step(own)  # without a gradient there is nothing to check
    with pytest.raises(ValueError, match="outputs must be a Tensor or an iterable of Tensors"):
        scaler.scale([1.0])
    for wrong in ({"growth_factor": 1.0}, {"backoff_factor": 1.0}):
        with pytest.raises(AssertionError, match=r"factor must be [<>] 1\.0"):
            torch.amp.GradScaler("accel", **wrong)


@ways
def test_gradients_in_float16_are_refused(way):
    p = parameter(dtype=torch.float16)
    own = torch.optim.SGD([p], **way)
    scaler = torch.amp.GradScaler("accel", init_scale=2.0)
    scaler.scale(p.float().sum()).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.unscale_(own)


def test_sparse_gradients_are_unscaled_and_checked():
    table = torch.nn.Embedding(4, 2, sparse=True, device="accel")
    own = torch.optim.SGD(table.parameters(), lr=1.0)
    before = table.weight.detach().clone()
    scaler = torch.amp.GradScaler("accel", init_scale=8.0)
    rows = torch.tensor([1, 3, 1], device="accel")
    for factor, moved in ((INF, 0.0), (1.0, 1.0)):
        own.zero_grad()
        scaler.scale((table(rows) * factor).sum()).backward()
        scaler.step(own)
        scaler.update()
        expected = before.cpu() - moved * torch.tensor([0.0, 2.0, 0.0, 1.0])[:, None]
        torch.testing.assert_close(table.weight.detach().cpu(), expected)
    assert scaler.get_scale() == 4.0


def test_a_new_scale_is_set_by_hand():
    scaler = torch.amp.GradScaler("accel", init_scale=2.0)
    p, own = pair()
    iterate(scaler, [(p, own)])
    scaler.update(32.0)
    assert scaler.get_scale() == 32.0
    given = torch.tensor(4.0, device="accel")
    scaler.update(given)
    given.fill_(0)
    assert scaler.get_scale() == 4.0
    for wrong in (torch.tensor(4.0), torch.ones(2, device="accel"), parameter()[0]):
        with pytest.raises(AssertionError, match="new_scale should be a float or a 1-element"):
            scaler.update(wrong)


def test_state_goes_from_one_scaler_to_another():
    scaler = torch.amp.GradScaler("accel", init_scale=4.0, growth_interval=3)
    p, own = pair()
    iterate(scaler, [(p, own)])
    iterate(scaler, [(p, own)])
    state = scaler.state_dict()
    assert (state["scale"], state["_growth_tracker"]) == (4.0, 2)
    fresh, used = torch.amp.GradScaler("accel"), torch.amp.GradScaler("accel")
    iterate(used, [pair()])
    on_the_cpu = torch.amp.GradScaler("cpu")
    copied = pickle.loads(pickle.dumps(scaler))
    for other in (fresh, used, on_the_cpu):
        other.load_state_dict(state)
        assert other.state_dict() == state
    for other in (fresh, used, copied):
        iterate(other, [pair()])
        assert (other.get_scale(), other._get_growth_tracker()) == (8.0, 0)
    with pytest.raises(RuntimeError, match="The source state dict is empty"):
        fresh.load_state_dict({})


def test_a_disabled_scaler_does_nothing():
    scaler = torch.amp.GradScaler("accel", enabled=False)
    p, own = pair()
    loss = p.sum()
    assert scaler.scale(loss) is loss and scaler.get_scale() == 1.0 and scaler.state_dict() == {}
    loss.backward()
    p.grad.fill_(INF)
    scaler.unscale_(own)
    assert scaler.step(own, closure=lambda: 7) == 7
    scaler.update()
    assert p.tolist() == [-INF] * 3
    scaler.load_state_dict({})


def test_a_fused_step_never_waits(queued):
    """The plain ones read found_inf on the host, on CUDA too; the fused one leaves it to the kernel."""
    waits = {}
    for name, way in (("fused", {"fused": True}), ("foreach", {"foreach": True})):
        pairs = [pair(**way), pair(**way)]
        scaler = torch.amp.GradScaler("accel", init_scale=4.0)
        iterate(scaler, pairs)
        before = wait_report()
        if name == "fused":
            with fallback_mode("error"), hold_stream():
                iterate(scaler, pairs, bad=1)
        else:
            torch.accel._sleep(50_000_000)
            iterate(scaler, pairs, bad=1)
        waits[name] = {k for k, n in wait_report().items() if n != before.get(k, 0)}
        assert pairs[0][0].tolist() == [0.0] * 3 and pairs[1][0].tolist() == [0.5] * 3
    assert waits["fused"] == set() and "item" in waits["foreach"]


def training(device, way, dtype, steps=16):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).to(device)
    own = torch.optim.AdamW(model.parameters(), lr=0.01, **way)
    # The first scales overflow float16: some steps are skipped.
    scaler = torch.amp.GradScaler(device, init_scale=2.0**24, growth_interval=3)
    x = torch.linspace(-1, 1, 64).view(8, 8).to(device)
    y = torch.arange(8).remainder(4).to(device)
    scales = []
    for _ in range(steps):
        own.zero_grad()
        with torch.autocast(device, dtype=dtype):
            logits = model(x)
        loss = torch.nn.functional.cross_entropy(logits.float(), y)
        scaler.scale(loss).backward()
        scaler.step(own)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales, loss.item(), [p.detach().cpu() for p in model.parameters()]


@ways
def test_a_scaled_training_is_the_cpus(way):
    """The region holds what both devices cast alike: linear; tanh is in no list of either."""
    mine, theirs = training("accel", way, torch.float16), training("cpu", way, torch.float16)
    assert mine[:2] == theirs[:2]
    rises = [after > before for before, after in zip(mine[0], mine[0][1:])]
    falls = [after < before for before, after in zip(mine[0], mine[0][1:])]
    assert any(rises) and any(falls)
    assert all(torch.equal(a, e) for a, e in zip(mine[2], theirs[2], strict=True))


def test_several_devices(script):
    """found_inf is kept per device and meets on the scale's.

    Not with a parameter on the CPU: torch copies the scale to it with non_blocking=True and reads it at once, which is
    a race beside any device.
    """
    script(
        """
        import torch
        INF = float("inf")
        for way in ({"fused": True}, {"foreach": True}, {"foreach": False}):
            for devices in (["accel:0", "accel:1"], ["accel:1", "accel:0", "accel:1"]):
                for bad in (None, 0, 1):
                    values = [torch.ones(3, device=d, requires_grad=True) for d in devices]
                    own = torch.optim.SGD(values, lr=0.5, **way)
                    scaler = torch.amp.GradScaler("accel", init_scale=4.0, growth_interval=1)
                    for number, loss in enumerate(scaler.scale([v.sum() for v in values])):
                        assert loss.device == values[number].device
                        loss.backward()
                    if bad is not None:
                        values[bad].grad[2] = INF
                    scaler.unscale_(own)
                    found = scaler._per_optimizer_states[id(own)]["found_inf_per_device"]
                    assert {str(d) for d in found} == set(devices)
                    wrong = {str(d) for d, f in found.items() if f.item()}
                    assert wrong == (set() if bad is None else {devices[bad]}), (wrong, bad)
                    assert all(f.device == d for d, f in found.items())
                    scaler.step(own)
                    scaler.update()
                    assert scaler._scale.device == torch.device(devices[0])
                    assert scaler.get_scale() == (8.0 if bad is None else 2.0)
                    expected = 0.5 if bad is None else 1.0
                    assert all(v.tolist() == [expected] * 3 for v in values), (way, devices, bad, values)
        """,
        ACCEL_DEVICES=2,
    )


def test_the_sharded_scaler(script):
    """With a process group that reduces over one process; what several find is a matter of its backend."""
    script(
        """
        import torch, torch.distributed as dist
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("accel:fake", store=FakeStore(), rank=0, world_size=1)
        scaler = ShardedGradScaler("accel", init_scale=4.0, growth_interval=1)
        p = torch.ones(3, device="accel", requires_grad=True)
        own = torch.optim.SGD([p], lr=0.5)
        for bad, scale, value in ((False, 8.0, 0.5), (True, 4.0, 0.5), (False, 8.0, 0.0)):
            own.zero_grad()
            scaler.scale(p.sum()).backward()
            if bad:
                p.grad[0] = float("nan")
            scaler.step(own)
            scaler.update()
            assert (scaler.get_scale(), p.tolist()) == (scale, [value] * 3)
        dist.destroy_process_group()
        """
    )
