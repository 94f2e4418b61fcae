"""Runs pytest on small projects, in processes of their own: the plugin must come before torch_accel's first use."""

import os
import re
import subprocess
import sys
import textwrap

import pytest

from tests.conftest import ROOT


class Project:
    """A folder with the files of a user's project."""

    def __init__(self, folder):
        self.folder = folder

    def write(self, **files: str) -> "Project":
        """Makes Python files: a double underscore in a name is a folder's slash."""
        for name, text in files.items():
            path = self.folder / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return self

    def run(self, *arguments: str, random_order: bool = False, **environment: str) -> subprocess.CompletedProcess:
        """pytest's run with the plugin, in an environment without variables of accel's."""
        ours = ("ACCEL_", "PYTEST_", "TORCH_TEST_", "TRANSFORMERS_", "DIFFUSERS_", "ACCELERATE_")
        env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(self.folder), *env.get("PYTHONPATH", "").split(os.pathsep)])
        options = ["-p", "torch_accel_pytest", "-p", "no:cacheprovider"]
        options += [] if random_order else ["-p", "no:randomly"]
        return subprocess.run(
            [sys.executable, "-m", "pytest", *options, *arguments],
            cwd=self.folder,
            env={**env, **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )

    def passes(self, *arguments: str, **options: str) -> str:
        """The output of a run in which no test fails."""
        ran = self.run(*arguments, **options)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


def outcomes(output: str) -> dict[str, int]:
    """What pytest's last line counts."""
    return {
        word: int(number)
        for number, word in re.findall(r"(\d+) (\w+)", output.strip().splitlines()[-1].split(" in ")[0])
    }


@pytest.fixture
def project(tmp_path) -> Project:
    return Project(tmp_path)
