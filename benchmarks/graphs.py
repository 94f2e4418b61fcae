"""What a replay costs the host, against the same launches made eagerly: host time only, interleaved.

    python -m benchmarks.graphs

harness.py says what is printed.
"""

from collections.abc import Callable

import torch

from benchmarks.harness import Work, Workload, host_seconds, main, tensors
from tests.training.decoder_lm import Decoder, text

SIDE = torch.accel.Stream()


def adds(count: int) -> Work:
    """A chain of small launches."""
    x, y = tensors("accel", 8, 8)

    def work() -> None:
        for _ in range(count):
            x.add_(y)

    return work


def training_step() -> Work:
    """Forward, backward and AdamW of a perceptron."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)).to("accel")
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    (x,) = tensors("accel", 16, 32, count=1)
    y = torch.arange(16, device="accel").remainder(10)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def decoder_step() -> Work:
    """Forward, backward, clipping and AdamW of a decoder of four layers."""
    torch.manual_seed(0)
    model, (batch, *_) = Decoder().to("accel"), text().to("accel")
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)

    def step() -> None:
        optimizer.zero_grad()
        logits = model(batch[:, :-1]).flatten(0, 1)
        torch.nn.functional.cross_entropy(logits, batch[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def replayed(make: Callable[[], Work]) -> Work:
    """The same work, captured."""
    work = make()
    with torch.accel.stream(SIDE):
        work()
    graph = torch.accel.AccelGraph()
    with torch.accel.graph(graph, stream=SIDE):
        work()
    return lambda _work=work: graph.replay()  # the work owns the tensors that the graph reads


WORKLOADS = [
    Workload("1 add_, 8x8", lambda: adds(1), lambda: replayed(lambda: adds(1)), 200),
    Workload("20 add_, 8x8", lambda: adds(20), lambda: replayed(lambda: adds(20)), 10),
    Workload("MLP step, AdamW", training_step, lambda: replayed(training_step), 3),
    Workload("decoder step, AdamW", decoder_step, lambda: replayed(decoder_step), 1),
]

if __name__ == "__main__":
    main(__doc__, WORKLOADS, base="eager", other="replay", clock=host_seconds)
