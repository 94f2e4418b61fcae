"""Sparse COO tensors on accel: construction, accessors, operators and gradients equal the CPU's."""

import copy
import io
import pickle

import pytest
import torch

import torch_accel
from tests.aten.layouts import both, dense_of, on_accel
from torch_accel.conformance.compare import compare
from torch_accel.testing import hold_stream, wait_report

IJ = torch.tensor([[0, 1, 1, 0], [2, 0, 2, 2]])
V = torch.tensor([3.0, 4.0, 5.0, 7.0])
M = torch.arange(6.0).reshape(2, 3)


@pytest.fixture(autouse=True)
def no_leaked_workspace():
    before = torch_accel._C._leaked_workspace_bytes()
    yield
    assert torch_accel._C._leaked_workspace_bytes() == before


def sparse(device, values=V):
    return torch.sparse_coo_tensor(IJ.clone().to(device), values.clone().to(device), (2, 3), device=device)


def coalesced(device):
    return sparse(device).coalesce()


def hybrid(device):
    return torch.sparse_coo_tensor(torch.tensor([[0, 1, 1]]), torch.arange(12.0).reshape(3, 4), (2, 4), device=device)


MAKE = {
    "tensors": sparse,
    "lists": lambda d: torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), device=d),
    "size from the indices": lambda d: torch.sparse_coo_tensor(IJ.to(d), V.to(d)),
    "size only": lambda d: torch.sparse_coo_tensor((3, 4), device=d),
    "checked": lambda d: torch.sparse_coo_tensor(IJ.to(d), V.to(d), (2, 3), check_invariants=True),
    "hybrid": hybrid,
    "empty": lambda d: torch.empty(2, 3, layout=torch.sparse_coo, device=d),
    "zeros": lambda d: torch.zeros(2, 3, layout=torch.sparse_coo, device=d),
    "from the host": lambda d: sparse("cpu").to(d),
    "to_sparse": lambda d: M.to(d).to_sparse(),
    "to_sparse of one dimension": lambda d: M.to(d).to_sparse(1),
    "clone": lambda d: sparse(d).clone(),
    "dtype": lambda d: sparse(d).double(),
    "detach": lambda d: sparse(d).requires_grad_().detach(),
    "copy_": lambda d: torch.sparse_coo_tensor((2, 3), device=d).copy_(sparse(d)),
    "copy_ from the host": lambda d: sparse(d).copy_(torch.sparse_coo_tensor((2, 3))),
    "zero_": lambda d: sparse(d).zero_(),
    "zeros_like": lambda d: torch.zeros_like(sparse(d)),
    "resized": lambda d: sparse(d).sparse_resize_((4, 4), 2, 0),
    "deepcopy": lambda d: copy.deepcopy(sparse(d)),
    "pickle": lambda d: pickle.loads(pickle.dumps(sparse(d))),
}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE.keys())
def test_making(make):
    both(make)
    made, expected = make("accel"), make("cpu")
    assert on_accel(made) and made.is_sparse
    assert made._indices().is_accel and made._values().is_accel
    assert torch.equal(made._indices().cpu(), expected._indices())
    assert made.is_coalesced() == expected.is_coalesced() and made._nnz() == expected._nnz()
    assert (made.sparse_dim(), made.dense_dim()) == (expected.sparse_dim(), expected.dense_dim())


OPERATORS = {
    "coalesce": lambda d: coalesced(d),
    "to_dense": lambda d: sparse(d).to_dense(),
    "indices": lambda d: (coalesced(d).indices(), coalesced(d).values()),
    "add": lambda d: sparse(d) + sparse(d),
    "add coalesced": lambda d: coalesced(d) + coalesced(d),
    "add, alpha": lambda d: torch.add(sparse(d), coalesced(d), alpha=-0.5),
    "add nothing": lambda d: sparse(d) + torch.sparse_coo_tensor((2, 3), device=d),
    "add to nothing": lambda d: torch.sparse_coo_tensor((2, 3), device=d) + sparse(d),
    "add dtypes": lambda d: sparse(d) + sparse(d).double(),
    "add hybrid": lambda d: hybrid(d).add(hybrid(d), alpha=2),
    "add bfloat16": lambda d: sparse(d, V.bfloat16()) + sparse(d, V.bfloat16()),
    "add integers": lambda d: sparse(d, V.long()) + sparse(d, V.long()),
    "add complex": lambda d: sparse(d, V.cfloat()) + sparse(d, V.cfloat()),
    "add_": lambda d: sparse(d).add_(sparse(d)),
    "add out": lambda d: torch.add(sparse(d), sparse(d), out=torch.sparse_coo_tensor((2, 3), device=d)),
    "dense add": lambda d: M.to(d) + sparse(d),
    "dense add_": lambda d: M.clone().to(d).add_(sparse(d), alpha=-0.1),
    "dense add hybrid": lambda d: torch.ones(2, 4, device=d).add_(hybrid(d)),
    "dense add, transposed": lambda d: M.clone().to(d).t().add_(sparse(d).t()),
    "dense add, integers to floats": lambda d: M.to(d) + sparse(d, V.long()),
    "sub": lambda d: sparse(d) - coalesced(d),
    "mul": lambda d: sparse(d) * sparse(d),
    "mul number": lambda d: sparse(d) * 3,
    "mul dense": lambda d: sparse(d) * M.to(d),
    "mul_": lambda d: coalesced(d).mul_(coalesced(d)),
    "mul out": lambda d: torch.mul(sparse(d), sparse(d), out=torch.sparse_coo_tensor((2, 3), device=d)),
    "div": lambda d: sparse(d) / 2,
    "neg": lambda d: -sparse(d),
    "sin": lambda d: sparse(d).sin(),
    "sin_": lambda d: coalesced(d).sin_(),
    "pow": lambda d: sparse(d) ** 2,
    "isnan": lambda d: sparse(d).isnan(),
    "conj": lambda d: sparse(d, V * 1j).conj(),
    "mm": lambda d: torch.sparse.mm(sparse(d), M.to(d).t()),
    "mm sparse": lambda d: torch.sparse.mm(sparse(d), sparse(d).t()),
    "matmul": lambda d: sparse(d) @ M.to(d).t(),
    "mv": lambda d: sparse(d).mv(torch.ones(3, device=d)),
    "addmm": lambda d: torch.sparse.addmm(torch.ones(2, 2, device=d), sparse(d), M.to(d).t()),
    "hspmm": lambda d: torch.hspmm(sparse(d), M.to(d).t()),
    "sspaddmm": lambda d: torch.sspaddmm(torch.sparse_coo_tensor((2, 2), device=d), sparse(d), M.to(d).t()),
    "bmm": lambda d: torch.stack([sparse(d), sparse(d)]).bmm(torch.ones(2, 3, 2, device=d)),
    "sum": lambda d: torch.sparse.sum(sparse(d)),
    "sum of a dimension": lambda d: torch.sparse.sum(sparse(d), 0),
    "softmax": lambda d: torch.sparse.softmax(sparse(d), 1),
    "log_softmax": lambda d: torch.sparse.log_softmax(sparse(d), 1),
    "norm": lambda d: sparse(d).norm(),
    "cat": lambda d: torch.cat([sparse(d), sparse(d)]),
    "stack": lambda d: torch.stack([sparse(d), sparse(d)]),
    "t": lambda d: sparse(d).t(),
    "transpose_": lambda d: sparse(d).t_(),
    "unsqueeze": lambda d: sparse(d).unsqueeze(0),
    "select": lambda d: sparse(d)[1],
    "index_select": lambda d: sparse(d).index_select(0, torch.tensor([1], device=d)),
    "narrow_copy": lambda d: sparse(d).narrow_copy(0, 0, 1),
    "sparse_mask": lambda d: M.to(d).sparse_mask(coalesced(d)),
    "any": lambda d: sparse(d).any(),
}


@pytest.mark.parametrize("call", OPERATORS.values(), ids=OPERATORS.keys())
def test_operators(call):
    both(call)


def leaf(make, device):
    return make(device).detach().requires_grad_()


def grad_of_values(d):
    values = V.clone().to(d).requires_grad_()
    made = torch.sparse_coo_tensor(IJ.to(d), values, (2, 3))
    (made.coalesce() * 2).to_dense().pow(2).sum().backward()
    return values.grad


def grad_of_mm(d):
    a, b = leaf(coalesced, d), leaf(lambda d: M.t().contiguous().clone().to(d), d)
    torch.sparse.mm(a, b).pow(2).sum().backward()
    return a.grad, b.grad


def grad_through(function):
    def call(d):
        a = leaf(coalesced, d)
        function(a).to_dense().pow(2).sum().backward()
        return a.grad

    return call


def grad_of_to_sparse(d):
    a = M.clone().to(d).requires_grad_()
    a.to_sparse().to_dense().pow(2).sum().backward()
    return a.grad


GRADIENTS = {
    "values": grad_of_values,
    "mm": grad_of_mm,
    "to_sparse": grad_of_to_sparse,
    "softmax": grad_through(lambda a: torch.sparse.softmax(a, 1)),
    "sum": grad_through(lambda a: torch.sparse.sum(a, 0)),
    "mul": grad_through(lambda a: a * a),
    "add": grad_through(lambda a: a + a),
    "relu": grad_through(lambda a: a.relu()),
}


@pytest.mark.parametrize("call", GRADIENTS.values(), ids=GRADIENTS.keys())
def test_gradients(call):
    both(call)


def test_against_a_loop():
    expected = dense_of(IJ, V, (2, 3))
    assert torch.equal(sparse("accel").to_dense().cpu(), expected)
    assert torch.equal((sparse("accel") + sparse("accel")).to_dense().cpu(), 2 * expected)
    assert torch.equal((sparse("accel") @ M.t().to("accel")).cpu(), expected @ M.t())
    assert torch.equal(M.to("accel").add_(sparse("accel"), alpha=2).cpu(), M + 2 * expected)


def test_members_are_shared_not_copied():
    values = V.to("accel")
    made = torch.sparse_coo_tensor(IJ.to("accel"), values, (2, 3))
    assert made._values().data_ptr() == values.data_ptr()
    made = made.coalesce()
    before = made._values().data_ptr()
    assert made.sin_()._values().data_ptr() == before
    assert made.coalesce() is made
    made.values().fill_(1)
    assert torch.equal(made._values().cpu(), torch.ones(3))


def test_out_keeps_its_identity():
    out = torch.sparse_coo_tensor((5, 5), device="accel")
    result = torch.mul(coalesced("accel"), coalesced("accel"), out=out)
    assert result is out and out.shape == (2, 3) and out._nnz() == 3 and out.is_coalesced()


def test_printing():
    text = str(sparse("accel"))
    assert "device='accel:0'" in text and "layout=torch.sparse_coo" in text and "nnz=4" in text


def test_saving():
    file = io.BytesIO()
    torch.save(sparse("accel"), file)
    for location in ("accel", "cpu"):
        file.seek(0)
        loaded = torch.load(file, map_location=location)
        assert loaded.device.type == location
        assert torch.equal(loaded.to_dense().cpu(), dense_of(IJ, V, (2, 3)))


ERRORS = {
    "index out of range": lambda d: torch.sparse_coo_tensor(IJ.to(d), V.to(d), (1, 3), check_invariants=True),
    "indices of an uncoalesced tensor": lambda d: sparse(d).indices(),
    "sparse + dense": lambda d: sparse(d) + M.to(d),
    "sizes": lambda d: sparse(d) + torch.sparse_coo_tensor((3, 3), device=d),
    "sizes of a dense one": lambda d: torch.ones(3, 3, device=d) + sparse(d),
    "result type": lambda d: M.long().to(d).add_(sparse(d)),
    "halves": lambda d: sparse(d, V.half()) + sparse(d, V.half()),
    "bools": lambda d: sparse(d, V.bool()) + sparse(d, V.bool()),
    "dtype of values": lambda d: M.to(d).to(torch.float8_e5m2).add_(sparse(d, V.to(torch.float8_e5m2))),
    "alpha": lambda d: torch.add(sparse(d, V.long()), sparse(d, V.long()), alpha=0.5),
    "shrinking": lambda d: sparse(d).sparse_resize_((1, 1), 2, 0),
}


@pytest.mark.parametrize("call", ERRORS.values(), ids=ERRORS.keys())
def test_errors_are_the_cpus(call):
    messages = []
    for device in ("cpu", "accel"):
        with pytest.raises(RuntimeError) as raised:
            call(device)
        messages.append(str(raised.value).splitlines()[0])
    assert messages[0] == messages[1]


def test_other_errors():
    with pytest.raises(NotImplementedError, match=r"Could not run 'aten::cumsum' .* 'SparseAccel' backend"):
        sparse("accel").cumsum(0)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        sparse("accel") + sparse("cpu")
    with pytest.raises(RuntimeError, match="pin"):
        sparse("accel").pin_memory()


def test_nothing_here_waits(queued):
    weight = torch.zeros(2, 3, device="accel")
    a, b, alone = sparse("accel"), sparse("accel"), coalesced("accel")
    host = sparse("cpu")
    before = wait_report()
    with hold_stream():
        assert (a._nnz(), a.sparse_dim(), a.dense_dim(), a.is_coalesced()) == (4, 2, 0, False)
        assert alone.indices().shape == (2, 3) and a._values().shape == (4,) and not a.is_pinned()
        total = a + b
        total.add_(b, alpha=2)
        weight.add_(total, alpha=-0.1)
        dense = total.to_dense()
        moved, cloned, zeros = host.to("accel"), a.clone(), torch.zeros_like(a)
        a.zero_()
        assert wait_report() == before
    expected = (sparse("cpu") + sparse("cpu")).add_(sparse("cpu"), alpha=2)
    assert torch.equal(total.cpu().coalesce().values(), expected.coalesce().values())
    assert torch.equal(weight.cpu(), torch.zeros(2, 3).add_(expected, alpha=-0.1))
    assert torch.equal(dense.cpu(), expected.to_dense())
    for same in (moved, cloned):
        assert torch.equal(same.cpu()._values(), V)
    assert zeros._nnz() == a._nnz() == 0


@pytest.mark.parametrize("alpha", [1, -0.3])
def test_sums_of_gradients_add_no_index_and_no_bit(alpha):
    """The room that a queued sum leaves free changes neither the indices that occur nor the sums."""
    torch.manual_seed(0)
    cpu = [
        torch.sparse_coo_tensor(torch.randint(9, (1, 40)), torch.randn(40, 5), (10, 5), requires_grad=False)
        for _ in range(3)
    ]
    accel = [each.to("accel") for each in cpu]
    expected = torch.add(torch.add(cpu[0], cpu[1], alpha=alpha), cpu[2], alpha=alpha)
    result = torch.add(torch.add(accel[0], accel[1], alpha=alpha), accel[2], alpha=alpha)
    assert result._nnz() == 120 > expected._nnz() and not result.is_coalesced()
    moved = result.cpu()
    assert torch.equal(moved._indices(), expected._indices())
    assert torch.equal(moved._values(), expected._values())
    for call in (torch.Tensor.coalesce, torch.Tensor.to_dense, lambda t: t * 2):
        assert compare(call(result), call(expected), strides=False)
    assert result._nnz() == 120  # they cut it off their own view only


def test_spare_room_is_no_zero_to_a_product():
    """Zero times infinity is no number: a product must not see what a queued sum left free."""
    terms = [torch.sparse_coo_tensor(IJ, V, (2, 3)), torch.sparse_coo_tensor(IJ.flip(1), V, (2, 3))]
    infinite = torch.full((3, 2), torch.inf)
    result = (terms[0].to("accel") + terms[1].to("accel")) @ infinite.to("accel")
    assert torch.equal(result.cpu(), (terms[0] + terms[1]) @ infinite)
