"""Reading and writing by position or mask: queued, with the CPU's bits, strides and errors."""

import numpy as np
import pytest
import torch

from torch_accel.testing import fallback_mode, hold_stream
from torch_accel.testing.held import check_held, check_refused

aten = torch.ops.aten
X = torch.arange(24.0).reshape(4, 6)
CUBE = torch.arange(60.0).reshape(3, 4, 5)
POSITIONS = torch.tensor([2, 0, 3])
MASK = X % 3 == 0


@pytest.fixture(autouse=True)
def _queued(queued):
    pass


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize(
    "op, arguments",
    [
        (torch.index_select, (X, 0, POSITIONS)),
        (torch.index_select, (X.t(), -1, POSITIONS.int())),
        (torch.index_select, (CUBE.transpose(0, 2), 1, POSITIONS[:0])),
        (torch.index_select, (CUBE.to(memory_format=torch.contiguous_format)[:, ::2], 1, torch.tensor(1))),
        (torch.index_select, (torch.tensor(3.0), 0, torch.tensor([0]))),
        (torch.take, (X.t(), torch.tensor([[23, 0], [-1, 5]]).t())),
        (torch.take, (X[:0], POSITIONS[:0])),
        (torch.nn.functional.embedding, (POSITIONS.view(3, 1), X, 0)),
        (torch.gather, (X, 1, torch.tensor([[0, 1], [2, 3]]))),
        (torch.take_along_dim, (X, torch.tensor([[5, 1], [2, 3], [0, 0], [1, 1]]), 1)),
        (aten._stack, ([CUBE, CUBE + 1], 1)),
        (aten._stack, ([X.t(), X.t()], -1)),
        (torch.stack, ([X, X.flip(0)], 2)),
        (torch.Tensor.put_, (X, torch.tensor([0, 23, 5]), torch.tensor([7.0, 8, 9]))),
        (torch.Tensor.put_, (X.t(), torch.tensor([1, 1, 1]), torch.tensor([7.0, 8, 9]), True)),
        (torch.put, (X, torch.tensor([[0], [3]]), torch.tensor([[7.0], [8]]))),
        (torch.Tensor.index_fill_, (X, 1, POSITIONS, 1)),
        (torch.Tensor.index_fill_, (CUBE[..., ::2], -1, torch.tensor(1), torch.tensor(1.0))),
        (torch.Tensor.index_fill_, (torch.tensor(3.0), 0, torch.tensor([0]), 1)),
        (torch.index_fill, (X.t(), 0, POSITIONS, torch.tensor(1.0))),
        (torch.Tensor.masked_scatter_, (X, MASK, X * 2)),
        (torch.Tensor.masked_scatter_, (X.t(), MASK[:1].t(), X)),
        (torch.masked_scatter, (X[0], MASK, X * 2)),
        (torch.Tensor.index_copy_, (X, 0, POSITIONS, X[:3] + 1)),
        (torch.Tensor.index_add_, (X, 0, POSITIONS, X[:3])),
        (torch.Tensor.index_put_, (X, (POSITIONS,), X[:3] + 1)),
        (torch.Tensor.index_put_, (X.t(), (POSITIONS, torch.tensor([[1], [2]])), torch.tensor(1.0))),
        (aten.index_put_, (CUBE, [POSITIONS[:2], None, torch.tensor([4, 1])], CUBE[:2, :, 0])),
        (aten.index_put_, (CUBE, [None, POSITIONS.int()], CUBE[:, :3].flip(0))),
        (torch.Tensor.index_put_, (X, (POSITIONS % 2,), X[:3], True)),
        (torch.Tensor.index_put_, (X, (POSITIONS[:0],), X[:0])),
        (torch.Tensor.index_put_, (X, (MASK,), torch.tensor(1.0))),
        (torch.Tensor.index_put_, (X, (MASK,), torch.ones(1), True)),
        (aten.index_put_, (CUBE, [None, CUBE[0, :, 0] > 5], CUBE[:, :1])),
        (torch.Tensor.index_put_, (CUBE, (CUBE[:, :, 0] > 9,), torch.arange(5.0))),
        (torch.index_put, (X.t(), (POSITIONS[:2],), X[:, 0])),
        (aten._unsafe_index, (X, [POSITIONS, None])),
        (aten._unsafe_index_put, (X, [POSITIONS, None], X[:3])),
        (aten._unsafe_masked_index, (X, torch.tensor([True, False, True]), [POSITIONS * 2, POSITIONS], 0)),
        (
            aten._unsafe_masked_index_put_accumulate,
            (X, torch.tensor([True, False, True]), [POSITIONS * 2, POSITIONS], X[0, :3]),
        ),
        (aten.masked_scatter_backward, (X, MASK, [4, 6])),
        (aten.masked_scatter_backward, (X, MASK, [2, 4])),
        (aten.masked_scatter_backward, (X, MASK | True, [24])),
    ],
)
def test_is_queued_and_the_cpus(op, arguments, dtype):
    floats = torch.utils._pytree.tree_map_only(
        torch.Tensor, lambda t: t.to(dtype) if t.dtype == torch.float32 else t, arguments
    )
    check_held(op, *floats)


@pytest.mark.parametrize("out", ["empty", "strided"])
@pytest.mark.parametrize(
    "op, arguments, size",
    [
        (torch.index_select, (X, 1, POSITIONS), (4, 3)),
        (torch.take, (X, POSITIONS.view(3, 1)), (3, 1)),
        (torch.take, (X, torch.tensor([[1, 2], [3, 4], [5, 6]]).t()), (2, 3)),
        (aten._stack.out, ([X, X], 1), (4, 2, 6)),
    ],
)
def test_out_is_resized_or_filled_as_it_is(op, arguments, size, out):
    own = torch.empty(0) if out == "empty" else torch.empty(size[::-1]).permute(*reversed(range(len(size))))
    check_held(op, *arguments, out=own)


@pytest.mark.parametrize("size, fill_value", [(3, -1), (8, 5), (100, -1), (0, 0)])
def test_nonzero_static(size, fill_value):
    check_held(torch.nonzero_static, MASK, size=size, fill_value=fill_value)
    check_held(torch.nonzero_static, MASK.t(), size=size, out=torch.empty(0, dtype=torch.int64))


@pytest.mark.parametrize("repeats", [[1, 2, 0, 4], [1, 1, 1, 1], [0, 0, 0, 0]])
def test_repeat_interleave_of_a_known_size(repeats):
    repeats = torch.tensor(repeats)
    size = int(repeats.sum())
    check_held(torch.repeat_interleave, repeats, output_size=size)
    check_held(torch.repeat_interleave, repeats.int(), output_size=size)
    check_held(torch.repeat_interleave, X, repeats, 0, output_size=size)


@pytest.mark.parametrize(
    "op, arguments",
    [
        (torch.index_select, (X, 2, POSITIONS)),
        (torch.index_select, (X, 0, POSITIONS.view(3, 1))),
        (torch.index_select, (X, 0, POSITIONS.float())),
        (torch.index_select, (torch.tensor(1.0), 0, torch.tensor([0, 0]))),
        (torch.index_select, (X[:, :0], 1, POSITIONS)),
        (torch.take, (X, POSITIONS.int())),
        (torch.take, (X[:0], POSITIONS)),
        (torch.Tensor.put_, (X, POSITIONS, X[0])),
        (torch.Tensor.put_, (X, POSITIONS, POSITIONS)),
        (torch.Tensor.put_, (X[:0], POSITIONS, X[0, :3])),
        (torch.Tensor.index_fill_, (X, 0, POSITIONS.int(), 1)),
        (torch.Tensor.index_fill_, (X, 0, POSITIONS, 1j)),
        (torch.Tensor.index_fill_, (X, 0, POSITIONS, torch.ones(1))),
        (torch.Tensor.index_fill_, (X, 3, POSITIONS, 1)),
        (torch.Tensor.masked_scatter_, (X, MASK.float(), X)),
        (torch.Tensor.masked_scatter_, (X, MASK, X.double())),
        (torch.Tensor.masked_scatter_, (X, MASK.t(), X)),
        (torch.Tensor.index_put_, (X, (POSITIONS, POSITIONS, POSITIONS), torch.tensor(1.0))),
        (torch.Tensor.index_put_, (X, (POSITIONS,), X)),
        (torch.Tensor.index_put_, (X, (POSITIONS,), X[:3].double())),
        (torch.Tensor.index_put_, (X, (POSITIONS.float(),), X[:3])),
        (torch.Tensor.index_put_, (X, (POSITIONS, POSITIONS[:2]), torch.tensor(1.0))),
        (aten.index_put_, (X[:, :0], [None, POSITIONS], torch.tensor(1.0))),
        (torch.Tensor.index_put_, (X, (MASK.t(),), torch.tensor(1.0))),
        (torch.Tensor.index_put_, (X, (MASK,), torch.ones(5))),
        (torch.Tensor.index_put_, (X, (MASK,), torch.ones(1).double(), True)),
        (torch.nonzero_static, (X,)),
        (torch.repeat_interleave, (torch.ones(2, 2, dtype=torch.int64),)),
        (aten._stack, ([X, X[0]], 0)),
    ],
)
def test_errors_are_the_cpus_at_the_call(op, arguments):
    check_refused(op, *arguments, **({"size": -1} if op is torch.nonzero_static else {}))


def test_overlapping_arguments_are_refused():
    for device in ("cpu", "accel"):
        x = X.to(device).clone()
        with pytest.raises(RuntimeError, match="unsupported operation"):
            x[:2].index_put_((POSITIONS.to(device) % 2,), x[1:4])
        with pytest.raises(RuntimeError, match="unsupported operation"):
            x.view(-1)[:3].put_(torch.tensor([0], device=device), x.view(-1)[2:3])


def test_python_indexing_waits_only_to_count_a_mask():
    x = X.to("accel").clone()
    where, mask, value = POSITIONS.to("accel"), MASK.to("accel"), torch.arange(6.0, device="accel")
    with fallback_mode("error"), hold_stream():
        x[where] = value
        x[mask] = 3
        x[mask] = value[1]
        x[:, where] += 1
        x[1:, mask[0]] = 7
        x[where, 2] = -1
    expected = X.numpy().copy()
    mine, chosen, row = MASK.numpy(), POSITIONS.numpy(), np.arange(6, dtype=np.float32)
    expected[chosen] = row
    expected[mine] = 3
    expected[mine] = row[1]
    expected[:, chosen] += 1
    expected[1:, mine[0]] = 7
    expected[chosen, 2] = -1
    assert np.array_equal(x.cpu().numpy(), expected)
    x[mask] = torch.arange(8.0, device="accel")  # fits only if the mask chooses eight
    expected[mine] = np.arange(8)
    assert np.array_equal(x.cpu().numpy(), expected)
    with pytest.raises(RuntimeError, match="shape mismatch"):
        x[mask] = torch.arange(7.0, device="accel")


def test_bad_positions_rise_at_the_synchronisation():
    x = X.to("accel")
    for call in (
        lambda: x.index_select(0, torch.tensor([4], device="accel")),
        lambda: x.take(torch.tensor([24], device="accel")),
        lambda: x.clone().index_put_((torch.tensor([4], device="accel"),), x[0]),
        lambda: x.clone().masked_scatter_(x >= 0, x[0]),
    ):
        call()
        with pytest.raises(torch.AcceleratorError):
            torch.accel.synchronize()


HELD = {
    "index": lambda x, index, mask, number: x[index],
    "index_put_": lambda x, index, mask, number: x.index_put_((index,), x[:3] * 2),
    "index_put_ of two views": lambda x, index, mask, number: x.index_put_((index[:2], index[1:]), x[0, :2] + 9),
    "index_put_ a host number": lambda x, index, mask, number: x.index_put_((index,), number),
    "index_put_ by a host mask": lambda x, index, mask, number: x.index_put_((mask,), number),
    "index_put_ a row by a host mask": lambda x, index, mask, number: x.index_put_((mask[:, 0],), x[:1] + 50),
    "index_put_ accumulating": lambda x, index, mask, number: x.index_put_((index,), x[:3] + 9, accumulate=True),
    "index_put_ counting a host mask": lambda x, index, mask, number: x.index_put_((mask,), x.view(-1)[:8] + 40),
    "setitem": lambda x, index, mask, number: x.__setitem__(index, number),
    "setitem by a host mask": lambda x, index, mask, number: x.__setitem__(mask, number),
    "masked_fill_": lambda x, index, mask, number: x.masked_fill_(x > 3, number),
    "where": lambda x, index, mask, number: torch.where(x > 3, x, number),
    "index_fill_": lambda x, index, mask, number: x.index_fill_(0, index.to(x.device, non_blocking=True)[:2], number),
}


@pytest.mark.parametrize("name", HELD)
def test_host_operands_count_as_they_were(name):
    operation = HELD[name]
    host = X.clone()
    expected = operation(host, POSITIONS.clone(), MASK.clone(), torch.tensor(77.0))
    x = X.to("accel").clone()
    index, mask, number = POSITIONS.clone(), MASK.clone(), torch.tensor(77.0)
    torch.accel.synchronize()
    with hold_stream():
        actual = operation(x, index, mask, number)
        index.fill_(1), mask.logical_not_(), number.zero_()
        del index, mask, number
    assert torch.equal(x.cpu(), host)
    if expected is not None:
        assert torch.equal(actual.cpu(), expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i, m: x.index_select(0, i),
        lambda x, i, m: x[i],
        lambda x, i, m: x.take(i),
        lambda x, i, m: x.masked_scatter(m, x * 2),
        lambda x, i, m: x.index_put((i,), x[:3] * 2, accumulate=True),
        lambda x, i, m: x.index_fill(0, i, x.detach()[0, 0]),
        lambda x, i, m: x.put(i, x[0, :3]),
    ],
)
def test_gradients(function):
    def run(device, held):
        x = X.clone().to(device).requires_grad_()
        i, m = POSITIONS.to(device), MASK.to(device)
        torch.accel.synchronize()
        with held():
            y = function(x, i, m)
            (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
        return y.detach().cpu(), gradient.cpu()

    for a, e in zip(run("accel", hold_stream), run("cpu", lambda: fallback_mode("error")), strict=True):
        assert torch.equal(a, e)


def test_deterministic_mode_alerts_at_the_call():
    x, where = X.to("accel").clone(), POSITIONS.to("accel")
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="put_ does not have a deterministic implementation"):
            x.put_(where, x[0, :3] + 0)
        x.index_put_((where,), x[:3] + 0)
    finally:
        torch.use_deterministic_algorithms(False)
