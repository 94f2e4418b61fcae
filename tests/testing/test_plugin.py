"""The pytest plugin: options, fixture, marks, summary."""

import json
import os
import re
import subprocess
import sys

import pytest
from expecttest import assert_expected_inline

from tests.conftest import ROOT
from tests.testing.conftest import outcomes
from torch_accel_pytest import settings

ON_DEVICE = """
    import torch

    def test_device(device):
        x = torch.ones(4, device=device)
        assert x.device == device
        print("device", device.type)
    """


def accel_section(output: str) -> str:
    """The summary of accel at the end, without what differs from run to run."""
    text = re.search(r"^=+ accel =+\n(.*?)^(?:=|\d+ )", output, flags=re.M | re.S)[1]
    text = re.sub(r"seed \d+", "seed N", text)
    # A fast device leaves nothing to wait for.
    return re.sub(r"^(host waits: )\d+\n( +)\d+", r"\1N\n\2N", text, flags=re.M)


@pytest.mark.parametrize(
    "options", [("--accel", "tests"), ("tests", "--accel"), ("--accel=strict", "tests")], ids=" ".join
)
def test_the_option_leaves_the_path_behind_it_alone(project, options):
    """An option with an optional value would take the folder for the value."""
    project.write(tests__test_one="def test_one(): pass\n", test_other="def test_other(): assert False\n")
    assert outcomes(project.passes(*options)) == {"passed": 1}


def test_another_mode_is_an_error(project):
    ran = project.run("--accel=loose")
    assert ran.returncode == 4 and "argument --accel: ignored explicit argument 'loose'" in ran.stderr


def test_options_in_an_ini_file(project):
    (project.folder / "pytest.ini").write_text("[pytest]\naddopts = --accel=strict --strict-markers\n")
    project.write(test_one=ON_DEVICE)
    output = project.passes("-s")
    assert "device accel" in output and "accel: strict" in output


def test_nothing_happens_without_the_option(project):
    """The plugin is loaded in every run of a venv that torch_accel is installed in."""
    project.write(
        test_one="""
        import os, sys

        def test_nothing():
            assert not {"torch", "torch_accel", "torch_accel_pytest.run"} & set(sys.modules)
            assert "torch_accel_pytest" in sys.modules
            assert not [n for n in os.environ if n.startswith(("ACCEL", "TRANSFORMERS_", "TORCH_TEST_"))]

        def test_device(device):
            assert device.type == "cpu"
            assert "torch_accel" not in sys.modules or not sys.modules["torch_accel"].is_initialized()
        """
    )
    output = re.sub(r"^plugins: .*\n", "", project.passes(), flags=re.M)  # it is listed where it is installed
    assert outcomes(output) == {"passed": 2} and "accel" not in output


def test_help(project):
    text = project.passes("--help")
    options = re.search(r"^tests on the device accel.*?\n(.*?)\n\n", text, flags=re.M | re.S)[1]
    assert_expected_inline(
        options,
        """\
  --accel               run on accel: the fixture `device` is accel:0 instead of
                        the CPU
  --accel=strict        and catch what a GPU would break: poisoned memory,
                        shaken schedules, the stream sanitizer, hidden waits
  --accel-seed=N        the schedule of --accel=strict, to repeat a failure
                        (default: another one each time)
  --accel-as-cuda       run what says cuda on accel (implies --accel)
  --accel-capability=X.Y
                        with --accel-as-cuda: what
                        torch.cuda.get_device_capability() says (default: it
                        raises)""",
    )
    assert re.search(r"accel_waits \(string\):", text)


def environment(project, *options: str, **variables: str) -> dict[str, str]:
    project.write(
        conftest="""
        import json, os

        # As early as a conftest.py can ask.
        print("environment", json.dumps(dict(os.environ)))
        """,
        test_one="def test_one(): pass\n",
    )
    text = re.search("environment (.*)", project.passes("-s", *options, **variables))[1]
    return json.loads(text)


def test_the_environment_of_a_run(project):
    found = environment(project, "--accel")
    assert found.items() >= {"ACCEL_MEMORY": "2GiB", "ACCEL_AUTOLOAD": "1", **settings.OTHERS}.items()
    assert found["TORCH_TEST_DEVICES"] == settings.test_devices()
    assert not {"ACCEL_POISON", "ACCEL_DELAY_US", "ACCEL_SANITIZER", "ACCEL_SCHEDULE_SEED"} & set(found)


def test_the_environment_of_a_strict_run(project):
    found = environment(project, "--accel=strict", "--accel-seed", "12", ACCEL_DELAY_US="7", ACCEL_MEMORY="1GiB")
    expected = {
        "ACCEL_POISON": "1",
        "ACCEL_SANITIZER": "1",
        "ACCEL_SCHEDULE_SEED": "12",
        # the user's own
        "ACCEL_DELAY_US": "7",
        "ACCEL_MEMORY": "1GiB",
    }
    assert found.items() >= expected.items()


class TestChoose:
    """Which settings win."""

    @pytest.fixture(autouse=True)
    def environment(self, monkeypatch):
        for name in ("ACCEL_SCHEDULE_SEED", "PYTEST_XDIST_WORKER", *settings.OTHERS):
            monkeypatch.delenv(name, raising=False)
        self.setenv = monkeypatch.setenv

    def test_a_seed_is_drawn(self):
        seeds = {settings.choose("strict", None).seed for _ in range(4)}
        assert len(seeds) == 4

    def test_the_variables_seed_is_kept_and_the_options_wins(self):
        self.setenv("ACCEL_SCHEDULE_SEED", "5")
        assert settings.choose("strict", None).seed == 5
        assert settings.choose("strict", 6).environment["ACCEL_SCHEDULE_SEED"] == "6"

    def test_each_worker_has_its_own(self):
        self.setenv("ACCEL_SCHEDULE_SEED", "100")  # the controller's, which a worker inherits
        self.setenv("PYTEST_XDIST_WORKER", "gw3")
        chosen = settings.choose("strict", 100)
        assert (chosen.seed, chosen.environment["ACCEL_SCHEDULE_SEED"]) == (100, "103")

    def test_a_seed_without_strict(self):
        with pytest.raises(pytest.UsageError) as error:
            settings.choose("plain", 3)
        assert_expected_inline(str(error.value), """--accel-seed is the schedule of --accel=strict: add that option""")

    def test_a_suites_own_choice_is_kept(self):
        self.setenv("TRANSFORMERS_TEST_DEVICE", "cpu")
        assert "TRANSFORMERS_TEST_DEVICE" not in settings.choose("plain", None).environment


def test_the_environment_is_restored(monkeypatch):
    monkeypatch.setenv("KIT_A", "1")
    monkeypatch.delenv("KIT_B", raising=False)
    before = settings.apply({"KIT_A": "2", "KIT_B": "3"})
    assert (os.environ["KIT_A"], os.environ["KIT_B"]) == ("2", "3")
    settings.restore(before)
    assert os.environ["KIT_A"] == "1" and "KIT_B" not in os.environ


def test_too_late(project):
    """Variables that are read no more are an error, not a run that finds nothing."""
    project.write(
        test_one="def test_one(): pass\n",
        main="""
        import sys, pytest, torch

        torch.ones(1, device="accel")
        sys.exit(pytest.main(["-p", "torch_accel_pytest", "--accel=strict", "--accel-seed", "9"]))
        """,
    )
    ran = subprocess.run(
        [sys.executable, "main.py"], cwd=project.folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert ran.returncode == 4
    assert_expected_inline(
        ran.stderr.strip(),
        """ERROR: --accel comes too late: accel is initialised already, by a plugin or by the program that called pytest, and reads its variables only then. Let it be used later, or set them yourself: ACCEL_MEMORY=2GiB ACCEL_SCHEDULE_SEED=9 ACCEL_POISON=1 ACCEL_DELAY_US=200 ACCEL_SANITIZER=1""",
    )


def test_marks(project):
    project.write(
        test_one="""
        import pytest, torch

        @pytest.mark.accel
        def test_needs_accel():
            assert torch.ones(2, device="accel").is_accel

        @pytest.mark.accel
        @pytest.mark.accel_memory("4MiB")
        def test_little_memory(device):
            with pytest.raises(torch.OutOfMemoryError):
                torch.empty(8 << 20, dtype=torch.uint8, device=device)

        def test_all_memory(device):
            torch.empty(8 << 20, dtype=torch.uint8, device=device)
        """
    )
    without = project.passes("-rs", "--strict-markers")
    assert outcomes(without) == {"passed": 1, "skipped": 2}
    assert "needs the device accel: pytest --accel" in without
    assert outcomes(project.passes("--accel")) == {"passed": 3}
    assert "@pytest.mark.accel_memory(size):" in project.passes("--markers")


NONSENSE = {
    "accel_memory('much')": "accel_memory takes a size, as in @pytest.mark.accel_memory('64MiB')",
    "accel_memory('3GiB')": "accel_memory of 3221225472 bytes, but ACCEL_MEMORY is 2147483648",
    "accel_waits('few')": "accel_waits takes one number, as in @pytest.mark.accel_waits(10)",
    "accel_waits()": "accel_waits takes one number, as in @pytest.mark.accel_waits(10)",
}


def test_a_mark_that_makes_no_sense(project):
    tests = [f"@pytest.mark.{mark}\ndef test_{index}(): pass\n" for index, mark in enumerate(NONSENSE)]
    ran = project.write(test_one="import pytest\n" + "".join(tests)).run("--accel")
    assert outcomes(ran.stdout) == {"failed": len(NONSENSE)}
    for index, complaint in enumerate(NONSENSE.values()):
        assert f"test_one.py::test_{index}: {complaint}" in ran.stdout


def test_a_late_error_fails_the_test_that_made_it(project):
    project.write(
        test_one="""
        import torch

        def test_first(device):
            torch._assert_async(torch.zeros(1, device=device), "a check on the device")

        def test_second(device):
            torch.accelerator.synchronize()
            assert torch.ones(1, device=device).item() == 1

        def test_fails_itself(device):
            torch._assert_async(torch.zeros(1, device=device))
            assert False

        def test_last(device):
            assert torch.ones(1, device=device).item() == 1
        """
    )
    ran = project.run("--accel", "-rfp")
    assert outcomes(ran.stdout) == {"failed": 2, "passed": 2}
    assert re.findall(r"^PASSED .*::(\w+)", ran.stdout, flags=re.M) == ["test_second", "test_last"]
    found = re.search(r"^work that this test.*?(?=\n[=_-]{3})", ran.stdout, flags=re.M | re.S)[0]
    assert_expected_inline(
        found,
        """\
work that this test has queued on accel failed later: accel kernel failed: _assert_async: a check on the device (operands: Float[1])
Kernels fail after their launch, so this call may not be the one to blame. ACCEL_LAUNCH_BLOCKING=1 raises the error at the launch.""",
    )


LIBRARY = """
    def scaled(batches):
        results = []
        for batch in batches:
            results.append(batch / batch.abs().max().item())
        return results

    def total(batches):
        result = 0.0
        for batch in batches:
            result += batch.sum().item()
        return result
    """

LIBRARY_TESTS = """
    import library, pytest, torch

    def batches(device, count):
        return list(torch.ones(count, 4, device=device))

    def test_few(device):
        assert library.scaled(batches(device, 3))[0].sum().item() == 4

    def test_many(device):
        library.scaled(batches(device, 5))
        assert library.total(batches(device, 4)) == 16

    @pytest.mark.accel_waits(5)
    def test_allowed(device):
        library.scaled(batches(device, 5))

    def test_own_reads(device):
        assert [x.sum().item() for x in batches(device, 9)] == [4.0] * 9
    """


def test_hidden_waits(project):
    project.write(library=LIBRARY, tests__test_library=LIBRARY_TESTS)
    ran = project.run("--accel=strict", "--accel-seed", "3")
    assert outcomes(ran.stdout) == {"failed": 1, "passed": 3}
    found = re.search(r"^accel: code under test.*?(?=\n-)", ran.stdout, flags=re.M | re.S)[0]
    assert_expected_inline(
        found,
        """\
accel: code under test made the host wait for the device more than 3 times at one line. On a GPU each wait leaves the device idle:
  5 times at library.py:5 in scaled, by _local_scalar_dense (item): results.append(batch / batch.abs().max().item())
  4 times at library.py:11 in total, by _local_scalar_dense (item): result += batch.sum().item()
Keep the values on the device, or allow it: @pytest.mark.accel_waits(n), or accel_waits = n in the ini file.""",
    )
    assert_expected_inline(
        accel_section(ran.stdout),
        """\
peak memory of accel:0: 3.5 KiB of 2.0 GiB
host waits: N
      N item
host waits of code outside the tests: 17
      13 library.py:5 in scaled, by _local_scalar_dense (item): results.append(batch / batch.abs().max().item())
       4 library.py:11 in total, by _local_scalar_dense (item): result += batch.sum().item()
fallbacks: none
schedule seed N: repeat with --accel=strict --accel-seed N
""",
    )
    assert "schedule seed 3: repeat with --accel=strict --accel-seed 3" in ran.stdout

    assert outcomes(project.passes("--accel")) == {"passed": 4}
    assert outcomes(project.passes("--accel=strict", "-o", "accel_waits=5")) == {"passed": 4}


def test_the_mark_counts_without_strict_too(project):
    marked = LIBRARY_TESTS.replace("accel_waits(5)", "accel_waits(0)")
    ran = project.write(library=LIBRARY, test_library=marked).run("--accel")
    assert outcomes(ran.stdout) == {"failed": 1, "passed": 3} and "5 times at library.py:5 in scaled" in ran.stdout


def test_the_summary(project):
    project.write(
        test_one="""
        import torch

        def test_memory(device):
            x = torch.ones(1 << 20, device=device)
            torch.accel.reset_peak_memory_stats()

        def test_fallback(device):
            torch.ones(3, device=device).nonzero()

        def test_nothing():
            pass
        """
    )
    text = accel_section(project.passes("--accel"))
    assert_expected_inline(
        text,
        """\

peak memory of accel:0: 4.0 MiB of 2.0 GiB
host waits: N
       N fallback
fallbacks: 1
       1 aten::nonzero
""",
    )
    nothing = project.passes("--accel", "-k", "nothing")
    assert_expected_inline(
        accel_section(nothing),
        """\

no test has used accel: take the device from the fixture `device`, or say torch.device('accel')
""",
    )


def test_as_cuda(project):
    """From the first conftest.py on, in every test; without --accel too. The fixture's device is that of the tensors."""
    project.write(
        conftest="import torch\n\nDEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'\n",
        test_one="""
        import conftest, pytest, torch

        @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
        def test_cuda(device):
            assert conftest.DEVICE == "cuda"
            x = torch.ones(4, device="cuda")
            assert x.is_cuda and x.cuda() is x and x.device == device
            assert torch.cuda.max_memory_allocated() > 0

        @pytest.mark.accel
        def test_marked(device):
            assert device.type == "cuda"
        """,
    )
    output = project.passes("--accel-as-cuda")
    assert outcomes(output) == {"passed": 2} and "accel: what says cuda runs on accel" in output
    assert outcomes(project.passes("--accel-as-cuda", "--accel=strict")) == {"passed": 2}


def test_as_cuda_with_a_capability(project):
    project.write(
        test_one="""
        import os, torch

        def test_capability():
            assert torch.cuda.get_device_capability() == (8, 6)
            assert "TRANSFORMERS_TEST_DEVICE" not in os.environ  # suites find CUDA by themselves
        """
    )
    assert outcomes(project.passes("--accel-as-cuda", "--accel-capability", "8.6")) == {"passed": 1}
    for options, complaint in (
        (
            ("--accel", "--accel-capability=8.6"),
            "--accel-capability is what --accel-as-cuda shall say: add that option",
        ),
        (("--accel-as-cuda", "--accel-capability=8"), "--accel-capability 8: expected two numbers, as 8.0"),
    ):
        ran = project.run(*options)
        assert ran.returncode == 4 and complaint in ran.stderr
