"""The GitHub action and the workflow that docs/testing_your_library.md shows: what they say, and what their steps do."""

import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml

import torch_accel
from tests.docs.markdown import PAGES, ROOT, blocks

FOLDER = ROOT / ".github/actions/setup-accel"
ACTION = yaml.safe_load((FOLDER / "action.yml").read_text())
STEPS = {step.get("name", step.get("uses")): step for step in ACTION["runs"]["steps"]}
PAGE = ROOT / "docs/testing_your_library.md"


def load(text: str) -> dict:
    """A workflow: YAML 1.1 reads its key `on` as true."""
    loaded = yaml.safe_load(text)
    return {"on" if key is True else key: value for key, value in loaded.items()}


def workflows() -> dict[str, dict]:
    found = {path.name: load(path.read_text()) for path in (ROOT / ".github/workflows").glob("*.yml")}
    shown = (block for page in PAGES for block in blocks(page) if block.language == "yaml")
    return found | {f"documented {index}": load(block.text) for index, block in enumerate(shown)}


def test_inputs_and_outputs_are_those_that_the_steps_use():
    text = (FOLDER / "action.yml").read_text()
    assert set(re.findall(r"\binputs\.([\w-]+)", text)) == set(ACTION["inputs"])
    ids = {step["id"]: step for step in STEPS.values() if "id" in step}
    for step, output in re.findall(r"\bsteps\.(\w+)\.outputs\.([\w-]+)", text):
        assert output == "cache-hit" or f'"{output}=' in ids[step]["run"]
    assert ACTION["runs"]["using"] == "composite"
    for step in STEPS.values():
        assert ("uses" in step) != ("run" in step) and ("shell" in step) == ("run" in step)
        # Text of a user's goes into a script through its environment, not into its source.
        assert "${{" not in step.get("run", "")


def test_the_page_lists_the_inputs():
    section = PAGE.read_text().partition("| Input |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([\w-]+)` \|", section, flags=re.M)) == set(ACTION["inputs"])


@pytest.mark.parametrize("name, workflow", workflows().items(), ids=workflows())
def test_workflows(name, workflow):
    """Each has what GitHub asks for; a use of the action gives it inputs that it has, and its file is there."""
    assert workflow.keys() >= {"name", "on", "jobs", "permissions"}
    for job in workflow["jobs"].values():
        assert job["runs-on"] and job["timeout-minutes"]
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            path, _, version = step.get("uses", "").partition("@")
            if "torch_accel/" in path or path.startswith("./"):
                folder = path.removeprefix("./").removeprefix("OWNER/torch_accel/")
                assert ROOT / folder == FOLDER and (version or path.startswith("./"))
                assert set(step.get("with", {})) <= set(ACTION["inputs"])


def test_the_documented_workflow_is_two_lines():
    (workflow,) = (workflow for name, workflow in workflows().items() if name.startswith("documented"))
    steps = workflow["jobs"]["accel"]["steps"]
    ours = [step for step in steps if "setup-accel" in step.get("uses", "")]
    assert [list(step) for step in ours] == [["uses"]]
    assert steps[-1] == {"run": "pytest --accel=strict"}


@pytest.fixture
def step(tmp_path):
    """Runs the shell of a step as GitHub does, and returns the outputs it set; python and pip may be replaced."""

    def run(name: str, fake_python: bool = False, **variables: str) -> dict[str, str]:
        files = {"GITHUB_OUTPUT": tmp_path / "output", "GITHUB_ENV": tmp_path / "env"}
        path = os.environ["PATH"]
        if fake_python:
            stub = tmp_path / "bin/python"
            stub.parent.mkdir(exist_ok=True)
            stub.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >"$GITHUB_OUTPUT"\n')
            stub.chmod(0o755)
            path = f"{stub.parent}:{path}"
        else:
            path = f"{os.path.dirname(sys.executable)}:{path}"
        env = {**os.environ, **variables, "PATH": path, "PYTHONPATH": str(ROOT), "RUNNER_OS": "Linux"}
        env |= {"RUNNER_TEMP": str(tmp_path), **{key: str(file) for key, file in files.items()}}
        for file in files.values():
            file.write_text("")
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]]
        ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        if fake_python:
            return files["GITHUB_OUTPUT"].read_text().splitlines()
        return dict(line.split("=", 1) for file in files.values() for line in file.read_text().splitlines())

    return run


def test_the_name_of_the_wheel_follows_the_sources(step, tmp_path):
    root = tmp_path / "root"
    for name in ("csrc/driver", "torch_accel/testing", "torch_accel_pytest"):
        shutil.copytree(ROOT / name, root / name)
    for name in ("pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, root)
    found = step("Name the wheel", ROOT=str(root))
    assert re.fullmatch(r"torch-accel-Linux-cpython-3\d+-\w+-[0-9a-f]{16}", found["key"])
    assert found["folder"] == str(tmp_path / "torch-accel")
    assert step("Name the wheel", ROOT=str(root)) == found
    (root / "csrc/driver/worker.cpp").write_text("")
    assert step("Name the wheel", ROOT=str(root))["key"] != found["key"]


def test_the_wheel_is_compiled_and_installed(step, tmp_path):
    compiled = step("Compile the wheel", True, ROOT="/r", FOLDER="/f", PIP_ARGUMENTS="--index-url https://x")
    assert compiled == ["-m", "pip", "wheel", "--no-deps", "--wheel-dir", "/f", "--index-url", "https://x", "/r"]
    (tmp_path / "wheels").mkdir()
    wheel = tmp_path / "wheels/torch_accel_sim-1-cp311.whl"
    wheel.touch()
    installed = step("Install", True, FOLDER=str(wheel.parent), PACKAGE="", PIP_ARGUMENTS="")
    assert installed == ["-m", "pip", "install", str(wheel), "pytest"]
    installed = step("Install", True, FOLDER="", PACKAGE="torch-accel-sim==2.13.*", PIP_ARGUMENTS="-q --pre")
    assert installed == ["-m", "pip", "install", "-q", "--pre", "torch-accel-sim==2.13.*", "pytest"]


def test_the_check_says_the_version(step):
    assert step("Check") == {"version": torch_accel.__version__, "OMP_WAIT_POLICY": "PASSIVE"}
