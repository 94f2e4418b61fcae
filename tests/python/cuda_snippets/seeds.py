"""Random numbers: the seeds and states of CUDA's generators. Their numbers are not the CPU's: each is drawn twice."""

import random

import torch


def seed_everything(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def reproducible():
    draws = []
    for _ in range(2):
        seed_everything(11)
        draws.append(torch.cat([torch.randn(1000, device="cuda"), torch.rand(1000).cuda()]))
    return [torch.equal(*draws), draws[0][:1000].mean().abs() < 0.2, torch.cuda.initial_seed()]


def reproducible_on_cpu():
    return [True, torch.tensor(True), 11]


def states():
    state = torch.cuda.get_rng_state("cuda:0")
    first = torch.rand(5, device="cuda")
    torch.cuda.set_rng_state(state, device="cuda")
    again = torch.rand(5, device="cuda")
    with torch.random.fork_rng(devices=[0]):
        inside = torch.rand(5, device="cuda")
    after = torch.rand(5, device="cuda")
    every = torch.cuda.get_rng_state_all()
    torch.cuda.set_rng_state_all(every)
    return [torch.equal(first, again), torch.equal(inside, after), len(every), torch.equal(first, after)]


def states_on_cpu():
    return [True, True, 1, False]


def generators():
    generator = torch.Generator(device="cuda").manual_seed(5)
    assert generator.device.type == "cuda" and generator.initial_seed() == 5
    order = torch.randperm(20, generator=generator, device="cuda")
    noise = torch.randn(4, generator=generator, device="cuda")
    generator.manual_seed(5)
    return [
        order.sort().values,
        torch.equal(order, torch.randperm(20, generator=generator, device="cuda")),
        torch.equal(noise, torch.empty(4, device="cuda").normal_(generator=generator)),
        len(torch.cuda.default_generators),
    ]


def generators_on_cpu():
    return [torch.arange(20), True, True, 1]


def dropout():
    torch.cuda.manual_seed(3)
    x = torch.ones(100, device="cuda", requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(torch.nn.functional.dropout, x, 0.5, use_reentrant=False)
    y.sum().backward()
    return [torch.equal(x.grad, y), (y == 0).any()]


def dropout_on_cpu():
    return [True, torch.tensor(True)]
