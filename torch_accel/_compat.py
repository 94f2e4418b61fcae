"""Every private API of torch that this package uses from Python, each behind a name of ours. Checked on torch 2.13.0."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef
from torch.multiprocessing import reductions

from ._version import __version__

TORCH_MINOR = ".".join(__version__.split(".")[:2])
BACKEND_NAME_DEFAULT = "privateuseone"

__all__ = [
    "BACKEND_NAME_DEFAULT",
    "TORCH_MINOR",
    "CustomOpDef",
    "accelerator_device_stats",
    "backend_name",
    "cache_shared_storage",
    "cached_shared_storage",
    "check_torch_version",
    "computed_kernel",
    "derivative_names",
    "has_computed_kernel",
    "neg_view",
    "operator_names",
    "parse_schema",
    "reduce_storage",
    "reduce_tensor",
    "register_device_module",
    "wrap",
]


def check_torch_version() -> None:
    """Raises ImportError unless the installed torch is of the minor release this package was built for."""
    installed = str(torch.__version__)
    if ".".join(installed.split(".")[:2]) != TORCH_MINOR:
        raise ImportError(
            f"torch_accel {__version__} is built for torch {TORCH_MINOR}, but torch {installed} is installed. "
            f"Run: pip install 'torch=={TORCH_MINOR}.*'"
        )


def backend_name() -> str:
    """The name that the PrivateUse1 backend has now."""
    return str(torch._C._get_privateuse1_backend_name())


def register_device_module(module: ModuleType) -> None:
    """Makes ``module`` torch.accel."""
    torch._register_device_module("accel", module)


def accelerator_device_stats(index: int) -> dict[str, Any]:
    """The nested dict behind torch.accelerator.memory_stats."""
    return dict(torch._C._accelerator_getDeviceStats(index))


def reduce_storage(storage: torch.UntypedStorage) -> Any:
    """How torch.multiprocessing pickles a storage of its own devices."""
    return reductions.reduce_storage(storage)


def reduce_tensor(tensor: torch.Tensor) -> Any:
    """How torch.multiprocessing pickles a tensor: for what is not CUDA or meta, its storage and how it lies there."""
    return reductions.reduce_tensor(tensor)


def cached_shared_storage(key: tuple[Any, ...]) -> torch.UntypedStorage | None:
    """The living storage that torch.multiprocessing's cache has under a key, or None."""
    return reductions.storage_from_cache(torch.UntypedStorage, key)


def cache_shared_storage(key: tuple[Any, ...], storage: torch.UntypedStorage) -> None:
    """Puts a weak reference to a storage into torch.multiprocessing's cache."""
    reductions.shared_cache[key] = reductions.StorageWeakRef(storage)


def neg_view(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's negative over the same memory, with the bit set."""
    return torch._neg_view(tensor)


def wrap(owner: type, name: str, wrapper: Callable[[Any], Any]) -> None:
    """Puts ``wrapper(method)`` in the place of a method: of those that know torch's own devices and have no hook."""
    setattr(owner, name, wrapper(getattr(owner, name)))


def parse_schema(text: str) -> torch._C.FunctionSchema:
    """Parses ``ns::name(Tensor x) -> Tensor``; raises RuntimeError for anything else."""
    return torch._C.parse_schema(text)


def computed_kernel(operator: str, key: str) -> str:
    """What the dispatcher runs for ``aten::name.overload`` under a key: ``registered at FILE:LINE [kind]``."""
    table = torch._C._dispatch_dump_table(operator)
    return next((line for line in table.splitlines() if line.startswith(f"{key}: ")), "")


def has_computed_kernel(operator: str, key: str) -> bool:
    """Whether the dispatcher has a kernel for an operator under a key, a composite one included."""
    return torch._C._dispatch_has_computed_kernel_for_dispatch_key(operator, key)


def _described(file: str) -> list[dict[str, Any]]:
    import torchgen  # type: ignore[import-untyped]
    import yaml  # type: ignore[import-untyped]

    return list(yaml.safe_load((Path(torchgen.__file__).parent / "packaged" / file).read_text()))


def operator_names() -> list[str]:
    """``aten::name.overload`` of every operator of native_functions.yaml that is registered."""
    described = {entry["func"].split("(")[0] for entry in _described("ATen/native/native_functions.yaml")}
    bases = {name.split(".")[0] for name in described}  # torchgen adds out= and functional forms to them
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    return sorted(name for name in names if name.removeprefix("aten::").split(".")[0] in bases)


def derivative_names() -> set[str]:
    """Base names of the operators that have a formula in derivatives.yaml."""
    return {entry["name"].split("(")[0].split(".")[0] for entry in _described("autograd/derivatives.yaml")}
