"""check_input_liveness of a graph: a replay must not read tensors that were freed after the capture."""

from __future__ import annotations

import textwrap
import traceback
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from ._native import _C

_SHOWN = 5


def _stack(skip: int) -> str:
    return "".join(traceback.format_stack()[: -skip - 1])


class _Input:
    """The storage of a tensor that the capture used and did not make."""

    def __init__(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self.address = storage.data_ptr()
        self.device = tensor.device
        self.used = _stack(3)  # this function, track and __torch_dispatch__
        self.freed = ""
        self._storage = weakref.ref(storage, self._released)

    def _released(self, _: Any) -> None:
        self.freed = _stack(1)

    def is_alive(self) -> bool:
        storage = self._storage()
        return storage is not None and storage.data_ptr() == self.address

    def __str__(self) -> str:
        parts = [("Used in the capture", self.used), ("Freed", self.freed)]
        return f"{self.device}, address {self.address:#x}\n" + "".join(
            f"  {label}:\n{textwrap.indent(stack.rstrip(), '    ')}\n" for label, stack in parts if stack
        )


class InputLiveness(TorchDispatchMode):
    """While active, notes the storages that captured operators use and did not make. Follows torch.utils._cuda_debug.

    Launches that pass by the dispatcher (a NumPy kernel, DLPack's consumers) are not seen.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self._inputs: dict[int, _Input] = {}
        self._made: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if _C._is_current_stream_capturing():
            for tensor in self._tensors((args, kwargs)):
                address = tensor.untyped_storage().data_ptr()
                if address not in self._made and address not in self._inputs:
                    self._inputs[address] = _Input(tensor)
            made = (tensor.untyped_storage().data_ptr() for tensor in self._tensors(result))
            self._made.update(address for address in made if address not in self._inputs)
        return result

    @staticmethod
    def _tensors(values: Any) -> list[torch.Tensor]:
        """The tensors whose memory a launch uses in place: accel's, and pinned ones of the host."""
        found = (value for value in tree_iter(values) if isinstance(value, torch.Tensor))
        return [t for t in found if t.untyped_storage().data_ptr() and (t.device.type == "accel" or t.is_pinned())]

    def check(self) -> None:
        """Raises RuntimeError, with the stacks, if a noted storage is gone."""
        dead = [one for one in self._inputs.values() if not one.is_alive()]
        if not dead:
            return
        shown = "".join(f"Dead tensor #{number}: {one}" for number, one in enumerate(dead[:_SHOWN], 1))
        more = f"... and {len(dead) - _SHOWN} more\n" if len(dead) > _SHOWN else ""
        raise RuntimeError(
            f"accel graph replay detected {len(dead)} dead tensor(s): the capture used memory that has been freed since. "
            f"Keep these tensors as long as the graph, and fill them with copy_.\n{shown}{more}"
        )
