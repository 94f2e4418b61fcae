"""torch.use_deterministic_algorithms: what the CPU's kernels do in a fixed order runs, what alerts on CUDA may alert here."""

import warnings

import pytest
import torch
from torch.nn import functional as F


@pytest.fixture(params=[False, True], ids=["error", "warn_only"])
def deterministic(request):
    torch.use_deterministic_algorithms(True, warn_only=request.param)
    yield
    torch.use_deterministic_algorithms(False)


X = torch.arange(12.0).view(3, 4)
INDEX = torch.tensor([2, 0, 2])

#: operators of which some backend has no deterministic kernel; the CPU's are deterministic
CALLS = {
    "index_add_": lambda x, i: x.clone().index_add_(0, i, x),
    "index_copy": lambda x, i: x.index_copy(0, i[:2], x[:2]),
    "index_put_ accumulating": lambda x, i: x.clone().index_put_((i,), x, accumulate=True),
    "index_put_": lambda x, i: x.clone().index_put_((i[:2],), x[:2]),
    "scatter_add_": lambda x, i: x.clone().scatter_add_(0, i[:, None].expand(3, 4), x),
    "scatter_": lambda x, i: x.clone().scatter_(0, i[:2, None].expand(2, 4), x[:2]),
    "gather": lambda x, i: x.gather(0, i[:, None].expand(3, 4)),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None].expand(3, 4), x, "amax"),
    "cumsum": lambda x, i: x.cumsum(0),
    "median": lambda x, i: x.median(),
    "kthvalue": lambda x, i: x.kthvalue(2)[0],
    "bincount": lambda x, i: torch.bincount(i, x[:, 0]),
    "histc": lambda x, i: x.histc(4, 0, 12),
    "embedding_bag": lambda x, i: F.embedding_bag(i[None], x, mode="max"),
    "interpolate": lambda x, i: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
    "grid_sample": lambda x, i: F.grid_sample(x[None, None], torch.zeros(1, 2, 2, 2, device=x.device)),
    "max_unpool2d": lambda x, i: F.max_unpool2d(*F.max_pool2d(x[None, None], 1, return_indices=True), 1),
    "nll_loss 2d": lambda x, i: F.nll_loss(x[None], torch.zeros(1, 4, dtype=torch.int64, device=x.device)),
    "ctc_loss": lambda x, i: F.ctc_loss(x[:, None].log_softmax(2), i[None, :1], torch.tensor([3]), torch.tensor([1])),
    "put_": lambda x, i: x.clone().put_(i, x[:, 0]),
    "replication_pad": lambda x, i: F.pad(x[None], (1, 1), mode="replicate"),
    "bmm": lambda x, i: torch.bmm(x[None], x.t()[None]),
    "resize_": lambda x, i: x.clone().resize_(3, 3),
}


def gradient(call, x, i):
    """What the call gives, its gradient if it has one, and what it warned of; or the text of its error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            x = x.clone().requires_grad_()
            y = call(x, i)
            grads = torch.autograd.grad(y.sum(), x) if y.requires_grad else ()
            results = [y.detach(), *grads]
        except RuntimeError as error:
            return str(error).replace("accel:0", "cpu")
        if x.is_accel:
            torch.accel.synchronize()
    return results, sorted(str(w.message) for w in caught if "deterministic" in str(w.message))


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_as_the_cpu(call):
    expected, actual = gradient(call, X, INDEX), gradient(call, X.accel(), INDEX.accel())
    if isinstance(expected, str):
        assert actual == expected
        return
    assert actual[1] == expected[1]
    for mine, theirs in zip(actual[0], expected[0]):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.usefixtures("deterministic")
def test_two_runs_are_one():
    x, i = torch.randn(4000).accel(), torch.randint(50, (4000,)).accel()
    first = torch.zeros(50, device="accel").index_add_(0, i, x)
    for _ in range(5):
        assert torch.equal(torch.zeros(50, device="accel").index_add_(0, i, x), first)


def test_outputs_are_filled():
    """fill_uninitialized_memory: an out= that grows, and empty, hold NaN where nothing was written."""
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.utils.deterministic.fill_uninitialized_memory
        assert (
            torch.empty(5, device="accel").isnan().all() and torch.empty(3, device="accel", dtype=torch.int32)[0] > 1e9
        )
        out = torch.empty(0, device="accel")
        assert torch.equal(torch.exp(X.accel(), out=out).cpu(), X.exp())
        grown = torch.ones(2, device="accel")
        grown.untyped_storage().resize_(16)
        assert grown.tolist() == [1, 1]
    finally:
        torch.use_deterministic_algorithms(False)
    torch.empty(5, device="accel")  # and not now
