"""ResNet-18 for images of 32 by 32 (the stem of 3 by 3 without pooling), a quarter of its width: ``Program()``."""

import itertools

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, CLASSES, BATCH = 16, 4, 6


class Block(nn.Module):
    """Two convolutions beside a residual connection, which is projected where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.short = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)), inplace=True)))
        return F.relu(y + self.short(x), inplace=True)


class ResNet18(nn.Sequential):
    """Images [n, 3, 32, 32] in, logits [n, classes] out."""

    def __init__(self) -> None:
        stem = [nn.Conv2d(3, WIDTH, 3, 1, 1, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU(inplace=True)]
        widths = [WIDTH, WIDTH, 2 * WIDTH, 4 * WIDTH, 8 * WIDTH]
        stages = [
            nn.Sequential(Block(before, after, 1 if before == after else 2), Block(after, after, 1))
            for before, after in itertools.pairwise(widths)
        ]
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(widths[-1], CLASSES)]
        super().__init__(*stem, *stages, *head)


class Program:
    """SGD with momentum, weight decay and a one-cycle schedule, on noisy images of one mean colour a class."""

    def __init__(self, device: str, steps: int) -> None:
        self.model = ResNet18().to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.01, total_steps=steps + 1)
        labels = torch.randint(CLASSES, (steps, BATCH))
        colours = torch.randn(CLASSES, 3, 1, 1)
        images = colours[labels] + 0.1 * torch.randn(steps, BATCH, 3, 32, 32)
        self.batches = [(x.to(device), y.to(device)) for x, y in zip(images, labels)]

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss before the update."""
        loss = F.cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.detach()
