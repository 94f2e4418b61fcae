"""Trains a small convolutional network on scikit-learn's handwritten digits.

The program knows nothing of torch_accel but the name of the device, and the two lines that ask for its fallback report.

    python docs/examples/digits.py --device accel --json accel.json
    python docs/examples/digits.py --device cpu --json cpu.json
    python docs/examples/compare.py accel.json cpu.json
"""

import argparse
import json
import time
from collections.abc import Iterable
from pathlib import Path

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """8x8 grey images (N, 1, 8, 8) to the logits of ten digits (N, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.Conv2d(64, 128, 3, padding=1),
            nn.BatchNorm2d(128),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(128, 256, 3, padding=1),
            nn.BatchNorm2d(256),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Dropout(0.25), nn.Linear(1024, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x))


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1437 images to train on and 360 held out, the same ones every time."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images, labels, test_size=360, stratify=labels, random_state=0)
    train_x, test_x, train_y, test_y = (torch.from_numpy(part) for part in parts)

    def images_of(x: torch.Tensor) -> torch.Tensor:
        return (x.float() / 16).view(-1, 1, 8, 8)

    return TensorDataset(images_of(train_x), train_y), TensorDataset(images_of(test_x), test_y)


def to_device(loader: Iterable, device: torch.device) -> Iterable[list[torch.Tensor]]:
    for batch in loader:
        yield [t.to(device, non_blocking=True) for t in batch]


def train_epoch(model: nn.Module, loader: Iterable, optimizer, device: torch.device) -> float:
    """One pass over the training images; the mean loss per batch. Asks the device for a number once, at the end."""
    model.train()
    total, steps = torch.zeros((), device=device), 0
    for x, y in to_device(loader, device):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        steps += 1
    return total.item() / steps


@torch.no_grad()
def accuracy(model: nn.Module, loader: Iterable, device: torch.device) -> float:
    model.eval()
    right, seen = torch.zeros((), dtype=torch.int64, device=device), 0
    for x, y in to_device(loader, device):
        right += (model(x).argmax(1) == y).sum()
        seen += len(y)
    return right.item() / seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["accel", "cpu"], default="accel")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--json", type=Path, help="write what was measured to this file")
    args = parser.parse_args()
    device = torch.device(args.device)

    train, test = digits()
    order = torch.Generator().manual_seed(0)  # shuffling must not take numbers from dropout's generator
    on_device = device.type != "cpu"
    loader = DataLoader(train, args.batch_size, shuffle=True, generator=order, pin_memory=on_device)
    held_out = DataLoader(test, len(test), generator=order, pin_memory=on_device)

    torch.manual_seed(0)
    model = Net().to(device)  # the initial weights are made on the CPU, the same for every device
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    torch.manual_seed(0)  # from here on the device draws

    epochs = []
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, TextColumn("{task.fields[last]}")) as progress:
        task = progress.add_task(f"{args.device:>5}", total=args.epochs, last="")
        for _ in range(args.epochs):
            start = time.perf_counter()
            loss = train_epoch(model, loader, optimizer, device)
            share = accuracy(model, held_out, device)
            epochs.append({"loss": loss, "accuracy": share, "seconds": time.perf_counter() - start})
            progress.update(task, advance=1, last=f"loss {loss:.4f}, {share:.1%} right")

    report = {"device": args.device, "threads": torch.get_num_threads(), "epochs": epochs}
    if on_device:
        report["peak_memory"] = torch.accelerator.max_memory_allocated(device)
        report["fallback"] = torch.accel.fallback_report()
    if args.json:
        args.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
