"""op_db from four host threads at once: every result is the one that a single thread gets."""

import threading
import warnings

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

from torch_accel.conformance import checks

THREADS = 4
DTYPES = (torch.float32, torch.int64)


def bits(tensor):
    return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def evaluate(op, sample, device):
    """Bits of all results; the type of the error where there is one."""
    try:
        result = checks.call(op.op, checks.place(op, sample, device), device)
        return [bits(leaf) for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    except Exception as error:
        return type(error).__name__


def same(a, b) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    return len(a) == len(b) and all(torch.equal(one, two) for one, two in zip(a, b))


def samples():
    """(operator, sample, results of one thread) where two runs agree: no random or undefined results."""
    for op in op_db:
        if checks.name_of(op).split(".")[-1] in checks.UNDEFINED:
            continue
        for dtype in DTYPES:
            if dtype not in op.dtypes:
                continue
            try:
                sample = next(iter(op.sample_inputs("cpu", dtype)))
            except Exception:  # an operator without a sample has nothing to be compared
                continue
            first, second = evaluate(op, sample, "accel"), evaluate(op, sample, "accel")
            if same(first, second):
                yield op, sample, first


@pytest.mark.full
def test_four_threads_agree_with_one():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    work = list(samples())
    assert len(work) > 900
    wrong = []
    start = threading.Barrier(THREADS)

    def run(thread: int) -> None:
        torch.set_num_threads(1)
        start.wait()
        for i in range(len(work)):  # at once, each from another place on
            op, sample, expected = work[(i + thread * len(work) // THREADS) % len(work)]
            actual = evaluate(op, sample, "accel")
            if not same(actual, expected):
                wrong.append((op.full_name, thread, actual if isinstance(actual, str) else "other bits"))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.accel.synchronize()
    assert not wrong, sorted(set(wrong))
