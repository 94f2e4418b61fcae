"""Packed sequences: packing, padding, and through RNN, LSTM and GRU; against the CPU and against a loop over the steps.

In float64: torch multiplies the inputs of all steps at once on the CPU alone, so last bits differ.
"""

import itertools

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn

from tests.modules.against_cpu import check_equal, check_step, leaves, ramp

NEAR = {"rtol": 1e-12, "atol": 1e-12}
LENGTHS = {"sorted": [5, 3, 3, 1], "unsorted": [3, 5, 1, 3]}
NETS = {"RNN": nn.RNN, "relu RNN": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k), "LSTM": nn.LSTM, "GRU": nn.GRU}
OPTIONS = {
    "plain": {},
    "batch_first": {"batch_first": True},
    "bidirectional": {"bidirectional": True},
    "two layers": {"num_layers": 2},
    "no bias": {"bias": False},
    "everything": {"num_layers": 2, "bidirectional": True, "batch_first": True},
}


def packed(lengths, device="cpu", batch_first=False, requires_grad=True, kind=list):
    torch.manual_seed(1)
    x = torch.randn((4, 5, 3) if batch_first else (5, 4, 3), dtype=torch.float64)
    x = x.to(device).requires_grad_(requires_grad)
    in_order = lengths == sorted(lengths, reverse=True)
    return x, rnn.pack_padded_sequence(x, kind(lengths), batch_first, enforce_sorted=in_order)


@pytest.mark.parametrize("kind", [list, torch.tensor], ids=["list", "tensor"])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
def test_packing(lengths, batch_first, kind):
    results = []
    for device in ("accel", "cpu"):
        x, sequence = packed(lengths, device, batch_first, kind=kind)
        assert sequence.batch_sizes.device.type == "cpu" and sequence.data.device.type == device
        padded, back = rnn.pad_packed_sequence(sequence, batch_first, padding_value=9.0, total_length=6)
        padded.backward(ramp(padded))
        unpadded = rnn.unpad_sequence(padded, back, batch_first)
        unpacked = rnn.unpack_sequence(sequence)
        assert back.device.type == "cpu" and back.tolist() == lengths
        assert [len(u) for u in unpadded] == [len(u) for u in unpacked] == lengths
        results.append([sequence, padded, unpadded, unpacked, x.grad])
    check_equal(*results, accel=False)


def test_lists_of_sequences():
    sequences = [torch.arange(n * 2.0).view(n, 2) for n in (2, 4, 1)]
    results = []
    for device in ("accel", "cpu"):
        moved = [s.to(device) for s in sequences]
        results.append([
            rnn.pad_sequence(moved), rnn.pad_sequence(moved, batch_first=True, padding_value=-1, padding_side="left"),
            rnn.pack_sequence(moved, enforce_sorted=False),
        ])  # fmt: skip
    check_equal(*results, accel=False)


def test_packed_sequences_move():
    _, sequence = packed(LENGTHS["unsorted"], requires_grad=False)
    for there in (sequence.to("accel"), sequence.accel(), sequence.to("accel", non_blocking=True)):
        assert there.is_accel and there.data.is_accel and there.sorted_indices.is_accel
        assert there.batch_sizes.device.type == "cpu" and not there.cpu().is_accel
        check_equal(there, sequence, accel=False)
    assert sequence.accel().half().data.dtype == torch.float16
    assert sequence.pin_memory().is_pinned()


@pytest.mark.parametrize("order", LENGTHS)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("net", NETS.values(), ids=NETS.keys())
def test_nets_over_packed_sequences(net, options, order):
    torch.manual_seed(0)
    module = net(3, 4, **options).double()
    check_step(Over(module, LENGTHS[order]), packed(LENGTHS[order], batch_first=module.batch_first)[0], **NEAR)


class Over(nn.Module):
    """The net over a padded tensor packed by the lengths."""

    def __init__(self, net, lengths):
        super().__init__()
        self.net, self.lengths = net, lengths

    def forward(self, x, *state):
        sequence = rnn.pack_padded_sequence(x, self.lengths, self.net.batch_first, enforce_sorted=False)
        out, last = self.net(sequence, *state)
        return rnn.pad_packed_sequence(out, self.net.batch_first)[0], last


def test_lstm_with_projections_and_a_state():
    torch.manual_seed(0)
    module = Over(nn.LSTM(3, 4, num_layers=2, proj_size=2, bidirectional=True).double(), LENGTHS["unsorted"])
    state = tuple(torch.randn(4, 4, width, dtype=torch.float64, requires_grad=True) for width in (2, 4))
    check_step(module, packed(LENGTHS["unsorted"])[0], state, **NEAR)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_packed_net_is_its_cell_in_a_loop(kind):
    torch.manual_seed(0)
    net = getattr(nn, kind)(3, 4).double()
    cell = getattr(nn, kind + "Cell")(3, 4).double()
    for name, p in cell.named_parameters():
        p.data = getattr(net, name + "_l0").data
    x, lengths = torch.randn(5, 4, 3, dtype=torch.float64), LENGTHS["unsorted"]
    expected = torch.zeros(5, 4, 4, dtype=torch.float64)
    for sequence, length in enumerate(lengths):
        state = None
        for t in range(length):
            state = cell(x[t, sequence][None], state)
            expected[t, sequence] = state[0] if kind == "LSTM" else state
    out, _ = Over(net.to("accel"), lengths)(x.to("accel"))
    torch.testing.assert_close(out.detach().cpu(), expected.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("net", NETS.values(), ids=NETS.keys())
def test_parameters_are_flattened_and_move(net):
    torch.manual_seed(0)
    module = net(3, 4, num_layers=2).double()
    x = torch.randn(2, 2, 3, dtype=torch.float64)
    expected = module(x)
    for _ in range(2):
        module.to("accel")
        module.flatten_parameters()
        check_equal(module(x.to("accel")), expected, **NEAR)
        module.cpu()
        assert all(torch.equal(a, b) for a, b in zip(leaves(module(x)), leaves(expected)))


DROPOUT = list(itertools.product(["RNN", "LSTM", "GRU"], [True, False]))


@pytest.mark.parametrize("kind, training", DROPOUT)
def test_dropout_between_layers(kind, training):
    torch.manual_seed(0)
    module = getattr(nn, kind)(3, 64, num_layers=2, dropout=0.5).to("accel").train(training)
    x = torch.randn(4, 2, 3, device="accel")
    first = module(x)[0]
    assert torch.equal(module(x)[0], first) != training
    torch.manual_seed(5)
    again = module(x)[0]
    torch.manual_seed(5)
    assert torch.equal(module(x)[0], again)


def test_errors_are_the_cpus():
    calls = [
        lambda d: rnn.pack_padded_sequence(torch.ones(3, 2, 1, device=d), [1, 2]),
        lambda d: rnn.pack_padded_sequence(torch.ones(3, 2, 1, device=d), [2, 0]),
        lambda d: rnn.pack_padded_sequence(torch.ones(3, 2, 1, device=d), [2]),
        lambda d: rnn.pad_packed_sequence(packed([3, 2, 2, 1], d)[1], total_length=2),
        lambda d: nn.LSTM(3, 4, device=d)(torch.ones(2, 2, 5, device=d)),
        lambda d: nn.LSTM(3, 4, device=d)(torch.ones(2, 2, 3, device=d), (torch.ones(1, 3, 4, device=d),) * 2),
    ]
    for call in calls:
        with pytest.raises((RuntimeError, ValueError)) as expected:
            call("cpu")
        with pytest.raises(expected.type) as raised:
            call("accel")
        assert str(raised.value) == str(expected.value)
    with pytest.raises(RuntimeError, match=r"'lengths' argument should be a 1D CPU int64 tensor, but got 1D accel:0"):
        rnn.pack_padded_sequence(torch.ones(3, 2, 1, device="accel"), torch.tensor([3, 2], device="accel"))
