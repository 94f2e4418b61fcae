"""Faults planted one at a time into the npu's passes and into the interpreter's DMA: a kernel of the tests' sample finds each."""

import numpy as np
import pytest

from tests.triton import npu
from tests.triton.test_npu import SAMPLE
from torch_accel.triton.interpret import dma
from torch_accel.triton.interpret.engine import KernelFault
from torch_accel.triton.ir.core import IRError
from torch_accel.triton.passes import double, nests, products, stage


def wrapped(where, name, change):
    """A function that is called with what ``change`` makes of its arguments."""
    old = getattr(where, name)
    return lambda self, *given, **more: old(self, *change(self, *given), **more)


def skipped(where, name, when):
    """A function that does nothing for some of its arguments."""
    old = getattr(where, name)
    return lambda self, *given, **more: None if when(*given) else old(self, *given, **more)


def unbounded(self, op, find=nests.Nest._bound):
    found = find(self, op)
    return found and nests.Bound(found.index, found.compare, None, found.limit)


def always(self, used, old=double._Pipeline.turn):
    made = old(self, used)
    self.more = self.any if made else self.more
    return made


def first_of_next(self, made, load, whole, slot, values, go, old=double._Pipeline.start):
    return old(self, made, load, whole, slot, {} if made is self.top else values, go)


def backwards(self, size, unit, fill, old=products._Products.along):
    last = self.constant(size - unit)
    old(self, size, unit, lambda one: fill((self.compute("subi", last, one[0]), one[1]) if size > unit else one))


def changed(where, name, operator, change):
    """Operations of a kind are added with other operands and attributes."""
    old = getattr(where, name)

    def add(self, made, operands, *rest, **more):
        operands, more = change(operands, more) if made == operator else (operands, more)
        return old(self, made, operands, *rest, **more)

    return add


def packed(change, old=products._Products.pack):
    return lambda self, target, source, batch, extents, minus: old(self, target, source, batch, *change(extents, minus))


def untiled(self, place, addresses, old=stage._Stage.far):
    starts, self.starts = self.starts, {}
    far = old(self, place, addresses)
    self.starts = starts
    return far


PLANTED = {
    "a wait is dropped": (stage._Stage, "effect", skipped(stage._Stage, "effect", lambda name, *rest: name == "dma_wait"), "softmax"),
    "a queue that is not there": (stage._Stage, "add", changed(stage._Stage, "add", "dma_start", lambda operands, more: (operands, more | {"queue": 4})), "softmax"),
    "a mask is dropped": (stage._Stage, "start", wrapped(stage._Stage, "start", lambda self, target, source, place, mask: (target, source, place, [])), "turned"),
    "a bound begins at 0": (nests.Nest, "_bound", unbounded, "copy"),
    "a bound of another comparison": (nests, "_SWAPPED", dict.fromkeys(nests._SWAPPED, "sge"), "turned"),
    "indices all begin at 0": (stage._Stage, "enter", lambda self, indices, arguments: (self.local.update(zip(indices, arguments)), self.values.update(zip(indices, arguments))), "tripled"),
    "tiles all begin at 0": (stage._Stage, "far", untiled, "copy-large"),
    "a tile is moved twice": (stage._Stage, "turns", wrapped(stage._Stage, "turns", lambda self, upper, step, fill: (upper, 2 * step if upper > 2 * step else step, fill)), "tripled"),
    "atomics without their mask": (stage._Stage, "add", changed(stage._Stage, "add", "atomic_rmw", lambda operands, more: (operands[:2], more | {"segments": None})), "counted"),
    "what is loaded masked is not replaced": (stage._Stage, "loaded", lambda self, op: self.add("read", (self.staged[op][0], *(self.local[i] for i in self.staged[op][1])), op.result.type), "softmax"),
    "loads go before stores that may alias": (double, "clobbers", lambda block, roots, load: False, "running"),
    "a load into the slot that is read": (double._Pipeline, "start", wrapped(double._Pipeline, "start", lambda self, made, load, whole, slot, values, go: (made, load, whole, self.slots[2] if made is self.top else slot, values, go)), "matmul"),
    "the next turn's load is this one's": (double._Pipeline, "start", first_of_next, "summed-63"),
    "a load behind the last turn": (double._Pipeline, "turn", always, "attention"),
    "a store's buffer is not free yet": (double._Pipeline, "store", lambda self, store: self.block.operations.remove(store.wait), "tripled"),
    "an edge one too small": (products._Products, "pack", packed(lambda extents, minus: (tuple((begin, extent - 1) for begin, extent in extents), minus)), "matmul"),
    "padded with +0": (products._Products, "pack", packed(lambda extents, minus: (extents, False)), "summed_product-of zeros"),
    "blocks in descending order": (products._Products, "along", backwards, "summed_product-long"),
    "sums not widened": (products, "F32", products.F16, "half_product"),
    "bounds are not looked at": (dma, "_inside", lambda op, args, shape: np.ones(shape, np.bool_), "copy"),
    "a mask is not looked at": (dma, "groups", lambda op, find=dma.groups: {k: v for k, v in find(op).items() if k != "mask"}, "turned"),
    "a transfer that is off moves": (dma, "groups", lambda op, find=dma.groups: {k: v for k, v in find(op).items() if k != "go"}, "attention"),
    "a wait moves nothing": (dma.Dma, "wait", lambda self, token: self.moves.pop(int(token), None), "softmax"),
}  # fmt: skip


def found(name):
    try:
        npu.compare(name)
    except (AssertionError, KernelFault, IRError):
        return True
    return False


@pytest.mark.parametrize("fault", PLANTED)
def test_planted(fault, monkeypatch):
    where, name, wrong, kernel = PLANTED[fault]
    assert kernel in (*SAMPLE, *(case.name for case in npu.CASES))
    monkeypatch.setattr(where, name, wrong)
    assert found(kernel)
