"""What the stream sanitizer costs: the same step with it and without, interleaved.

    python -m benchmarks.sanitizer

harness.py says what is printed; the steps are those of tests/training and of benchmarks/graphs.py.
"""

from collections.abc import Callable

import torch

from benchmarks.graphs import replayed, training_step
from benchmarks.harness import Work, Workload, main, seconds, tensors
from tests.training import decoder_lm
from torch_accel import sanitizer


class Watched:
    """Work that is done with the sanitizer on."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self) -> object:
        return self.work()


def clock(work: Work, calls: int) -> float:
    """As harness.seconds, in the mode that the work asks for."""
    with sanitizer.enabled("raise" if isinstance(work, Watched) else "off"):
        return seconds(work, calls)


def decoder_step() -> Work:
    """Forward, backward, clipping and AdamW of the decoder."""
    torch.manual_seed(0)
    program = decoder_lm.Program("accel")
    (batch,) = program.batches[0]
    return lambda: program.step(batch)


def uploads() -> Work:
    """Pinned batches uploaded on a stream of their own: operators of the host are watched as well."""
    copies, main_stream = torch.accel.Stream(), torch.accel.current_stream()
    host, (weight,) = torch.ones(256, 256).pin_memory(), tensors("accel", 256, 256, count=1)

    def work() -> None:
        with torch.accel.stream(copies):
            batch = host.to("accel", non_blocking=True)
        main_stream.wait_stream(copies)
        batch.record_stream(main_stream)
        (batch @ weight).sum()
        copies.wait_stream(main_stream)

    return work


def pair(name: str, make: Callable[[], Work], calls: int) -> Workload:
    """Without against with."""
    return Workload(name, make, lambda: Watched(make()), calls)


WORKLOADS = [
    pair("decoder, 4 layers, a training step", decoder_step, 10),
    pair("MLP step, AdamW", training_step, 30),
    pair("MLP step, AdamW, a replay of its graph", lambda: replayed(training_step), 30),
    pair("upload, matmul", uploads, 50),
]

if __name__ == "__main__":
    main(__doc__, WORKLOADS, base="off", other="sanitizer", clock=clock)
