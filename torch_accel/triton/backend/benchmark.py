"""How long a kernel takes, for Triton's autotuner."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

_TRIES = 5  # calls that tell how many the others may be


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Iterable[torch.Tensor] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """``triton.testing.do_bench``, ended by the host's clock: after about ``warmup + rep`` milliseconds.

    Triton's counts calls by the device's time alone. Of a kernel of a microsecond those are a hundred thousand, which the host takes
    many seconds to enqueue.

    Returns milliseconds a call: "mean", "min", "max" or "median" of all, "all" of them as a list, or those at ``quantiles``.
    """
    tensors = list(grad_to_none or ())
    fn()
    each, _ = _timed(fn, _TRIES, tensors)
    _timed(fn, _count(warmup, each), tensors)
    _, times = _timed(fn, _count(rep, each), tensors)
    if quantiles is not None:
        found = torch.quantile(torch.tensor(times), torch.tensor(quantiles, dtype=torch.float)).tolist()
        return found[0] if len(found) == 1 else found
    return times if return_mode == "all" else getattr(torch, return_mode)(torch.tensor(times)).item()


def _count(milliseconds: float, each: float) -> int:
    return max(1, int(milliseconds / each))


def _timed(fn: Callable[[], Any], count: int, grad_to_none: list[torch.Tensor]) -> tuple[float, list[float]]:
    """Milliseconds a call on the host's clock, until all are done, and on the device's, of each."""
    events = [tuple(torch.Event("accel", enable_timing=True) for _ in range(2)) for _ in range(count)]
    torch.accelerator.synchronize()
    start = time.perf_counter()
    for begin, end in events:
        for tensor in grad_to_none:
            tensor.grad = None
        begin.record()
        fn()
        end.record()
    torch.accelerator.synchronize()
    passed = (time.perf_counter() - start) * 1e3
    return passed / count, [begin.elapsed_time(end) for begin, end in events]
