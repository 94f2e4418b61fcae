"""Loads the native library, after checking that it can work with this torch."""

from ._compat import BACKEND_NAME_DEFAULT, TORCH_MINOR, backend_name, check_torch_version


def _root_cause(error: BaseException) -> BaseException:
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return error


check_torch_version()

if backend_name() not in (BACKEND_NAME_DEFAULT, "accel"):
    raise ImportError(
        f"torch_accel: this process already has the PrivateUse1 backend {backend_name()!r}, and torch has room for one, "
        f"so accel cannot be registered. Uninstall or disable one of the two (ACCEL_AUTOLOAD=0 disables accel's autoload)."
    )

try:
    from . import _C
except Exception as error:
    cause = _root_cause(error)
    raise ImportError(
        f"torch_accel: the native library of accel cannot be loaded: {type(cause).__name__}: {cause}. "
        f"Reinstall it for this Python and torch {TORCH_MINOR}: "
        f"pip install --force-reinstall --no-deps 'torch-accel-sim=={TORCH_MINOR}.*'"
    ) from error

__all__ = ["_C"]
