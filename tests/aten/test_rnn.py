"""LSTM, GRU and RNN: torch calls fused cells on accelerators, where the CPU composes operators."""

import copy

import pytest
import torch

from torch_accel.fallback import fallback_report
from torch_accel.testing import hold_stream, wait_report

CELLS = ["LSTM", "GRU", "RNN"]


def states_of(hidden):
    return hidden if isinstance(hidden, tuple) else (hidden,)


def run(device, module, inputs, state=None):
    """The output, the last states and all gradients."""
    module = copy.deepcopy(module).to(device)
    inputs = inputs.to(device).detach().requires_grad_()
    state = None if state is None else [s.to(device).detach().requires_grad_() for s in state]
    y, hidden = module(inputs, *([] if state is None else [tuple(state) if len(state) > 1 else state[0]]))
    (y.square().sum() + sum(h.sin().sum() for h in states_of(hidden))).backward()
    grads = [t.grad for t in (inputs, *(state or ()), *module.parameters())]
    return [y.detach(), *(h.detach() for h in states_of(hidden)), *grads]


def check(results, expected):
    assert len(results) == len(expected)
    for mine, theirs in zip(results, expected):
        assert mine.is_accel
        torch.testing.assert_close(mine.cpu(), theirs)


OPTIONS = [
    {},
    {"bias": False},
    {"num_layers": 2, "bidirectional": True},
    {"batch_first": True},
    {"bidirectional": True, "batch_first": True, "bias": False},
    {"num_layers": 3},
    {"proj_size": 2},
    {"proj_size": 2, "num_layers": 2, "bidirectional": True},
    {"nonlinearity": "relu"},
]
FOR_ONE_CELL = {"proj_size": "LSTM", "nonlinearity": "RNN"}
CASES = [
    (cell, options)
    for cell in CELLS
    for options in OPTIONS
    if all(FOR_ONE_CELL.get(name, cell) == cell for name in options)
]


def state_of(cell, options, batch=2, hidden=5):
    layers = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    first = torch.randn(layers, batch, options.get("proj_size", hidden))
    return [first, torch.randn(layers, batch, hidden)] if cell == "LSTM" else [first]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("given", [False, True], ids=["from zero", "from a state"])
@pytest.mark.parametrize("cell, options", CASES, ids=str)
def test_equals_the_cpu(cell, options, given, dtype):
    module = getattr(torch.nn, cell)(3, 5, dtype=dtype, **options)
    inputs = torch.randn(4, 2, 3, dtype=dtype).transpose(0, 1 if options.get("batch_first") else 0)
    state = [s.to(dtype) for s in state_of(cell, options)] if given else None
    check(run("accel", module, inputs, state), run("cpu", module, inputs, state))


@pytest.mark.parametrize("cell", CELLS)
def test_without_a_batch(cell):
    module, inputs = getattr(torch.nn, cell)(3, 5), torch.randn(4, 3)
    check(run("accel", module, inputs), run("cpu", module, inputs))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(cell, dtype):
    """The CPU rounds after every operator of a cell, the fused cell once."""
    module, inputs = getattr(torch.nn, cell)(3, 5), torch.randn(4, 2, 3)
    single = run("cpu", module.to(dtype).float(), inputs.to(dtype).float())
    for mine, theirs in zip(run("accel", module.to(dtype), inputs.to(dtype)), single, strict=True):
        assert mine.dtype == dtype
        torch.testing.assert_close(mine.cpu().float(), theirs, rtol=5e-2, atol=5e-2)


def by_hand(module, inputs):
    """One layer in float64, gate by gate, from the equations of torch.nn's documentation."""
    w_i, w_h, b_i, b_h = (p.detach().double() for p in module.parameters())
    h = c = torch.zeros(inputs.shape[1], w_h.shape[1], dtype=torch.float64)
    outputs = []
    for x in inputs.double():
        from_x, from_h = x @ w_i.T + b_i, h @ w_h.T + b_h
        if isinstance(module, torch.nn.LSTM):
            i, f, g, o = (from_x + from_h).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        elif isinstance(module, torch.nn.GRU):
            (r, z, n), (hr, hz, hn) = from_x.chunk(3, 1), from_h.chunk(3, 1)
            z = torch.sigmoid(z + hz)
            h = (1 - z) * torch.tanh(n + torch.sigmoid(r + hr) * hn) + z * h
        else:
            h = torch.tanh(from_x + from_h)
        outputs.append(h)
    return torch.stack(outputs)


@pytest.mark.parametrize("cell", CELLS)
def test_is_the_equations(cell):
    module, inputs = getattr(torch.nn, cell)(3, 5), torch.randn(4, 2, 3)
    y, _ = copy.deepcopy(module).to("accel")(inputs.to("accel"))
    torch.testing.assert_close(y.detach().cpu().double(), by_hand(module, inputs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cell", CELLS)
def test_training_is_queued(cell, queued):
    module, inputs = getattr(torch.nn, cell)(3, 5, num_layers=2, bidirectional=True).to("accel"), torch.randn(4, 2, 3)
    inputs = inputs.to("accel")
    fallback_report(reset=True)
    torch.accel.synchronize()
    before = wait_report()
    with hold_stream():
        module(inputs)[0].sum().backward()
        assert wait_report() == before
    assert fallback_report() == {}
    assert all(p.grad.isfinite().all() for p in module.parameters())


@pytest.mark.parametrize("cell", CELLS)
def test_dropout_between_layers(cell):
    """Of the output of each layer but the last, from the accel seed, in training only."""
    module, inputs = getattr(torch.nn, cell)(3, 64, num_layers=2, dropout=0.5), torch.randn(4, 2, 3)
    alone = getattr(torch.nn, cell)(3, 64, num_layers=2)
    alone.load_state_dict(module.state_dict())
    check(run("accel", module.eval(), inputs), run("cpu", alone, inputs))
    module.train()
    results = []
    for s in (1, 1, 2):
        torch.accel.manual_seed(s)
        before = torch.get_rng_state()
        results.append(run("accel", module, inputs))
        assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(results[0], results[1], strict=True))
    assert not torch.equal(results[0][0], results[2][0])
    # The first layer is as it is alone; the second sees it with half of it dropped and the rest doubled.
    first, second = (getattr(torch.nn, cell)(size, 64) for size in (3, 64))
    names = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]
    for layer, part in enumerate((first, second)):
        part.load_state_dict({f"{n}_l0": getattr(module, f"{n}_l{layer}").detach() for n in names})
    torch.accel.manual_seed(1)
    dropped = torch.nn.functional.dropout(first(inputs)[0].detach().to("accel"), 0.5)
    torch.testing.assert_close(results[0][0].cpu(), second(dropped.cpu())[0].detach())


@pytest.mark.parametrize("cell", CELLS)
def test_cells(cell):
    module = getattr(torch.nn, cell + "Cell")(3, 5)
    x, h = torch.randn(2, 3), torch.randn(2, 5)
    state = (h, h + 1) if cell == "LSTM" else h
    expected = module(x, state)
    moved = tuple(t.to("accel") for t in state) if cell == "LSTM" else h.to("accel")
    result = module.to("accel")(x.to("accel"), moved)
    check(result if cell == "LSTM" else [result], expected if cell == "LSTM" else [expected])


def packed(device, module, x, lengths, sorted_already, batch_first=False):
    module = copy.deepcopy(module).to(device)
    leaf = x.to(device).detach().requires_grad_()
    sequence = torch.nn.utils.rnn.pack_padded_sequence(leaf, lengths, batch_first, enforce_sorted=sorted_already)
    assert sequence.batch_sizes.is_cpu and sequence.data.device.type == device
    y, hidden = module(sequence)
    assert sorted_already == (y.unsorted_indices is None)
    padded, out_lengths = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first)
    assert out_lengths.tolist() == lengths
    (padded.square().sum() + sum(h.sin().sum() for h in states_of(hidden))).backward()
    grads = [leaf.grad, *(p.grad for p in module.parameters())]
    return [padded.detach(), *(h.detach() for h in states_of(hidden)), *grads]


PACKED = [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True}, {"proj_size": 2, "bidirectional": True}]


@pytest.mark.parametrize("lengths", [[4, 2, 1], [1, 4, 2]], ids=["sorted", "unsorted"])
@pytest.mark.parametrize(
    "cell, options", [(c, o) for c in CELLS for o in PACKED if c == "LSTM" or "proj_size" not in o], ids=str
)
def test_packed_sequence(cell, options, lengths):
    module = getattr(torch.nn, cell)(3, 5, **options)
    batch_first = options.get("batch_first", False)
    x = torch.randn(3, 4, 3) if batch_first else torch.randn(4, 3, 3)
    arguments = module, x, lengths, lengths == sorted(lengths, reverse=True), batch_first
    results = packed("accel", *arguments)
    check(results, packed("cpu", *arguments))
    # Each sequence alone, unpacked
    for i, n in enumerate(lengths):
        one = x[i : i + 1, :n] if batch_first else x[:n, i : i + 1]
        alone = module(one)[0].detach()
        theirs = results[0][i : i + 1, :n] if batch_first else results[0][:n, i : i + 1]
        torch.testing.assert_close(theirs.cpu(), alone)


def test_a_packed_sequence_moves():
    sequence = torch.nn.utils.rnn.pack_sequence([torch.randn(n, 3) for n in (2, 4)], enforce_sorted=False)
    for moved in (sequence.to("accel"), sequence.accel()):
        assert moved.is_accel and moved.data.is_accel and moved.sorted_indices.is_accel and moved.batch_sizes.is_cpu
        back = moved.cpu()
        assert torch.equal(back.data, sequence.data) and torch.equal(back.unsorted_indices, sequence.unsorted_indices)


@pytest.mark.parametrize("unused", ["hidden", "cell"])
def test_lstm_with_one_gradient_only(unused):
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
