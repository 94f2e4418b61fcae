"""Random numbers in graphs: each replay draws what eager calls would have drawn."""

import pytest
import torch
from torch.nn import functional as F

from tests.captures import bits, captured
from torch_accel.testing import hold_stream

DEVICE = "accel"


DRAWS = {
    "rand": lambda x: torch.rand_like(x),
    "randn": lambda x: torch.randn_like(x),
    "dropout": lambda x: F.dropout(x, 0.5),
    "bernoulli": lambda x: torch.bernoulli(x * 0.5),
    "randint": lambda x: torch.randint(1000, (50,), device=DEVICE),
    "exponential": lambda x: torch.empty_like(x).exponential_(),
    "rrelu": lambda x: F.rrelu(-x, training=True),
    "multinomial": lambda x: torch.multinomial(x, 30, replacement=True),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.view(1, 1, 10, 5)] * 3, dropout_p=0.5),
    "packed attention": lambda x: torch.ops.aten._flash_attention_forward(
        *[x.view(1, 10, 1, 5)] * 3, None, None, 10, 10, 0.5, False, False
    )[0],
}


@pytest.mark.parametrize("draw", DRAWS)
def test_replays_draw_what_eager_calls_would_have_drawn(draw):
    x = torch.ones(50, device=DEVICE)
    body = lambda: (DRAWS[draw](x), DRAWS[draw](x))  # noqa: E731
    graph, results = captured(body)
    torch.accel.manual_seed(5)
    eager = [bits(*body()) for _ in range(4)]
    torch.accel.manual_seed(5)
    for i in range(4):
        if i == 2:  # eager calls and replays take turns on one generator
            actual = bits(*body())
        else:
            graph.replay()
            actual = bits(*results)
        assert all(map(torch.equal, actual, eager[i]))
    assert not torch.equal(eager[0][0], eager[1][0])


def test_queued_replays_draw_different_numbers(queued):
    x = torch.ones(50, device=DEVICE)
    out = torch.zeros(3, 50, device=DEVICE)
    row = torch.zeros(1, dtype=torch.long, device=DEVICE)

    def body():
        out.index_copy_(0, row, torch.rand_like(x)[None])
        row.add_(1)

    graph, _ = captured(body)
    torch.accel.manual_seed(1)
    expected = torch.stack([torch.rand_like(x).cpu() for _ in range(3)])
    torch.accel.manual_seed(1)
    with hold_stream():
        for _ in range(3):
            graph.replay()
    assert torch.equal(out.cpu(), expected)


def test_generators_are_registered_by_their_use():
    mine = torch.Generator(DEVICE).manual_seed(3)
    graph, y = captured(lambda: torch.rand(5, device=DEVICE, generator=mine))
    assert mine.get_offset() == 0  # a capture draws nothing
    graph.replay()
    assert mine.get_offset() == 4
    assert torch.equal(y.cpu(), torch.rand(5, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(3)).cpu())
    other = torch.accel.AccelGraph()
    other.register_generator_state(mine)
    mine.manual_seed(8)
    graph.replay()
    assert torch.equal(y.cpu(), torch.rand(5, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(8)).cpu())


def test_graph_safe_states_are_shared():
    mine = torch.Generator(DEVICE).manual_seed(3)
    shared = mine.graphsafe_get_state()
    copied = mine.clone_state()
    torch.rand(1, device=DEVICE, generator=mine)
    assert (shared.get_offset(), copied.get_offset()) == (4, 0)
    mine.graphsafe_set_state(copied)
    torch.rand(1, device=DEVICE, generator=mine)
    assert (shared.get_offset(), copied.get_offset()) == (4, 4)
    with pytest.raises(RuntimeError, match="needs a Philox generator of accel:0"):
        mine.graphsafe_set_state(torch.Generator())


def test_seeding_in_a_capture():
    torch.accel.manual_seed(4)
    graph = torch.accel.AccelGraph()
    same = "only if new seed is the same as the original seed"
    with pytest.raises(RuntimeError, match=same), torch.accel.graph(graph):
        torch.accel.manual_seed(4)
        torch.ones(1, device=DEVICE)
        torch.accel.manual_seed(5)
    graph.reset()
    for call in ("get_offset", "seed", "clone_state"):
        with torch.accel.graph(graph):
            torch.ones(1, device=DEVICE)
            with pytest.raises(RuntimeError, match=f"Cannot call Generator.{call} during accel graph capture"):
                getattr(torch.accel.default_generators[0], call)()
        graph.reset()


def test_checkpointing_in_a_capture_draws_the_same_twice():
    x = torch.ones(100, device=DEVICE, requires_grad=True)

    def body():
        y = torch.utils.checkpoint.checkpoint(lambda t: F.dropout(t, 0.5), x, use_reentrant=False)
        return y, *torch.autograd.grad(y.sum(), x)

    graph, (y, grad) = captured(body)
    for _ in range(2):
        graph.replay()
        assert torch.equal(y.detach().cpu(), grad.cpu())
        assert 0 < (y == 0).sum().item() < 100


def test_the_backward_of_attention_drops_what_its_forward_dropped():
    q = torch.randn(1, 2, 16, 8, device=DEVICE, requires_grad=True)

    def step():
        out = F.scaled_dot_product_attention(q, q, q, dropout_p=0.3)
        return out, *torch.autograd.grad(out.square().sum(), q)

    graph, results = captured(step)
    torch.accel.manual_seed(2)
    eager = [bits(*step()) for _ in range(2)]
    torch.accel.manual_seed(2)
    for expected in eager:
        graph.replay()
        assert all(map(torch.equal, bits(*results), expected))


def test_the_cpus_numbers_cannot_be_captured(script):
    script(
        """
        import torch
        graph = torch.accel.AccelGraph()
        try:
            with torch.accel.graph(graph):
                torch.rand(3, device="accel")
        except torch.AcceleratorError as error:
            assert "uniform_ (uniform_): operation not permitted when stream is capturing" in str(error), error
        else:
            raise AssertionError
        assert torch.rand(3, device="accel").shape == (3,)
        """,
        ACCEL_RNG="cpu",
    )
