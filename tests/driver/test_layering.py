"""Includes go down only, and the driver knows no torch.

python -> autocast, profiler, distributed, sanitizer -> aten -> runtime -> driver
"""

import re
import subprocess
from pathlib import Path

import pytest

import build

CSRC = build.ROOT / "csrc"
# Layers of the same height do not include one another.
HEIGHT = {
    "driver": 0,
    "runtime": 1,
    "aten": 2,
    "autocast": 3,
    "profiler": 3,
    "sanitizer": 3,
    "distributed": 3,
    "python": 4,
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def layer(path: Path) -> str:
    return path.relative_to(CSRC).parts[0]


def upward_includes(path: Path, text: str) -> list[str]:
    """The includes of ``text``, the contents of ``path``, that break the order of the layers."""
    wrong = []
    for quote, name in INCLUDE.findall(text):
        for base in (path.parent, CSRC):
            target = (base / name).resolve()
            if quote == '"' and target.is_relative_to(CSRC) and target.exists():
                other = layer(target)
                if other != layer(path) and HEIGHT[other] >= HEIGHT[layer(path)]:
                    wrong.append(name)
                break
        else:
            foreign = name.split("/")[0] in ("torch", "ATen", "c10", "caffe2", "pybind11", "numpy")
            if layer(path) == "driver" and (foreign or name == "Python.h"):
                wrong.append(name)
            python = name.split("/")[0] == "pybind11" or name == "Python.h"
            if layer(path) != "python" and python and name not in wrong:
                wrong.append(name)
    return wrong


def sources() -> list[Path]:
    return sorted(p for p in CSRC.rglob("*") if p.suffix in (".h", ".cpp"))


def test_every_folder_is_a_layer():
    assert {layer(path) for path in sources()} <= set(HEIGHT)


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(CSRC)))
def test_no_upward_include(path):
    assert upward_includes(path, path.read_text()) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("driver/wait.cpp", '#include "../runtime/device.h"'),
        ("driver/wait.cpp", "#include <c10/core/Device.h>"),
        ("driver/wait.cpp", "#include <Python.h>"),
        ("runtime/stream.h", '#include "../aten/launch.h"'),
        ("runtime/stream.h", "#include <pybind11/pybind11.h>"),
        ("runtime/stream.h", '#include "aten/launch.h"'),
    ],
)
def test_an_upward_include_is_noticed(file, line):
    assert len(upward_includes(CSRC / file, line)) == 1


def test_the_driver_compiles_with_nothing_but_the_system():
    files = sorted(build.DRIVER.glob("*.cpp"))
    command = [build.compiler(), "-std=c++20", "-fsyntax-only", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    command = [build.compiler(), "-std=c++20", "-MM", *map(str, files)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    headers = {Path(word) for word in listed.replace("\\\n", " ").split() if word.endswith(".h")}
    assert {header.parent for header in headers} == {build.DRIVER}


@pytest.mark.parametrize("name", ["accel.h", "accel_graph.h", "accel_grid.h", "accel_trace.h"])
def test_the_interface_is_short_c(name):
    header = build.DRIVER / name
    assert len(header.read_text().splitlines()) <= 300
    command = [build.compiler(), "-x", "c", "-std=c99", "-pedantic-errors", "-Wall", "-fsyntax-only"]
    source = f'#include "{header}"\n'
    done = subprocess.run([*command, "-"], input=source, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
