"""The library's own tests. `pytest` is green; `pytest --accel=strict` finds the five faults."""

import torch
from my_library import Background, on_host, scaled, with_positions


def test_positions(device):
    x = torch.zeros(2, 3, device=device)
    assert with_positions(x).tolist() == [[0, 1, 2], [0, 1, 2]]


def test_on_host(device):
    x = torch.arange(4.0, device=device)
    assert on_host(x * 2) == [0, 2, 4, 6]


def test_product_beside(device):
    x = torch.full((1000,), 2.0, device=device)
    work = Background(device)
    work.start_product(x)
    assert work.finish().item() == 4000


def test_norm_beside(device):
    x = torch.tensor([1.0, 3.0] * 500, device=device)
    work = Background(device)
    work.start(x)
    other = torch.zeros(1000, device=device)  # may get the memory that the norm still reads
    assert abs(work.finish().item() - 1000**0.5) < 1e-4
    assert other.sum().item() == 0


def test_scaled(device):
    batches = [torch.full((2,), 1.0 + i, device=device) for i in range(6)]
    assert all(batch.tolist() == [1, 1] for batch in scaled(batches))
