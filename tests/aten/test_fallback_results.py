"""Results of the CPU's kernels over device bytes are the CPU's, and NumPy's."""

import numpy as np
import pytest
import torch

from tests.aten.fallback_cases import A, J, Z, check_equal, flat

pytestmark = pytest.mark.usefixtures("no_leaked_workspace")


CASES = {
    "functional": lambda d, a, i, z: torch.add(a, a, alpha=2),
    "broadcast": lambda d, a, i, z: a + a[0],
    "0-dim CPU operand": lambda d, a, i, z: a * torch.tensor(2.0),
    "wrapped number promotes as a number": lambda d, a, i, z: i * 2.5,
    "0-dim tensor does not promote": lambda d, a, i, z: a + torch.tensor(2.0, dtype=torch.float64),
    "strided operands": lambda d, a, i, z: a[1::2, :] + a[1::2, :],
    "transposed operands": lambda d, a, i, z: a.t() @ a[:, 1:],
    "conj operand": lambda d, a, i, z: z.conj() * z,
    "neg operand": lambda d, a, i, z: z.conj().imag + 1,
    "scalar result": lambda d, a, i, z: a.sum(),
    "no operand left": lambda d, a, i, z: torch.empty(0, 9, device=d) @ torch.ones(9, device=d),
    "dot of nothing": lambda d, a, i, z: torch.dot(torch.empty(0, device=d), torch.empty(0, device=d)),
    "mean of nothing": lambda d, a, i, z: torch.empty(1, 0, device=d).mean(),
    "sum of nothing": lambda d, a, i, z: torch.empty(1, 0, device=d).sum(1),
    "several results": lambda d, a, i, z: torch.sort(a, descending=True),
    "several results of which one unused": lambda d, a, i, z: torch.max(a, 1),
    "list of results": lambda d, a, i, z: torch._foreach_add([a, a[0]], 1.0),
    "list operand": lambda d, a, i, z: torch.cat([a, a[:1], a[2:]]),
    "list operand of one": lambda d, a, i, z: torch.stack([a]),
    "list of views": lambda d, a, i, z: torch.cat([a.t(), a.t()], 1),
    "optional operand absent": lambda d, a, i, z: torch.bincount(i),
    "optional operand present": lambda d, a, i, z: torch.bincount(i, a[0, :3]),
    "clamp by tensors": lambda d, a, i, z: torch.clamp(a, min=a[0]),
    "index by None and tensor": lambda d, a, i, z: a[:, i],
    "index by two tensors": lambda d, a, i, z: a[i, i],
    "index by CPU tensor": lambda d, a, i, z: a[J],
    "index by None and CPU tensor": lambda d, a, i, z: a[:, J],
    "index by mask": lambda d, a, i, z: a[a > 3],
    "index by CPU mask": lambda d, a, i, z: a[A > 3],
    "index by list": lambda d, a, i, z: a[[0, 2], [1, 3]],
    "index by tensor, slice, None": lambda d, a, i, z: a[i, None, 1:],
    "index put": lambda d, a, i, z: a.index_put((i,), a[0]),
    "index put accumulating": lambda d, a, i, z: a.index_put((i,), a[0], accumulate=True),
    "index put accumulating bfloat16": lambda d, a, i, z: a.bfloat16().index_put(
        (i,), a[1].bfloat16(), accumulate=True
    ),
    "index put by CPU index": lambda d, a, i, z: a.index_put((J,), torch.tensor(5.0, device=d)),
    "index add of nothing": lambda d, a, i, z: a.index_add(0, i[:0], a[:0]),
    "index add of duplicates": lambda d, a, i, z: a.index_add(0, i, a),
    "scatter of nothing": lambda d, a, i, z: a.scatter(0, i[:0].reshape(0, 1), 9.0),
    "scatter reduce": lambda d, a, i, z: a.scatter_reduce(0, i[:, None].expand(3, 4), a, "mean", include_self=False),
    "data-dependent shape": lambda d, a, i, z: torch.nonzero(a > 4),
    "unique": lambda d, a, i, z: torch.unique(i, return_inverse=True, return_counts=True),
    "masked_select": lambda d, a, i, z: a.masked_select(a > 4),
    "repeat_interleave": lambda d, a, i, z: torch.repeat_interleave(a, i, 0),
    "layer_norm": lambda d, a, i, z: torch.layer_norm(a, (4,), a[0], a[1]),
    "group_norm": lambda d, a, i, z: torch.group_norm(a, 2),
    "batch_norm": lambda d, a, i, z: torch.nn.functional.batch_norm(a, a[0] * 0, a[0] * 0 + 1, training=True),
    "softmax": lambda d, a, i, z: torch.softmax(a, 1),
    "gelu (raw allocations)": lambda d, a, i, z: torch.nn.functional.gelu(a),
    "linear": lambda d, a, i, z: torch.nn.functional.linear(a, a, a[:, 0]),
    "embedding": lambda d, a, i, z: torch.nn.functional.embedding(i, a),
    "fft": lambda d, a, i, z: torch.fft.fft(a),
    "cumsum to another dtype": lambda d, a, i, z: torch.cumsum(i, 0, dtype=torch.float64),
    "where": lambda d, a, i, z: torch.where(a > 3, a, 0),
    "isfinite": lambda d, a, i, z: (torch.isnan(a), torch.isinf(a), torch.isfinite(a), a.abs()),
    "tril_indices": lambda d, a, i, z: torch.tril_indices(3, 3, device=d),
    "device argument": lambda d, a, i, z: torch.arange(0, 1, 0.25, device=d),
    "kaiser_window (a composite over a stub)": lambda d, a, i, z: torch.kaiser_window(5, device=d),
    "kaiser_window with beta": lambda d, a, i, z: torch.kaiser_window(5, False, 3.0, dtype=torch.float64, device=d),
    "range.out_ (reads the host)": lambda d, a, i, z: torch.ops.aten.range.out_(0, 5, out=torch.empty(0, device=d)),
    "_saturate_weight_to_fp16": lambda d, a, i, z: torch._saturate_weight_to_fp16(a * 1e5),
    "choose_qparams_optimized": lambda d, a, i, z: torch.choose_qparams_optimized(a, 12, 200, 0.16, 8),
    "arange like": lambda d, a, i, z: torch.zeros_like(a, dtype=torch.int64),
    "float to int": lambda d, a, i, z: (a * 100.75).to(torch.int8),
    "einsum": lambda d, a, i, z: torch.einsum("ij,kj->ik", a, a),
    "pad_packed": lambda d, a, i, z: torch.nn.utils.rnn.pad_packed_sequence(
        torch.nn.utils.rnn.pack_padded_sequence(a[None], torch.tensor([2]), batch_first=True)
    )[0],
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_equals_the_cpu(case):
    expected = case("cpu", A.clone(), J.clone(), Z.clone())
    a, i, z = A.to("accel"), J.to("accel"), Z.to("accel")
    check_equal(case("accel", a, i, z), expected)
    check_equal([a, i, z], [A, J, Z])  # the operands are untouched


def test_against_numpy():
    a = A.to("accel")
    np.testing.assert_allclose((a @ a.t()).cpu().numpy(), A.numpy() @ A.numpy().T)
    np.testing.assert_array_equal(a.sort(descending=True)[1].cpu().numpy(), np.argsort(-A.numpy(), kind="stable"))
    np.testing.assert_allclose(torch.fft.fft(a).cpu().numpy(), np.fft.fft(A.numpy()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "call", [torch.linalg.svd, torch.linalg.eigh, torch.linalg.inv, lambda x: torch.linalg.lstsq(x, x)[0]]
)
def test_linear_algebra(call):
    # LAPACK's last bits depend on how the memory is aligned: on the CPU as well.
    x = A[:, :3] @ A[:, :3].t() + torch.eye(3) * 50
    for mine, theirs in zip(flat(call(x.to("accel"))), flat(call(x))):
        torch.testing.assert_close(mine.cpu(), theirs)


def test_zero_tensors():
    zero = torch._efficientzerotensor((3,), device="accel")
    ones = torch.ones(3, device="accel")
    assert torch.dot(zero, ones).item() == 0
    check_equal([zero * 2, zero + ones, ones - zero], [torch.zeros(3), torch.ones(3), torch.ones(3)])


def test_transformer_encoder_fast_path():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    encoder = torch.nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        expected = encoder(x)
        actual = encoder.to("accel")(x.to("accel"))
    torch.testing.assert_close(actual.cpu(), expected)
