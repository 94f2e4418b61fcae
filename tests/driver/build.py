"""Builds the chip alone, with no torch on the include path: as a Python module and as a stress test.

``python tests/driver/build.py`` prints the path of the module. Results are kept under ``build/driver``
by a hash of everything that goes into them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DRIVER = ROOT / "csrc" / "driver"
CACHE = ROOT / "build" / "driver"
COMMON = ["-std=c++20", "-fPIC", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-pthread"]
PLAIN = ("-O1", "-g")


def compiler() -> str:
    """The C++ compiler: ``$CXX`` or g++."""
    return os.environ.get("CXX", "g++")


def _run(command: Sequence[object]) -> None:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


def _cached(cache: Path, name: str, inputs: Sequence[Path], salt: object, make: Callable[[Path], None]) -> Path:
    """``cache / hash of the inputs / name``, which ``make(path)`` makes once."""
    digest = hashlib.sha256(repr((compiler(), COMMON, salt)).encode())
    for path in inputs:
        digest.update(path.name.encode() + path.read_bytes())
    result = cache / digest.hexdigest()[:16] / name
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:  # another process of the test run may be making the same
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            with tempfile.TemporaryDirectory(dir=cache) as folder:
                made = Path(folder) / name
                make(made)
                result.parent.mkdir(exist_ok=True)
                made.rename(result)
    return result


def _cache_of(driver: Path) -> Path:
    """Builds of a planted copy go with the copy."""
    return CACHE if driver == DRIVER else driver.parent / "build"


def _compile(source: Path, target: Path, driver: Path, flags: Sequence[str]) -> None:
    _run([compiler(), *COMMON, *flags, f"-I{driver}", "-c", source, "-o", target])


def _driver_objects(driver: Path, flags: Sequence[str]) -> list[Path]:
    sources = sorted(driver.glob("*.cpp"))

    def make(folder: Path) -> None:
        folder.mkdir()
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            done = [pool.submit(_compile, source, folder / f"{source.stem}.o", driver, flags) for source in sources]
            for one in done:
                one.result()

    inputs = [*sources, *sorted(driver.glob("*.h"))]
    return sorted(_cached(_cache_of(driver), "objects", inputs, flags, make).glob("*.o"))


def _build(
    sources: Sequence[Path], name: str, driver: Path, flags: Sequence[str], own_flags: Sequence[str] = ()
) -> Path:
    """Links the driver, compiled with ``flags``, with ``sources``, compiled with ``own_flags`` too."""
    objects = _driver_objects(driver, flags)

    def make(target: Path) -> None:
        own = [target.with_name(f"{source.stem}.o") for source in sources]
        for source, compiled in zip(sources, own):
            _compile(source, compiled, driver, [*flags, *own_flags])
        kind = ["-shared"] if name.startswith("accel_driver") else []
        _run([compiler(), *COMMON, *flags, *kind, *objects, *own, "-o", target])

    inputs = [*sources, *HERE.glob("*.h"), *objects, *sorted(driver.glob("*.h"))]
    return _cached(_cache_of(driver), name, inputs, (flags, own_flags), make)


def build_module(driver: Path = DRIVER, flags: Sequence[str] = PLAIN) -> Path:
    """Builds the Python module ``accel_driver`` with ``flags`` and returns its path."""
    import pybind11

    includes = [f"-isystem{sysconfig.get_path('include')}", f"-isystem{pybind11.get_include()}"]
    name = f"accel_driver{sysconfig.get_config_var('EXT_SUFFIX')}"
    return _build([HERE / "binding.cpp", HERE / "binding_grid.cpp"], name, driver, flags, includes)


def build_stress(flags: Sequence[str] = PLAIN, driver: Path = DRIVER) -> Path:
    """Builds the stress program with ``flags`` and returns its path."""
    return _build([HERE / "stress.cpp"], "stress", driver, flags)


def planted_copy(folder: Path, file: str, changes: Mapping[str, str]) -> Path:
    """Copies the driver to ``folder`` with a fault planted: each key of ``changes``, which must
    occur exactly once in ``file``, replaced by its value."""
    driver = folder / "driver"
    shutil.copytree(DRIVER, driver)
    text = (driver / file).read_text()
    for rule, fault in changes.items():
        if text.count(rule) != 1:
            raise ValueError(f"{file} does not contain this exactly once: {rule!r}")
        text = text.replace(rule, fault)
    (driver / file).write_text(text)
    return driver


if __name__ == "__main__":
    sys.stdout.write(f"{build_module()}\n")
