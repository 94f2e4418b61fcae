"""Comparison of tensors of any layout, for the tests of sparse and nested tensors."""

import torch
from torch.utils._pytree import tree_map

from torch_accel.conformance import compare as conformance
from torch_accel.conformance.compare import parts


def compare(actual, expected):
    """As the suite's, but for the order and number of a COO tensor's elements: sums on accel keep what the CPU merges."""

    def coalesced(leaf):
        return leaf.coalesce() if isinstance(leaf, torch.Tensor) and leaf.layout == torch.sparse_coo else leaf

    return conformance.compare(*(tree_map(coalesced, side) for side in (actual, expected)), strides=False)


def both(call):
    """Runs ``call(device)`` on accel and on the CPU: bit-equal results, or errors of one type."""
    results = []
    for device in ("accel", "cpu"):
        try:
            results.append(call(device))
        except Exception as error:
            results.append(error)
    actual, expected = results
    if isinstance(expected, Exception):
        raise expected  # a case that the CPU refuses tests nothing
    if isinstance(actual, Exception):
        raise actual
    assert compare(actual, expected), f"{actual} instead of {expected}"


def on_accel(tensor):
    """Whether a tensor and all its parts are on accel."""
    return tensor.is_accel and all(part.is_accel for part in parts(tensor))


def dense_of(indices, values, size):
    """A COO tensor as a dense one, by a loop: an oracle that shares no code with torch's sparse kernels."""
    dense = torch.zeros(size, dtype=values.dtype)
    for column in range(indices.shape[1]):
        dense[tuple(indices[:, column].tolist())] += values[column]
    return dense
