"""The kernel of docs/triton.md that goes through the passes: the sum of what is positive in a row."""

import triton
import triton.language as tl


@triton.jit
def row_sum(x, out, n, B: tl.constexpr):
    p = x + tl.program_id(0) * n + tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for start in range(0, n, B):
        row = tl.load(p, mask=start + tl.arange(0, B) < n, other=0)
        total += tl.maximum(row, 0)
        p += B
    tl.store(out + tl.program_id(0), tl.sum(total, 0))
