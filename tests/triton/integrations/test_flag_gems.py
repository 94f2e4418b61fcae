"""The forty operators of ``flag_gems_operators.txt`` from FlagGems, on accel tensors, against torch on the CPU in float64.

Needs ``pip install --no-deps flag-gems==5.0.2 sqlalchemy==2.0.48``; accel is a vendor of theirs by ``flag_gems_vendor``.
"""

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from torch_accel.testing import launches

HERE = Path(__file__).parent
OPERATORS = [
    line for line in (HERE.parent / "flag_gems_operators.txt").read_text().splitlines() if not line.startswith("#")
]

pytestmark = pytest.mark.full

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}

# What is not right on accel, and why.
FAILURES: dict[str, str] = {}


@pytest.fixture
def gems(accel, cache, monkeypatch):
    """FlagGems, with accel as its vendor and its caches in a folder of the test's."""
    monkeypatch.setenv("GEMS_VENDOR", "amd")
    monkeypatch.setenv("FLAGGEMS_CACHE_DIR", cache)
    monkeypatch.syspath_prepend(HERE / "flag_gems_vendor")
    return pytest.importorskip("flag_gems", reason="flag_gems is not installed: see docs/integrations.md")


def floats(*shape):
    return torch.randn(*shape)


def integers(*shape, below=100):
    return torch.randint(0, below, shape)


X = floats(7, 100)
INDEX = integers(5, 100, below=7)
MASK = floats(7, 100) > 0

# By name: FlagGems' function, its arguments, and torch's of the same arguments. Floats come as fp32 and as bf16.
TABLE = {
    "abs": ("abs", [X], torch.abs),
    "add": ("add", [X, floats(100)], torch.add),
    "addmm": ("addmm", [floats(50), floats(40, 30), floats(30, 50)], torch.addmm),
    "all": ("all", [MASK], torch.all),
    "amax": ("amax", [X, [1]], torch.amax),
    "arange": ("arange", [100], torch.arange),
    "argmax": ("argmax", [X, 1], torch.argmax),
    "bitwise_and": ("bitwise_and_tensor", [integers(7, 100), integers(7, 100)], torch.bitwise_and),
    "bmm": ("bmm", [floats(3, 40, 30), floats(3, 30, 50)], torch.bmm),
    "cat": ("cat", [[X, floats(7, 30), floats(7, 1)], 1], torch.cat),
    "clamp": ("clamp", [X, -0.5, 0.5], torch.clamp),
    "conv2d": ("conv2d", [floats(2, 3, 12, 13), floats(4, 3, 3, 3), floats(4), 2, 1], F.conv2d),
    "cross_entropy_loss": ("cross_entropy_loss", [X, integers(7)], F.cross_entropy),
    "cumsum": ("cumsum", [X, 1], torch.cumsum),
    "embedding": ("embedding", [floats(100, 40), integers(5, 9)], lambda table, index: table[index]),
    "erf": ("erf", [X], torch.erf),
    "flip": ("flip", [X, [0, 1]], torch.flip),
    "gather": ("gather", [X, 0, INDEX], torch.gather),
    "gelu": ("gelu", [X], F.gelu),
    "group_norm": (
        "group_norm",
        # Groups of four: with three, their mask lets a group of a padded block take in the next one's first channel.
        [floats(3, 8, 50), floats(8), floats(8), 3, 8, 50, 2],
        lambda x, w, b, n, channels, size, groups: F.group_norm(x, groups, w, b),
    ),
    "index_select": ("index_select", [X, 0, integers(5, below=7)], torch.index_select),
    "isin": ("isin", [integers(7, 100), integers(20)], torch.isin),
    "layer_norm": ("layer_norm", [X, [100], floats(100), floats(100)], F.layer_norm),
    "log_softmax": ("log_softmax", [X, 1], torch.log_softmax),
    "masked_fill": ("masked_fill", [X, MASK, 0.5], torch.masked_fill),
    "max.dim": ("max_dim", [X, 1], torch.max),
    "mean.dim": ("mean_dim", [X, [1]], torch.mean),
    "mm": ("mm", [floats(40, 30), floats(30, 50)], torch.mm),
    "nonzero": ("nonzero", [MASK], torch.nonzero),
    "pow": ("pow_tensor_tensor", [X.abs(), floats(7, 100)], torch.pow),
    "scatter": ("scatter", [X, 0, INDEX[:1], floats(1, 100)], torch.scatter),
    "softmax": ("softmax", [X, 1], torch.softmax),
    "sort": ("sort", [X, 1], lambda x, dim: torch.sort(x, dim=dim, stable=True)),
    "sum.dim": ("sum_dim", [X, [1]], torch.sum),
    "topk": ("topk", [X, 5], torch.topk),
    "triu": ("triu", [X, 3], torch.triu),
    "var_mean": ("var_mean", [X, [1]], torch.var_mean),
    "where": ("where_self", [MASK, X, floats(7, 100)], torch.where),
}
RANDOM = ("dropout", "rand")


def moved(value, dtype, device):
    if isinstance(value, list):
        return [moved(part, dtype, device) for part in value]
    if not isinstance(value, torch.Tensor):
        return value
    if not value.is_floating_point():
        return value.to(device)
    return value.to(dtype).double() if device == "cpu" else value.to(dtype).to(device)


def has_floats(value):
    if isinstance(value, list):
        return any(map(has_floats, value))
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def parameters():
    for name in TABLE:
        marks = [pytest.mark.xfail(strict=True, reason=FAILURES[name])] if name in FAILURES else []
        for dtype in TOLERANCE if has_floats(TABLE[name][1]) else [torch.float32]:
            yield pytest.param(name, dtype, id=f"{name}-{str(dtype)[6:]}", marks=marks)


@pytest.mark.parametrize(("name", "dtype"), parameters())
def test_operator(gems, name, dtype):
    function, arguments, torchs = TABLE[name]
    options = {"device": "accel"} if name == "arange" else {}
    got = getattr(gems, function)(*moved(arguments, dtype, "accel"), **options)
    expected = torchs(*moved(arguments, dtype, "cpu"))
    # Some also return what their backward needs.
    pairs = [(got, expected)] if isinstance(expected, torch.Tensor) and isinstance(got, torch.Tensor) else None
    for out, reference in pairs or zip(got, expected if isinstance(expected, tuple) else (expected,)):
        assert out.device.type == "accel"
        assert out.shape == reference.shape
        if name in ("argmax", "max.dim", "sort", "topk") and dtype is torch.bfloat16 and not out.is_floating_point():
            # Equal values may come in any order: what the indices point at counts.
            rows = moved(X, dtype, "cpu")
            at = [(rows.gather(1, index.cpu().view(7, -1))) for index in (out, reference)]
            assert torch.equal(*at)
            continue
        scale = max(1.0, reference.abs().max().item()) if reference.is_floating_point() else 1
        tolerance = TOLERANCE[dtype] * scale if reference.is_floating_point() else 0
        torch.testing.assert_close(out.cpu().to(reference.dtype), reference, rtol=0, atol=tolerance)


def test_rand(gems):
    torch.accel.manual_seed(3)
    first = gems.rand((40, 1000), device="accel").cpu()
    torch.accel.manual_seed(3)
    assert torch.equal(gems.rand((40, 1000), device="accel").cpu(), first)
    assert first.min() >= 0 and first.max() < 1
    # A uniform number's mean and variance, within six standard errors.
    assert abs(first.mean() - 1 / 2) < 6 * (1 / 12 / first.numel()) ** 0.5
    assert abs(first.var() - 1 / 12) < 6 * (1 / 180 / first.numel()) ** 0.5


def test_dropout(gems):
    x = torch.rand(40, 1000) + 1
    out, mask = gems.dropout(x.to("accel"), 0.25, True)
    assert torch.equal(out.cpu() != 0, mask.cpu())
    torch.testing.assert_close(out.cpu(), torch.where(mask.cpu(), x / 0.75, 0))
    assert abs(mask.cpu().float().mean() - 0.75) < 6 * (0.75 * 0.25 / x.numel()) ** 0.5


def test_through_torchs_dispatcher(gems):
    """``use_gems`` puts FlagGems' operators in the place of accel's own.

    Three times: from the second launch on, FlagGems 5.0.2 leaves constexpr arguments out, unless Triton is 3.3 to 3.6.
    """
    x = floats(3, 61)
    for _ in range(3):
        with gems.use_gems(include=["softmax"]), launches() as names:
            out = torch.softmax(x.to("accel"), 1)
        assert any("softmax_kernel" in name for name in names)
        torch.testing.assert_close(out.cpu(), torch.softmax(x, 1))


def test_the_table_is_the_list():
    assert len(OPERATORS) == 40
    assert sorted({*TABLE, *RANDOM}) == sorted(OPERATORS)
    assert len(FAILURES) <= 4
