"""Linear algebra whose kernels raise for shapes only."""

import numpy as np
import pytest
import torch

from tests.aten.strides import layouts
from torch_accel.testing.held import check_held, check_refused

KINDS = [torch.float32, torch.float64, torch.complex64, torch.complex128]


def test_dot_products():
    for dtype in (torch.int64, torch.float16, torch.bfloat16, *KINDS):
        for x in (*layouts(7, dtype=dtype), torch.arange(10).to(dtype)[::2], *layouts(0, dtype=dtype)):
            for call in (torch.dot, torch.vdot):
                check_held(call, x, x.flip(0))


@pytest.mark.parametrize("call", [torch.dot, torch.vdot])
@pytest.mark.parametrize("conj", [(True, False), (False, True), (True, True)])
def test_dot_products_of_conjugates(call, conj):
    x = layouts(7, dtype=torch.complex64)[0]
    a, b = (y.conj() if c else y for y, c in zip((x, x.flip(0) * 1j), conj, strict=True))
    check_held(call, a, b)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.bfloat16, *KINDS])
def test_addr(dtype):
    u, v = layouts(3, dtype=dtype)[0], layouts(4, dtype=dtype)[0]
    factor = {} if dtype == torch.bool else {"beta": 2, "alpha": 3}
    for x in (*layouts(3, 4, dtype=dtype), layouts(4, dtype=dtype)[0], layouts(1, 1, dtype=dtype)[0]):
        check_held(lambda x, u, v: torch.addr(x, u, v, **factor), x, u, v)
    for x in layouts(3, 4, dtype=dtype):
        check_held(lambda x, u, v: x.addr_(u, v), x, u, v)
        check_held(lambda x, u, v, out: torch.addr(x, u, v, out=out), x, u, v, torch.zeros(0, dtype=dtype))


def test_addr_promotes():
    check_held(torch.addr, torch.ones(3, 4), torch.ones(3, dtype=torch.int32), torch.ones(4, dtype=torch.float64))


def test_addbmm():
    for dtype in (torch.int64, torch.bfloat16, *KINDS):
        for batches in (0, 1, 3):
            a, b = layouts(batches, 3, 2, dtype=dtype)[1], layouts(batches, 2, 4, dtype=dtype)[0]
            for x in layouts(3, 4, dtype=dtype):
                check_held(lambda x, a, b: torch.addbmm(x, a, b, beta=2, alpha=3), x, a, b)
                check_held(lambda x, a, b: x.addbmm_(a, b), x, a, b)
                check_held(lambda x, a, b, out: torch.addbmm(x, a, b, out=out), x, a, b, torch.zeros(0, dtype=dtype))
            check_held(torch.addbmm, layouts(4, dtype=dtype)[0], a, b)


def test_integer_products():
    a, b = torch.arange(6, dtype=torch.int8).reshape(2, 3), torch.arange(12, dtype=torch.int8).reshape(3, 4)
    check_held(torch._int_mm, a, b)
    check_held(lambda a, b, out: torch._int_mm(a, b, out=out), a, b, torch.zeros(2, 4, dtype=torch.int32))


# ---- LAPACK


def matrices(*sizes, dtype=torch.float64):
    """Batches of matrices, well conditioned, in several layouts."""
    torch.manual_seed(0)
    plain = torch.randn(*sizes, dtype=dtype) + 3 * torch.eye(*sizes[-2:], dtype=dtype)
    return [plain, plain.mT.contiguous().mT, plain.repeat_interleave(2, -1)[..., ::2]]


SHAPES = [(3, 3), (4, 2), (2, 3, 3), (2, 1, 4, 3), (1, 1)]


@pytest.mark.parametrize("sizes", SHAPES)
@pytest.mark.parametrize("dtype", KINDS)
def test_reflectors(sizes, dtype):
    for a in matrices(*sizes, dtype=dtype):
        check_held(torch.geqrf, a)
        r, tau = torch.geqrf(a)
        check_held(torch.linalg.householder_product, r, tau)
        other = matrices(*sizes[:-2], sizes[-2], 3, dtype=dtype)[0]
        for b in (other, other.mT.contiguous().mT):
            check_held(torch.ormqr, r, tau, b)
            check_held(torch.ormqr, r, tau, b.mT.contiguous(), False, True)


@pytest.mark.parametrize("sizes", SHAPES)
def test_reflectors_out(sizes):
    a = matrices(*sizes)[0]
    r, tau = torch.geqrf(a)
    for like in (lambda t: t.new_zeros(0), torch.zeros_like, lambda t: torch.zeros_like(t.mT.contiguous()).mT):
        vector = like if like(a).numel() == 0 else torch.zeros_like
        check_held(lambda a, q, t: torch.geqrf(a, out=(q, t)), a, like(r), vector(tau))
        check_held(lambda r, t, out: torch.linalg.householder_product(r, t, out=out), r, tau, like(r))
        check_held(lambda r, t, a, out: torch.ormqr(r, t, a, out=out), r, tau, a, like(a))


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize(
    "a, b", [((3, 3), (3, 2)), ((2, 3, 3), (3, 2)), ((3, 3), (2, 3, 2)), ((1, 1), (1, 1)), ((3, 3), (3, 0))]
)
def test_triangular_solves(dtype, left, a, b):
    rhs = matrices(*b, dtype=dtype)
    for m in matrices(*a, dtype=dtype):
        for x in rhs if left else [r.mT for r in rhs]:
            check_held(lambda m, x: torch.linalg.solve_triangular(m, x, upper=True, left=left), m, x)
            check_held(lambda m, x: torch.linalg.solve_triangular(m.mH, x, upper=False, left=left), m, x)
            check_held(lambda m, x: torch.linalg.solve_triangular(m.conj(), x, upper=True, left=left), m, x)


def test_triangular_solves_out():
    m, x = matrices(3, 3)[0], matrices(3, 2)[0]
    for out in (x.new_zeros(0), torch.zeros_like(x), torch.zeros_like(x.mT.contiguous()).mT, x.new_zeros(3, 4)[:, ::2]):
        check_held(lambda m, x, out: torch.linalg.solve_triangular(m, x, upper=True, out=out), m, x, out)
    check_held(lambda m, x: torch.linalg.solve_triangular(m, x, upper=True, out=x), m, x)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_solve(dtype, upper):
    for m in matrices(2, 3, 3, dtype=dtype):
        for x in matrices(2, 3, 4, dtype=dtype):
            check_held(torch.cholesky_solve, x, m, upper)
    check_held(torch.cholesky_solve, matrices(2, 3, 1, dtype=dtype)[0], matrices(3, 3, dtype=dtype)[0], upper)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("sizes", [(3, 3), (1, 1), (2, 3, 3), (4, 1, 1), (2, 2, 5, 5)])
def test_matrix_exp(dtype, sizes):
    for m in matrices(*sizes, dtype=dtype):
        check_held(torch.linalg.matrix_exp, m)


def test_of_low_precision_and_of_nothing():
    check_held(torch.linalg.matrix_exp, matrices(2, 3, 3, dtype=torch.bfloat16)[0])
    for sizes in ((5, 0), (0, 5), (0, 0), (0, 5, 2), (2, 0, 3)):
        check_held(torch.geqrf, torch.zeros(sizes))
        check_held(lambda x: torch.geqrf(x)[0], torch.zeros(sizes, dtype=torch.complex64).mT)


def test_addbmm_of_integers_with_fractions():
    a, b = torch.arange(12).reshape(2, 3, 2), torch.arange(16).reshape(2, 2, 4)
    check_held(lambda a, b: torch.addbmm(torch.ones_like(a[0, :, :1]), a, b, beta=0.6, alpha=1.7), a, b)


def test_gradients():
    def gradient(a, b):
        a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
        r = torch.linalg.qr(a)[1]
        torch.linalg.solve_triangular(a, b, upper=True).sum().add(r.sum()).add(
            torch.linalg.slogdet(a)[1].sum()
        ).backward()
        return a.grad, b.grad

    check_held(gradient, matrices(2, 3, 3)[0], matrices(2, 3, 2)[0])


def test_oracle():
    a, b = matrices(4, 4)[0], matrices(4, 2)[0]
    m, x = a.to("accel"), b.to("accel")
    solved = torch.linalg.solve_triangular(m, x, upper=True).cpu()
    np.testing.assert_allclose(np.triu(a.numpy()) @ solved.numpy(), b)
    r, tau = torch.geqrf(m)
    q = torch.linalg.householder_product(r, tau).cpu().numpy()
    np.testing.assert_allclose(q @ np.triu(r.cpu().numpy()), a, atol=1e-12)
    np.testing.assert_allclose(torch.ormqr(r, tau, x).cpu(), q @ b.numpy(), atol=1e-12)
    values, vectors = np.linalg.eig(a.numpy())
    expected = (vectors * np.exp(values)) @ np.linalg.inv(vectors)
    np.testing.assert_allclose(torch.linalg.matrix_exp(m).cpu(), expected.real, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(torch.vdot(m[0], m[1]).item(), np.vdot(*a.numpy()[:2]))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.dot(x, x),
        lambda x: torch.dot(x[0], x[0, :2]),
        lambda x: torch.vdot(x[0], x[0].double()),
        lambda x: torch.addr(x, x[0], x[0]),
        lambda x: torch.addr(x.int(), x[:, 0].int(), x[0].int(), beta=0.5),
        lambda x: torch.addbmm(x, x[None], x[None]),
        lambda x: x[0].addbmm_(x[None], x.mT[None]),
        lambda x: torch._int_mm(x, x),
        lambda x: torch.geqrf(x[0]),
        lambda x: torch.geqrf(x.half()),
        lambda x: torch.linalg.householder_product(x, x[0]),
        lambda x: torch.ormqr(x, x[0, :3], x[:2]),
        lambda x: torch.linalg.solve_triangular(x, x, upper=True),
        lambda x: torch.linalg.solve_triangular(x[:, :3], x[:2], upper=True),
        lambda x: torch.linalg.solve_triangular(x[:, :3].expand(2, 3, 3), x.expand(3, 3, 4), upper=True),
        lambda x: torch.cholesky_solve(x, x),
        lambda x: torch.linalg.matrix_exp(x),
        lambda x: torch.linalg.matrix_exp(x[:, :3].int()),
        lambda x: torch.linalg.solve_triangular(x[:, :3], x, upper=True, out=x.double()),
    ],
)
def test_errors(call):
    check_refused(call, torch.ones(3, 4))
