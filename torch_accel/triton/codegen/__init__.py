"""Native code for tile kernels: LLVM IR written as text, compiled in this process by llvmlite. Needs the extra ``[compile]``."""
