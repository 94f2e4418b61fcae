"""Runs an operator's code on arrays: a loop over vectors, as compiled kernels have it."""

import ctypes
import functools

import numpy as np

from torch_accel.triton.codegen import llvm, memory
from torch_accel.triton.codegen.emit import Function, Lanes, Module
from torch_accel.triton.ir.floats import decode, storage
from torch_accel.triton.ir.types import Scalar

ISAS = ("x86-64-v3", "host")


class Operators:
    """``make`` maps a name to (types of operands, type of result, what emits it); all become functions of one object."""

    def __init__(self, make, isa, lanes=16):
        self.make, self.lanes = make, lanes
        module = Module(llvm.target(isa))
        for name, (operands, result, emit) in make.items():
            self._function(module, name, operands, result, emit)
        compiled = llvm.compile_text(module.text(), module.target)
        self.code, self.llvm_text = llvm.Code(compiled.object), compiled.llvm_text

    def _function(self, module, name, operands, result, emit):
        pointers = [("ptr", f"%x{i}") for i in range(len(operands) + 1)]
        function = Function(module, name, [*pointers, ("i64", "%n")])
        e = Lanes(function, self.lanes)
        with function.loop("0", "%n", str(self.lanes or 1)) as index:

            def at(elem, pointer):
                return function.op(f"getelementptr {memory.memory_base(elem)}, ptr {pointer}, i64 {index}")

            values = [memory.load(e, elem, at(elem, p)) for elem, (_, p) in zip(operands, pointers)]
            memory.store(e, result, emit(e, *values), at(result, pointers[-1][1]))
        function.do("ret void")
        function.finish()

    def __call__(self, name, *arrays):
        """Arrays of stored elements of one length, and what the code makes of them."""
        operands, result, _ = self.make[name]
        count = arrays[0].size
        padded = -(-count // 16) * 16
        given = [np.resize(array, padded).astype(storage(elem)) for array, elem in zip(arrays, operands)]
        out = np.empty(padded, storage(result))
        function = _signature(len(arrays) + 1)(self.code.address(name))
        function(*(array.ctypes.data for array in (*given, out)), padded)
        return out[:count]


@functools.cache
def _signature(pointers):
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * pointers, ctypes.c_int64)


def assert_same_bits(elem: Scalar, got, want, *given):
    """Bit for bit; any NaN is as good as another. The first difference is shown with its operands."""
    assert got.dtype == want.dtype and got.shape == want.shape
    kind = f"uint{got.itemsize * 8}"
    same = got.view(kind) == want.view(kind)
    if elem.is_float:
        same |= np.isnan(decode(elem, got)) & np.isnan(decode(elem, want))
    bad = np.flatnonzero(~same)
    if bad.size:
        at = bad[0]
        raise AssertionError(
            f"{bad.size} of {same.size} differ; at {at}: {[array[at] for array in given]} gives {got[at]}, expected {want[at]}"
        )
