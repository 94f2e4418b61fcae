"""Each operator of each policy list of autocast: dtype and value, in both dtypes.

The expected value is the CPU's, on arguments that are cast here as the policy says.
"""

from functools import partial

import pytest
import torch
from torch.utils._pytree import tree_map

aten = torch.ops.aten
N = 8


def draw(*shape, seed=0):
    """Numbers in (0.1, 0.9): inside the domain of every function here."""
    generator = torch.Generator().manual_seed(seed)
    return 0.1 + 0.8 * torch.rand(shape, generator=generator)


VECTOR, VECTOR2, VECTOR3 = (draw(N, seed=s) for s in range(3))
MATRIX, MATRIX2, MATRIX3 = (draw(N, N, seed=s) for s in range(3))
BATCH, BATCH2 = draw(2, N, N, seed=3), draw(2, N, N, seed=4)
IMAGE1, IMAGE2, IMAGE3 = draw(2, 4, 6), draw(2, 4, 6, 6), draw(2, 4, 6, 6, 6)
WEIGHT1, WEIGHT2, WEIGHT3 = draw(4, 4, 3), draw(4, 4, 3, 3), draw(4, 4, 3, 3, 3)
BIAS4 = draw(4)
CLASSES = torch.arange(N) % 3
HEADS = draw(2, 2, N, 8)


def cell(chunks):
    return [
        draw(chunks * N, N, seed=5),
        draw(chunks * N, N, seed=6),
        draw(chunks * N, seed=7),
        draw(chunks * N, seed=8),
    ]


CONV2 = [[1, 1], [0, 0], [1, 1], False, [0, 0], 1]
GATES = [draw(2, 4 * N, seed=9), draw(2, 4 * N, seed=10), draw(2, N)]
GRU_GATES = [draw(2, 3 * N, seed=9), draw(2, 3 * N, seed=10), draw(2, N)]

LOWER_PRECISION = {
    "_convolution": [IMAGE2, WEIGHT2, BIAS4, *CONV2, False, False, False, True],
    "_convolution.deprecated": [IMAGE2, WEIGHT2, BIAS4, *CONV2, False, False, False],
    "conv1d": [IMAGE1, WEIGHT1, BIAS4],
    "conv2d": [IMAGE2, WEIGHT2, BIAS4],
    "conv3d": [IMAGE3, WEIGHT3, BIAS4],
    "conv_tbc": [draw(6, 2, 4), draw(3, 4, 4), BIAS4],
    "conv_transpose1d": [IMAGE1, WEIGHT1, BIAS4],
    "conv_transpose2d.input": [IMAGE2, WEIGHT2, BIAS4],
    "conv_transpose3d.input": [IMAGE3, WEIGHT3, BIAS4],
    "convolution": [IMAGE2, WEIGHT2, BIAS4, *CONV2],
    "prelu": [VECTOR, draw(1)],
    "addmm": [MATRIX, MATRIX2, MATRIX3],
    "addmv": [VECTOR, MATRIX, VECTOR2],
    "addr": [MATRIX, VECTOR, VECTOR2],
    "matmul": [MATRIX, MATRIX2],
    "einsum": ["ij,jk->ik", [MATRIX, MATRIX2]],
    "mm": [MATRIX, MATRIX2],
    "mv": [MATRIX, VECTOR],
    "linalg_vecdot": [MATRIX, MATRIX2],
    "linear": [MATRIX, MATRIX2, VECTOR],
    "addbmm": [MATRIX, BATCH, BATCH2],
    "baddbmm": [BATCH, BATCH, BATCH2],
    "bmm": [BATCH, BATCH2],
    "chain_matmul": [[MATRIX, MATRIX2, MATRIX3]],
    "linalg_multi_dot": [[MATRIX, MATRIX2, MATRIX3]],
    "_thnn_fused_lstm_cell": GATES,
    "_thnn_fused_gru_cell": GRU_GATES,
    "lstm_cell": [draw(2, N), [draw(2, N), draw(2, N)], *cell(4)],
    "gru_cell": [draw(2, N), draw(2, N), *cell(3)],
    "rnn_tanh_cell": [draw(2, N), draw(2, N), *cell(1)],
    "rnn_relu_cell": [draw(2, N), draw(2, N), *cell(1)],
    "scaled_dot_product_attention": [HEADS, HEADS, HEADS],
}
UNARY = [
    "acos",
    "asin",
    "cosh",
    "erfinv",
    "exp",
    "expm1",
    "log",
    "log10",
    "log2",
    "log1p",
    "reciprocal",
    "rsqrt",
    "sinh",
    "tan",
    "softplus",
]
FP32 = {
    **{name: [VECTOR] for name in UNARY},
    "pow.Tensor_Scalar": [VECTOR, 1.7],
    "pow.Tensor_Tensor": [VECTOR, VECTOR2],
    "pow.Scalar": [1.7, VECTOR],
    "layer_norm": [MATRIX, [N]],
    "native_layer_norm": [MATRIX, [N], None, None, 1e-5],
    "rms_norm": [MATRIX, [N]],
    "group_norm": [MATRIX, 2],
    "frobenius_norm.dim": [MATRIX, [0]],
    "nuclear_norm": [MATRIX],
    "nuclear_norm.dim": [MATRIX, [0, 1]],
    "cosine_similarity": [MATRIX, MATRIX2],
    "poisson_nll_loss": [MATRIX, MATRIX2, True, False, 1e-8, 1],
    "cosine_embedding_loss": [MATRIX, MATRIX2, torch.ones(N, dtype=torch.int)],
    "nll_loss": [MATRIX, CLASSES],
    "nll_loss2d": [IMAGE2, torch.zeros(2, 6, 6, dtype=torch.int64)],
    "hinge_embedding_loss": [MATRIX, torch.ones(N, dtype=torch.int)],
    "kl_div": [MATRIX, MATRIX2],
    "l1_loss": [MATRIX, MATRIX2],
    "smooth_l1_loss": [MATRIX, MATRIX2],
    "huber_loss": [MATRIX, MATRIX2],
    "mse_loss": [MATRIX, MATRIX2],
    "margin_ranking_loss": [VECTOR, VECTOR2, torch.ones(N)],
    "multilabel_margin_loss": [MATRIX, torch.zeros(N, N, dtype=torch.int64)],
    "soft_margin_loss": [MATRIX, MATRIX2],
    "triplet_margin_loss": [MATRIX, MATRIX2, MATRIX3],
    "multi_margin_loss": [MATRIX, CLASSES],
    "binary_cross_entropy_with_logits": [MATRIX, MATRIX2],
    "dist": [VECTOR, VECTOR2],
    "pdist": [MATRIX],
    "cdist": [MATRIX, MATRIX2],
    "renorm": [MATRIX, 2, 0, 1.0],
    "logsumexp": [MATRIX, [1]],
    "upsample_nearest1d": [IMAGE1, [8]],
    "_upsample_nearest_exact1d": [IMAGE1, [8]],
    "upsample_nearest2d": [IMAGE2, [8, 8]],
    "_upsample_nearest_exact2d": [IMAGE2, [8, 8]],
    "upsample_nearest3d": [IMAGE3, [8, 8, 8]],
    "_upsample_nearest_exact3d": [IMAGE3, [8, 8, 8]],
    "upsample_linear1d": [IMAGE1, [8], False],
    "upsample_bilinear2d": [IMAGE2, [8, 8], False],
    "_upsample_bilinear2d_aa": [IMAGE2, [8, 8], False],
    "upsample_trilinear3d": [IMAGE3, [8, 8, 8], False],
    "upsample_bicubic2d": [IMAGE2, [8, 8], False],
    "_upsample_bicubic2d_aa": [IMAGE2, [8, 8], False],
}
#: these take a dtype, which autocast sets to float32 unless the caller gives one
FP32_SET_DTYPE = {
    "prod": [VECTOR],
    "prod.dim_int": [MATRIX, 0],
    "softmax.int": [MATRIX, 0],
    "log_softmax.int": [MATRIX, 0],
    "cumprod": [VECTOR, 0],
    "cumsum": [VECTOR, 0],
    "linalg_vector_norm": [VECTOR],
    "linalg_matrix_norm.str_ord": [MATRIX],
    "sum": [VECTOR],
    "sum.dim_IntList": [MATRIX, [0]],
    "norm.Scalar": [VECTOR, 2],
    "norm.ScalarOpt_dim": [VECTOR, 2, [0], False],
}
#: the same, but torch refuses low precision whatever the dtype, on any device
MATRIX_NORMS = {"linalg_matrix_norm": [MATRIX, 2]}
#: arguments of this dtype beside float32 ones -> float32
PROMOTE = {
    "addcdiv": [VECTOR, VECTOR2, VECTOR3],
    "addcmul": [VECTOR, VECTOR2, VECTOR3],
    "atan2": [VECTOR, VECTOR2],
    "bilinear": [draw(1, 2), draw(1, 2, seed=1), draw(1, 2, 2), draw(1)],
    "cross": [draw(3), draw(3, seed=1)],
    "dot": [VECTOR, VECTOR2],
    "vdot": [VECTOR, VECTOR2],
    "grid_sampler": [draw(1, 1, 4, 4), draw(1, 2, 2, 2), 0, 0, False],
    "index_put": [VECTOR, [torch.tensor([1])], draw(1)],
    "tensordot": [MATRIX, MATRIX2, [0], [0]],
    "scatter_add": [MATRIX, 0, torch.zeros(N, N, dtype=torch.int64), MATRIX2],
}
#: the fused cell rounds less often than the CPU's chain of operators
CLOSE = {"lstm_cell"}
BANNED = {"binary_cross_entropy"}
#: CUDA's own, never called with tensors of another device
NOT_CALLABLE = {"_scaled_dot_product_flash_attention"}


def operator(name):
    base, _, overload = name.partition(".")
    return getattr(getattr(aten, base), overload or "default")


def convert(arguments, dtype=None, device=None):
    """Arguments with their floating tensors in `dtype`, and all tensors on `device`."""

    def one(value):
        if not isinstance(value, torch.Tensor):
            return value
        return value.to(device=device, dtype=dtype if value.is_floating_point() else None)

    return tree_map(one, arguments)


def mixed(arguments, dtype):
    """The first floating tensor stays float32, the others become `dtype`."""
    seen = []

    def one(value):
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        seen.append(value)
        return value if len(seen) == 1 else value.to(dtype)

    return tree_map(one, arguments)


def leaves(value):
    return [value] if isinstance(value, torch.Tensor) else [v for v in value if isinstance(v, torch.Tensor)]


def check(function, arguments, expected, result_dtype, amp_dtype, exact=True):
    with torch.autocast("accel", dtype=amp_dtype):
        actual = function(*convert(arguments, device="accel"))
    for a, e in zip(leaves(actual), leaves(expected), strict=True):
        assert a.device.type == "accel"
        assert a.dtype == e.dtype
        torch.testing.assert_close(a.cpu(), e, **({"rtol": 0, "atol": 0} if exact else {}))
    assert leaves(actual)[0].dtype == result_dtype


both = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])


@both
@pytest.mark.parametrize("name", [n for n in LOWER_PRECISION if not n.startswith("_thnn")])
def test_lower_precision(name, dtype):
    arguments = LOWER_PRECISION[name]
    expected = operator(name)(*convert(arguments, dtype))
    check(operator(name), arguments, expected, dtype, dtype, exact=name not in CLOSE)


@both
@pytest.mark.parametrize("name", ["_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"])
def test_lower_precision_cells(name, dtype):
    """The CPU lacks these: they are compared with themselves on cast arguments, and test_rnn.py with formulas."""
    arguments = LOWER_PRECISION[name]
    expected = operator(name)(*convert(arguments, dtype, "accel"))
    check(operator(name), arguments, [e.cpu() for e in leaves(expected)], dtype, dtype)


@both
@pytest.mark.parametrize("name", FP32)
def test_fp32(name, dtype):
    arguments = convert(FP32[name], dtype)
    expected = operator(name)(*convert(arguments, torch.float32))
    check(operator(name), arguments, expected, torch.float32, dtype)


@both
@pytest.mark.parametrize("name", FP32_SET_DTYPE)
def test_fp32_set_dtype(name, dtype):
    arguments = convert(FP32_SET_DTYPE[name], dtype)
    if name == "norm.Scalar":
        expected = aten.norm.ScalarOpt_dtype(*arguments, dtype=torch.float32)
    elif name == "norm.ScalarOpt_dim":
        expected = aten.norm.ScalarOpt_dim_dtype(*arguments, dtype=torch.float32)
    else:
        expected = operator(name)(*arguments, dtype=torch.float32)
        explicit = partial(operator(name), dtype=torch.float64)
        check(explicit, arguments, explicit(*arguments), torch.float64, dtype)
    check(operator(name), arguments, expected, torch.float32, dtype)


@both
@pytest.mark.parametrize("name", MATRIX_NORMS)
def test_fp32_set_dtype_for_matrix_norms(name, dtype):
    arguments = convert(MATRIX_NORMS[name], dtype)
    expected = operator(name)(*convert(arguments, torch.float32))
    with torch.autocast("accel", dtype=dtype), pytest.raises(RuntimeError, match="Low precision dtypes not supported"):
        operator(name)(*convert(arguments, device="accel"))
    check(operator(name), convert(arguments, torch.float32), expected, torch.float32, dtype)


@both
@pytest.mark.parametrize("name", PROMOTE)
def test_promote(name, dtype):
    arguments = mixed(PROMOTE[name], dtype)
    expected = operator(name)(*convert(arguments, torch.float32))
    check(operator(name), arguments, expected, torch.float32, dtype)


def test_the_ban_names_the_remedy():
    with torch.autocast("accel"), pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
        torch.nn.functional.binary_cross_entropy(VECTOR.to("accel"), VECTOR2.to("accel"))


def test_the_lists_are_those_of_cuda_and_each_is_tested():
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = [n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::")]  # others are tests' own
    ours = {n for n in names if has(n, "AutocastPrivateUse1")}
    cudas = {n for n in names if has(n, "AutocastCUDA") and "cudnn" not in n}
    assert ours == cudas
    tested = {*LOWER_PRECISION, *FP32, *FP32_SET_DTYPE, *MATRIX_NORMS, *PROMOTE, *BANNED, *NOT_CALLABLE}
    assert {n.removeprefix("aten::") for n in ours} == tested
