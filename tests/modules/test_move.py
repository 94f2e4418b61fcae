"""Modules on the move: what is kept (identity, ties, gradients, strides), and what changes."""

import copy
import weakref

import pytest
import torch
from torch import nn

from tests.memory import settled
from tests.modules.against_cpu import check_equal
from torch_accel.testing import hold_stream


class Net(nn.Module):
    """Tied weights, shared modules, buffers of several dtypes, one of them not persistent, one absent."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(6, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.table.weight
        self.again = nn.ModuleList([self.head, self.norm])
        self.scales = nn.ParameterList([nn.Parameter(torch.rand(4)), nn.Parameter(torch.rand(1), requires_grad=False)])
        self.by_name = nn.ParameterDict({"offset": nn.Parameter(torch.rand(4))})
        self.register_buffer("steps", torch.tensor(3))
        self.register_buffer("mask", torch.tensor([True, False]), persistent=False)
        self.register_buffer("absent", None)
        self.register_parameter("none", None)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.table(tokens)) * self.scales[0] + self.by_name["offset"]
        return self.head(x) * self.scales[1]


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters, buffers and gradients by name, each once for each name."""
    result = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
    return result | {name + ".grad": t.grad for name, t in result.items() if t.grad is not None}


TO_ACCEL = {
    "to a name": lambda m: m.to("accel"),
    "to a device": lambda m: m.to(device=torch.device("accel")),
    "to an index": lambda m: m.to("accel:0"),
    "to a tensor's": lambda m: m.to(torch.empty(0, device="accel")),
    "to, not blocking": lambda m: m.to("accel", non_blocking=True),
    "to a device and a dtype": lambda m: m.to("accel", torch.float32),
    "accel": lambda m: m.accel(),
    "accel of an index": lambda m: m.accel(0),
    "_apply": lambda m: m._apply(lambda t: t.accel()),
    "to itself again": lambda m: m.accel().to("accel"),
}


@pytest.fixture(params=["set_data", "swap"])
def conversion(request):
    """The two ways in which Module.to keeps its parameters."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(request.param == "swap")
    yield request.param
    torch.__future__.set_swap_module_params_on_conversion(before)


@pytest.mark.parametrize("move", TO_ACCEL.values(), ids=TO_ACCEL.keys())
def test_a_module_moves_there_and_back(move, conversion):
    model, original = net(), net()
    for m in (model, original):
        m(torch.tensor([1, 2, 2])).sum().backward()
    parameters = dict(model.named_parameters(remove_duplicate=False))
    there = move(model)
    assert there is model
    check_equal(tensors(model), tensors(original))
    for where in ("accel", "cpu"):
        now = dict(model.named_parameters(remove_duplicate=False))
        assert now.keys() == parameters.keys() and all(now[name] is parameters[name] for name in now)
        assert model.head.weight is model.table.weight and model.absent is None and model.none is None
        assert all(t.device.type == where for t in tensors(model).values())
        assert all(p.requires_grad == (name != "scales.1") for name, p in now.items())
        assert all(p.is_leaf and isinstance(p, nn.Parameter) for p in now.values())
        model.cpu()
    for name, t in tensors(original).items():
        assert torch.equal(tensors(model)[name], t)


def test_overwriting_makes_new_parameters():
    # as on every device: the ties break, because each module makes parameters of its own
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        model = net()
        old = model.table.weight
        model.to("accel")
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
    assert model.table.weight is not old and model.table.weight is not model.head.weight
    check_equal(tensors(model), tensors(net()))


DTYPES = {
    "half": (lambda m: m.half(), torch.float16),
    "bfloat16": (lambda m: m.bfloat16(), torch.bfloat16),
    "double": (lambda m: m.double(), torch.float64),
    "to a dtype": (lambda m: m.to(torch.float16), torch.float16),
    "type": (lambda m: m.type(torch.bfloat16), torch.bfloat16),
    "to a device and a dtype": (lambda m: m.to(m.steps.device, torch.bfloat16, non_blocking=True), torch.bfloat16),
    "to a complex dtype": (lambda m: m.to(torch.complex64), torch.complex64),
}


@pytest.mark.parametrize("first", ["move", "cast"])
@pytest.mark.parametrize("cast, dtype", DTYPES.values(), ids=DTYPES.keys())
@pytest.mark.filterwarnings("ignore:Complex modules are a new feature")
def test_a_module_is_cast(cast, dtype, first, conversion):
    expected = cast(net())
    model = cast(net().to("accel")) if first == "move" else cast(net()).to("accel")
    check_equal(tensors(model), tensors(expected))
    assert model.table.weight.dtype == dtype and model.head.weight is model.table.weight
    assert model.steps.dtype == expected.steps.dtype


def test_channels_last_is_kept_and_made():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3), nn.Linear(2, 2))
    last = copy.deepcopy(model).to(memory_format=torch.channels_last)
    check_equal(copy.deepcopy(last).to("accel"), last)
    check_equal(copy.deepcopy(model).to("accel", memory_format=torch.channels_last), last)
    check_equal(copy.deepcopy(model).to("accel").to(memory_format=torch.channels_last), last)
    assert last[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_a_move_from_pinned_memory_is_queued(queued):
    model = net()
    for t in [*model.parameters(), *model.buffers()]:
        t.data = t.data.pin_memory()
    with hold_stream():  # a copy that waits would wait for ever
        model.to("accel", non_blocking=True)
        assert not torch.accel.current_stream().query()
        # the model has let go of its pinned blocks, which the copies have yet to read
        others = [torch.full_like(t, 9, device="cpu").pin_memory() for t in tensors(model).values()]
    check_equal(tensors(model), tensors(net()))
    assert all(bool((t == t.new_tensor(9)).all()) for t in others)


def test_a_move_frees_what_it_leaves():
    before = settled()
    model = net().to("accel")
    assert torch.accel.memory_allocated() > before
    model.cpu()
    assert torch.accel.memory_allocated() == before


def test_to_empty_leaves_values_open_and_ties_whole():
    with torch.device("meta"):
        model = Net()
    model.to_empty(device="accel")
    assert all(t.is_accel for t in tensors(model).values())
    assert {n: t.shape for n, t in tensors(model).items()} == {n: t.shape for n, t in tensors(net()).items()}
    model.load_state_dict(net().state_dict())
    assert torch.equal(model.head.weight.cpu(), net().head.weight) and torch.equal(model.steps.cpu(), torch.tensor(3))


def test_a_meta_module_cannot_be_moved():
    texts = []
    for device in ("accel", "cpu"):
        with pytest.raises(NotImplementedError) as raised:
            nn.Linear(2, 2, device="meta").to(device)
        texts.append(str(raised.value))
    assert texts[0] == texts[1] and "to_empty" in texts[0]


BORN = {
    "device=": lambda: nn.Linear(3, 2, device="accel"),
    "context": lambda: _within(torch.device("accel"), lambda: nn.Linear(3, 2)),
    "skip_init": lambda: nn.utils.skip_init(nn.Linear, 3, 2, device="accel"),
    "meta and to_empty": lambda: nn.Linear(3, 2, device="meta").to_empty(device="accel"),
    "default device": lambda: _by_default(lambda: nn.Linear(3, 2)),
}


def _within(context, make):
    with context:
        return make()


def _by_default(make):
    torch.set_default_device("accel")
    try:
        return make()
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("make", BORN.values(), ids=BORN.keys())
def test_a_module_is_born_on_accel(make):
    module = make()
    assert module.weight.is_accel and module.weight.shape == (2, 3) and module.bias.is_leaf
    with torch.no_grad():
        module.weight.fill_(1), module.bias.fill_(2)
    assert module(torch.ones(1, 3, device="accel")).tolist() == [[5, 5]]


def test_an_optimizer_sees_the_parameters_move(conversion):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model.to("accel")
    before = model.table.weight.detach().clone()
    model(torch.tensor([0, 1], device="accel")).sum().backward()
    optimizer.step()
    assert torch.equal(model.table.weight, before - model.table.weight.grad)


def test_a_sparse_gradient_moves_along():
    model = nn.Embedding(5, 3, sparse=True)
    model(torch.tensor([1, 1, 4])).sum().backward()
    expected = model.weight.grad.to_dense()
    model.to("accel")
    assert model.weight.grad.is_sparse and model.weight.grad.is_accel
    assert torch.equal(model.weight.grad.to_dense().cpu(), expected)
    model.cpu()
    assert model.weight.grad.device.type == "cpu" and torch.equal(model.weight.grad.to_dense(), expected)


SPARSE = {"coo": torch.Tensor.to_sparse, "csr": torch.Tensor.to_sparse_csr, "bsc": lambda x: x.to_sparse_bsc((1, 1))}


@pytest.mark.parametrize("sparse", SPARSE.values(), ids=SPARSE.keys())
@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_parameters_and_buffers_move(sparse, conversion):
    dense = torch.tensor([[1.0, 0], [0, 3]])
    model = nn.Module()
    model.weight, model.again = (nn.Parameter(sparse(dense)) for _ in range(2))
    model.register_buffer("table", sparse(dense))
    for move in (lambda: model.to("accel"), model.double, model.cpu, lambda: model.to("accel", torch.float32)):
        move()
        for t in (model.weight, model.again, model.table):
            parts = (t.indices(), t.values()) if t.layout == torch.sparse_coo else (t.values(),)
            assert all(part.device == t.device for part in parts) and parts[-1].dtype == t.dtype
            assert torch.equal(t.detach().to_dense().cpu(), dense.to(t.dtype))
    assert model.weight.is_accel and model.weight.dtype == torch.float32


def test_weak_references_refuse_to_be_swapped():
    # as on every device: swap_tensors cannot exchange what a weak reference or a graph points to
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model = nn.Linear(2, 2)
        reference = weakref.ref(model.weight)
        with pytest.raises(RuntimeError, match=r"Couldn't swap Linear\.weight") as raised:
            model.to("accel")
        assert "weakref" in str(raised.value.__cause__)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert reference() is model.weight


def test_a_module_moves_between_devices(script):
    script(
        """
        import torch
        from tests.modules.test_move import net, tensors
        model, original = net().to("accel:1"), net()
        weight = model.table.weight
        for device in ("accel:0", "accel:1", "cpu", "accel:1"):
            model.to(device)
            assert model.head.weight is weight is model.table.weight
            assert all(t.device == torch.device(device) for t in tensors(model).values())
            assert all(torch.equal(t.cpu(), tensors(original)[name]) for name, t in tensors(model).items())
        torch.accel.set_device(1)
        assert net().accel().head.weight.device == torch.device("accel:1")
        assert net().accel(0).head.weight.device == torch.device("accel:0")
        tokens = torch.tensor([1, 2], device="accel:1")
        model(tokens).sum().backward()
        original(tokens.cpu()).sum().backward()
        assert weight.grad.device == torch.device("accel:1")
        assert torch.equal(weight.grad.cpu(), original.table.weight.grad)
        try:
            model.to("accel:0")(tokens)
        except RuntimeError as error:
            assert "accel:0" in str(error) and "accel:1" in str(error), error
        else:
            raise AssertionError("tokens of another device")
        """,
        ACCEL_DEVICES=2,
    )
