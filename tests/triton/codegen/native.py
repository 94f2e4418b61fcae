"""Runs a compiled kernel on NumPy arrays: their own addresses are the device addresses (D is 0), a call for each program."""

import ctypes
import itertools

import numpy as np

from tests.triton.corpus import copied
from torch_accel.triton import codegen
from torch_accel.triton.codegen.compile import compile_machine, packed
from torch_accel.triton.codegen.context import Context, Fault
from torch_accel.triton.interpret.engine import argument
from torch_accel.triton.ir.types import Ptr, Scalar

WAIT = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64)


class Addresses:
    """Stands in for the interpreter's memory where a case asks for an address."""

    def __init__(self):
        self.arrays = []

    @property
    def bases(self):
        return np.array([array.ctypes.data for array in self.arrays], np.int64)


class Kernel:
    """A compiled kernel, its function's address, and how its arguments are packed; the ranges of bounds follow always."""

    def __init__(self, lowered, name, isa="host", compile=codegen.compile_module):
        self.compiled = compile(lowered, name=name, target=codegen.target(isa))
        self.code = codegen.load(self.compiled.object)
        (function,) = (op for op in lowered.regions[0].block.operations if op.attributes["name"] == name)
        self.types = [value.type for value in function.regions[0].block.arguments]
        self.call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(
            self.code.address(self.compiled.symbol)
        )

    @classmethod
    def of_machine(cls, module, name):
        """Of the machine IR."""
        return cls(module, name, compile=compile_machine)

    def run(self, grid, arguments, abort=0, copy=copied, wait=None):
        """Runs all programs on copies of the arguments; gives the copies and the fault, or None."""
        memory, copies, values = Addresses(), copy(arguments), []
        for value in copies:
            if isinstance(value, np.ndarray):
                memory.arrays.append(value)
                values.append(value.ctypes.data)
            else:
                values.append(value(memory) if callable(value) else value)
        *places, size = packed(self.types)
        ranges = [
            (value.ctypes.data, value.nbytes) if isinstance(value, np.ndarray) else (0, 2**64 - 1)
            for type, value in zip(self.types, copies)
            if isinstance(type, Ptr)
        ]
        first = -(-size // 8) * 8
        data = np.zeros(first + 16 * len(ranges) + 1, np.uint8)
        data[first:-1] = np.array(ranges, np.uint64).reshape(-1).view(np.uint8)
        for type, value, at in zip(self.types, values, places):
            one = np.atleast_1d(argument(type, value)).view(np.uint8)
            data[at : at + one.size] = one
        sram = np.full(self.compiled.sram + 64, 0xA5, np.uint8)
        word, fault = np.array([abort], np.uint32), Fault(size=ctypes.sizeof(Fault))
        full = (*grid, 1, 1, 1)[:3]
        context = Context(ctypes.sizeof(Context), 0)
        context.grid[:] = full
        context.sram, context.sram_size = -(-sram.ctypes.data // 64) * 64, self.compiled.sram
        context.abort, context.fault = word.ctypes.data, ctypes.addressof(fault)
        waits = WAIT(wait or (lambda context, site, turns: 0))
        context.wait = ctypes.cast(waits, ctypes.c_void_p)
        for z, y, x in itertools.product(*(range(count) for count in reversed(full))):
            context.program[:] = (x, y, z)
            if self.call(ctypes.addressof(context), data.ctypes.data):
                return copies, fault
        return copies, None


__all__ = ["Kernel", "Scalar"]
