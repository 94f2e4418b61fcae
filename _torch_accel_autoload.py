"""The entry point of group ``torch.backends``: decides whether ``import torch`` alone registers accel.

It lives outside the package, because importing any module of the package registers.
"""

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Iterator

_NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"


@contextlib.contextmanager
def _nvml_based_cuda_check() -> Iterator[None]:
    """While active, ``torch.cuda.is_available`` asks NVML, which leaves CUDA uninitialised and forks safe."""
    before = os.environ.get(_NVML_CHECK)
    os.environ[_NVML_CHECK] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_NVML_CHECK]
        else:
            os.environ[_NVML_CHECK] = before


def _other_accelerator() -> str | None:
    """The name of another accelerator that this torch was built with and that is present, or None."""
    import torch

    plugin: str = torch._C._get_privateuse1_backend_name()
    if plugin not in ("privateuseone", "accel"):
        return plugin
    with _nvml_based_cuda_check():
        for name in ("cuda", "xpu", "mps", "mtia"):
            module = getattr(torch, name, None)
            if module is not None and module.is_available():
                return name
    return None


@functools.cache
def _log_skipped(other: str) -> None:
    logging.getLogger("torch_accel").warning(
        "%s is present, so `import torch` does not register accel. "
        "ACCEL_AUTOLOAD=1 or `import torch_accel` registers it; ACCEL_AUTOLOAD=0 silences this line.",
        other,
    )


def autoload() -> None:
    """Registers accel, unless ACCEL_AUTOLOAD=0 or another accelerator is present.

    ACCEL_AUTOLOAD=1, ACCEL_DEVICES (whatever its value) and an explicit ``import torch_accel`` register in any case.

    Raises:
        ValueError: ACCEL_AUTOLOAD is neither 0 nor 1.
    """
    setting = os.environ.get("ACCEL_AUTOLOAD", "")
    if setting not in ("", "0", "1"):
        raise ValueError(f"ACCEL_AUTOLOAD={setting!r}: accel expects 0 or 1; unset it to let torch_accel decide")
    if setting == "0" or "torch_accel" in sys.modules:  # an explicit import is under way and registers
        return
    if setting == "" and "ACCEL_DEVICES" not in os.environ:
        other = _other_accelerator()
        if other is not None:
            _log_skipped(other)
            return
    import torch_accel  # noqa: F401
