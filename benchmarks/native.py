"""The C++ that the benchmarks measure against, compiled at its first use: native.cpp says what it is."""

import ctypes
import functools
from pathlib import Path

from torch.utils import cpp_extension

HERE = Path(__file__).parent


@functools.cache
def library() -> ctypes.CDLL:
    """Half a minute the first time; build/benchmarks keeps it."""
    folder = HERE.parent / "build" / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    path = cpp_extension.load(
        "accel_benchmarks",
        [str(HERE / "native.cpp")],
        extra_cflags=["-O2", "-std=c++20", "-g0"],
        build_directory=str(folder),
        is_python_module=False,
    )
    loaded = ctypes.CDLL(str(path))
    loaded.futex_round_trips.argtypes = [ctypes.c_int64]
    return loaded
