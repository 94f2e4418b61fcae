"""What caught other backends out and has no other place: copies and views, sizes, dtypes, fallback.

The numbers are those of the table in ../python/test_behaviours.py, which names the tests of all of them.
"""

import uuid

import numpy as np
import pytest
import torch
from torch.nn import functional as F

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def same(actual, expected):
    assert actual.is_accel and actual.dtype == expected.dtype and actual.shape == expected.shape
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0, equal_nan=True)


# ---- 1. Copies, views, strides


@pytest.mark.parametrize("sizes", [(1 << 12, 4), (3, 4), (0, 4)])
def test_03_copy_of_an_expanded_tensor_to_the_host(sizes):
    # The last four bytes of its block, and of its storage: a dense read of so many elements would leave both.
    base = torch.arange(128.0).to("accel")[127:]
    assert torch.equal(base.expand(sizes).cpu(), torch.full(sizes, 127.0))
    assert torch.equal(torch.zeros(sizes).copy_(base.expand(sizes)), torch.full(sizes, 127.0))


def test_03_nothing_is_read_beyond_an_expanded_tensor(script):
    # One block fills the device to its last byte, and the page behind it may not be read.
    script(
        """
        import torch
        x = torch.full((4 << 20,), 5.0, device="accel")
        arena = torch.accel.memory.arena()
        end = arena.__array_interface__["data"][0] + arena.nbytes
        assert torch.accel.memory.numpy(x).ctypes.data + 4 * x.numel() == end
        for line in open("/proc/self/maps"):
            area, permissions, *_ = line.split()
            first, last = (int(part, 16) for part in area.split("-"))
            if first <= end < last:
                assert permissions.startswith("---"), line
                break
        last = x[-1:]
        for expanded in (last.expand(1 << 16), last.expand(3, 5), x[-2:].view(2, 1)[1:].expand(1, 1 << 16)):
            expected = torch.full(expanded.shape, 5.0)
            assert torch.equal(expanded.cpu(), expected)
            assert torch.equal(torch.zeros(expanded.shape).copy_(expanded), expected)
            host = expanded.to("cpu", non_blocking=True)
            torch.accel.synchronize()
            assert torch.equal(host, expected)
        """,
        ACCEL_MEMORY="16MiB",
    )


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_04_offset_and_stride_together(backend):
    host = torch.arange(24.0).view(6, 4)
    device, expected = host.to("accel"), host[1::2, :] * 2
    same(device[1::2, :] + device[1::2, :], expected)
    torch._dynamo.reset()
    add = torch.compile(lambda a, b: a + b, backend=backend)
    sliced = torch.compile(lambda x: x[1::2, :] + x[1::2, :], backend=backend)
    same(add(device[1::2, :], device[1::2, :]), expected)
    same(sliced(device), expected)


@pytest.mark.parametrize("width", [100, 1, 7, 129])
def test_06_rows_that_are_not_round(width):
    host = torch.arange(4.0 * width).view(4, width)
    device = host.to("accel")
    same(device[1:] + device[1:], host[1:] * 2)
    same(device[1:] == device[:-1], host[1:] == host[:-1])
    same(device[2:, : width // 2 + 1].sum(0), host[2:, : width // 2 + 1].sum(0))


def test_07_product_into_a_slice():
    a, b = torch.rand(3, 5), torch.rand(5, 4)
    z = torch.full((3, 12), 9.0, device="accel")
    torch.matmul(a.accel(), b.accel(), out=z[:, 4:8])
    same(z[:, 4:8], a @ b)
    assert (z[:, :4] == 9).all() and (z[:, 8:] == 9).all()


# ---- 2. Zero-size, dtypes, indexing


NOTHING = {
    "matrix by vector": lambda d: torch.empty(0, 9, device=d) @ torch.ones(9, device=d),
    "matrix of no columns": lambda d: torch.empty(3, 0, device=d) @ torch.empty(0, 2, device=d),
    "dot": lambda d: torch.dot(torch.empty(0, device=d), torch.empty(0, device=d)),
    "bmm": lambda d: torch.bmm(torch.empty(0, 2, 3, device=d), torch.empty(0, 3, 4, device=d)),
    "sum": lambda d: torch.tensor([[]], device=d).sum(),
    "mean": lambda d: torch.tensor([[]], device=d).mean(),
    "prod of a dim": lambda d: torch.empty(2, 0, device=d).prod(1),
    "softmax": lambda d: torch.empty(0, 3, device=d).softmax(1),
    "cat": lambda d: torch.cat([torch.empty(0, device=d), torch.empty(0, 3, device=d), torch.ones(1, 3, device=d)]),
    "sort": lambda d: torch.empty(0, device=d).sort()[1],
    "nonzero": lambda d: torch.empty(0, 2, device=d).nonzero(),
    "index by nothing": lambda d: torch.ones(3, device=d)[torch.empty(0, dtype=torch.int64, device=d)],
    "where": lambda d: torch.where(torch.empty(0, device=d) > 0, torch.empty(0, device=d), 1.0),
    "linear": lambda d: F.linear(torch.empty(0, 3, device=d), torch.ones(2, 3, device=d)),
    "layer_norm": lambda d: F.layer_norm(torch.empty(0, 3, device=d), (3,)),
    "embedding": lambda d: F.embedding(torch.empty(0, dtype=torch.int64, device=d), torch.ones(4, 2, device=d)),
    "cumsum": lambda d: torch.empty(0, 3, device=d).cumsum(0),
    "unique": lambda d: torch.empty(0, device=d).unique(),
    "inv": lambda d: torch.linalg.inv(torch.empty(0, 3, 3, device=d)),
    "foreach": lambda d: torch._foreach_add([torch.empty(0, device=d)], 1.0)[0],
    "any and all": lambda d: torch.stack([torch.empty(0, device=d).any(), torch.empty(0, device=d).all()]),
}


@pytest.mark.parametrize("call", NOTHING.values(), ids=NOTHING.keys())
def test_16_nothing_is_computed_with(call):
    same(call("accel"), call("cpu"))


@pytest.mark.parametrize("reduce", [torch.sum, torch.mean, torch.Tensor.norm], ids=["sum", "mean", "norm"])
def test_16_backward_of_nothing(reduce):
    x = torch.tensor([[]], device="accel", requires_grad=True)
    reduce(x).backward()
    assert x.grad.shape == (1, 0) and x.grad.is_accel


EMPTY_SOURCES = {
    "index_add_": lambda x, i: x.index_add_(0, i, x[:0].clone()),
    "index_copy_": lambda x, i: x.index_copy_(0, i, x[:0].clone()),
    "index_fill_": lambda x, i: x.index_fill_(0, i, 9.0),
    "index_put_": lambda x, i: x.index_put_((i,), x[:0].clone()),
    "index_put_ accumulating": lambda x, i: x.index_put_((i,), x[:0].clone(), accumulate=True),
    "index_put_ by an empty mask": lambda x, i: x.index_put_((x > 99,), x[0, :0].clone()),
    "scatter_": lambda x, i: x.scatter_(0, i[:, None], x[:0].clone()),
    "scatter_add_": lambda x, i: x.scatter_add_(0, i[:, None], x[:0].clone()),
    "scatter_reduce_": lambda x, i: x.scatter_reduce_(0, i[:, None], x[:0].clone(), "amax"),
    "setitem": lambda x, i: x.__setitem__(i, 9.0),
}


@pytest.mark.parametrize("call", EMPTY_SOURCES.values(), ids=EMPTY_SOURCES.keys())
def test_17_an_empty_source_changes_nothing(call):
    x = torch.arange(12.0).view(3, 4).to("accel")
    call(x, torch.empty(0, dtype=torch.int64, device="accel"))
    assert torch.equal(x.cpu(), torch.arange(12.0).view(3, 4))


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64, torch.int32], ids=str)
def test_18_repeated_indices_accumulate(dtype):
    index = torch.tensor([1, 1, 0, 1, 2, 1])
    values = torch.tensor([1, 2, 3, 4, 5, 6]).to(dtype)

    def put(x, i, v):
        return x.index_put((i,), v, accumulate=True)

    actual = put(torch.zeros(4, dtype=dtype, device="accel"), index.accel(), values.accel())
    assert actual.tolist() == [3, 13, 5, 0]
    written = torch.zeros(4, dtype=dtype, device="accel")
    assert written.index_put_((index.accel(),), values.accel(), accumulate=True) is written
    same(written, actual.cpu())
    compiled = torch.compile(put, backend="aot_eager")
    same(compiled(torch.zeros(4, dtype=dtype, device="accel"), index.accel(), values.accel()), actual.cpu())


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "amax", "amin", "mean", "prod"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_19_scatter_reduce_of_many_duplicates(dtype, reduce, include_self):
    torch.manual_seed(0)
    index, source = torch.randint(7, (5000,)), torch.randint(1, 3, (5000,)).to(dtype)
    base = torch.full((8,), 2).to(dtype)

    def both(x, i, s):
        rows = (
            x[:, None].repeat(1, 2).index_reduce(0, i, s[:, None].repeat(1, 2), reduce, include_self=include_self)
            if reduce != "sum"
            else x[:, None].repeat(1, 2).index_add(0, i, s[:, None].repeat(1, 2))
        )
        return [x.scatter_reduce(0, i, s, reduce, include_self=include_self), rows, x.scatter_add(0, i, s)]

    for mine, theirs in zip(both(base.accel(), index.accel(), source.accel()), both(base, index, source)):
        same(mine, theirs)


def test_19_against_numpy():
    index, source = np.arange(1000) % 7, np.arange(1000.0)
    expected = np.zeros(7)
    np.add.at(expected, index, source)
    actual = torch.zeros(7, dtype=torch.float64, device="accel")
    actual.index_add_(0, torch.from_numpy(index).accel(), torch.from_numpy(source).accel())
    np.testing.assert_array_equal(actual.cpu().numpy(), expected)
    largest = torch.full((7,), -1.0, dtype=torch.float64, device="accel")
    largest.scatter_reduce_(0, torch.from_numpy(index).accel(), torch.from_numpy(source).accel(), "amax")
    np.testing.assert_array_equal(largest.cpu().numpy(), [source[index == k].max() for k in range(7)])


@pytest.mark.parametrize("fast", [True, False])
def test_20_transformer_encoder(fast):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0)
    encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x, padding = torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.inference_mode(fast):
        expected = encoder(x, src_key_padding_mask=padding)
        actual = encoder.to("accel")(x.accel(), src_key_padding_mask=padding.accel())
    torch.testing.assert_close(actual.detach().cpu(), expected.detach())


@pytest.mark.parametrize("source", FLOATS, ids=str)
@pytest.mark.parametrize(
    "target", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool], ids=str
)
def test_21_casts_of_what_no_integer_holds_are_the_cpus(source, target):
    # C++ leaves them to the processor, torch to the CPU's kernel: one policy, in every direction and layout.
    values = [float("inf"), float("-inf"), float("nan"), 1e30, -1e30, 300.7, -300.7, 2.0**33, -0.0, 0.5, -0.9]
    host = torch.tensor(values, dtype=torch.float64).clamp(-65504, 65504).to(source)
    host[:3] = torch.tensor(values[:3])
    expected = host.to(target)
    same(host.accel().to(target), expected)
    same(host.accel().to(torch.device("accel"), target), expected)
    same(torch.empty_like(expected, device="accel").copy_(host), expected)
    same(torch.empty_like(expected, device="accel").copy_(host.accel()), expected)
    assert torch.equal(torch.empty_like(expected).copy_(host.accel()), expected)


# ---- 3. Fallback


@pytest.mark.parametrize("name", ["abs", "isnan", "isinf", "isfinite", "isposinf", "isneginf", "isreal", "sign"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (0, 3)], ids=str)
def test_22_predicates_have_the_full_shape(name, shape):
    x = torch.full(shape, float("-inf"))
    same(getattr(torch, name)(x.accel()), getattr(torch, name)(x))


def define(schema, function):
    name = f"behaviour{uuid.uuid4().hex}"
    library = torch.library.Library(name, "DEF")
    library.define(schema)
    operator = schema.split("(")[0]
    library.impl(operator, function, "CPU")
    return library, getattr(getattr(torch.ops, name), operator)


def test_24_a_view_that_falls_back_still_aliases():
    library, halves = define("halves(Tensor(a) x) -> Tensor(a)", lambda x: x[: len(x) // 2])
    x = torch.arange(6.0).to("accel")
    view = halves(x)
    assert view.is_accel and view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    view.fill_(9)
    assert x.tolist() == [9, 9, 9, 3, 4, 5]
    del library


def test_24_factories_without_a_kernel_make_device_tensors():
    for make in (
        lambda d: torch.arange(3.0, device=d),
        lambda d: torch.tril_indices(3, 2, device=d),
        lambda d: torch.linspace(0, 1, 4, device=d),
        lambda d: torch.kaiser_window(5, device=d),
        lambda d: torch.logspace(0, 1, 4, device=d),
        lambda d: torch.eye(2, 3, device=d),
    ):
        same(make("accel"), make("cpu"))


@pytest.mark.parametrize(
    "draw",
    [
        lambda d, g: torch.multinomial(torch.ones(20, device=d), 8, generator=g),
        lambda d, g: torch.poisson(torch.full((20,), 3.0, device=d), generator=g),
        lambda d, g: torch.randperm(20, device=d, generator=g),
    ],
    ids=["multinomial", "poisson", "randperm"],
)
def test_24_a_random_operator_draws_from_the_devices_generator(draw):
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first = draw("accel", None)
    assert torch.equal(torch.get_rng_state(), state)  # not from the CPU's
    second = draw("accel", None)
    torch.accel.manual_seed(7)
    assert torch.equal(draw("accel", None), first) and torch.equal(draw("accel", None), second)
    own = torch.Generator("accel").manual_seed(3)
    third = draw("accel", own)
    assert torch.equal(draw("accel", own.manual_seed(3)), third) and not torch.equal(first, second)


def test_24_a_random_operator_of_ones_own_draws_from_the_devices_generator():
    schema = "draw(Tensor x, *, Generator? generator=None) -> Tensor"
    library, draw = define(schema, lambda x, generator=None: torch.rand(x.shape, generator=generator))
    x = torch.empty(20, device="accel")
    cpu = torch.get_rng_state()
    torch.accel.manual_seed(7)
    first, second = draw(x), draw(x)
    torch.accel.manual_seed(7)
    assert torch.equal(draw(x), first) and torch.equal(draw(x), second) and not torch.equal(first, second)
    default = torch.accel.get_rng_state()
    own = torch.Generator("accel").manual_seed(7)
    assert torch.equal(draw(x, generator=own), first)
    assert torch.equal(torch.accel.get_rng_state(), default) and torch.equal(torch.get_rng_state(), cpu)
    with pytest.raises(RuntimeError, match="Expected a 'accel' device type for generator but found 'cpu'"):
        draw(x, generator=torch.Generator())
    del library
