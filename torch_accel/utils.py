"""Building C++ operators of one's own against accel's headers, as ``torch.utils.cpp_extension`` builds against torch's."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ._native import _C

__all__ = ["AccelExtension", "include_paths", "library_paths", "load"]

_CXX_FLAGS = ["-std=c++20"]  # what the headers are written in


def include_paths() -> list[str]:
    """The folders for ``-I``: a source then includes ``<torch_accel/aten/launch.h>``. The headers fit this version only."""
    return [str(Path(__file__).parent / "include")]


def library_paths() -> list[str]:
    """The files to link with. They are loaded by the time that torch is, so a library built with them holds no path to them."""
    return [str(_C.__file__)]


def AccelExtension(name: str, sources: Sequence[str | os.PathLike[str]], **kwargs: Any) -> Any:
    """A ``setuptools.Extension`` of C++ sources that launch on accel: ``torch.utils.cpp_extension.CUDAExtension``'s counterpart.

    Args:
        name: the dotted name of the extension module.
        sources: the C++ files.
        kwargs: passed to ``torch.utils.cpp_extension.CppExtension``; lists of flags and folders are added to accel's.
    """
    from torch.utils.cpp_extension import CppExtension

    for option, own in (
        ("include_dirs", include_paths()),
        ("extra_compile_args", _CXX_FLAGS),
        ("extra_link_args", library_paths()),
    ):
        kwargs[option] = [*own, *kwargs.get(option, ())]
    return CppExtension(name, [os.fspath(source) for source in sources], **kwargs)


def load(name: str, sources: str | list[str], is_python_module: bool = False, **kwargs: Any) -> Any:
    """Compiles C++ sources that launch on accel, and loads them: ``torch.utils.cpp_extension.load`` with accel's flags.

    Args:
        name: the name of the library.
        sources: the C++ files.
        is_python_module: False (here the default) for a library of operators, which appear in ``torch.ops``.
        kwargs: passed on; lists of flags and folders are added to accel's.

    Returns:
        The module, or for a library of operators its path.
    """
    from torch.utils import cpp_extension

    for option, own in (
        ("extra_include_paths", include_paths()),
        ("extra_cflags", _CXX_FLAGS),
        ("extra_ldflags", library_paths()),
    ):
        kwargs[option] = [*own, *(kwargs.get(option) or ())]
    return cpp_extension.load(name, sources, is_python_module=is_python_module, **kwargs)
