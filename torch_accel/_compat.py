"""Every private API of torch that this package uses from Python, each behind a name of ours. Checked on torch 2.13.0."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef

from ._version import __version__

TORCH_MINOR = ".".join(__version__.split(".")[:2])
BACKEND_NAME_DEFAULT = "privateuseone"

__all__ = [
    "BACKEND_NAME_DEFAULT",
    "TORCH_MINOR",
    "CustomOpDef",
    "accelerator_device_stats",
    "augment_memory_snapshot",
    "backend_name",
    "check_torch_version",
    "computed_kernel",
    "derivative_names",
    "has_computed_kernel",
    "install_parallel",
    "legacy_storage_type",
    "memory_viz",
    "operator_names",
    "parse_schema",
    "register_device_module",
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


def augment_memory_snapshot(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Adds the original source lines to the frames of code that torch.fx generated."""
    from torch._utils import _augment_memory_snapshot_stack_traces

    return dict(_augment_memory_snapshot_stack_traces(snapshot))  # type: ignore[arg-type]


def memory_viz() -> ModuleType:
    """What draws memory snapshots; it knows no device."""
    from torch.cuda import _memory_viz

    return _memory_viz


def legacy_storage_type(name: str, dtype: torch.dtype, doc: str) -> type:
    """A class as torch.FloatStorage, for accel."""
    from torch.storage import _LegacyStorage

    # torch reads the device from the last part of the module's name.
    return type(name, (_LegacyStorage,), {"dtype": dtype, "_dtype": dtype, "__module__": "torch.accel", "__doc__": doc})


def _is_for_accel(tensors: torch.Tensor | Sequence[torch.Tensor]) -> bool:
    first = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
    if first is None or first.device.type == "cpu":
        return str(torch._utils._get_available_device_type()) == "accel"  # what torch.nn.DataParallel uses
    return first.device.type == "accel"


def _choose(function: Callable[..., Any], others: Callable[..., Any] | None, tensors: Any, *arguments: Any) -> Any:
    return (function if others is None or _is_for_accel(tensors) else others)(tensors, *arguments)


def install_parallel(functions: dict[str, Callable[..., Any]]) -> None:
    """Makes torch.nn.parallel work on accel: it calls functions of torch._C that only torch's CUDA builds have.

    Args:
        functions: ``scatter``, ``gather``, ... -> the function for accel tensors, and for those of the CPU where
            torch.nn.DataParallel uses accel. Others go to torch's function, if there is one.
    """
    for name, function in functions.items():
        others = getattr(torch._C, f"_{name}", None)
        setattr(torch._C, f"_{name}", partial(_choose, function, others))

    from torch.nn.parallel import comm

    nccl = comm.nccl

    class Nccl:
        """torch.cuda.nccl without its warning that a CPU build of torch has no NCCL."""

        def __getattr__(self, name: str) -> Any:
            return getattr(nccl, name)

        def is_available(self, tensors: Sequence[torch.Tensor]) -> bool:
            return not _is_for_accel(tensors) and bool(nccl.is_available(tensors))

    comm.nccl = Nccl()  # type: ignore[assignment, unused-ignore]


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
