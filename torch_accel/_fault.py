"""Keeps accel's report of host accesses to device memory in front of faulthandler's."""

import faulthandler
import functools
from typing import Any

from ._native import _C


def wrap_faulthandler() -> None:
    """Makes ``faulthandler.enable`` reinstall accel's SIGSEGV handler on top of its own.

    The handler installed last runs first. Under faulthandler's, the address of the access is lost: it restores the older
    handler and raises the signal again.
    """
    original = faulthandler.enable

    @functools.wraps(original)
    def enable(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        if _C._is_initialized() and not _C._is_in_bad_fork():
            _C._install_fault_handler()

    faulthandler.enable = enable
