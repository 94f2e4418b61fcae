"""The wheel: what is in it, what it promises, and that it runs where nothing can be compiled."""

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = re.search(r'"(.+?)"', (ROOT / "torch_accel/_version.py").read_text().split("=")[1])[1]
TORCH = ".".join(VERSION.split(".")[:2])


def run(*command, **options) -> str:
    ran = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def tracked(pattern: str) -> set[str]:
    """Files of the tree, without what .gitignore names."""
    options = ("--cached", "--others", "--exclude-standard")
    listed = set(run("git", "ls-files", *options, "--", pattern, cwd=ROOT).split())
    return {name for name in listed if (ROOT / name).exists()}


def public_headers() -> list[str]:
    """PUBLIC_HEADERS of setup.py, which is a script: read, not imported."""
    (value,) = (
        node.value
        for node in ast.parse((ROOT / "setup.py").read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PUBLIC_HEADERS"
    )
    return ast.literal_eval(value)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    for stale in ROOT.glob("build/lib.*"):  # modules removed since the last build would be packed again
        shutil.rmtree(stale)
    out = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run(*pip, "--wheel-dir", out, ROOT)
    (built,) = out.glob("*.whl")
    return built


def test_contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = f"torch_accel_sim-{VERSION}.dist-info/"
    native = {name for name in names if name.endswith(".so")}
    assert len(native) == 1 and min(native).startswith("torch_accel/_C.")
    ours = {name for name in names - native if not name.startswith(info)}
    folders = ("torch_accel", "torch_accel_pytest", "_torch_accel_triton")
    patterns = (*(f"{folder}/*.py" for folder in folders), "torch_accel/*.pyi", "torch_accel/py.typed")
    headers = {f"torch_accel/include/torch_accel/{header}" for header in public_headers()}
    assert ours == set().union(*map(tracked, patterns)) | {"_torch_accel_autoload.py"} | headers


def test_metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        info = f"torch_accel_sim-{VERSION}.dist-info/"
        metadata = Parser().parsestr(archive.read(info + "METADATA").decode())
        entry_points = archive.read(info + "entry_points.txt").decode()
    assert (metadata["Name"], metadata["Version"]) == ("torch-accel-sim", VERSION)
    assert metadata["License-Expression"] == "BSD-3-Clause"
    needed = [r for r in metadata.get_all("Requires-Dist") if "extra ==" not in r]
    assert needed == [f"torch=={TORCH}.*", "numpy"]
    declared = configparser.ConfigParser()
    declared.read_string(entry_points)
    assert {group: dict(declared[group]) for group in declared.sections()} == {
        "console_scripts": {"accel-triton": "torch_accel.triton.__main__:main"},
        "torch.backends": {"accel": "_torch_accel_autoload:autoload"},
        "triton.backends": {"accel": "_torch_accel_triton"},
        "pytest11": {"torch_accel_pytest": "torch_accel_pytest"},
    }


def test_build_and_runtime_name_the_same_torch():
    requirements = re.findall(r"torch==([\d.]+)\.\*", (ROOT / "pyproject.toml").read_text())
    assert requirements == [TORCH, TORCH]


def test_native_library_brings_no_second_runtime(wheel, tmp_path):
    """libtorch and libgomp come from torch; a debugger's symbols are left out."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".so"))
        library = archive.extract(name, tmp_path)
    if not (readelf := shutil.which("readelf")):
        pytest.skip("readelf is not installed")
    needed = set(re.findall(r"NEEDED.*\[(.+?)\]", run(readelf, "-d", library)))
    torch_libraries = {"libtorch.so", "libtorch_cpu.so", "libtorch_python.so", "libc10.so"}
    system = {"libstdc++.so.6", "libgcc_s.so.1", "libc.so.6", "libm.so.6", "libgomp.so.1"}
    loader = {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libpthread.so.0"}
    assert needed <= torch_libraries | system | loader
    assert ".debug_info" not in run(readelf, "-S", "-W", library)


@pytest.fixture(scope="module")
def clean(wheel, tmp_path_factory) -> Path:
    """The Python of a venv that has the wheel, and sees torch and pytest by a .pth file, but not this tree."""
    home = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(home, with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": home, "platbase": home}))
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        home / "bin/python",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    run(*pip, wheel)
    # Last on the path: the venv's own packages come before those of the development venv.
    (site / "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin/python"


def test_runs_where_nothing_can_be_compiled(clean, tmp_path):
    env = {"PATH": str(clean.parent), "HOME": str(tmp_path)}
    assert not shutil.which("cc", path=env["PATH"])
    shutil.copy(ROOT / "tests/packaging/smoke.py", tmp_path)
    assert run(clean, "smoke.py", cwd=tmp_path, env=env) == "torch_accel works\n"
    where = run(clean, "-c", "import torch_accel; print(torch_accel.__file__)", cwd=tmp_path, env=env)
    assert Path(where.strip()).is_relative_to(clean.parents[1])


#: options that leave the plugin alone
ALONE = ("-p", "no:xdist", "-p", "no:asyncio", "-p", "no:randomly")


@pytest.mark.full
@pytest.mark.parametrize(
    "options", [ALONE, ("-p", "no:xdist"), ("-p", "no:asyncio", "-n", "2"), ("-n", "2")], ids=" ".join
)
def test_the_pytest_plugin(clean, tmp_path, options):
    """Found by its entry point, alone and beside pytest-xdist, pytest-asyncio and pytest-randomly."""
    tests = tmp_path / "tests"
    tests.mkdir()
    asynchronous = "" if "no:asyncio" in options else "@pytest.mark.asyncio\nasync "
    (tests / "test_one.py").write_text(
        "import pytest, torch, torch_accel_pytest\n\n"
        f"{asynchronous}def test_one(device):\n"
        "    assert torch.ones(3, device=device).sum().item() == 3\n"
        f"    assert torch_accel_pytest.__file__.startswith({str(clean.parents[1])!r})\n"
    )
    env = {"PATH": str(clean.parent), "HOME": str(tmp_path)}
    pytest_ = [clean, "-m", "pytest", "-p", "no:cacheprovider", *options]
    assert " 1 passed" in run(*pytest_, "tests", cwd=tmp_path, env=env)
    for mode in ("--accel", "--accel=strict"):
        output = run(*pytest_, mode, "tests", cwd=tmp_path, env=env)
        assert " 1 passed" in output and "peak memory of accel:0: 1.0 KiB of 2.0 GiB" in output


def test_source_distribution_is_complete(tmp_path):
    """Everything that the build and the tests read is in it."""
    setup = [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", tmp_path]
    run(*setup, cwd=ROOT, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        packed = {name.partition("/")[2] for name in tar.getnames()}
    wanted = set().union(
        *map(
            tracked,
            (
                *("csrc/", "torch_accel/", "torch_accel_pytest/", "_torch_accel_triton/"),
                *("tests/", "docs/", "benchmarks/", ".github/"),
            ),
        )
    )
    assert wanted | {"dev", "LICENSE", "README.md", "pyproject.toml", "setup.py"} <= packed
