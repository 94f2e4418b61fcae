"""Rows of csrc/aten/shapes/embedding.cpp: queued, and the CPU's results bit for bit."""

import pytest
import torch

from torch_accel.testing.held import check_held, check_refused

aten = torch.ops.aten
SUM, MEAN, MAX = 0, 1, 2
INDICES = [torch.int64, torch.int32]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("scale", [False, True])
def test_dense_backward(scale, dtype, index):
    indices = torch.tensor([[1, 2, 2], [0, 4, 1]], dtype=index)
    grad = torch.randn(2, 3, 5).to(dtype)
    for g in (grad, grad.transpose(0, 1).contiguous().transpose(0, 1), grad[:0]):
        for padding in (-1, 2):
            check_held(aten.embedding_dense_backward, g, indices[: len(g)], 6, padding, scale)


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_renorm(index):
    check_held(aten.embedding_renorm_, torch.randn(6, 5) * 3, torch.tensor([[1, 4], [0, 1]], dtype=index), 1.0, 2.0)


def drop_unwritten(op):
    """The fourth result of a bag that is not a maximum is not written."""

    def run(*arguments):
        results = op(*arguments)
        return results if arguments[4] == MAX else results[:3]

    return run


BAGS = {
    "sum": (SUM, False),
    "mean": (MEAN, False),
    "max": (MAX, False),
    "weighted": (SUM, True),
}


@pytest.mark.parametrize("bag", BAGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["", "last offset"])
@pytest.mark.parametrize("padding", [-1, 3])
def test_bags(bag, dtype, last, padding):
    mode, weighted = BAGS[bag]
    table = torch.randn(8, 4).to(dtype)
    scales = torch.rand(6).to(dtype) if weighted else None
    for index in INDICES:
        for offset in INDICES:
            indices = torch.tensor([1, 2, 3, 4, 5, 3], dtype=index)
            offsets = torch.tensor([0, 2, 2, 6] if last else [0, 2, 2], dtype=offset)
            arguments = (table, indices, offsets, False, mode, False, scales, last, padding)
            for op in (aten._embedding_bag, aten._embedding_bag_forward_only):
                # The bags of indices and their sizes are parts of larger tensors in the kernel: copied.
                parts = (op(*arguments)[1].numel() > 0) + (op(*arguments)[2].numel() < offsets.numel())
                check_held(drop_unwritten(op), *arguments, misplaced=parts)
    indices, offsets = indices.long(), offsets.long()
    arguments = (table, indices, offsets, False, mode, False, scales, last, padding)
    out, offset2bag, sizes, maxima = aten._embedding_bag(*arguments)
    grad = torch.randn_like(out)
    rest = (8, False, mode)
    check_held(
        aten._embedding_bag_backward, grad, indices, offsets, offset2bag, sizes, maxima, *rest, False, scales, padding
    )
    if offset2bag.numel() > 0:
        check_held(aten._embedding_bag_dense_backward, grad, indices, offset2bag, sizes, maxima, *rest, scales, padding)
    if weighted:
        backward = aten._embedding_bag_per_sample_weights_backward
        check_held(backward, grad, table, indices, offsets, offset2bag, mode, padding)


def test_against_the_definition():
    table, indices = torch.randn(8, 4, dtype=torch.float64), torch.tensor([1, 2, 3, 4, 5, 3])
    bags = torch.nn.functional.embedding_bag(
        indices.to("accel"), table.to("accel"), torch.tensor([0, 2, 5]).to("accel"), mode="mean"
    )
    expected = torch.stack([table[indices[a:b]].mean(0) for a, b in ((0, 2), (2, 5), (5, 6))])
    torch.testing.assert_close(bags.cpu(), expected)
    module = torch.nn.Embedding(8, 4, padding_idx=3).to("accel")
    module(indices.to("accel")).sum().backward()
    assert torch.equal(module.weight.grad.cpu()[:, 0], torch.tensor([0.0, 1, 1, 0, 1, 1, 0, 0]))


def test_refused():
    table, indices = torch.randn(8, 4), torch.tensor([1, 2])
    check_refused(aten.embedding_dense_backward, torch.randn(2, 3), indices.float(), 6, -1, False)
    check_refused(aten.embedding_renorm_, table[0], indices, 1.0, 2.0)
    check_refused(aten._embedding_bag, table, indices.float(), torch.tensor([0]))
    check_refused(aten._embedding_bag, table, indices, torch.tensor([0]), False, MEAN, False, torch.ones(2))
