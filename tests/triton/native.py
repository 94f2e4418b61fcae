"""Kernels written in LLVM's language, loaded as the compiler's objects are: for tests of launches alone."""

import llvmlite.binding as llvm

from torch_accel._native import _C

READ, WRITE = 1, 2

CONTEXT = "{ i64, i64, [3 x i32], [3 x i32], ptr, i64, ptr, ptr, ptr }"
FAULT = "{ i64, i32, [3 x i32], i32, [4 x i64], [1024 x i8] }"

# Copies its argument bytes, `count` of them, to its first argument.
DUMP = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define i32 @dump(ptr %context, ptr %args) {
  %place = getelementptr CONTEXT, ptr %context, i32 0, i32 1
  %offset = load i64, ptr %place
  %device = load i64, ptr %args
  %host = add i64 %device, %offset
  %out = inttoptr i64 %host to ptr
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %args, i64 COUNT, i1 false)
  ret i32 0
}
"""

# (x: *fp32, out: *fp32, a: fp32): out[program] = x[program] + a
ADD = """
define i32 @add(ptr %context, ptr %args) {
  %place = getelementptr CONTEXT, ptr %context, i32 0, i32 1
  %offset = load i64, ptr %place
  %px = getelementptr CONTEXT, ptr %context, i32 0, i32 2
  %program = load i32, ptr %px
  %x = load i64, ptr %args
  %args1 = getelementptr i64, ptr %args, i32 1
  %out = load i64, ptr %args1
  %args2 = getelementptr i64, ptr %args, i32 2
  %a = load float, ptr %args2
  %xh = add i64 %x, %offset
  %xp = inttoptr i64 %xh to ptr
  %oh = add i64 %out, %offset
  %op = inttoptr i64 %oh to ptr
  %xe = getelementptr float, ptr %xp, i32 %program
  %oe = getelementptr float, ptr %op, i32 %program
  %value = load float, ptr %xe
  %sum = fadd float %value, %a
  store float %sum, ptr %oe
  ret i32 0
}
"""

# (): program 2 fails an assertion at site 1 with the text "n is not positive"
FAIL = """
@text = private constant [18 x i8] c"n is not positive\\00"
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define i32 @fail(ptr %context, ptr %args) {
  %px = getelementptr CONTEXT, ptr %context, i32 0, i32 2
  %program = load i32, ptr %px
  %bad = icmp eq i32 %program, 2
  br i1 %bad, label %fault, label %right
fault:
  %place = getelementptr CONTEXT, ptr %context, i32 0, i32 7
  %record = load ptr, ptr %place
  %kind = getelementptr FAULT, ptr %record, i32 0, i32 1
  store i32 1, ptr %kind
  %site = getelementptr FAULT, ptr %record, i32 0, i32 3
  store i32 1, ptr %site
  %words = getelementptr FAULT, ptr %record, i32 0, i32 5
  call void @llvm.memcpy.p0.p0.i64(ptr %words, ptr @text, i64 18, i1 false)
  ret i32 1
right:
  ret i32 0
}
"""


class Code:
    """A function in this process; its address is good as long as this lives."""

    def __init__(self, text: str) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.module = llvm.parse_assembly(text.replace("CONTEXT", CONTEXT).replace("FAULT", FAULT))
        machine = llvm.Target.from_default_triple().create_target_machine()
        self.engine = llvm.create_mcjit_compiler(self.module, machine)
        self.engine.finalize_object()


def kernel(text, parameters, sites=("kernel.py:10", "kernel.py:20"), sram=0, owner=None, order=0):
    """The kernel of ``text``; ``parameters`` as the launcher gives them: (name, type, READ | WRITE)."""
    code = owner or Code(text)
    name = text.split("define i32 @")[1].split("(")[0]
    return _C._load_grid_kernel(
        name, code.engine.get_function_address(name), 0, code, sram, list(sites), parameters, False, order
    )


def launch(kernel, grid, *arguments, cooperative=False):
    """Enqueues on the current stream."""
    x, y, z = (*grid, 1, 1)[:3]
    kernel.launch(x, y, z, _C._current_stream_handle(-1), cooperative, arguments)
