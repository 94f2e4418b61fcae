"""Sparse CSR, CSC, BSR and BSC tensors on accel: construction, conversions, operators and gradients equal the CPU's."""

import copy
import io

import pytest
import torch

import torch_accel
from tests.aten.layouts import both, on_accel
from torch_accel.testing import hold_stream, wait_report

pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")

LAYOUTS = {
    "csr": torch.sparse_csr,
    "csc": torch.sparse_csc,
    "bsr": torch.sparse_bsr,
    "bsc": torch.sparse_bsc,
}
MATRIX = torch.tensor([[0, 1.0, 0, 2], [3, 0, 0, 0], [0, 4, 5, 0], [0, 0, 0, 6]])
DENSE = torch.arange(12.0).reshape(4, 3)


@pytest.fixture(autouse=True)
def no_leaked_workspace():
    before = torch_accel._C._leaked_workspace_bytes()
    yield
    assert torch_accel._C._leaked_workspace_bytes() == before


@pytest.fixture(params=LAYOUTS.values(), ids=LAYOUTS.keys())
def layout(request):
    return request.param


def to_layout(dense, layout):
    block = (2, 2) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None
    return dense.to_sparse(layout=layout, blocksize=block)


def make(layout, device, dtype=torch.float32):
    return to_layout(MATRIX.to(dtype), layout).to(device)


def indices(tensor):
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices()
    return tensor.ccol_indices(), tensor.row_indices()


def construct(layout, device, dtype=torch.int64, **options):
    host = make(layout, "cpu")
    first, second = (index.to(dtype).to(device) for index in indices(host))
    return torch.sparse_compressed_tensor(first, second, host.values().to(device), (4, 4), layout=layout, **options)


MAKE = {
    "constructor": lambda la, d: construct(la, d),
    "constructor, 32-bit indices": lambda la, d: construct(la, d, torch.int32),
    "checked": lambda la, d: construct(la, d, check_invariants=True),
    "from the host": lambda la, d: make(la, d),
    "from dense": lambda la, d: to_layout(MATRIX.to(d), la),
    "from COO": lambda la, d: to_layout(MATRIX.to(d).to_sparse(), la),
    "clone": lambda la, d: make(la, d).clone(),
    "dtype": lambda la, d: make(la, d).double(),
    "copy_": lambda la, d: make(la, d).copy_(make(la, d) * 2),
    "copy_ from the host": lambda la, d: make(la, d).copy_(make(la, "cpu") * 2),
    "zeros_like": lambda la, d: torch.zeros_like(make(la, d)),
    "zero_": lambda la, d: make(la, d).zero_(),
    "resize_as_sparse_": lambda la, d: make(la, d).resize_as_sparse_(make(la, d)).copy_(make(la, d)),
}


@pytest.mark.parametrize("call", MAKE.values(), ids=MAKE.keys())
def test_making(call, layout):
    both(lambda device: call(layout, device))
    made, expected = call(layout, "accel"), call(layout, "cpu")
    assert made.layout == layout and on_accel(made)
    assert [i.dtype for i in indices(made)] == [i.dtype for i in indices(expected)]
    assert (made._nnz(), made.dense_dim(), made.sparse_dim()) == (expected._nnz(), expected.dense_dim(), 2)


OPERATORS = {
    "to_dense": lambda s, d: s.to_dense(),
    "to COO": lambda s, d: s.to_sparse(),
    "values": lambda s, d: s.values(),
    "mul number": lambda s, d: s * 2,
    "mul_": lambda s, d: s.mul_(2),
    "sin": lambda s, d: s.sin(),
    "neg_": lambda s, d: s.neg_(),
    "relu": lambda s, d: torch.relu(-s),
    "sum": lambda s, d: s.sum(),
    "t": lambda s, d: s.t(),
    "sparse_mask": lambda s, d: MATRIX.to(d).sparse_mask(s),
}
# CSR has kernels that the other layouts lack.
CSR_OPERATORS = {
    "to CSC": lambda s, d: s.to_sparse_csc(),
    "to BSR": lambda s, d: s.to_sparse_bsr((2, 2)),
    "to BSC": lambda s, d: s.to_sparse_bsc((2, 2)),
    "add": lambda s, d: s + s,
    "add out": lambda s, d: torch.add(s, s, out=s.clone()),
    "dense add": lambda s, d: MATRIX.to(d) + s,
    "mul": lambda s, d: s * s,
    "mul dense": lambda s, d: s * MATRIX.to(d),
    "mm": lambda s, d: s @ DENSE.to(d),
    "mm, dense first": lambda s, d: DENSE.to(d).t() @ s,
    "mm sparse": lambda s, d: s @ s,
    "mm out sparse": lambda s, d: torch.mm(s, s, out=torch.zeros_like(s)),
    "mv": lambda s, d: s @ DENSE[:, 0].to(d),
    "addmm": lambda s, d: torch.addmm(torch.ones(4, 3, device=d), s, DENSE.to(d)),
    "addmv": lambda s, d: torch.addmv(torch.ones(4, device=d), s, DENSE[:, 0].to(d)),
    "sum of a dimension": lambda s, d: torch.sum(s, 0, keepdim=True),
    "select": lambda s, d: s[1],
    "sampled_addmm": lambda s, d: torch.sparse.sampled_addmm(s, DENSE.to(d), DENSE.to(d).t()),
    "mm reduce amax": lambda s, d: torch.sparse.mm(s, DENSE.to(d), "amax"),
    "mm reduce mean": lambda s, d: torch.sparse.mm(s, DENSE.to(d), "mean"),
    "triangular_solve": lambda s, d: torch.triangular_solve(DENSE.to(d), s + torch.eye(4).to_sparse_csr().to(d))[0],
    "fill_": lambda s, d: s.fill_(3.0),
}


@pytest.mark.parametrize("call", OPERATORS.values(), ids=OPERATORS.keys())
def test_operators(call, layout):
    both(lambda device: call(make(layout, device), device))


@pytest.mark.parametrize("call", CSR_OPERATORS.values(), ids=CSR_OPERATORS.keys())
def test_csr_operators(call):
    both(lambda device: call(make(torch.sparse_csr, device), device))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.int32, torch.bool], ids=str)
def test_dtypes(dtype, layout):
    both(lambda device: make(layout, device, dtype).to_dense())
    both(lambda device: make(layout, device, dtype).to_sparse())


GRADIENTS = {
    "mm": lambda a, b: a @ b,
    "mm reduce": lambda a, b: torch.sparse.mm(a, b, "mean"),
    "sampled_addmm": lambda a, b: torch.sparse.sampled_addmm(a, b, b.t()).to_dense(),
}


@pytest.mark.parametrize("function", GRADIENTS.values(), ids=GRADIENTS.keys())
def test_gradients(function):
    def call(device):
        a = make(torch.sparse_csr, device).requires_grad_()
        b = DENSE.clone().to(device).requires_grad_()
        function(a, b).pow(2).sum().backward()
        return a.grad, b.grad

    both(call)


def test_gradients_of_conversions(layout):
    def call(device):
        a = MATRIX.clone().to(device).requires_grad_()
        to_layout(a, layout).to_dense().pow(2).sum().backward()
        return a.grad

    both(call)


def test_against_dense_matrices(layout):
    """An oracle that shares no code with the sparse kernels."""
    made = make(layout, "accel")
    assert torch.equal(made.to_dense().cpu(), MATRIX)
    assert torch.equal(made.sum().cpu(), MATRIX.sum())
    if layout != torch.sparse_bsc:
        torch.testing.assert_close((made @ DENSE.to("accel")).cpu(), MATRIX @ DENSE)


def test_members_are_shared_not_copied(layout):
    made = make(layout, "accel")
    before = made.values().data_ptr()
    assert made.neg_().values().data_ptr() == before
    made.values().fill_(1)
    assert torch.equal(made.cpu().values(), torch.ones_like(make(layout, "cpu").values()))
    assert made.detach().values().data_ptr() == before


def test_copies_and_files(layout):
    made = make(layout, "accel")
    copied = copy.deepcopy(made)
    copied.zero_()
    file = io.BytesIO()
    torch.save(made, file)
    for location in ("accel", "cpu"):
        file.seek(0)
        loaded = torch.load(file, map_location=location)
        assert loaded.device.type == location and loaded.layout == layout
        assert torch.equal(loaded.to_dense().cpu(), MATRIX)


def test_printing(layout):
    text = str(make(layout, "accel"))
    assert "device='accel:0'" in text and f"layout={layout}" in text


ERRORS = {
    "indices": lambda la, d: torch.sparse_csr_tensor(
        torch.tensor([0, 2, 1], device=d), torch.tensor([0], device=d), torch.ones(1, device=d), check_invariants=True
    ),
    "layout": lambda la, d: make(la, d) + make(torch.sparse_csc, d),
    "shape": lambda la, d: make(torch.sparse_csr, d) @ torch.ones(3, 3, device=d),
}


@pytest.mark.parametrize("call", ERRORS.values(), ids=ERRORS.keys())
def test_errors_are_the_cpus(call):
    messages = []
    for device in ("cpu", "accel"):
        with pytest.raises(RuntimeError) as raised:
            call(torch.sparse_csr, device)
        messages.append(str(raised.value).splitlines()[0])
    assert messages[0] == messages[1]


def test_accessors_and_copies_wait_for_nothing(queued, layout):
    made, host = make(layout, "accel"), make(layout, "cpu")
    before = wait_report()
    with hold_stream():
        assert made._nnz() == host._nnz() and made.values().shape == host.values().shape
        assert [i.shape for i in indices(made)] == [i.shape for i in indices(host)]
        results = [made.clone(), host.to("accel"), made.neg(), made.double()]
        assert wait_report() == before
    for result, expected in zip(results, [MATRIX, MATRIX, -MATRIX, MATRIX.double()], strict=True):
        assert torch.equal(result.to_dense().cpu(), expected)


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_gradients_of_reductions(reduce):
    """The kernel keeps the positions of extrema only if an argument requires a gradient."""
    torch.manual_seed(0)
    dense = torch.rand(5, 4) * (torch.rand(5, 4) > 0.6)
    results = []
    for device in ("accel", "cpu"):
        a = dense.to_sparse_csr().to(device).requires_grad_()
        b = torch.arange(12.0).reshape(4, 3).to(device).requires_grad_()
        out = torch.sparse.mm(a, b, reduce)
        gradients = torch.autograd.grad(out.sum(), (a, b))
        results.append([out.detach().cpu(), gradients[0].cpu().to_dense(), gradients[1].cpu()])
    for ours, cpus in zip(*results, strict=True):
        assert torch.equal(ours, cpus)
