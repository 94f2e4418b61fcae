"""./dev says what it can do, and refuses what it cannot."""

import subprocess

from expecttest import TestCase

from tests.docs.markdown import ROOT


def dev(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([ROOT / "dev", *arguments], capture_output=True, text=True, timeout=10)


class TestDev(TestCase):
    def test_usage(self):
        self.assertExpectedInline(
            dev().stdout,
            """\
usage: ./dev COMMAND [arguments]
  build              compile torch_accel in place (only what changed)
  demo               train a small network on accel and on the CPU, and compare them
  test [--full] ...  run the tests (--full: the slow ones and the sanitizers too); arguments go to pytest
  test --full ops    run the whole operator suite, with progress
  lint               clang-format, ruff and mypy, in the versions that pyproject.toml pins
  bench [--page]     measure every target, in a quarter of an hour (--page: write docs/performance.md from it)
  bench NAME ...     run one script of benchmarks/; --help tells its arguments
  docs               run every example of README.md and docs/, and check links and tables
""",
        )

    def test_unknown_command(self):
        ran = dev("fly")
        assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", dev().stdout)
