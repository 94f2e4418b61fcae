"""Embeddings with sparse gradients: training equals the CPU's bit for bit, and a step of SGD waits for nothing."""

import contextlib

import pytest
import torch

from torch_accel.testing import hold_stream, wait_report

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SparseAdam": lambda p: torch.optim.SparseAdam(p, lr=0.01),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
}


class Recommender(torch.nn.Module):
    """Users and items, or bags of items, scored by a small head; ``twice`` looks users up twice."""

    def __init__(self, bag, twice):
        super().__init__()
        self.users = torch.nn.Embedding(50, 8, sparse=True)
        self.items = (
            torch.nn.EmbeddingBag(40, 8, mode="sum", sparse=True) if bag else torch.nn.Embedding(40, 8, sparse=True)
        )
        self.head = torch.nn.Linear(16, 1)
        self.twice = twice

    def forward(self, users, items):
        x = torch.cat([self.users(users), self.items(items)], 1)
        if self.twice:
            x = x * torch.cat([self.users(users.flip(0)), x[:, 8:]], 1)
        return self.head(x).squeeze(1)


def train(device, optimizer, bag=False, twice=False, accumulate=1, steps=3):
    torch.manual_seed(0)
    model = Recommender(bag, twice).to(device)
    shape = (32, 3) if bag else (32,)
    batches = [(torch.randint(50, (32,)), torch.randint(40, shape), torch.randn(32)) for _ in range(steps * accumulate)]
    batches = iter([tuple(tensor.to(device) for tensor in batch) for batch in batches])
    sparse = [*model.users.parameters(), *model.items.parameters()]
    optimizers = [optimizer(sparse), torch.optim.SGD(model.head.parameters(), lr=0.1)]
    losses = []
    for _ in range(steps):
        for each in optimizers:
            each.zero_grad()
        for _ in range(accumulate):
            users, items, scores = next(batches)
            loss = (model(users, items) - scores).pow(2).mean()
            loss.backward()
            losses.append(loss.detach())
        for each in optimizers:
            each.step()
    return [tensor.cpu() for tensor in (*losses, *(p.detach() for p in model.parameters()))]


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
@pytest.mark.parametrize(
    "options", [{}, {"bag": True}, {"twice": True}, {"accumulate": 2}], ids=["plain", "bag", "twice", "accumulate"]
)
def test_training_is_the_cpus(optimizer, options):
    for mine, theirs in zip(train("accel", optimizer, **options), train("cpu", optimizer, **options), strict=True):
        assert torch.equal(mine, theirs)


def step(device, hold=contextlib.nullcontext):
    """A step of SGD of one embedding, looked up twice, within ``hold``."""
    torch.manual_seed(0)
    table = torch.nn.Embedding(20, 4, sparse=True).to(device)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    rows = [torch.randint(20, (30,)).to(device) for _ in range(2)]
    gradients = [torch.randn(30, 4).to(device) for _ in rows]
    with hold():
        for output, gradient in zip([table(r) for r in rows], gradients):
            output.backward(gradient)
        assert table.weight.grad.is_sparse
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        optimizer.zero_grad()
    return table.weight.detach().cpu()


def test_a_step_waits_for_nothing(queued):
    before = None

    def hold():
        nonlocal before
        before = wait_report()
        return hold_stream()

    torch.accel.fallback_report(reset=True)
    result = step("accel", hold)
    waits = {name: n - before.get(name, 0) for name, n in wait_report().items() if n != before.get(name, 0)}
    assert waits == {"copy_": 1}  # of the result, after the stream was let go
    assert torch.accel.fallback_report() == {}
    assert torch.equal(result, step("cpu"))
