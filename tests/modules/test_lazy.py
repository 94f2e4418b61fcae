"""Lazy modules: made on accel or moved, before and after they know their shapes."""

import pytest
import torch
from torch import nn

from tests.modules.against_cpu import check_equal

LAZY = {
    "Linear": (lambda **k: nn.LazyLinear(3, **k), (2, 5)),
    "two in a row": (lambda **k: nn.Sequential(nn.LazyLinear(3, **k), nn.LazyBatchNorm1d(**k)), (2, 5)),
    "Conv1d": (lambda **k: nn.LazyConv1d(3, 2, **k), (2, 4, 5)),
    "Conv2d": (lambda **k: nn.LazyConv2d(3, 2, bias=False, **k), (2, 4, 5, 5)),
    "Conv3d": (lambda **k: nn.LazyConv3d(3, 2, **k), (2, 4, 3, 3, 3)),
    "ConvTranspose2d": (lambda **k: nn.LazyConvTranspose2d(3, 2, **k), (2, 4, 5, 5)),
    "BatchNorm2d": (lambda **k: nn.LazyBatchNorm2d(**k), (2, 4, 5, 5)),
    "InstanceNorm2d": (lambda **k: nn.LazyInstanceNorm2d(affine=True, track_running_stats=True, **k), (2, 4, 5, 5)),
}
WAYS = ["made there", "moved before", "moved after", "moved and cast before", "loaded"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make, shape", LAZY.values(), ids=LAZY.keys())
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_lazy(make, shape, way):
    if way == "loaded" and make is LAZY["InstanceNorm2d"][0]:
        pytest.skip("torch leaves num_features at 0 on every device")
    x = torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape)
    torch.manual_seed(0)
    reference = make()
    if way == "moved and cast before":
        reference, x = reference.double(), x.double()
    reference(x)  # now it has shapes
    module = make(device="accel") if way == "made there" else make()
    if way == "moved before":
        assert module.accel() is module and all(p.is_accel for p in module.parameters())
    elif way == "moved and cast before":
        module.to("accel", torch.float64)
    elif way == "moved after":
        module(x)
        module.to("accel")
    elif way == "loaded":
        module.accel().load_state_dict(reference.state_dict())
    if way != "loaded":
        assert way == "moved after" or any(
            isinstance(p, (nn.UninitializedParameter, nn.UninitializedBuffer))
            for m in module.modules()
            for p in (*m._parameters.values(), *m._buffers.values())
        )
        module(x.to("accel"))
    assert not any(isinstance(p, nn.UninitializedParameter) for p in module.parameters())
    assert all(p.is_accel for p in module.parameters()) and {p.dtype for p in module.parameters()} == {x.dtype}
    module.load_state_dict(reference.state_dict())
    check_equal(module.eval()(x.to("accel")), reference.eval()(x))


def test_a_lazy_module_draws_from_the_devices_generator():
    weights = []
    for _ in range(2):
        module = nn.LazyLinear(4, device="accel")
        torch.manual_seed(3)
        before = torch.get_rng_state()
        module(torch.ones(1, 5, device="accel"))
        assert torch.equal(before, torch.get_rng_state())
        weights.append(module.weight)
    assert torch.equal(*weights) and weights[0].abs().max() <= 5**-0.5 and weights[0].std() > 0


@pytest.mark.parametrize("initial", ["cpu", "accel"])
def test_what_has_no_shape_names_it(initial):
    parameter = nn.UninitializedParameter(device=initial)
    with pytest.raises(ValueError, match="uninitialized parameter"):
        parameter + 1
    assert parameter.device.type == initial
    parameter.materialize((2, 3), device="accel")
    assert type(parameter) is nn.Parameter and parameter.is_accel and parameter.shape == (2, 3)
