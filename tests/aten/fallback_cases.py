"""What the tests of the fallback share: operands, the comparison with the CPU, and operators of their own."""

import uuid

import torch

A = torch.arange(12.0).reshape(3, 4)
J = torch.tensor([2, 0, 2])
Z = torch.complex(A, A + 1)


def flat(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [leaf for item in result for leaf in flat(item)] if isinstance(result, (list, tuple)) else []


def check_equal(result, expected):
    results, oracles = flat(result), flat(expected)
    assert len(results) == len(oracles)
    for mine, theirs in zip(results, oracles):
        assert mine.is_accel and mine.dtype == theirs.dtype and mine.stride() == theirs.stride()
        torch.testing.assert_close(mine.cpu(), theirs, rtol=0, atol=0, equal_nan=True)


LIBRARIES = []


def define(schema, cpu, key="CPU"):
    """An operator of its own namespace with that kernel; the library lives as long as the function."""
    library = torch.library.Library("fb" + uuid.uuid4().hex[:12], "DEF")
    library.define(schema)
    name = schema.split("(")[0]
    if cpu is not None:
        library.impl(name, cpu, key)
    op = getattr(getattr(torch.ops, library.ns), name)
    LIBRARIES.append(library)
    return op
