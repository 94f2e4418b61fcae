"""Launches of compiled kernels: how Python's arguments reach a kernel, what a launch owns, what it refuses."""

import gc
import struct
import weakref

import numpy as np
import pytest
import torch
from expecttest import assert_expected_inline

from tests.triton import native
from tests.triton.native import READ, WRITE, launch
from torch_accel import sanitizer
from torch_accel.testing import hold_stream, launches


def add_kernel():
    return native.kernel(native.ADD, [("x", "*fp32", READ), ("out", "*fp32", WRITE), ("a", "fp32", 0)])


def dumped(types_and_values):
    """The bytes that a kernel gets for arguments behind a pointer to where it puts them."""
    types, values = zip(*types_and_values)
    out = torch.zeros(64, dtype=torch.uint8, device="accel")
    parameters = [("out", "*u8", WRITE), *((f"p{i}", type, 0) for i, type in enumerate(types))]
    launch(native.kernel(native.DUMP.replace("COUNT", "64"), parameters), (1,), out, *values)
    data = out.cpu().numpy().tobytes()
    assert struct.unpack_from("Q", data)[0] == out.data_ptr()
    return data[8:]


def test_a_kernel_computes():
    x = torch.arange(1000.0, device="accel")
    out = torch.empty_like(x)
    launch(add_kernel(), (1000,), x, out, 0.5)
    assert torch.equal(out.cpu(), torch.arange(1000.0) + 0.5)


def test_arguments_are_packed_in_order_at_natural_alignment():
    values = [
        ("i1", True),
        ("i16", -2),
        ("i8", -1),
        ("u32", 0xFFFFFFFF),
        ("constexpr", "not an argument"),
        ("fp16", 1.5),
        ("i64", -3),
        ("bf16", 2.0),
        ("fp32", 0.1),
        ("fp64", 0.1),
    ]
    expected = struct.pack("@?hbIeqHfd", True, -2, -1, 0xFFFFFFFF, 1.5, -3, 0x4000, 0.1, 0.1)
    assert dumped(values)[: len(expected)] == expected


@pytest.mark.parametrize(
    ("type", "value", "format", "expected"),
    [
        ("i32", 0xFFFFFFFF, "i", -1),
        ("u64", (1 << 64) - 1, "Q", (1 << 64) - 1),
        ("u8", 255, "B", 255),
        ("i32", np.int64(7), "i", 7),
        ("i32", True, "i", 1),
        ("fp32", 3, "f", 3.0),
        ("fp32", np.float64(0.25), "f", 0.25),
        ("i1", np.bool_(True), "B", 1),
        ("*fp32", None, "Q", 0),
        ("*fp32", 4096, "Q", 4096),
    ],
)
def test_numbers_of_other_kinds(type, value, format, expected):
    assert struct.unpack_from(format, dumped([(type, value)]))[0] == expected


def test_a_view_begins_where_its_first_element_is():
    x = torch.arange(10.0, device="accel")
    out = torch.zeros(3, device="accel")
    launch(add_kernel(), (3,), x[4:], out, 0.0)
    assert out.tolist() == [4.0, 5.0, 6.0]


def test_an_object_that_wraps_a_tensor():
    class Wrapper:  # as Triton's TensorWrapper
        def __init__(self, base):
            self.base = base

        def data_ptr(self):
            return self.base.data_ptr()

    x, out = torch.ones(2, device="accel"), torch.zeros(2, device="accel")
    launch(add_kernel(), (2,), Wrapper(x), Wrapper(out), 1.0)
    assert out.tolist() == [2.0, 2.0]
    with pytest.raises(ValueError, match="argument 'x' of kernel 'add' is a tensor on cpu"):
        launch(add_kernel(), (2,), Wrapper(x.cpu()), out, 1.0)


def refused(error, *arguments, grid=(1,)):
    with pytest.raises(error) as raised:
        launch(add_kernel(), grid, *arguments)
    return str(raised.value)


def test_what_is_refused_names_the_argument():
    x = torch.ones(2, device="accel")
    assert_expected_inline(
        refused(ValueError, x, torch.ones(2), 1.0),
        """accel: argument 'out' of kernel 'add' is a tensor on cpu, and the kernel runs on accel:0; move it there with .to('accel:0')""",
    )
    assert_expected_inline(
        refused(TypeError, x, x, "one"),
        """accel: argument 'a' of kernel 'add' is a str, expected a number (fp32)""",
    )
    assert_expected_inline(
        refused(TypeError, [1.0], x, 1.0),
        """accel: argument 'x' of kernel 'add' is a list, expected a tensor (*fp32)""",
    )
    assert_expected_inline(
        refused(TypeError, x, x),
        """accel: kernel 'add' has 3 parameters; 2 arguments given""",
    )
    assert_expected_inline(
        refused(ValueError, x, x, 1.0, grid=(2, -1)),
        """accel: kernel 'add': the grid (2, -1, 1) has a size that is not in 0 to 2147483647""",
    )
    assert_expected_inline(
        refused(RuntimeError, x, x, 1.0, grid=(1 << 20, 1 << 20)),
        """accel: kernel 'add': a grid of 1048576 x 1048576 x 1 programs is too large; the most are 2147483647 along an axis and 4294967296 in all: let a program do more""",
    )
    with pytest.raises(TypeError, match="parameter 'x' has the unknown type 'complex'"):
        native.kernel(native.ADD, [("x", "complex", 0)])


def test_a_tensor_of_another_device(two_devices):
    assert_expected_inline(
        two_devices(
            """
            import torch
            from tests.triton import native
            kernel = native.kernel(native.ADD, [("x", "*fp32", 1), ("out", "*fp32", 2), ("a", "fp32", 0)])
            there = torch.ones(2, device="accel:1")
            with torch.accel.device(1):
                out = torch.zeros(2, device="accel:1")
                native.launch(kernel, (2,), there, out, 1.0)
                print(out.tolist())
            try:
                native.launch(kernel, (2,), torch.ones(2, device="accel:0"), there, 1.0)
            except ValueError as error:
                print(error)
            """
        ),
        """\
[2.0, 2.0]
accel: argument 'out' of kernel 'add' is a tensor on accel:1, and the kernel runs on accel:0; move it there with .to('accel:0')
""",
    )


def test_nothing_is_launched_by_an_empty_grid(queued):
    x = torch.zeros(1, device="accel")
    with launches() as names:
        launch(add_kernel(), (0,), x, x, 1.0)
        launch(add_kernel(), (1,), x, x, 1.0)
    assert names == ["add"]


def test_a_launch_is_queued_and_owns_its_code(queued):
    x = torch.zeros(4, device="accel")
    code = native.Code(native.ADD)
    alive = weakref.ref(code)
    with hold_stream():
        launch(
            native.kernel(native.ADD, [("x", "*fp32", 3), ("out", "*fp32", 3), ("a", "fp32", 0)], owner=code),
            (4,),
            x,
            x,
            2.0,
        )
        del code
        gc.collect()
        add_kernel()  # would let go of code that no launch needs
        assert alive() is not None
    assert x.tolist() == [2.0] * 4
    torch.accel.synchronize()
    add_kernel()
    assert alive() is None


def test_a_graph_replays_by_value():
    x = torch.zeros(4, device="accel")
    add = add_kernel()
    graph = torch.accel.AccelGraph()
    with torch.accel.graph(graph):
        launch(add, (4,), x, x, 3.0)
    del add
    gc.collect()
    assert x.tolist() == [0.0] * 4
    graph.replay()
    graph.replay()
    assert x.tolist() == [6.0] * 4


def test_a_fault_rises_at_the_synchronisation(queued):
    fail = native.kernel(native.FAIL, [])
    launch(fail, (2,))
    torch.accel.synchronize()
    launch(fail, (5,))
    with pytest.raises(torch.AcceleratorError) as error:
        torch.accel.synchronize()
    assert_expected_inline(
        str(error.value),
        """\
accel kernel failed: fail: accel: program (2, 0, 0) at kernel.py:20: n is not positive; check what the kernel was launched with
Kernels fail after their launch, so this call may not be the one to blame. ACCEL_LAUNCH_BLOCKING=1 raises the error at the launch.""",
    )
    torch.accel.synchronize()


def test_a_cooperative_launch_needs_cores():
    x = torch.zeros(1, device="accel")
    cores = torch.accel.get_device_properties().cores
    launch(add_kernel(), (1,), x, x, 1.0, cooperative=True)
    with pytest.raises(RuntimeError, match=f"a cooperative launch of {cores + 1} programs"):
        launch(add_kernel(), (cores + 1,), x, x, 1.0, cooperative=True)


def test_scratch_memory_that_no_core_has():
    with pytest.raises(torch.OutOfMemoryError, match="kernel 'add' uses 2147483648 bytes of scratch memory"):
        native.kernel(native.ADD, [("x", "*fp32", READ), ("out", "*fp32", WRITE), ("a", "fp32", 0)], sram=1 << 31)


@pytest.mark.parametrize("written", [False, True])
def test_the_sanitizer_knows_what_a_launch_reads_and_writes(queued, written):
    x, out = torch.zeros(4, device="accel"), torch.zeros(4, device="accel")
    other = torch.accel.Stream()
    other.wait_stream(torch.accel.current_stream())
    add = add_kernel()
    with sanitizer.enabled():
        launch(add, (4,), x, out, 1.0)
        with torch.accel.stream(other):
            if written:
                with pytest.raises(RuntimeError, match="add"):
                    launch(add, (4,), out, x, 1.0)
            else:
                launch(add, (4,), x, torch.empty_like(x), 1.0)
    torch.accel.synchronize()


def test_a_kernel_runs_once_where_operators_run_twice(script):
    """It may leave elements as they were, which ACCEL_REPLAY_TWICE would take for a fault."""
    script(
        """
        import torch
        from tests.triton import native
        add = native.kernel(native.ADD, [("x", "*fp32", 1), ("out", "*fp32", 2), ("a", "fp32", 0)])
        x, out = torch.ones(4, device="accel"), torch.full((4,), 7.0, device="accel")
        native.launch(add, (2,), x, out, 1.0)
        assert out.tolist() == [2.0, 2.0, 7.0, 7.0]
        """,
        ACCEL_REPLAY_TWICE=1,
    )
