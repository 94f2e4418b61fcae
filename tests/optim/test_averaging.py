"""Averages of models over training (torch.optim.swa_utils), and the rate that goes with them."""

import pytest
import torch
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn, update_bn

from torch_accel.testing import fallback_mode, hold_stream, launches


def model(device):
    torch.manual_seed(0)
    made = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    return made.to(device)


def batches(device):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(6, 4, generator=generator).to(device) for _ in range(3)]


#: the first is what torch chooses for devices with foreach kernels; the CPU is asked for the same
AVERAGES = {
    "swa": {},
    "swa multi": {"multi_avg_fn": get_swa_multi_avg_fn()},
    "ema": {"multi_avg_fn": get_ema_multi_avg_fn(0.9)},
    "own": {"avg_fn": lambda average, current, count: 0.5 * average + 0.5 * current},
    "buffers": {"use_buffers": True, "multi_avg_fn": get_ema_multi_avg_fn(0.9)},
}


@pytest.mark.parametrize("name", AVERAGES)
def test_averages_are_the_cpus(name):
    def run(device):
        own = model(device)
        options = AVERAGES[name] or ({} if device == "accel" else AVERAGES["swa multi"])
        average = AveragedModel(own, device=device, **options)
        optimizer = torch.optim.SGD(own.parameters(), lr=0.1, momentum=0.9)
        scheduler = SWALR(optimizer, swa_lr=0.01, anneal_epochs=2)
        for x in batches(device) * 2:
            own(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            average.update_parameters(own)
            scheduler.step()
        update_bn(batches("cpu"), average, device=device)
        assert all(t.device.type == device for t in average.state_dict().values())
        return average.state_dict(), scheduler.get_last_lr(), average(batches(device)[0])

    (mine, my_rates, my_output), (theirs, their_rates, their_output) = run("accel"), run("cpu")
    assert my_rates == their_rates == [0.01]
    assert mine["n_averaged"].item() == 6
    for key, value in theirs.items():
        assert torch.equal(mine[key].cpu(), value), key
    assert torch.equal(my_output.cpu(), their_output)


def test_an_average_is_the_mean_of_what_it_saw():
    own = torch.nn.Linear(1, 1, bias=False, dtype=torch.float64, device="accel")
    average, exponential = AveragedModel(own), AveragedModel(own, multi_avg_fn=get_ema_multi_avg_fn(0.75))
    seen = [3.0, 5.0, 10.0]
    for value in seen:
        torch.nn.init.constant_(own.weight, value)
        average.update_parameters(own)
        exponential.update_parameters(own)
    assert average.module.weight.item() == pytest.approx(6.0, rel=1e-7)  # 1/3 is a float32 tensor
    assert exponential.module.weight.item() == pytest.approx((3 * 0.75 + 5 * 0.25) * 0.75 + 10 * 0.25, rel=1e-12)


def test_an_average_lives_where_it_is_told_to():
    own = model("accel")
    average = AveragedModel(own, device="cpu")
    average.update_parameters(own)
    assert all(p.device.type == "cpu" for p in average.parameters())
    for mine, theirs in zip(average.parameters(), own.parameters(), strict=True):
        assert torch.equal(mine, theirs.cpu())


def test_an_exponential_update_is_queued(queued):
    own, average = model("accel"), model("accel")
    with fallback_mode("error"), hold_stream(), launches() as names:
        get_ema_multi_avg_fn(0.9)(list(average.parameters()), list(own.parameters()), 1)
    assert sum("_foreach_lerp_" in name for name in names) == 1
