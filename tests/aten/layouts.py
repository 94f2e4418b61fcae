"""Comparison of tensors of any layout, for the tests of sparse and nested tensors."""

import torch

from torch_accel.conformance.compare import compare, parts


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
    assert compare(actual, expected, strides=False), f"{actual} instead of {expected}"


def on_accel(tensor):
    """Whether a tensor and all its members are on accel."""
    return tensor.is_accel and all(member.is_accel for member in parts(tensor))


def dense_of(indices, values, size):
    """A COO tensor as a dense one, by a loop: an oracle that shares no code with torch's sparse kernels."""
    dense = torch.zeros(size, dtype=values.dtype)
    for column in range(indices.shape[1]):
        dense[tuple(indices[:, column].tolist())] += values[column]
    return dense
