"""op_db with one operand left on the CPU: refused at the call, and the text names both devices or their kind."""

import warnings

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

from torch_accel.conformance.compare import Replica

#: operators that compute all the same, as on CUDA -> why
COMPUTE = {
    **dict.fromkeys(
        ("broadcast_tensors", "expand_as", "reshape_as", "view_as", "resize_as_"), "the shape alone counts"
    ),
    **dict.fromkeys(("diagonal_scatter", "select_scatter", "slice_scatter"), "a copy into a view"),
    **dict.fromkeys(
        ("index_put", "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate"), "indices may be on the CPU"
    ),
    "tensor_split": "the places of the splits are on the CPU",
    "nn.functional.ctc_loss": "targets are moved",
}


def mixed(op, sample):
    """The sample with one tensor left on the CPU, the others on accel; once for each tensor of rank 1 or more."""
    leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    tensors = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    odd = [i for i in tensors if leaves[i].layout == torch.strided and leaves[i].dim() > 0 and leaves[i].numel() > 0]
    for keep in odd if len(odd) > 1 else []:
        moved = [
            Replica("accel").tensor(leaf) if i in tensors and i != keep else leaf.clone() if i == keep else leaf
            for i, leaf in enumerate(leaves)
        ]
        yield tree_unflatten(moved, spec)


@pytest.mark.full
def test_refused():
    warnings.simplefilter("ignore")
    wrong, computed, calls = [], set(), 0
    for op in op_db:
        sample = next(iter(op.sample_inputs("cpu", torch.float32)), None) if torch.float32 in op.dtypes else None
        for given, args, kwargs in mixed(op, sample) if sample else ():
            calls += 1
            try:
                op.op(given, *args, **kwargs)
                computed.add(op.name)
            except Exception as error:
                text = str(error).lower()
                named = "device" in text or ("cpu" in text and "accel" in text)
                if not named or type(error) is torch.AcceleratorError:
                    wrong.append((op.full_name, repr(error)[:200]))
    torch.accel.synchronize()
    assert calls > 300 and not wrong, wrong
    assert computed == set(COMPUTE)
