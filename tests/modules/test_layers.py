"""Modules that torch's module_db lacks, and losses with all their reductions: forward and backward as on the CPU."""

import pytest
import torch
from torch import nn

from tests.modules.against_cpu import check_equal, check_step


def x(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).requires_grad_()


LAYERS = {
    "ChannelShuffle": (nn.ChannelShuffle(2), x(2, 4, 3, 3)),
    "CosineSimilarity": (nn.CosineSimilarity(1), x(3, 4), x(3, 1)),
    "PairwiseDistance": (nn.PairwiseDistance(), x(3, 4), x(4)),
    "PairwiseDistance, 1-norm": (nn.PairwiseDistance(1.0, keepdim=True), x(3, 4), x(4)),
    "CrossMapLRN2d": (nn.CrossMapLRN2d(3), x(2, 5, 3, 3)),
    "Flatten": (nn.Flatten(1, 2), x(2, 3, 4, 2)),
    "Unflatten": (nn.Unflatten(1, (2, 3)), x(2, 6)),
    "Fold": (nn.Fold((4, 5), 2, padding=1, stride=2), x(2, 12, 9)),
    "Unfold": (nn.Unfold(2, dilation=2, padding=1, stride=2), x(2, 3, 6, 5)),
    "Hardsigmoid": (nn.Hardsigmoid(), x(9)),
    "PixelShuffle": (nn.PixelShuffle(2), x(2, 8, 3, 2)),
    "PixelUnshuffle": (nn.PixelUnshuffle(2), x(2, 2, 4, 6)),
    "Upsample, nearest": (nn.Upsample(scale_factor=1.5), x(2, 3, 4, 5)),
    "Upsample, bicubic": (nn.Upsample((7, 6), mode="bicubic", align_corners=True), x(2, 3, 4, 5)),
    "Upsample, trilinear": (nn.Upsample(scale_factor=2, mode="trilinear"), x(1, 2, 2, 3, 2)),
    "UpsamplingBilinear2d": (nn.UpsamplingBilinear2d(scale_factor=2), x(2, 3, 4, 5)),
    "UpsamplingNearest2d": (nn.UpsamplingNearest2d((5, 7)), x(2, 3, 4, 5)),
    "RReLU, evaluated": (nn.RReLU().eval(), x(9)),
    "MultiheadAttention, separate": (
        nn.MultiheadAttention(8, 2, kdim=4, vdim=6, bias=False), x(3, 2, 8), x(5, 2, 4), x(5, 2, 6),
    ),
    "MultiheadAttention, zeros": (nn.MultiheadAttention(8, 2, add_zero_attn=True, add_bias_kv=True), *[x(3, 2, 8)] * 3),
    "TransformerDecoder": (nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, 0.0), 2), x(3, 2, 8), x(4, 2, 8)),
    "ModuleDict": (nn.ModuleDict({"a": nn.Linear(4, 3)})["a"], x(2, 4)),
}  # fmt: skip


@pytest.mark.parametrize("module, inputs", [(m, i) for m, *i in LAYERS.values()], ids=LAYERS.keys())
def test_layers(module, inputs):
    torch.manual_seed(0)
    for p in module.parameters():
        nn.init.normal_(p)
    # attention has a fused kernel on the CPU
    exact = not isinstance(module, (nn.MultiheadAttention, nn.TransformerDecoder))
    check_step(module, *inputs, **({} if exact else {"rtol": 1e-4, "atol": 1e-5}))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_unpooling(n):
    class PoolAndBack(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool = getattr(nn, f"MaxPool{n}d")(2, return_indices=True)
            self.back = getattr(nn, f"MaxUnpool{n}d")(2)

        def forward(self, x):
            y, indices = self.pool(x)
            return y, indices, self.back(y, indices, output_size=x.shape)

    check_step(PoolAndBack(), x(2, 3, *[5] * n))


def cosine(a, b):
    return 1 - torch.cosine_similarity(a, b)


PIXELS = torch.arange(18).view(2, 3, 3) % 5
CLASSES, MANY = torch.tensor([2, 0, -100, 3]), torch.tensor([0, 7, 3, 9, 5, 1])
POSITIVE = x(4, 5).detach().abs() + 0.1
LOSSES = {
    "NLLLoss, pixels": (lambda r: nn.NLLLoss(torch.linspace(0.5, 2, 5), reduction=r), x(2, 5, 3, 3), PIXELS),
    "CrossEntropy, classes": (
        lambda r: nn.CrossEntropyLoss(torch.linspace(0.5, 2, 5), reduction=r, label_smoothing=0.1),
        x(4, 5),
        CLASSES,
    ),
    "CrossEntropy, probabilities": (lambda r: nn.CrossEntropyLoss(reduction=r), x(4, 5), x(4, 5).detach().softmax(1)),
    "CrossEntropy, pixels": (lambda r: nn.CrossEntropyLoss(reduction=r, ignore_index=2), x(2, 5, 3, 3), PIXELS),
    "BCEWithLogits, pos_weight": (
        lambda r: nn.BCEWithLogitsLoss(pos_weight=torch.linspace(1, 2, 5), reduction=r),
        x(4, 5),
        x(4, 5).detach().sigmoid(),
    ),
    "TripletMargin": (lambda r: nn.TripletMarginLoss(swap=True, reduction=r), x(4, 5), x(4, 5).flip(0), x(4, 5) + 0.3),
    "TripletMargin, cosine": (
        lambda r: nn.TripletMarginWithDistanceLoss(distance_function=cosine, reduction=r),
        x(4, 5),
        x(4, 5).flip(0),
        x(4, 5) + 0.3,
    ),
    "KLDiv, log target": (
        lambda r: nn.KLDivLoss(reduction=r, log_target=True),
        x(4, 5),
        x(4, 5).detach().log_softmax(1),
    ),
    "GaussianNLL, one variance": (
        lambda r: nn.GaussianNLLLoss(full=True, reduction=r),
        x(4, 5),
        x(4, 5).detach(),
        POSITIVE[:, :1],
    ),
    "PoissonNLL, full": (
        lambda r: nn.PoissonNLLLoss(full=True, log_input=False, reduction=r),
        POSITIVE.clone().requires_grad_(),
        POSITIVE * 3,
    ),
    "MultiLabelMargin": (lambda r: nn.MultiLabelMarginLoss(reduction=r), x(4, 5), torch.tensor([[1, 0, -1, 2, 2]] * 4)),
    "CosineEmbedding": (
        lambda r: nn.CosineEmbeddingLoss(0.2, reduction=r),
        x(4, 5),
        x(4, 5).flip(0),
        torch.tensor([1, -1, 1, -1]),
    ),
    "SmoothL1, beta": (lambda r: nn.SmoothL1Loss(beta=0.3, reduction=r), x(4, 5), x(4, 5).detach().flip(0)),
}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("make, inputs", [(m, i) for m, *i in LOSSES.values()], ids=LOSSES.keys())
@pytest.mark.filterwarnings("ignore:.*reduction")
def test_losses(make, inputs, reduction):
    check_step(make(reduction), *inputs)


def test_adaptive_softmax():
    torch.manual_seed(0)
    module = nn.AdaptiveLogSoftmaxWithLoss(8, 10, [3, 6], div_value=2.0, head_bias=True)
    check_step(module, x(6, 8), MANY)
    mine, inputs = module.to("accel"), x(6, 8).detach()
    log_probabilities = mine.log_prob(inputs.to("accel")).detach().cpu()
    torch.testing.assert_close(log_probabilities.exp().sum(1), torch.ones(6))
    assert torch.equal(mine.predict(inputs.to("accel")).cpu(), log_probabilities.argmax(1))
    out = mine(inputs.to("accel"), MANY.to("accel")).output.detach().cpu()
    torch.testing.assert_close(out, log_probabilities[torch.arange(6), MANY])


CTC = {
    "padded targets": {"targets": torch.tensor([[1, 2, 2, 0], [3, 1, 0, 0]]), "kind": torch.tensor},
    "concatenated targets": {"targets": torch.tensor([1, 2, 2, 3, 1]), "kind": torch.tensor},
    "lengths as tuples": {"targets": torch.tensor([[1, 2, 2, 0], [3, 1, 0, 0]]), "kind": tuple},
    "int32 targets": {"targets": torch.tensor([[1, 2, 2, 0], [3, 1, 0, 0]], dtype=torch.int32), "kind": torch.tensor},
}
INPUT_LENGTHS, TARGET_LENGTHS = (6, 5), (3, 2)


@pytest.mark.parametrize("blank", [0, 4])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("targets, kind", [tuple(c.values()) for c in CTC.values()], ids=CTC.keys())
def test_ctc(targets, kind, reduction, blank):
    module = nn.CTCLoss(blank=blank, reduction=reduction)
    loss = lambda y, t, *lengths: module(y.log_softmax(2), t, *lengths)  # noqa: E731
    check_step(loss, x(6, 2, 5), targets, kind(INPUT_LENGTHS), kind(TARGET_LENGTHS))


def test_ctc_by_enumeration():
    # the probability of a target is that of all paths that collapse to it
    y = x(4, 1, 3).detach().double().log_softmax(2)
    target = [1, 2]
    total = 0.0
    for path in torch.cartesian_prod(*[torch.arange(3)] * 4):
        kept = [int(c) for i, c in enumerate(path) if c != 0 and (i == 0 or c != path[i - 1])]
        if kept == target:
            total += float(y[torch.arange(4), 0, path].sum().exp())
    loss = nn.functional.ctc_loss(y.to("accel"), torch.tensor([target], device="accel"), (4,), (2,), reduction="sum")
    torch.testing.assert_close(loss.cpu(), -torch.tensor(total, dtype=torch.float64).log(), rtol=1e-12, atol=0)


def test_ctc_of_an_impossible_target():
    y, target = x(2, 1, 3), torch.tensor([[1, 1, 1]])
    check_step(lambda y, t: nn.CTCLoss()(y.log_softmax(2), t, (2,), (3,)), y, target)
    check_step(lambda y, t: nn.CTCLoss(zero_infinity=True)(y.log_softmax(2), t, (2,), (3,)), y, target)
    loss = nn.CTCLoss(reduction="sum")(y.detach().accel().log_softmax(2), target.accel(), (2,), (3,))
    assert loss.item() == float("inf")


NORMS = {
    "BatchNorm1d": (nn.BatchNorm1d(3), (4, 3)),
    "BatchNorm1d of sequences": (nn.BatchNorm1d(3), (4, 3, 5)),
    "BatchNorm2d": (nn.BatchNorm2d(3), (4, 3, 2, 2)),
    "BatchNorm3d": (nn.BatchNorm3d(3), (2, 3, 2, 2, 2)),
    "cumulative": (nn.BatchNorm2d(3, momentum=None), (4, 3, 2, 2)),
    "momentum": (nn.BatchNorm2d(3, momentum=0.7, eps=0.1), (4, 3, 2, 2)),
    "no statistics": (nn.BatchNorm2d(3, track_running_stats=False), (4, 3, 2, 2)),
    "not affine": (nn.BatchNorm2d(3, affine=False), (4, 3, 2, 2)),
    "InstanceNorm2d": (nn.InstanceNorm2d(3, affine=True, track_running_stats=True), (4, 3, 2, 2)),
}


@pytest.mark.parametrize("module, shape", NORMS.values(), ids=NORMS.keys())
def test_running_statistics(module, shape):
    def run(m, *batches):
        outputs = [m.train()(b + i) for i, b in enumerate(batches)]
        return [*outputs, m.eval()(batches[0])]

    class Run(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = module

        def forward(self, *batches):
            return run(self.norm, *batches)

    check_step(Run(), *[x(*shape)] * 3)


def test_running_statistics_by_definition():
    norm = nn.BatchNorm2d(3, momentum=0.25, device="accel")
    data = x(4, 3, 2, 2).detach()
    norm(data.to("accel"))
    channels = data.double().transpose(0, 1).flatten(1)
    torch.testing.assert_close(norm.running_mean.cpu().double(), 0.25 * channels.mean(1), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(norm.running_var.cpu().double(), 0.75 + 0.25 * channels.var(1), rtol=1e-5, atol=1e-7)
    assert norm.num_batches_tracked.item() == 1 and norm.num_batches_tracked.is_accel


def test_sync_batch_norm_is_converted():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, momentum=0.3, affine=False), nn.BatchNorm2d(4)).to(
        "accel"
    )
    net[1].running_mean.fill_(0.5)
    weight = net[2].weight
    data = x(2, 3, 4, 4).detach().to("accel")
    evaluated = net.eval()(data)
    sync = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert [type(m) for m in sync] == [nn.Conv2d, nn.SyncBatchNorm, nn.SyncBatchNorm]
    assert sync[2].weight is weight and sync[1].momentum == 0.3 and sync[1].running_mean.is_accel
    assert torch.equal(sync(data), evaluated)
    # one process alone has nobody to wait for
    trained = sync.train()(data)
    back = nn.Sequential(net[0], nn.BatchNorm2d(4, momentum=0.3, affine=False), nn.BatchNorm2d(4)).to("accel")
    check_equal(trained, back(data).cpu())


DROPOUTS = ["Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("kind", DROPOUTS)
def test_dropout(kind, inplace, dtype):
    module = getattr(nn, kind)(0.25, inplace=inplace)
    dims = {"Dropout1d": 1, "Dropout2d": 2, "Dropout3d": 3, "FeatureAlphaDropout": 2}.get(kind, 0)
    data = torch.ones(40, 50, *[2] * dims, device="accel", dtype=dtype)
    torch.manual_seed(1)
    out = module(data.clone())
    torch.manual_seed(1)
    assert torch.equal(module(data.clone()), out) and not torch.equal(module(data.clone()), out)
    values = out.double().cpu().unique()
    alpha = -1.7580993408473766
    a = (0.75 + alpha**2 * 0.75 * 0.25) ** -0.5
    expected = [a * alpha * 0.75, a - a * alpha * 0.25] if "Alpha" in kind else [0.0, 1 / 0.75]
    tolerance = {torch.bfloat16: 2e-2}.get(dtype, 1e-6)
    torch.testing.assert_close(values, torch.tensor(expected, dtype=torch.float64), rtol=tolerance, atol=tolerance)
    dropped = (out.double().cpu() < 0.5).double()
    if dims:
        assert torch.equal(dropped.flatten(2).amin(2), dropped.flatten(2).amax(2))  # whole channels
        dropped = dropped.flatten(2)[..., 0]
    assert abs(dropped.mean().item() - 0.25) < 5 * (0.25 * 0.75 / 2000) ** 0.5
    kept = data.clone()
    assert (module.eval()(kept) is kept) == inplace or torch.equal(module(kept), data)
    assert torch.equal(module(data), data)


@pytest.mark.parametrize("kind", DROPOUTS)
def test_dropout_of_all_and_of_nothing(kind):
    dims = int(kind[-2]) if kind.endswith("d") else 0
    data = torch.ones(3, 4, *[2] * dims, device="accel")
    assert torch.equal(getattr(nn, kind)(0.0)(data), data)
    check_equal(getattr(nn, kind)(1.0)(data), getattr(nn, kind)(1.0)(data.cpu()))


@pytest.mark.parametrize("kind", DROPOUTS)
def test_the_gradient_of_dropout_goes_where_the_value_went(kind):
    dims = int(kind[-2]) if kind.endswith("d") else 0
    data = torch.ones(6, 5, *[2] * dims, device="accel").requires_grad_()
    out = getattr(nn, kind)(0.5)(data)
    out.sum().backward()
    kept = out.detach() > 0.5
    assert torch.equal(data.grad != 0, kept) and data.grad.unique().numel() == 2
