"""Loads and stores of vectors: of neighbours, masked, and of scattered elements. Addresses here are a core's own (ptr or i64)."""

from __future__ import annotations

from ..ir.types import Ptr, Scalar, Type
from .emit import Lanes
from .formats import base
from .scalars import size


def memory_base(elem: Type) -> str:
    """The LLVM type of an element in memory: an i1 has a byte."""
    name = base(elem)
    return "i8" if name == "i1" else name


def from_memory(e: Lanes, elem: Type, value: str) -> str:
    """An element that was read, as it is in a register: any byte but 0 is a true i1."""
    return e.compare("icmp ne", "i8", value, e.const("i8", 0)) if base(elem) == "i1" else value


def to_memory(e: Lanes, elem: Type, value: str) -> str:
    """An element as it is written."""
    return e.convert("zext", "i1", "i8", value) if base(elem) == "i1" else value


def load(e: Lanes, elem: Scalar | Ptr, pointer: str, mask: str = "", volatile: bool = False) -> str:
    """Neighbours from ``pointer`` on; 0 where the mask is false, and nothing is read there."""
    name, align = memory_base(elem), size(elem)
    if not mask:
        value = e.op(f"load {'volatile ' * volatile}{e.type(name)}, ptr {pointer}, align {align}")
    else:
        zero = f"{e.type(name)} {'zeroinitializer'}"
        value = e.op(
            f"call {e.type(name)} @llvm.masked.load.{e.suffix(name)}.p0"
            f"(ptr align {align} {pointer}, {e.type('i1')} {mask}, {zero})"
        )
    return from_memory(e, elem, value)


def store(e: Lanes, elem: Scalar | Ptr, value: str, pointer: str, mask: str = "") -> None:
    """Neighbours from ``pointer`` on, where the mask is true."""
    name, align = memory_base(elem), size(elem)
    value = to_memory(e, elem, value)
    if not mask:
        e.function.do(f"store {e.type(name)} {value}, ptr {pointer}, align {align}")
    else:
        e.function.do(
            f"call void @llvm.masked.store.{e.suffix(name)}.p0"
            f"({e.type(name)} {value}, ptr align {align} {pointer}, {e.type('i1')} {mask})"
        )


def gather(e: Lanes, elem: Scalar | Ptr, pointers: str, mask: str) -> str:
    """Elements at a vector of pointers; 0 where the mask is false, and nothing is read there."""
    name = memory_base(elem)
    value = e.op(
        f"call {e.type(name)} @llvm.masked.gather.{e.suffix(name)}.{e.suffix('p0')}"
        f"({e.type('ptr')} align {size(elem)} {pointers}, {e.type('i1')} {mask or 'splat (i1 true)'}, {e.type(name)} zeroinitializer)"
    )
    return from_memory(e, elem, value)


def scatter(e: Lanes, elem: Scalar | Ptr, value: str, pointers: str, mask: str) -> None:
    """Writes elements at a vector of pointers, in ascending order of lanes, where the mask is true."""
    name = memory_base(elem)
    value = to_memory(e, elem, value)
    e.function.do(
        f"call void @llvm.masked.scatter.{e.suffix(name)}.{e.suffix('p0')}"
        f"({e.type(name)} {value}, {e.type('ptr')} align {size(elem)} {pointers}, {e.type('i1')} {mask or 'splat (i1 true)'})"
    )
