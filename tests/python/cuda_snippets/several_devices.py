"""Two devices."""

import torch
from torch import nn


class Split(nn.Module):
    """A model whose halves live on two devices."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 8).to("cuda:0")
        self.second = nn.Linear(8, 2).cuda(1)

    def forward(self, x):
        return self.second(self.first(x.to("cuda:0")).relu().to("cuda:1"))


def model_parallel():
    model = Split()
    output = model(torch.arange(12.0).view(3, 4))
    assert output.get_device() == 1 and torch.cuda.device_count() == 2
    output.square().sum().backward()
    return [output, model.first.weight.grad]


def model_parallel_on_cpu():
    torch.manual_seed(0)
    first, second = nn.Linear(4, 8), nn.Linear(8, 2)
    output = second(first(torch.arange(12.0).view(3, 4)).relu())
    output.square().sum().backward()
    return [output, first.weight.grad]


def data_parallel():
    torch.manual_seed(0)
    model = nn.DataParallel(nn.Linear(4, 2), device_ids=[0, 1]).cuda()
    x = torch.arange(16.0, device="cuda").view(4, 4)
    model(x).sum().backward()
    return [model(x), model.module.weight.grad]


def data_parallel_on_cpu():
    torch.manual_seed(0)
    model, x = nn.Linear(4, 2), torch.arange(16.0).view(4, 4)
    model(x).sum().backward()
    return [model(x), model.weight.grad]


def data_parallel_in_autocast():
    """torch passes the state of CUDA's autocast on to the threads."""

    class Seen(nn.Linear):
        def forward(self, x):
            assert torch.is_autocast_enabled() and torch.is_autocast_enabled("cuda")
            return super().forward(x)

    model = nn.DataParallel(Seen(4, 2)).cuda()
    with torch.autocast("cuda"):
        return str(model(torch.ones(4, 4).cuda()).dtype)


def data_parallel_in_autocast_on_cpu():
    return "torch.float16"


def current_device():
    results = []
    for index in range(torch.cuda.device_count()):
        with torch.cuda.device(index):
            x = torch.full((2,), float(index), device="cuda")
            assert x.device == torch.device("cuda", index) == torch.cuda.current_stream().device
            results.append(x)
    torch.cuda.set_device(1)
    results.append(torch.ones(1).cuda().get_device())
    torch.cuda.set_device(0)
    stream = torch.cuda.Stream("cuda:1")
    with torch.cuda.stream(stream):
        results.append(torch.cuda.current_device())
    copies = torch.cuda.comm.broadcast(results[0], ["cuda:0", "cuda:1"])
    return [*results, *copies, torch.cuda.can_device_access_peer(0, 1)]


def current_device_on_cpu():
    zeros = torch.zeros(2)
    return [zeros, torch.ones(2), 1, 1, zeros, zeros, True]
