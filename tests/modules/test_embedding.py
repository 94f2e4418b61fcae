"""Embedding and EmbeddingBag: modes, offsets, weights, padding, norms, sparse gradients; as on the CPU and by hand."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.modules.against_cpu import check_equal, check_step, place, ramp
from torch_accel.testing import hold_stream, wait_report

TOKENS = torch.tensor([[3, 1, 1, 0], [4, 4, 2, 6]])
FLAT, OFFSETS = torch.tensor([3, 1, 1, 0, 4, 4, 2]), torch.tensor([0, 3, 3, 5])
WEIGHTS = torch.linspace(-1, 2, 7)

EMBEDDINGS = {
    "plain": {},
    "padding_idx": {"padding_idx": 1},
    "negative padding_idx": {"padding_idx": -3},
    "scale_grad_by_freq": {"scale_grad_by_freq": True},
    "max_norm": {"max_norm": 0.7},
    "max_norm of 1-norms": {"max_norm": 0.7, "norm_type": 1.0},
    "max_norm and padding_idx": {"max_norm": 0.5, "padding_idx": 4},
    "sparse": {"sparse": True},
    "sparse and padding_idx": {"sparse": True, "padding_idx": 4},
}


@pytest.mark.parametrize("index_dtype", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("options", EMBEDDINGS.values(), ids=EMBEDDINGS.keys())
def test_embedding(options, dtype, index_dtype):
    torch.manual_seed(0)
    check_step(nn.Embedding(7, 5, dtype=dtype, **options), TOKENS.to(index_dtype))


def test_embedding_by_hand():
    weight = torch.arange(14.0).view(7, 2)
    device = weight.to("accel").requires_grad_()
    out = F.embedding(TOKENS.accel(), device, padding_idx=1, scale_grad_by_freq=True)
    assert torch.equal(out.detach().cpu(), weight[TOKENS])
    out.backward(torch.ones_like(out))
    # one for every row that is there, divided by how often; the padding's row has none
    assert device.grad.sum(1).tolist() == [2, 0, 2, 2, 2, 0, 2]


def test_max_norm_renormalises_in_place():
    module = nn.Embedding(4, 3, max_norm=1.0, device="accel")
    with torch.no_grad():
        module.weight.fill_(2.0)
    module(torch.tensor([1, 3], device="accel"))
    norms = module.weight.detach().norm(dim=1).cpu()
    torch.testing.assert_close(norms, torch.tensor([12.0**0.5, 1.0, 12.0**0.5, 1.0]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("freeze", [True, False])
def test_from_pretrained(freeze):
    weight = torch.arange(6.0).view(3, 2)
    module = nn.Embedding.from_pretrained(weight.to("accel"), freeze=freeze)
    assert module.weight.is_accel and module.weight.requires_grad != freeze
    assert torch.equal(module(torch.tensor([2, 0], device="accel")).detach().cpu(), weight[[2, 0]])


def bags():
    """Name -> options of the bag, arguments of the call."""
    for mode, sparse in itertools.product(("sum", "mean", "max"), (False, True)):
        name, options = f"{mode}{', sparse' if sparse else ''}", {"mode": mode, "sparse": sparse}
        if mode == "max" and sparse:
            continue  # torch has none
        yield name, options, (FLAT, OFFSETS)
        yield name + ", rows", options, (TOKENS,)
        yield name + ", padding_idx", {**options, "padding_idx": 4}, (FLAT, OFFSETS)
        last = {**options, "include_last_offset": True}
        yield name + ", include_last_offset", last, (FLAT, torch.tensor([0, 3, 3, 7]))
        yield name + ", max_norm", {**options, "max_norm": 0.6}, (FLAT, OFFSETS)
        if not sparse:
            yield name + ", scale_grad_by_freq", {**options, "scale_grad_by_freq": mode != "max"}, (FLAT, OFFSETS)
        if mode == "sum":
            yield name + ", per_sample_weights", options, (FLAT, OFFSETS, WEIGHTS)
            yield name + ", weights of rows", options, (TOKENS, None, torch.linspace(-1, 2, 8).view(2, 4))
            grad = WEIGHTS.clone().requires_grad_()
            yield name + ", weights with gradients", options, (FLAT, OFFSETS, grad)
            yield name + ", weights, padding", {**options, "padding_idx": 1}, (FLAT, OFFSETS, WEIGHTS)


BAGS = {name: rest for name, *rest in bags()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("options, inputs", BAGS.values(), ids=BAGS.keys())
def test_bag(options, inputs, dtype):
    torch.manual_seed(0)
    inputs = [x.detach().to(dtype).requires_grad_(x.requires_grad) if x is not None and x.is_floating_point() else x
              for x in inputs]  # fmt: skip
    check_step(nn.EmbeddingBag(7, 5, dtype=dtype, **options), *inputs)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_a_bag_is_an_embedding_reduced(mode):
    torch.manual_seed(0)
    weight = torch.randn(7, 5, dtype=torch.float64)
    mine, theirs = weight.to("accel").requires_grad_(), weight.clone().requires_grad_()
    out = F.embedding_bag(FLAT.accel(), mine, OFFSETS.accel(), mode=mode)
    ends = [*OFFSETS[1:].tolist(), len(FLAT)]
    rows = [theirs[FLAT[begin:end]] for begin, end in zip(OFFSETS.tolist(), ends)]
    reduce = {"sum": lambda r: r.sum(0), "mean": lambda r: r.mean(0), "max": lambda r: r.max(0)[0]}[mode]
    expected = torch.stack([reduce(r) if len(r) else torch.zeros(5, dtype=torch.float64) for r in rows])
    torch.testing.assert_close(out.detach().cpu(), expected.detach(), rtol=1e-12, atol=1e-12)
    out.backward(ramp(out))
    expected.backward(ramp(expected))
    torch.testing.assert_close(mine.grad.cpu(), theirs.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_a_step_of_bags_is_queued(mode, sparse, queued):
    if mode == "max" and sparse:
        pytest.skip("torch has no sparse gradient of max")
    torch.manual_seed(0)
    module = nn.EmbeddingBag(7, 5, mode=mode, sparse=sparse)
    mine = place(module, "accel")
    tokens, offsets, weights = place([FLAT, OFFSETS, WEIGHTS if mode == "sum" else None], "accel")
    torch.accel.fallback_report(reset=True)
    before = wait_report()
    with hold_stream():  # what waits would wait for ever
        out = mine(tokens, offsets, weights)
        out.backward(torch.ones_like(out))
    assert wait_report() == before and torch.accel.fallback_report() == {}
    expected = module(FLAT, OFFSETS, WEIGHTS if mode == "sum" else None)
    expected.backward(torch.ones_like(expected))
    check_equal([out, mine.weight.grad], [expected, module.weight.grad])


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("layout", ["embedding", "bag"])
def test_sparse_gradients_accumulate_and_update(layout):
    results = []
    for device in ("accel", "cpu"):
        torch.manual_seed(0)
        cls = nn.Embedding if layout == "embedding" else nn.EmbeddingBag
        module = cls(7, 5, sparse=True).to(device)
        optimizers = [torch.optim.SparseAdam(module.parameters()), torch.optim.SGD(module.parameters(), lr=0.1)]
        for optimizer in (*optimizers, torch.optim.Adagrad(module.parameters())):
            optimizer.zero_grad()
            for _ in range(2):
                out = module(TOKENS.to(device))
                out.backward(ramp(out))
            assert module.weight.grad.is_sparse
            optimizer.step()
        results.append([module.weight, module.weight.grad.coalesce()])
    check_equal(*results)


ERRORS = {
    "index too large": lambda d: F.embedding_bag(
        torch.tensor([9], device=d), torch.ones(7, 2, device=d), torch.tensor([0], device=d)
    ),
    "offsets of rows": lambda d: F.embedding_bag(TOKENS.to(d), torch.ones(7, 2, device=d), torch.tensor([0], device=d)),
    "no offsets": lambda d: F.embedding_bag(FLAT.to(d), torch.ones(7, 2, device=d)),
    "weights of another shape": lambda d: F.embedding_bag(
        FLAT.to(d), torch.ones(7, 2, device=d), OFFSETS.to(d), per_sample_weights=torch.ones(3, device=d), mode="sum"
    ),
    "weights of a mean": lambda d: F.embedding_bag(
        FLAT.to(d), torch.ones(7, 2, device=d), OFFSETS.to(d), per_sample_weights=WEIGHTS.to(d), mode="mean"
    ),
    "offsets that do not begin at 0": lambda d: F.embedding_bag(
        FLAT.to(d), torch.ones(7, 2, device=d), torch.tensor([1, 3], device=d)
    ),
    "floating indices": lambda d: F.embedding(torch.ones(2, device=d), torch.ones(7, 2, device=d)),
    "padding_idx outside": lambda d: F.embedding(TOKENS.to(d), torch.ones(7, 2, device=d), padding_idx=9),
}


@pytest.mark.parametrize("call", ERRORS.values(), ids=ERRORS.keys())
def test_errors_are_the_cpus(call):
    with pytest.raises(Exception) as expected:
        call("cpu")
    with pytest.raises(Exception) as raised:
        call("accel")
        torch.accel.synchronize()
    text = str(expected.value).splitlines()[0].replace("torch.FloatTensor", "accelFloatType")
    assert text in str(raised.value)
