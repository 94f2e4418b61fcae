"""torch.nn.utils: norms clipped, parameters as a vector, calls with other parameters, pruning, fusion, averages."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from tests.modules.against_cpu import check_equal, check_step, leaves, ramp
from torch_accel.testing import hold_stream, wait_report


def model(device="cpu", channels_last=False):
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)]
    return nn.Sequential(*layers).to(device)


def with_gradients(device, seed=0):
    m = model(device)
    torch.manual_seed(seed)
    out = m(torch.randn(5, 2, 4, 4).to(device))
    out.backward(ramp(out) * 10)
    return m


def grads(m):
    return [p.grad for p in m.parameters()]


CLIPS = {
    "norm 2": lambda m: nn.utils.clip_grad_norm_(m.parameters(), 0.5),
    "norm 1": lambda m: nn.utils.clip_grad_norm_(m.parameters(), 0.5, norm_type=1.0),
    "norm 0.5": lambda m: nn.utils.clip_grad_norm_(m.parameters(), 0.5, norm_type=0.5),
    "norm inf": lambda m: nn.utils.clip_grad_norm_(m.parameters(), 0.5, norm_type=float("inf")),
    "not reached": lambda m: nn.utils.clip_grad_norm_(m.parameters(), 1e6),
    "one tensor": lambda m: nn.utils.clip_grad_norm_(m[0].weight, 0.5),
    "by foreach": lambda m: nn.utils.clip_grad_norm_(m.parameters(), 0.5, foreach=True),
    "by a loop": lambda m: nn.utils.clip_grad_norm_(m.parameters(), 0.5, foreach=False),
    "of nothing": lambda m: nn.utils.clip_grad_norm_([], 0.5),
    "values": lambda m: nn.utils.clip_grad_value_(m.parameters(), 0.3),
    "values by a loop": lambda m: nn.utils.clip_grad_value_(m.parameters(), 0.3, foreach=False),
    "get_total_norm": lambda m: nn.utils.get_total_norm(grads(m)),
    "clip_grads_with_norm_": lambda m: nn.utils.clip_grads_with_norm_(
        m.parameters(), 0.5, nn.utils.get_total_norm(grads(m))
    ),
}


@pytest.mark.parametrize("clip", CLIPS.values(), ids=CLIPS.keys())
def test_clipping(clip):
    mine, theirs = with_gradients("accel"), with_gradients("cpu")
    before = [g.clone() for g in grads(mine)]
    check_equal([clip(mine) or [], *grads(mine)], [clip(theirs) or [], *grads(theirs)], accel=False)
    changed = any(not torch.equal(a, b) for a, b in zip(before, grads(mine)))
    assert changed == (clip not in (CLIPS["not reached"], CLIPS["of nothing"], CLIPS["get_total_norm"]))


def test_clipping_by_definition():
    m = with_gradients("accel")
    flat = torch.cat([g.flatten() for g in grads(m)]).double().cpu()
    total = nn.utils.clip_grad_norm_(m.parameters(), 0.5)
    torch.testing.assert_close(total.double().cpu(), flat.norm(), rtol=1e-6, atol=0)
    clipped = torch.cat([g.flatten() for g in grads(m)]).double().cpu()
    torch.testing.assert_close(clipped, flat * 0.5 / flat.norm(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("foreach", [True, False, None])
def test_clipping_is_queued(foreach, queued):
    m = with_gradients("accel")
    torch.accel.synchronize()
    before = wait_report()
    with hold_stream():  # what waits would wait for ever
        nn.utils.clip_grad_norm_(m.parameters(), 0.5, foreach=foreach)
        nn.utils.clip_grad_value_(m.parameters(), 0.3, foreach=foreach)
    assert wait_report() == before


def test_a_norm_that_is_not_finite_raises_only_when_asked():
    m = with_gradients("accel")
    m[0].weight.grad[0, 0, 0, 0] = float("inf")
    with pytest.raises(RuntimeError, match=r"total norm of order 2\.0 for gradients"):
        nn.utils.clip_grad_norm_(m.parameters(), 1.0, error_if_nonfinite=True)
    assert not nn.utils.clip_grad_norm_(m.parameters(), 1.0).isfinite()


def test_parameters_as_a_vector():
    mine, theirs = model("accel"), model()
    vector = nn.utils.parameters_to_vector(mine.parameters())
    check_equal(vector, nn.utils.parameters_to_vector(theirs.parameters()))
    nn.utils.vector_to_parameters(vector * 2, mine.parameters())
    check_equal(list(mine.parameters()), [p * 2 for p in theirs.parameters()])
    with pytest.raises(TypeError, match="different devices"):
        nn.utils.parameters_to_vector([*mine.parameters(), *theirs.parameters()])


def test_functional_call():
    mine, theirs, x = model("accel"), model(), torch.ones(2, 2, 4, 4)
    results = []
    for m in (mine, theirs):
        changed = {name: p.detach() * 0.5 for name, p in m.named_parameters()}
        bias = {"4.bias": torch.full_like(m[4].bias, 3.0)}
        results.append([
            torch.func.functional_call(m, {**changed, **bias}, (x.to(m[0].weight.device),)),
            torch.func.functional_call(m, (changed, dict(m.named_buffers())), (x.to(m[0].weight.device),)),
        ])  # fmt: skip
        assert not torch.equal(m[4].bias, bias["4.bias"])
    check_equal(*results)


def test_functional_call_with_ties():
    m = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).to("accel")
    m[1].weight = m[0].weight
    x, new = torch.ones(1, 3, device="accel"), torch.eye(3, device="accel")
    zero = torch.zeros(3, device="accel")
    given = {"0.weight": new, "0.bias": zero, "1.bias": zero}
    assert torch.func.functional_call(m, given, (x,)).tolist() == [[1, 1, 1]]
    assert torch.func.functional_call(m, given, (x,), tie_weights=False).tolist() != [[1, 1, 1]]


def test_an_ensemble_is_vmapped():
    results = []
    for device in ("accel", "cpu"):
        torch.manual_seed(0)
        nets = [nn.Linear(3, 2).to(device) for _ in range(3)]
        parameters, buffers = torch.func.stack_module_state(nets)
        base = copy.deepcopy(nets[0]).to("meta")

        def call(p, b, x, base=base):
            return torch.func.functional_call(base, (p, b), (x,))

        x = torch.linspace(-1, 1, 6).view(2, 3).to(device)
        results.append([torch.vmap(call, in_dims=(0, 0, None))(parameters, buffers, x), [n(x) for n in nets]])
    check_equal(results[0], results[1], rtol=1e-6, atol=1e-6)


def fusions(device):
    m = model(device)
    x = torch.randn(5, 2, 4, 4, generator=torch.Generator().manual_seed(1)).to(device)
    m(x)
    m.eval()
    norm = nn.BatchNorm1d(3).to(device)
    norm(m(x))
    norm.eval()
    conv, linear = fuse_conv_bn_eval(m[0], m[1]), fuse_linear_bn_eval(m[4], norm)
    return [conv, linear, conv(x), linear(x.flatten(1)[:, :16])], [m[1](m[0](x)), norm(m[4](x.flatten(1)[:, :16]))]


def test_fusion():
    (mine, separate), (theirs, _) = fusions("accel"), fusions("cpu")
    check_equal(mine, theirs)
    check_equal(mine[2:], separate, rtol=1e-5, atol=1e-5)


def pruned(device, prune_it):
    m = model(device)
    torch.manual_seed(0)
    prune_it(m)
    out = m(torch.linspace(-1, 1, 64).view(2, 2, 4, 4).to(device))
    out.backward(ramp(out))
    result = [m.state_dict(), out, grads(m)]
    if prune.is_pruned(m[0]):
        prune.remove(m[0], "weight")
        result.append([m[0].weight, m.state_dict()])
    return result


PRUNINGS = {
    "smallest": lambda m: prune.l1_unstructured(m[0], "weight", 0.4),
    "smallest, twice": lambda m: (prune.l1_unstructured(m[0], "weight", 5), prune.l1_unstructured(m[0], "weight", 0.3)),
    "channels": lambda m: prune.ln_structured(m[0], "weight", 0.5, n=2, dim=0),
    "over several": lambda m: prune.global_unstructured(
        [(m[0], "weight"), (m[4], "weight")], prune.L1Unstructured, amount=0.5
    ),
    "by a mask": lambda m: prune.custom_from_mask(m[0], "weight", (ramp(m[0].weight) > 0).to(m[0].weight.device)),
    "identity": lambda m: prune.identity(m[0], "weight"),
}


@pytest.mark.parametrize("prune_it", PRUNINGS.values(), ids=PRUNINGS.keys())
def test_pruning(prune_it):
    check_equal(pruned("accel", prune_it), pruned("cpu", prune_it))


@pytest.mark.parametrize("structured", [False, True])
def test_random_pruning_obeys_the_seed(structured):
    masks = []
    for _ in range(2):
        m = nn.Linear(20, 10, device="accel")
        torch.manual_seed(3)
        prune.random_structured(m, "weight", 0.3, dim=1) if structured else prune.random_unstructured(m, "weight", 0.3)
        masks.append(m.weight_mask)
    assert torch.equal(*masks) and masks[0].is_accel and masks[0].sum().item() == 140


def test_a_pruned_module_moves():
    m = model()
    prune.l1_unstructured(m[0], "weight", 0.4)
    x = torch.ones(1, 2, 4, 4)
    expected = m(x)
    m.to("accel")
    check_equal(m(x.to("accel")), expected)
    assert m[0].weight_mask.is_accel and m[0].weight_orig.is_accel


def test_convert_conv2d_weight_memory_format():
    for device in ("accel", "cpu"):
        m = nn.utils.convert_conv2d_weight_memory_format(model(device), torch.channels_last)
        assert m[0].weight.is_contiguous(memory_format=torch.channels_last)
    check_step(nn.utils.convert_conv2d_weight_memory_format(model(), torch.channels_last), torch.ones(2, 2, 4, 4))


AVERAGES = {
    "mean": {},
    "EMA": {"multi_avg_fn": torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), "use_buffers": True},
    "EMA, one by one": {"avg_fn": torch.optim.swa_utils.get_ema_avg_fn(0.9)},
    "SWA": {"multi_avg_fn": torch.optim.swa_utils.get_swa_multi_avg_fn()},
    "function": {"avg_fn": lambda average, new, n: average * 0.5 + new * 0.5},
}


@pytest.mark.parametrize("options", AVERAGES.values(), ids=AVERAGES.keys())
def test_averaged_models(options):
    results = []
    for device in ("accel", "cpu"):
        m = model(device)
        averaged = torch.optim.swa_utils.AveragedModel(m, **options)
        batches = [torch.linspace(-i, i, 128).view(4, 2, 4, 4).to(device) for i in (1, 2, 3)]
        for x in batches:
            F.mse_loss(m(x), torch.zeros(4, 3, device=device)).backward()
            with torch.no_grad():
                for p in m.parameters():
                    p -= 0.1 * p.grad
            averaged.update_parameters(m)
        torch.optim.swa_utils.update_bn(batches, averaged)
        results.append([averaged, averaged(batches[0])])
    # The counter stays on the CPU. Without a function torch averages by lists on accelerators, one by one on the CPU.
    check_equal(*results, accel=False, **({} if options else {"rtol": 1e-6, "atol": 1e-7}))
    assert all(t.is_accel for t in leaves(results[0][0].module))


def test_an_averaged_model_lives_elsewhere():
    m = model("accel")
    averaged = torch.optim.swa_utils.AveragedModel(m, device="cpu")
    averaged.update_parameters(m)
    assert all(t.device.type == "cpu" for t in leaves(averaged))
    check_equal(m, averaged.module)
