"""Work on a side stream, between what the caller's stream has and what it gets next."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import torch

from torch_accel import sanitizer
from torch_accel.testing import plant

#: Numbers that no test used before: memory of an earlier test cannot hold the right result by chance.
FRESH = itertools.count(3)


@contextlib.contextmanager
def forked(stream: torch.Stream) -> Iterator[None]:
    caller = torch.accel.current_stream()
    stream.wait_stream(caller)
    with torch.accel.stream(stream):
        yield
    caller.wait_stream(stream)


@contextlib.contextmanager
def racing(fault: str) -> Iterator[None]:
    """Plants a fault that makes work race; the sanitizer, which would find that, is off meanwhile and knows nothing of it."""
    with sanitizer.enabled("off"), plant(fault):
        yield
