"""torch.autograd.Function on accel: contexts, what forward may say about its results, vmap, forward mode, errors."""

import pytest
import torch
from torch.autograd import Function
from torch.autograd.forward_ad import dual_level, make_dual, unpack_dual
from torch.autograd.function import once_differentiable

from torch_accel.testing import hold_stream


def leaf(values=(1.0, 2.0, 3.0)):
    return torch.tensor(values, device="accel", requires_grad=True)


class Cube(Function):
    """x³ with everything: a context of its own, forward mode, a rule for vmap, a differentiable backward."""

    @staticmethod
    def forward(x):
        return x**3, 3 * x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(x, output[1])
        ctx.save_for_forward(x, output[1])

    @staticmethod
    def backward(ctx, grad, grad_slope):
        x, slope = ctx.saved_tensors
        return grad * slope + 6 * x * grad_slope

    @staticmethod
    def jvp(ctx, tangent):
        x, slope = ctx.saved_tensors
        return tangent * slope, tangent * 6 * x

    @staticmethod
    def vmap(info, in_dims, x):
        assert info.batch_size == x.shape[in_dims[0]]
        return Cube.apply(x.movedim(in_dims[0], 0)), (0, 0)


class Generated(Function):
    """The same with a generated rule for vmap."""

    generate_vmap_rule = True
    forward, setup_context, backward, jvp = Cube.forward, Cube.setup_context, Cube.backward, Cube.jvp


@pytest.mark.parametrize("function", [Cube, Generated])
class TestTransforms:
    X = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.0, -0.5]], dtype=torch.float64)

    def test_gradients_by_differences(self, function):
        x = self.X.to("accel").requires_grad_()
        assert torch.autograd.gradcheck(lambda t: function.apply(t), (x,), check_forward_ad=True)
        assert torch.autograd.gradgradcheck(lambda t: function.apply(t), (x,))

    def test_vmap(self, function):
        x = self.X.to("accel")
        for dim in (0, 1):
            cubes, slopes = torch.vmap(lambda t: function.apply(t), in_dims=dim)(x)
            expected = self.X.movedim(dim, 0)
            assert torch.equal(cubes.cpu(), expected**3) and torch.equal(slopes.cpu(), 3 * expected**2)

    def test_transforms_of_transforms(self, function):
        x = self.X.to("accel")
        each = torch.vmap(torch.func.grad(lambda t: function.apply(t)[0].sum()))(x)
        torch.testing.assert_close(each.cpu(), 3 * self.X**2)
        twice = torch.func.jacrev(torch.func.jacrev(lambda t: function.apply(t)[0]))(x[0])
        expected = torch.zeros(3, 3, 3, dtype=torch.float64)
        expected[range(3), range(3), range(3)] = 6 * self.X[0]
        torch.testing.assert_close(twice.cpu(), expected)
        forward = torch.func.jacfwd(lambda t: function.apply(t)[0])(x[0])
        torch.testing.assert_close(forward.cpu(), torch.diag(3 * self.X[0] ** 2))

    def test_forward_mode(self, function):
        with dual_level():
            cube, slope = function.apply(make_dual(self.X.to("accel"), torch.full_like(self.X, 2).to("accel")))
            assert torch.equal(unpack_dual(cube).tangent.cpu(), 6 * self.X**2)
            assert torch.equal(unpack_dual(slope).tangent.cpu(), 12 * self.X)


def test_a_function_is_queued_both_ways(queued):
    x = leaf()
    with hold_stream():
        cube, slope = Cube.apply(x)
        (cube.sum() + slope.sum()).backward()
    assert x.grad.tolist() == [3 + 6, 12 + 12, 27 + 18]


def test_changes_in_place():
    class AddOne(Function):
        @staticmethod
        def forward(ctx, x, mark):
            x.add_(1)
            if mark:
                ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * 10, None

    x = leaf()
    y = x * 2
    version = y._version
    z = AddOne.apply(y, True)
    assert z is y and y._version > version and y.grad_fn.name() == "AddOneBackward"
    z.sum().backward()
    assert z.tolist() == [3, 5, 7] and x.grad.tolist() == [20, 20, 20]
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        AddOne.apply(leaf(), True)
    base = x * 1
    view = base[1:]
    AddOne.apply(view, True)  # one output: the graph of the base is rewritten
    x.grad = None
    base.sum().backward()
    assert base.tolist() == [1, 3, 4] and x.grad.tolist() == [1, 10, 10]


def test_results_without_a_gradient():
    class Sort(Function):
        @staticmethod
        def forward(ctx, x):
            values, index = x.sort(descending=True)
            ctx.mark_non_differentiable(index)
            ctx.save_for_backward(index)
            return values, index

        @staticmethod
        def backward(ctx, grad, grad_index):
            assert grad_index.device == grad.device and torch.equal(grad_index, torch.zeros_like(grad_index))
            (index,) = ctx.saved_tensors
            return torch.zeros_like(grad).scatter_(0, index, grad)

    x = leaf((3.0, 1.0, 2.0))
    values, index = Sort.apply(x)
    assert values.requires_grad and not index.requires_grad and index.tolist() == [0, 2, 1]
    (values * torch.tensor([1.0, 2.0, 3.0], device="accel")).sum().backward()
    assert x.grad.tolist() == [1, 3, 2]


@pytest.mark.parametrize("materialize", [True, False])
def test_gradients_that_are_not_there(materialize):
    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(materialize)
            return x * 1, x * 2

        @staticmethod
        def backward(ctx, first, second):
            if materialize:
                assert second.device == first.device and torch.equal(second, torch.zeros_like(first))
            else:
                assert second is None
            return first * 5

    x = leaf()
    Two.apply(x)[0].sum().backward()
    assert x.grad.tolist() == [5, 5, 5]


def test_needs_input_grad():
    seen = []

    class Product(Function):
        @staticmethod
        def forward(ctx, a, b, c):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, grad):
            seen.append(ctx.needs_input_grad)
            a, b = ctx.saved_tensors
            return (grad * b, grad * a if ctx.needs_input_grad[1] else None, None)

    a, b = leaf(), torch.full((3,), 4.0, device="accel")
    Product.apply(a, b, "not a tensor").sum().backward()
    assert seen == [(True, False, False)] and a.grad.tolist() == [4, 4, 4]


def test_once_differentiable():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, grad):
            assert not torch.is_grad_enabled()
            return 2 * ctx.saved_tensors[0] * grad

    x = leaf()
    (first,) = torch.autograd.grad(Square.apply(x).square().sum(), x, create_graph=True)
    assert first.tolist() == [4, 32, 108]
    with pytest.raises(RuntimeError, match="trying to differentiate twice a function that was marked with @once_diff"):
        first.sum().backward()


class Self(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 0.5


class Alias(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * 0.5


def test_a_result_that_is_an_input():
    x = leaf()
    y = Self.apply(x)
    assert y is not x and y.data_ptr() == x.data_ptr() and y._is_view()
    y.sum().backward()
    assert x.grad.tolist() == [0.5, 0.5, 0.5]
    with torch.no_grad():
        assert not Self.apply(x).requires_grad


def test_a_result_that_is_a_view_of_an_input():
    x = leaf()
    y = Alias.apply(x)
    assert y.data_ptr() == x.data_ptr()
    y.sum().backward()
    assert x.grad.tolist() == [0.5, 0.5, 0.5]
    with torch.no_grad():
        Alias.apply(x)[1:].zero_()
    assert x.tolist() == [1, 0, 0]
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        Alias.apply(x * 1).add_(1)


@pytest.mark.parametrize("function", [Self, Alias])
def test_a_compiled_function(function):
    @torch.compile(backend="aot_eager", fullgraph=True)
    def compiled(x):
        return function.apply(x * 2) + 1

    x = leaf()
    y = compiled(x)
    y.sum().backward()
    assert y.tolist() == [3, 5, 7] and x.grad.tolist() == [1, 1, 1]
    with torch.no_grad():
        assert compiled(x).tolist() == [3, 5, 7]


def returning(result):
    class Given(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return result(grad)

    return Given


WRONG = {
    "another shape": (lambda g: g[:2], "returned an invalid gradient at index 0 - got [2] but expected shape compatible with [3]"),
    "another device": (lambda g: g.cpu(), "returned an invalid gradient at index 0 - expected device accel:0 but got cpu"),
    "too many": (lambda g: (g, g), "returned an incorrect number of gradients (expected 1, got 2)"),
    "no tensor": (lambda g: 3.0, "expected Variable or None (got float)"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_gradients_are_refused(case):
    result, text = WRONG[case]
    x = leaf()
    with pytest.raises((RuntimeError, TypeError)) as raised:
        returning(result).apply(x).sum().backward()
    assert text in str(raised.value)
    assert x.grad is None


def test_a_gradient_of_another_dtype_is_cast():
    x = leaf()
    returning(lambda g: g.double() * 2).apply(x).sum().backward()
    assert x.grad.dtype == torch.float32 and x.grad.tolist() == [2, 2, 2]


def test_a_gradient_of_a_broadcast_is_summed():
    x = leaf()
    returning(lambda g: g.expand(4, 3)).apply(x).sum().backward()
    assert x.grad.tolist() == [4, 4, 4]


def test_what_the_host_captured_by_value_is_kept():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.factor, None

    x, factor = leaf(), torch.tensor(2.0)  # a CPU tensor
    y = Scale.apply(x, factor)
    y.sum().backward()
    factor.fill_(100)  # after the launch
    assert x.grad.tolist() == [2, 2, 2] and y.tolist() == [2, 4, 6]


def test_a_saved_tensor_changed_in_place_is_noticed():
    x = leaf()
    y = x * 1
    cube, _ = Cube.apply(y)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        cube.sum().backward()
