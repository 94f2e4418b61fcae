"""Reductions and scans by a combining function of scalars, and the orders in which they combine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Tuple = Sequence[Array]
Combine = Callable[[Tuple, Tuple], Tuple]  # of elements so far, and of the next ones


def reduce(combine: Combine, inputs: Tuple, axis: int, lanes: int = 16, accumulators: int = 4) -> list[Array]:
    """Reduces an axis. Slot i % (lanes * accumulators) takes element i, in ascending order; then the upper half of the slots is
    combined into the lower, until one is left. The combination must be associative and commutative."""
    parts = [np.moveaxis(array, axis, 0) for array in inputs]
    count, slots = parts[0].shape[0], lanes * accumulators
    total = [part[:slots] for part in parts]
    for start in range(slots, count, slots):
        more = [part[start : start + slots] for part in parts]
        size = more[0].shape[0]
        first = combine([one[:size] for one in total], more)
        total = [np.concatenate([new, one[size:]]) for new, one in zip(first, total)]
    while total[0].shape[0] > 1:
        half = (total[0].shape[0] + 1) // 2
        rest = total[0].shape[0] - half
        first = combine([one[:rest] for one in total], [one[half:] for one in total])
        total = [np.concatenate([new, one[rest:half]]) for new, one in zip(first, total)]
    return [one[0] for one in total]


def scan(combine: Combine, inputs: Tuple, axis: int, reverse: bool) -> list[Array]:
    """Running combinations along an axis, from its first element on, or from its last one. Associative is enough."""
    parts = [np.moveaxis(array, axis, 0) for array in inputs]
    if reverse:
        parts = [part[::-1] for part in parts]
    steps = [[part[0] for part in parts]]
    for index in range(1, parts[0].shape[0]):
        steps.append(list(combine(steps[-1], [part[index] for part in parts])))
    results = [np.stack(column) for column in zip(*steps)]
    if reverse:
        results = [result[::-1] for result in results]
    return [np.moveaxis(result, 0, axis) for result in results]


def one_by_one(combine: Combine) -> Combine:
    """The same function where it takes single elements only: called for each."""

    def apply(a: Tuple, b: Tuple) -> Tuple:
        shape = a[0].shape
        results = [np.empty(shape, array.dtype) for array in a]
        for index in np.ndindex(shape):
            values = combine([np.asarray(x[index]) for x in a], [np.asarray(x[index]) for x in b])
            for result, value in zip(results, values):
                result[index] = value
        return results

    return apply
