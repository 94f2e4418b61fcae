"""LSTM, GRU and RNN: torch calls fused cells on accelerators, where the CPU composes operators."""

import pytest
import torch

CELLS = ["LSTM", "GRU", "RNN"]


def run(device, module, inputs, state=None):
    module = module.to(device)
    module.zero_grad()
    inputs = inputs.to(device).detach().requires_grad_()
    result = module(inputs) if state is None else module(inputs, state)
    y, hidden = result
    hidden = hidden if isinstance(hidden, tuple) else (hidden,)
    (y.square().sum() + sum(h.sin().sum() for h in hidden)).backward()
    return [y, *hidden, inputs.grad, *(p.grad for p in module.parameters())]


def check(results, expected):
    assert len(results) == len(expected)
    for mine, theirs in zip(results, expected):
        assert mine.is_accel
        torch.testing.assert_close(mine.cpu(), theirs)


@pytest.mark.parametrize(
    "options", [{}, {"bias": False}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True}], ids=str
)
@pytest.mark.parametrize("cell", CELLS)
def test_equals_the_cpu(cell, options):
    torch.manual_seed(0)
    module = getattr(torch.nn, cell)(3, 5, **options)
    inputs = torch.randn(4, 2, 3)
    expected = [t.clone() for t in run("cpu", module, inputs)]
    check(run("accel", module, inputs), expected)


@pytest.mark.parametrize("cell", CELLS)
def test_cells(cell):
    torch.manual_seed(0)
    module = getattr(torch.nn, cell + "Cell")(3, 5)
    x, h = torch.randn(2, 3), torch.randn(2, 5)
    state = (h, h + 1) if cell == "LSTM" else h
    expected = module(x, state)
    moved = tuple(t.to("accel") for t in state) if cell == "LSTM" else h.to("accel")
    result = module.to("accel")(x.to("accel"), moved)
    check(result if cell == "LSTM" else [result], expected if cell == "LSTM" else [expected])


@pytest.mark.parametrize("cell", CELLS)
def test_packed_sequence(cell):
    torch.manual_seed(0)
    module = getattr(torch.nn, cell)(3, 5)
    x, lengths = torch.randn(4, 3, 3), torch.tensor([4, 2, 1])
    results = []
    for device in ("cpu", "accel"):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x.to(device), lengths)
        assert packed.batch_sizes.device.type == "cpu"
        y, _ = module.to(device)(packed)
        results.append(torch.nn.utils.rnn.pad_packed_sequence(y)[0].detach())
    check(results[1:], results[:1])


@pytest.mark.parametrize("unused", ["hidden", "cell"])
def test_lstm_with_one_gradient_only(unused):
    torch.manual_seed(0)
    module = torch.nn.LSTMCell(3, 5)
    grads = []
    for device in ("cpu", "accel"):
        module = module.to(device)
        module.zero_grad()
        hy, cy = module(torch.ones(2, 3, device=device))
        (cy if unused == "hidden" else hy).sum().backward()
        grads.append([p.grad for p in module.parameters()])
    check(grads[1], [g.cpu() for g in grads[0]])


@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
def test_gradients_by_differences(cell):
    torch.manual_seed(0)
    module = getattr(torch.nn, cell)(2, 3, dtype=torch.float64).to("accel")
    inputs = torch.randn(2, 2, 2, dtype=torch.float64).to("accel").requires_grad_()
    assert torch.autograd.gradcheck(lambda x: module(x)[0], (inputs,))


def test_bad_shapes_name_accel():
    gates, state = torch.ones(2, 12, device="accel"), torch.ones(2, 5, device="accel")
    for op in (torch.ops.aten._thnn_fused_lstm_cell, torch.ops.aten._thnn_fused_gru_cell):
        with pytest.raises(RuntimeError, match=r"accel: _thnn_fused_\w+ expects gates of \[batch, \d \* hidden\]"):
            op(gates, gates, state)
    with pytest.raises(RuntimeError, match="two biases of 20 elements, or none"):
        torch.ops.aten._thnn_fused_lstm_cell(
            torch.ones(2, 20, device="accel"), torch.ones(2, 20, device="accel"), state, torch.ones(20, device="accel")
        )
