"""The chip alone: its Python module, and processes of their own for what ends or breaks one."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import build
import sanitize

MIB = 1 << 20
TIMEOUT = 30  # seconds after which something that must happen has not


@pytest.fixture(scope="session")
def module_path() -> Path:
    """The compiled module ``accel_driver``, under the sanitizer that sanitize.py asks for."""
    name = os.environ.get("DRIVER_SANITIZER")
    return build.build_module(flags=sanitize.FLAGS[name] if name else build.PLAIN)


@pytest.fixture(scope="session")
def driver(module_path: Path) -> Iterator[ModuleType]:
    """``accel_driver`` initialised with two devices of 64 MiB and four cores."""
    spec = importlib.util.spec_from_file_location("accel_driver", module_path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("ACCEL_")]:
            patch.delenv(name)
        patch.setenv("ACCEL_DEVICES", "2")
        patch.setenv("ACCEL_CORES", "4")
        patch.setenv("ACCEL_MEMORY", "64MiB")
        module.init()
    yield module
    module.set_tracer(False)


@pytest.fixture
def stream(driver: ModuleType) -> Iterator:
    """A fresh stream of device 0."""
    made = driver.Stream(0)
    yield made
    made.destroy()


class Memory:
    """A segment of a device: ``address`` for the chip, ``array`` the same bytes for NumPy."""

    def __init__(self, driver: ModuleType, device: int, size: int) -> None:
        self.driver = driver
        self.address = driver.malloc(device, size)
        host = self.address + driver.address_map()["offset"]
        self.array = driver.array_over(host, size)

    def view(self, dtype: str) -> np.ndarray:
        return self.array.view(dtype)

    def free(self) -> None:
        self.driver.free(self.address)


@pytest.fixture
def memory(driver: ModuleType) -> Iterator[Callable[..., Memory]]:
    """``memory(size=2 MiB, device=0)``: zeroed device memory that is freed after the test."""
    made: list[Memory] = []

    def allocate(size: int = 2 * MIB, device: int = 0) -> Memory:
        made.append(Memory(driver, device, size))
        return made[-1]

    yield allocate
    for device in range(driver.device_count()):
        driver.device_synchronize(device)
    for segment in made:
        segment.free()


class Hold:
    """Holds a stream until ``release()``, or the end of the test."""

    def __init__(self, driver: ModuleType, stream) -> None:
        self.driver = driver
        self.address = driver.host_alloc(4096)
        self.flag = driver.array_over(self.address, 4).view("u4")
        stream.wait_value(self.address, 1)

    def release(self) -> None:
        self.flag[0] = 1


@pytest.fixture
def hold(driver: ModuleType) -> Iterator[Callable[..., Hold]]:
    """``hold(stream)``: everything launched on ``stream`` from now on waits for ``release()``."""
    made: list[Hold] = []

    def start(stream) -> Hold:
        made.append(Hold(driver, stream))
        return made[-1]

    yield start
    for one in made:
        one.release()
    for device in range(driver.device_count()):
        driver.device_synchronize(device)
    for one in made:
        driver.host_free(one.address)


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """``until(condition)`` returns once the condition holds, and fails if it never does."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < deadline, "this never happened"
            time.sleep(0.0005)

    return wait


@pytest.fixture
def process(module_path: Path) -> Callable[..., subprocess.CompletedProcess]:
    """``process(source, **environment)`` runs Python source with the module as ``d`` (``d.init()``
    is the source's business) in a process of its own; a hang fails. ``module``: another build of it."""

    def run(
        source: str, timeout: float = TIMEOUT, module: Path = module_path, **environment: str
    ) -> subprocess.CompletedProcess:
        prologue = f"import sys; sys.path.insert(0, {str(module.parent)!r})\nimport accel_driver as d, numpy as np\n"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("ACCEL_")}
        return subprocess.run(
            [sys.executable, "-c", prologue + textwrap.dedent(source)],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**inherited, "ACCEL_MEMORY": "64MiB", **environment},
        )

    return run
