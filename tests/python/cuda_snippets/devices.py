"""Devices, in all the ways that programs name them, and what they ask of a tensor."""

import contextlib
import copy

import torch
from torch import nn


def spellings():
    x = torch.arange(3.0)
    places = ["cuda", "cuda:0", torch.device("cuda"), torch.device("cuda", 0), torch.device("cuda:0"), 0]
    made = [torch.tensor([1.0, 2.0, 3.0], device=place) for place in places]
    moved = [x.to(place) for place in places] + [x.cuda(), x.cuda("cuda:0"), x.cuda(device=0), x.to(made[0])]
    assert {tensor.device for tensor in made + moved} == {torch.device("cuda:0")}
    assert torch.zeros_like(x, device="cuda").is_cuda and made[0].new_ones(2).is_cuda
    return made + moved


def spellings_on_cpu():
    return [torch.tensor([1.0, 2.0, 3.0])] * 6 + [torch.arange(3.0)] * 10


def branches():
    """What programs ask before they take the way of a GPU."""
    device = torch.device("cuda:0")
    x = torch.ones(2, 3, device=device)
    model = nn.Linear(3, 1).cuda()
    answers = [
        x.is_cuda,
        not x.cpu().is_cuda,
        x.device == device,
        x.device.type == "cuda",
        device.type in {"cuda"},
        {"cuda": "yes", "cpu": "no"}[x.device.type] == "yes",
        str(x.device) == "cuda:0",
        f"{device}".startswith("cuda"),
        repr(device) == "device(type='cuda', index=0)",
        "cuda" in repr(x),
        x.get_device() == 0,
        next(model.parameters()).is_cuda,
        nn.Parameter(x).is_cuda,
        torch.accelerator.current_accelerator().type == "cuda",
        torch.get_device_module("cuda") is torch.cuda,
        copy.deepcopy(device) == device,
        isinstance(device, torch.device),
    ]
    assert answers == [True] * len(answers), answers
    return x.sum() if x.is_cuda else None


def branches_on_cpu():
    return torch.tensor(6.0)


def contexts():
    results = []
    with torch.cuda.device(0):
        results.append(torch.arange(3, device="cuda"))
    with torch.cuda.device("cuda:0"), torch.cuda.device_of(results[0]):
        assert torch.cuda.current_device() == 0
    torch.cuda.set_device("cuda:0")
    torch.cuda.set_device(torch.device("cuda", 0))
    torch.cuda.init()
    assert torch.cuda.is_initialized() and torch.cuda.device_count() == 1
    with torch.device("cuda"):
        results.append(torch.ones(2) + torch.arange(2))
        results.append(nn.Linear(2, 2).weight.is_cuda)
    torch.set_default_device("cuda")
    results.append(torch.eye(2))
    torch.set_default_device("cpu")
    assert torch.get_default_device().type == "cpu" and results[3].is_cuda and not torch.ones(1).is_cuda
    torch.set_default_device(None)
    return results


def contexts_on_cpu():
    return [torch.arange(3), torch.ones(2) + torch.arange(2), True, torch.eye(2)]


def printed():
    """The lines that scripts print about the machine."""
    lines = [
        f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}",
        f"{torch.cuda.get_device_properties('cuda').multi_processor_count > 0}",
        f"{torch.cuda.list_gpu_processes().splitlines()[0]}",
        f"{torch.cuda.clock_rate() > 0}",
        f"{torch.version.cuda} {torch.backends.cuda.is_built()} {torch.backends.cudnn.is_available()}",
        f"{torch.cuda.amp.common.amp_definitely_not_available()}",
    ]
    return lines


def printed_on_cpu():
    return ["1 x Accel Simulator", "True", "GPU:0", "True", "None False False", "False"]


def old_types():
    x = torch.cuda.FloatTensor(2, 3).fill_(2)
    y = torch.ones(2, 3).type("torch.cuda.FloatTensor")
    z = torch.cuda.LongTensor([1, 2, 3]).type(torch.cuda.DoubleTensor)
    assert x.type() == y.type() == "torch.cuda.FloatTensor" and torch.typename(z) == "torch.cuda.DoubleTensor"
    assert isinstance(x, torch.cuda.FloatTensor) and not isinstance(x.cpu(), torch.cuda.FloatTensor)
    kind = torch.cuda.FloatTensor if x.is_cuda else torch.FloatTensor
    return [x + y, z, kind([4.0, 5.0]), x.type(torch.HalfTensor), x.to_sparse().type()]


def old_types_on_cpu():
    two, z = torch.full((2, 3), 2.0), torch.tensor([1.0, 2.0, 3.0], dtype=torch.double)
    return [two + 1, z, torch.tensor([4.0, 5.0]), two.half(), "torch.cuda.sparse.FloatTensor"]


def default_tensor_type():
    torch.set_default_tensor_type("torch.cuda.DoubleTensor")
    try:
        made = [torch.ones(2), torch.tensor([1.5]), torch.zeros(2, device="cpu")]
        assert made[0].is_cuda and made[1].is_cuda and not made[2].is_cuda
    finally:
        torch.set_default_tensor_type(torch.FloatTensor)
    assert not torch.ones(1).is_cuda
    return [*made, torch.ones(1)]


def default_tensor_type_on_cpu():
    kind = torch.float64
    return [torch.ones(2, dtype=kind), torch.tensor([1.5], dtype=kind), torch.zeros(2, dtype=kind), torch.ones(1)]


def ranges():
    """NVTX ranges, and torch's profiler with the CUDA activity."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler, torch.cuda.profiler.profile():
        torch.cuda.nvtx.range_push("outer")
        with torch.cuda.nvtx.range("step {}", 3):
            y = torch.ones(3, device="cuda") + 1
        torch.cuda.nvtx.mark("here")
        handle = torch.cuda.nvtx.range_start("copy")
        torch.cuda.nvtx.range_end(handle)
        torch.cuda.nvtx.range_pop()
        torch.cuda.profiler.start()
        torch.cuda.profiler.stop()
    names = {event.name for event in profiler.events()}
    assert profiler.key_averages().table(sort_by="cuda_time_total", row_limit=5)
    return [y, sorted(names & {"outer", "step 3", "here", "copy", "aten::add"})]


def ranges_on_cpu():
    return [torch.full((3,), 2.0), ["aten::add", "copy", "here", "outer", "step 3"]]


def refusals():
    """What is not there says so by an exception, as where a driver is missing."""
    said = []
    for ask in (
        torch.cuda.utilization,
        torch.cuda.get_device_capability,
        lambda: torch.cuda.get_device_properties(0).major,
        lambda: torch.ones(1).cuda("cuda:9"),
    ):
        with contextlib.suppress(RuntimeError, AttributeError):
            said.append(ask())
    return said


def refusals_on_cpu():
    return []
