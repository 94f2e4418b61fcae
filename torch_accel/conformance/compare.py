"""How the suite compares: copies of arguments on a device, outcomes of calls, and a tally of equal and bit-equal ones."""

from __future__ import annotations

import contextlib
import copy
import random
import re
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

SPARSE_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)

#: errors that depend on elements: on a device they rise at the next synchronisation
DATA_ERRORS = re.compile("out of bounds|out of range|singular")


class Replica:
    """Copies the arguments of one call to a device, with everything that a kernel can see of them.

    Offset, strides, overlap, conj and neg bits stay, and tensors that share a storage share one afterwards.
    """

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self._storages: dict[int, torch.Tensor] = {}
        self._originals: list[torch.UntypedStorage] = []  # alive, so that addresses stay unique

    def __call__(self, value: Any) -> Any:
        """A copy of a structure of tensors; ``"cpu"`` and ``torch.device("cpu")`` become the device."""
        return tree_map(self._leaf, value)

    def _leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return self.tensor(leaf)
        if isinstance(leaf, torch.nn.Module):
            return copy.deepcopy(leaf).to(self.device)
        if isinstance(leaf, str | torch.device) and str(leaf) == "cpu":
            return self.device if isinstance(leaf, torch.device) else str(self.device)
        return leaf

    def tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """A leaf that requires a gradient if ``tensor`` does."""
        requires_grad = tensor.requires_grad
        tensor = tensor.detach()
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
            return tensor.to(self.device, copy=True).requires_grad_(requires_grad)
        plain = torch._neg_view(tensor) if tensor.is_neg() else tensor
        plain = plain.conj() if plain.is_conj() else plain
        storage = self._storage(plain).view(plain.dtype) if plain.untyped_storage().nbytes() else self._empty(plain)
        result = storage.as_strided(plain.size(), plain.stride(), plain.storage_offset())
        result = result.conj() if tensor.is_conj() else result
        result = torch._neg_view(result) if tensor.is_neg() else result
        return result.detach().requires_grad_(requires_grad)

    def _storage(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        if key not in self._storages:
            self._originals.append(storage)
            whole = tensor.element_size() * (storage.nbytes() // tensor.element_size())
            as_bytes = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (whole,), (1,))
            self._storages[key] = as_bytes.to(self.device, copy=True)
        return self._storages[key]

    def _empty(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty(0, dtype=tensor.dtype, device=self.device)


@dataclass
class Outcome:
    """What a call gave: a value, or the exception that it raised."""

    value: Any = None
    error: Exception | None = None


def seed() -> None:
    """Seeds what samples and operators draw from. ``torch.manual_seed`` formats the stack for each absent backend."""
    torch.default_generator.manual_seed(0)
    torch.get_device_module("accel").manual_seed_all(0)
    random.seed(0)
    np.random.seed(0)


def attempt(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Outcome:
    """Calls ``function`` from a fixed seed and without its warnings."""
    seed()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Outcome(function(*args, **kwargs))
        except Exception as error:
            return Outcome(error=error)


def normalised(text: str) -> str:
    """An error text with the name of the device taken out."""
    text = re.sub(r", device='\w+(:\d+)?'", "", text)  # of a tensor that the text prints
    text = re.sub(r"(accel|cpu)(:\d+)?", "cpu", text, flags=re.IGNORECASE)
    return re.sub(r"torch\.(cpu\.)?([A-Z]\w+)Tensor\b", r"cpu\2Type", text)  # the CPU's name has no device in it


def first_line(error: BaseException) -> str:
    """Type and first line of an error."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300] if lines else ''}"


def parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The dense tensors that a tensor of any layout consists of."""
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if tensor.is_nested:
        return list(tensor.unbind())
    return [tensor.int_repr()] if tensor.is_quantized else [tensor]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return plain.reshape(-1).view(torch.uint8)


def _same_metadata(actual: torch.Tensor, expected: torch.Tensor) -> None:
    for name in ("dtype", "layout", "shape"):
        if getattr(actual, name) != getattr(expected, name):
            raise AssertionError(f"{name} {getattr(actual, name)} instead of {getattr(expected, name)}")


def _compare_tensors(actual: torch.Tensor, expected: torch.Tensor, values: bool, strides: bool) -> bool:
    if actual.device.type == "cpu":
        raise AssertionError("the result is on the CPU")
    _same_metadata(actual, expected)
    if actual.layout == torch.sparse_coo and actual.is_coalesced() != expected.is_coalesced():
        raise AssertionError(f"is_coalesced() is {actual.is_coalesced()}")
    exact = True
    if actual.layout == torch.sparse_coo and not actual.is_coalesced():
        actual, strides = actual.cpu(), False  # without the spare room of a queued sum
    for a, e in zip(parts(actual.detach()), parts(expected.detach()), strict=True):
        _same_metadata(a, e)
        if strides and a.stride() != e.stride() and a.numel() > 0:
            raise AssertionError(f"strides {a.stride()} instead of {e.stride()} for shape {tuple(a.shape)}")
        if not values:
            continue
        host = a.cpu()
        if not torch.equal(_bits(host), _bits(e)):
            exact = False
            torch.testing.assert_close(host, e, equal_nan=True)
    return exact


def compare(actual: Any, expected: Any, values: bool = True, strides: bool = True) -> bool:
    """True if a structure on the device is bit-equal to one on the CPU; raises AssertionError if it is not close.

    Args:
        values: compare elements; otherwise only layouts.
        strides: they count too. Those of gradients do not: how autograd adds two up depends on who else refers to them.
    """
    actual_leaves, expected_leaves = tree_leaves(actual), tree_leaves(expected)
    if len(actual_leaves) != len(expected_leaves):
        raise AssertionError(f"{len(actual_leaves)} results instead of {len(expected_leaves)}")
    exact = True
    for a, e in zip(actual_leaves, expected_leaves, strict=True):
        if isinstance(e, torch.Tensor) != isinstance(a, torch.Tensor):
            raise AssertionError(f"a {type(a).__name__} instead of a {type(e).__name__}")
        if isinstance(e, torch.Tensor):
            exact &= _compare_tensors(a, e, values, strides)
        elif isinstance(e, str):
            if normalised(str(a)) != normalised(e):
                raise AssertionError(f"{a!r} instead of {e!r}")
        elif a != e and not (a != a and e != e):
            raise AssertionError(f"{a!r} instead of {e!r}")
    return exact


def as_close(actual: Any, expected: Any, truth: Any) -> bool:
    """True if every tensor on the device is as close to the one in float64 as the CPU's is, within a factor of two."""
    leaves = [tree_leaves(value) for value in (actual, expected, truth)]
    if len({len(side) for side in leaves}) != 1:
        return False
    for a, e, t in zip(*leaves, strict=True):
        if isinstance(t, torch.Tensor) and t.is_floating_point():
            if not a.shape == e.shape == t.shape:
                return False
            errors = [(x.detach().cpu().double() - t).abs().nan_to_num().max() if t.numel() else 0 for x in (a, e)]
            if errors[0] > 2 * errors[1] + torch.finfo(e.dtype).eps * (t.abs().nan_to_num().max() if t.numel() else 0):
                return False
    return True


def aliasing(arguments: Any, results: Any) -> list[tuple[int, int]]:
    """Which results share the storage of which arguments."""

    def addresses(value: Any) -> Iterator[tuple[int, int]]:
        for index, leaf in enumerate(tree_leaves(value)):
            strided = isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and not leaf.is_nested
            if strided and leaf.untyped_storage().nbytes() > 0:
                yield index, leaf.untyped_storage().data_ptr()

    inputs = list(addresses(arguments))
    return [(o, i) for o, out in addresses(results) for i, argument in inputs if out == argument]


@dataclass
class Tally:
    """The comparisons of one test."""

    #: comparisons made
    samples: int = 0
    #: those that agree
    right: int = 0
    #: those that agree bit for bit
    exact: int = 0
    #: what differs
    failures: list[str] = field(default_factory=list)
    #: the error behind the first of them
    first_error: BaseException | None = None

    def fail(self, label: object, error: BaseException) -> None:
        """Counts a comparison that could not be made, or that differs."""
        self.samples += 1
        self.failures.append(f"sample {label}: {first_line(error)}")
        self.first_error = self.first_error or error
        traceback.clear_frames(error.__traceback__)  # they hold tensors, and each other
        with contextlib.suppress(Exception):
            torch.accelerator.synchronize()  # what this sample queued must not fail in the next one

    def check(
        self,
        label: object,
        actual: Outcome,
        expected: Outcome,
        oracle: Callable[[], Any] | None = None,
        **how: Any,
    ) -> None:
        """Compares an outcome on the device with one on the CPU: the same value, or the same error.

        Args:
            oracle: computes the value in float64; what is not close to the CPU may be as close to this.
            how: see ``compare``.
        """
        try:
            exact = self._same(actual, expected, oracle, how)
        except Exception as error:
            self.fail(label, error)
            return
        self.samples += 1
        self.right += 1
        self.exact += exact

    def _same(self, actual: Outcome, expected: Outcome, oracle: Callable[[], Any] | None, how: dict[str, bool]) -> bool:
        if expected.error is None:
            if actual.error is not None:
                raise actual.error
            try:
                return compare(actual.value, expected.value, **how)
            except AssertionError:
                truth = attempt(oracle) if oracle else None
                if truth is None or not as_close(actual.value, expected.value, truth.value):
                    raise
                return False
        if actual.error is None:
            try:
                torch.accelerator.synchronize()
            except Exception as late:
                if DATA_ERRORS.search(str(expected.error)) and str(expected.error) in str(late):
                    return True
                raise AssertionError(f"raised late: {first_line(late)}") from late
            raise AssertionError(f"no error; the CPU raises {first_line(expected.error)}")
        if isinstance(actual.error, NotImplementedError) and isinstance(expected.error, NotImplementedError):
            return True  # the CPU's text is the dispatcher's; accel's says what to do
        same_type = type(actual.error) is type(expected.error)
        if not same_type or normalised(str(actual.error)) != normalised(str(expected.error)):
            raise AssertionError(f"raises {first_line(actual.error)}; the CPU {first_line(expected.error)}")
        return True
