"""A training step of a CNN, a recurrent net and a language model: no fallback, no wait before item()."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from torch_accel.testing import hold_stream, wait_report


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.short = nn.Identity()
        if stride > 1:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.short(x), inplace=True)


def cnn():
    stem = [nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    blocks = [Block(8, 8, 1), Block(8, 16, 2), Block(16, 32, 2)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten(), nn.Linear(128, 10))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 12, num_layers=2, batch_first=True)
        self.gru = nn.GRU(12, 12, batch_first=True)
        self.head = nn.Linear(12, 10)

    def forward(self, tokens):
        y, _ = self.lstm(self.table(tokens))
        return self.head(self.gru(y)[0][:, -1])


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.positions = nn.Embedding(20, 16), nn.Embedding(12, 16)
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(3))
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16), nn.Dropout(0.1))

    def forward(self, tokens):
        n, length = tokens.shape
        x = self.table(tokens) + self.positions(torch.arange(length, device=tokens.device))
        q, k, v = self.qkv(self.norms[0](x)).view(n, length, 3, 4, 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, length, 16))
        x = x + self.mlp(self.norms[1](x))
        return self.norms[2](x) @ self.table.weight.t()


def tokens():
    return torch.randint(20, (4, 6))  # short: a step fits into a held stream's queue, poison's launches too


def classes(logits):
    return torch.arange(len(logits), device=logits.device) % 10


TASKS = {
    "cnn": (cnn, lambda: torch.randn(4, 3, 32, 32), lambda y, x: F.cross_entropy(y, classes(y))),
    "recurrent": (Recurrent, tokens, lambda y, x: F.cross_entropy(y, classes(y))),
    "decoder": (
        Decoder, tokens, lambda y, x: F.cross_entropy(y[:, :-1].flatten(0, 1), x[:, 1:].flatten()),
    ),
}  # fmt: skip
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "fused adamw": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
}


def waits():
    """What operators waited for. A launch waits where the queue is full, which poison and shuffled schedules fill."""
    return {name: times for name, times in wait_report().items() if name not in ("synchronize", "launch")}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("task", TASKS)
def test_a_step_is_queued(task, optimizer, queued):
    build, data, loss_of = TASKS[task]
    torch.manual_seed(0)
    model = build().to("accel")
    update = OPTIMIZERS[optimizer](model.parameters())
    x = data().to("accel")

    def step():
        update.zero_grad()
        loss = loss_of(model(x), x)
        loss.backward()
        update.step()
        return loss

    torch.accel.fallback_report(reset=True)
    before = waits()
    loss = step()
    assert torch.accel.fallback_report() == {}  # behind a held stream a fallback would wait for ever
    assert waits() == before
    first = loss.item()
    before = waits()
    with hold_stream():
        loss = step()
    assert waits() == before
    assert torch.accel.fallback_report() == {}
    assert min(loss.item(), step().item(), step().item()) < first


@pytest.mark.parametrize("task", ["cnn", "recurrent"])
def test_training_equals_the_cpu(task):
    build, data, loss_of = TASKS[task]
    results = []
    for device in ("cpu", "accel"):
        torch.manual_seed(0)
        model, x = build().to(device), data().to(device)
        update = OPTIMIZERS["sgd"](model.parameters())
        for _ in range(3):
            update.zero_grad()
            loss_of(model(x), x).backward()
            update.step()
        results.append([p.detach().cpu() for p in model.state_dict().values()])
    for mine, theirs in zip(*results):
        torch.testing.assert_close(mine, theirs)
