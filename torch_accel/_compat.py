"""Every private API of torch that this package uses from Python, each behind a name of ours. Checked on torch 2.13.0."""

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
    "backend_name",
    "check_torch_version",
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


def parse_schema(text: str) -> torch._C.FunctionSchema:
    """Parses ``ns::name(Tensor x) -> Tensor``; raises RuntimeError for anything else."""
    return torch._C.parse_schema(text)
