"""The machine IR (M): buffers, loops over lanes, and accesses with a form. ``passes`` make it of the tile IR; code is made of it.

It uses the classes, the text and the verifier of ``ir``, with a table of operators of its own (``machine.ops``). It has no tiles: a
value is a scalar, a pointer or a buffer. What a tile was is one of two things:

- **a buffer** (``buf<shape, elem, space, layout, align>``) that `alloc` makes. Operations write it and read it; it is no value that
  changes, and `for`, `while`, `if`, `yield` and `return` carry scalars and pointers only (and the tokens of DMA). A tile that a loop of the program carries is
  a buffer that is made before the loop and written again in each turn.
- **a value of a lane**, inside of a `loop`.

**Core level** is a function's block and the regions of `for`, `while` and `if` there: it runs once for a program. `program_id`, scalar
arithmetic, scalar loads, stores and atomics, calls, and everything on whole buffers: `alloc`, `free`, `copy`, `recast`, `slot`, `mma`,
`mma_scaled`, `histogram`, `print`, DMA.

**Lane level** is the body of a `loop`, `vreduce` or `vscan`; they may nest, and each may stand at core level. Its block has an i32 index for each dimension, and its
operations are the tile IR's on scalars: each runs once for each iteration. A lane's value may be used in nested bodies; what is made at
core level is the same for all lanes. `if`, `for` and `while` may stand there too; then ``vec`` is -1 all around.

- `loop{dims, vec, unroll}`: iterations in row-major order of ``dims``. An iteration reads no element that another one writes, neither in
  buffers nor in memory, so that any number of neighbours may run together, operation by operation, lanes in ascending order.
  Atomics, and stores of different lanes to one element, take effect in row-major order: a loop with one of these and ``vec`` other than
  its last dimension is made only where the order cannot be seen. ``vec`` is the dimension whose neighbours go into the lanes of a vector; -1
  is for a loop that is not vectorised itself (what is nested may be).
- `vreduce{count, lanes, accumulators, vector}`: the first region gives the elements (one for each result) of index 0 to count - 1; the
  second one combines two sets of them: first those so far, then the next. Order as in the tile IR: slot i % (lanes * accumulators) takes
  element i in ascending order, then the upper half of the slots is combined into the lower (of n slots, slot i with i + (n+1)//2) until
  one is left. If count < slots, there are count slots. No neutral element is needed. ``vector``: whether the slots are lanes of vectors; if
  not, the loop around is vectorised, or nothing is. The first region may write the elements to a buffer as well.
- `vscan{count, reverse, vector}`: the first region gives the elements; the second combines them one after the other, from index 0, or
  from the last one; the third has the index and the running values, and uses them.
- `access(base, offset, strides, indices)`: the address base + size of an element * (offset + sum of stride * index), in 64 bits, which
  wrap. Each index is one of a body's index arguments (no two the same); base, offset and strides (i64) are defined outside of the bodies
  that these belong to. ``align``: bytes that divide the address at indices 0, 1 if nothing is known. A load or store whose address is no `access` is
  *indexed*: any address in each lane. A lane that is masked off is not accessed; no `other` is 0.
- `read(buf, indices)`, `write(buf, value, indices)`: an element of a buffer. Indices are i32 and in range; one that is an index argument of a
  body makes it affine, a constant is fixed, any other one is a gather or scatter.
- `alloc`: uninitialised storage of a core, from here to its `free` (one, in the same block). ``offset`` is its place in the function's frame of
  ``frame`` bytes (attribute of `func`), -1 until SRAM is planned; buffers whose lives do not meet may share it. A call's frame lies behind the
  caller's; ``sram`` of `func` is the frame with the deepest call's. `data` is a constant's storage, `recast` the same storage (row layout)
  under another shape with as many elements; it has no life of its own.
- `copy(target, source)`: all elements; shapes and element types are the same, layouts may differ.
- `slot(buf, index)`: the same storage without the first dimension: the part of that number. It has no life of its own.
- `window(base, offset, strides, starts, limits)` is what a DMA moves in HBM: a buffer of the space ``hbm``, layout ``strided``. The address of an
  element is base + size of an element * (offset + sum of stride * index). Each of ``bounds`` is a dimension, ``compare`` its comparison: an element
  is left out unless start + index (in the width of start, which wraps, as a kernel's own index does) compares to limit. `indexed(addresses)` is
  one of layout ``indexed``: its elements are at the addresses that a buffer has (a gather or a scatter). No lane reads or writes either.
- `dma_start(target, source, go?, mask?)`: a token; elements move between an SRAM buffer and one in HBM, in row-major order, by a ``queue`` of the
  target: those inside of the bounds whose ``mask`` is 1, none if ``go`` is 0; others stay as they are in the target. A transfer moves an element
  at any time from its start to the end of the wait for its token, and is ordered by nothing else: not by its queue, and not with accesses of HBM. Scalars
  are those of the start; buffers, masks and addresses too, are read and written while it is under way. ``independent``: transfers with
  the same number, not 0, touch no memory of each other (tiles of a loop whose lanes do not). ``volatile``: not started ahead of its time.
- `dma_wait(token)` uses a token up. Each is waited for once on every path; a `for` and an `if` may pass it on, a `while` may not. Until then nobody
  writes what the transfer reads or touches what it writes, in SRAM and, as far as arguments may alias, in HBM. `dma_done()` is a token of no
  transfer.
- `mma(acc, a, b)`: acc += a @ b over the last two dimensions, as the tile IR's dot computes; acc is no other operand's storage.
- `histogram(target, values, mask?)` overwrites target with counts.
- `call`: arguments may be buffers: those that a function reads, then those that it writes its results to.

A target (``target.Target``) whose lanes have no direct HBM has `load`, `store` and atomics at core level only, on scalars: its scalar unit goes to HBM
by itself. Its `mma` have the shapes of its unit, and it has no `mma_scaled`.

``machine.verify.verify`` checks it, ``printer.text(module, operators=MACHINE)`` prints it, ``text.parse(shown, MACHINE)`` reads it, and
``interpret.machine`` runs it.
"""
