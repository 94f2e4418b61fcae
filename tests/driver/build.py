"""Builds the chip alone, with no torch on the include path: as a Python module and as a stress test.

``python tests/driver/build.py`` prints the path of the module. Results are kept under ``build/driver``
by a hash of everything that goes into them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DRIVER = ROOT / "csrc" / "driver"
CACHE = ROOT / "build" / "driver"
COMMON = ["-std=c++20", "-fPIC", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-pthread"]


def compiler() -> str:
    """The C++ compiler: ``$CXX`` or g++."""
    return os.environ.get("CXX", "g++")


def _run(command: Sequence[object]) -> None:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


def _build(main: Path, name: str, flags: Sequence[str], link: Sequence[str], driver: Path) -> Path:
    sources = [*sorted(driver.glob("*.cpp")), main]
    digest = hashlib.sha256(repr((compiler(), COMMON, flags, link)).encode())
    for path in [*sources, *sorted(driver.glob("*.h"))]:
        digest.update(path.name.encode() + path.read_bytes())
    result = CACHE / digest.hexdigest()[:16] / name
    if result.exists():
        return result
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:

        def compile_one(source: Path) -> Path:
            target = Path(folder) / f"{source.name}.o"
            _run([compiler(), *COMMON, *flags, f"-I{driver}", "-c", source, "-o", target])
            return target

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            objects = list(pool.map(compile_one, sources))
        linked = Path(folder) / name
        _run([compiler(), *COMMON, *flags, *link, *objects, "-o", linked])
        # Another process may have built the same meanwhile: the rename settles it.
        result.parent.mkdir(parents=True, exist_ok=True)
        os.replace(linked, result)
    return result


def build_module(driver: Path = DRIVER) -> Path:
    """Builds the Python module ``accel_driver`` and returns its path."""
    import pybind11

    includes = [f"-isystem{sysconfig.get_path('include')}", f"-isystem{pybind11.get_include()}"]
    name = f"accel_driver{sysconfig.get_config_var('EXT_SUFFIX')}"
    main = Path(__file__).with_name("binding.cpp")
    return _build(main, name, ["-O1", "-g", *includes], ["-shared"], driver)


def build_stress(flags: Sequence[str] = ("-O1", "-g"), driver: Path = DRIVER) -> Path:
    """Builds the stress program with ``flags`` and returns its path."""
    return _build(Path(__file__).with_name("stress.cpp"), "stress", list(flags), [], driver)


def planted_copy(folder: Path, file: str, rule: str, fault: str) -> Path:
    """Copies the driver to ``folder`` with ``rule`` in ``file`` replaced by ``fault``."""
    driver = folder / "driver"
    shutil.copytree(DRIVER, driver)
    text = (driver / file).read_text()
    if text.count(rule) != 1:
        raise ValueError(f"{file} does not contain the rule exactly once: {rule!r}")
    (driver / file).write_text(text.replace(rule, fault))
    return driver


if __name__ == "__main__":
    sys.stdout.write(f"{build_module()}\n")
