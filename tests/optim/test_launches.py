"""What a step costs the host: launches by count, and no waits."""

import pytest
import torch

from torch_accel.conformance.optimizer_checks import options_of
from torch_accel.conformance.torch_internals import optim_db
from torch_accel.testing import fallback_mode, hold_stream, launches
from torch_accel.testing.waits import WaitWatch

CAPTURABLE = [info for info in optim_db if info.has_capturable_arg]
WAYS = [None, "foreach", "fused"]


def counted(names):
    """The launches of operators: under ACCEL_POISON=1 fills of memory stand between them."""
    return [name.removeprefix("aten::") for name in names if name != "memset"]


def parameters(count=6, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(3, 4, generator=generator).to("accel", dtype).requires_grad_() for _ in range(count)]
    for parameter in made:
        parameter.grad = torch.randn(3, 4, generator=generator).to("accel", dtype)
    return made


def configurations(infos, capturable):
    return [
        pytest.param(info, options, id=f"{info.name}-{label}-{way}".replace(" ", "_"))
        for info in infos
        for way in WAYS
        if way is None or way in info.supported_impls
        for label, options in options_of(info, torch.float32, way)
        if options.get("capturable", False) == capturable
    ]


@pytest.mark.parametrize("info, options", configurations(CAPTURABLE, True))
def test_a_capturable_step_is_queued(info, options, queued):
    """Behind a held stream a wait would last for ever; the state is made there too."""
    values = parameters()
    before = [p.detach().cpu() for p in values]
    with WaitWatch() as watch:
        optimizer = info.optim_cls(values, **options)
        with fallback_mode("error"), watch.block() as waits:
            optimizer.step()
            optimizer.step()
    assert waits == {}
    assert all(optimizer.state[p]["step"].device.type == "accel" for p in values)
    assert all(optimizer.state[p]["step"].item() == 2 for p in values)
    assert not any(torch.equal(p.cpu(), b) for p, b in zip(values, before, strict=True))


DENSE = [info for info in optim_db if not info.only_supports_sparse_grads and not info.step_requires_closure]
#: whose steps read a number of the device, on CUDA too, unless they are capturable
READS_THE_DEVICE = {"ASGD", "Adafactor"}


@pytest.mark.parametrize("info, options", configurations(DENSE, False))
def test_other_steps_wait_only_where_the_algorithm_reads_the_device(info, options, queued):
    values = parameters()
    optimizer = info.optim_cls(values, **options)
    optimizer.step()
    torch.accel.synchronize()
    with WaitWatch() as watch, fallback_mode("error"), watch.block() as waits:
        optimizer.step()
    assert set(waits) == ({"item"} if info.name in READS_THE_DEVICE else set())


#: optimizer, options -> launches of a step over any number of parameters of one dtype
LISTS = [
    (torch.optim.SGD, {"fused": True}, ["_fused_sgd_"]),
    (torch.optim.SGD, {"fused": True, "momentum": 0.9}, ["_fused_sgd_"]),
    (torch.optim.SGD, {"foreach": True}, ["_foreach_add_"]),
    (torch.optim.SGD, {"foreach": True, "momentum": 0.9}, ["_foreach_mul_", "_foreach_add_", "_foreach_add_"]),
    (torch.optim.Adagrad, {"fused": True}, ["_foreach_add_", "_fused_adagrad_"]),
    (torch.optim.Adam, {"fused": True}, ["_foreach_add_", "_fused_adam_"]),
    (torch.optim.Adam, {"fused": True, "amsgrad": True, "weight_decay": 0.1}, ["_foreach_add_", "_fused_adam_"]),
    (torch.optim.AdamW, {"fused": True}, ["_foreach_add_", "_fused_adamw_"]),
    (
        torch.optim.AdamW,
        {"foreach": True},
        [
            *("_foreach_mul_", "_foreach_lerp_", "_foreach_mul_", "_foreach_addcmul_"),
            *("_foreach_sqrt", "_foreach_div_", "_foreach_add_", "_foreach_addcdiv_"),
        ],
    ),
]


@pytest.mark.parametrize("optimizer, options, expected", LISTS)
@pytest.mark.parametrize("count", [1, 40])
def test_a_list_is_one_launch(optimizer, options, expected, count, queued):
    own = optimizer(parameters(count), **options)
    own.step()
    with fallback_mode("error"), hold_stream(), launches() as names:
        own.step()
    assert counted(names) == expected


def test_a_list_of_two_dtypes_is_two_launches(queued):
    own = torch.optim.SGD([*parameters(3), *parameters(3, torch.bfloat16)], fused=True)
    with hold_stream(), launches() as names:
        own.step()
    assert names.count("aten::_fused_sgd_") == 2


#: whose foreach steps treat some of their state parameter by parameter
PARTLY_ONE_BY_ONE = {"ASGD", "Rprop"}
DEFAULT_IS_FOREACH = [info for info in DENSE if "foreach" in info.supported_impls and info.name != "Adafactor"]


@pytest.mark.parametrize("info", DEFAULT_IS_FOREACH, ids=lambda info: info.name)
def test_lists_are_the_default_as_on_cuda(info, queued):
    counts = []
    for count in (6, 12):
        own = info.optim_cls(parameters(count))
        own.step()
        with launches() as names:
            own.step()
        assert any("_foreach_" in name for name in names)
        counts.append(len(counted(names)))
    assert (counts[0] == counts[1]) == (info.name not in PARTLY_ONE_BY_ONE)


def test_clipping_is_queued(queued):
    values = parameters()
    torch.nn.utils.clip_grad_norm_(values, 0.1)
    with fallback_mode("error"), hold_stream(), launches() as names:
        norm = torch.nn.utils.clip_grad_norm_(values, 0.1)
        torch.nn.utils.clip_grad_value_(values, 0.01)
    assert sum("_foreach_mul_" in name for name in names) == 1
    assert sum("_foreach_clamp" in name for name in names) == 2
    assert norm.item() == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_is_queued(set_to_none, queued):
    values = parameters()
    own = torch.optim.SGD(values, foreach=True)
    with fallback_mode("error"), hold_stream(), launches() as names:
        own.zero_grad(set_to_none=set_to_none)
    if set_to_none:
        assert counted(names) == [] and all(p.grad is None for p in values)
    else:
        assert sum("_foreach_zero_" in name for name in names) == 1
        assert all(torch.equal(p.grad.cpu(), torch.zeros(3, 4)) for p in values)
