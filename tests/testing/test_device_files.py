"""The files that others' test suites read: TORCH_TEST_DEVICES, and Hugging Face's device spec."""

import importlib.util
import re
import shutil
import subprocess
import sys

import pytest
import torch

import torch_accel
from torch_accel import testing
from torch_accel_pytest import settings

GENERIC = """
    import torch
    from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests, onlyOn, ops
    from torch.testing._internal.common_utils import TestCase

    class TestFirst(TestCase):
        def test_device(self, device):
            self.assertEqual(torch.ones(2, device=device).sum().item(), 2)
            self.assertEqual(torch.empty(0, device=device).device.type, self.device_type)

        @dtypes(torch.float32, torch.int64)
        def test_dtype(self, device, dtype):
            self.assertEqual(torch.zeros(2, dtype=dtype, device=device).dtype, dtype)

        @onlyOn("accel")
        def test_only_on_accel(self, device):
            self.assertEqual(self.get_primary_device(), "accel:0")

    class TestSecond(TestCase):
        def test_device(self, device):
            pass

    class TestForCuda(TestCase):
        def test_device(self, device):
            self.assertTrue(torch.ones(1, device=device).is_accel)

    instantiate_device_type_tests(TestFirst, globals(), only_for=("cpu", "accel"))
    instantiate_device_type_tests(TestSecond, globals(), only_for="accel")
    instantiate_device_type_tests(TestForCuda, globals(), only_for="cuda")
    """

FIRST_ACCEL = {
    "TestFirstACCEL::test_device_accel",
    "TestFirstACCEL::test_dtype_accel_float32",
    "TestFirstACCEL::test_dtype_accel_int64",
    "TestFirstACCEL::test_only_on_accel_accel",
}


def passed(output: str) -> set[str]:
    return set(re.findall(r"^PASSED [\w.]+::(.*)", output, flags=re.M))


def test_torchs_generic_tests(project):
    """Each test once, under accel's name from the first class on; tests for CUDA where that is asked for."""
    project.write(test_generic=GENERIC)
    output = project.passes("-rp", TORCH_TEST_DEVICES=testing.TORCH_TEST_DEVICES)
    cpu = {
        "TestFirstCPU::test_device_cpu",
        "TestFirstCPU::test_dtype_cpu_float32",
        "TestFirstCPU::test_dtype_cpu_int64",
    }
    accel = FIRST_ACCEL | {"TestSecondACCEL::test_device_accel"}
    assert passed(output) == cpu | accel

    output = project.passes("-rp", "--accel", "-k", "ACCEL", PYTORCH_TESTING_DEVICE_FOR_CUSTOM="accel")
    assert passed(output) == accel | {"TestForCudaACCEL::test_device_accel"}


def test_without_the_file_names_depend_on_what_ran(project):
    """Why there is a file: torch itself makes a first class of another name."""
    output = project.write(test_generic=GENERIC).passes("-rp", "-k", "TestFirst and not CPU")
    assert {name.split("::")[0] for name in passed(output)} == {"TestFirstPRIVATEUSE1"}


def test_torchs_file_is_found_without_torch():
    assert settings.test_devices() == testing.TORCH_TEST_DEVICES


@pytest.mark.parametrize(
    "program, error",
    [
        ("import torch_accel.testing._torch_test_devices", "is not for import: set TORCH_TEST_DEVICES to its path"),
        ("import torch.testing._internal.common_device_type", "there is no device: unset ACCEL_DEVICES=0"),
    ],
)
def test_torchs_file_where_it_cannot_work(script, program, error):
    options = {} if "accel" in program else {"ACCEL_DEVICES": "0", "TORCH_TEST_DEVICES": testing.TORCH_TEST_DEVICES}
    ran = script(program, check=False, **options)
    assert ran.returncode == 1 and error in ran.stderr


# ---- Hugging Face

#: what transformers 5.24 reads of a spec, and then diffusers 0.42
NAMES = {
    "transformers": {"DEVICE_NAME", "MANUAL_SEED_FN", "EMPTY_CACHE_FN", "DEVICE_COUNT_FN", "SINGLE_PROCESS_DEVICE"},
    "diffusers": {
        "DEVICE_NAME",
        "MANUAL_SEED_FN",
        "EMPTY_CACHE_FN",
        "DEVICE_COUNT_FN",
        "SUPPORTS_TRAINING",
        "RESET_PEAK_MEMORY_STATS_FN",
        "RESET_MAX_MEMORY_ALLOCATED_FN",
        "MAX_MEMORY_ALLOCATED_FN",
    },
}


def load(path):
    spec = importlib.util.spec_from_file_location("spec_accel", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_device_spec():
    spec = load(testing.DEVICE_SPEC)
    public = {name for name in vars(spec) if name.isupper()}
    assert public == set().union(*NAMES.values())
    assert torch.device(spec.DEVICE_NAME).type == "accel" and spec.SUPPORTS_TRAINING
    assert spec.DEVICE_COUNT_FN() == torch_accel.device_count()
    spec.MANUAL_SEED_FN(3)
    drawn = torch.rand(2, device="accel"), torch.rand(2)
    spec.MANUAL_SEED_FN(3)
    assert torch.equal(torch.rand(2, device="accel"), drawn[0]) and torch.equal(torch.rand(2), drawn[1])
    x = torch.ones(1 << 20, device="accel")
    assert spec.MAX_MEMORY_ALLOCATED_FN() >= x.nbytes
    del x
    spec.RESET_PEAK_MEMORY_STATS_FN()
    spec.RESET_MAX_MEMORY_ALLOCATED_FN()
    assert spec.MAX_MEMORY_ALLOCATED_FN() == torch.accel.memory_allocated()
    spec.EMPTY_CACHE_FN()


def test_the_device_spec_is_found_as_transformers_looks_for_it(tmp_path):
    """By its file's name, from the folder where pytest runs: a path elsewhere cannot be imported there."""
    shutil.copy(testing.DEVICE_SPEC, tmp_path / "spec_accel.py")
    program = """
import importlib, os, pathlib, sys
path = "spec_accel.py"
assert pathlib.Path(path).is_file()
sys.path.append(os.path.split(os.path.realpath(path))[0])
print(importlib.import_module(path[: path.index(".py")]).DEVICE_NAME)
"""
    command = [sys.executable, "-P" if sys.version_info >= (3, 11) else "-B", "-c", program]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.stdout == "accel\n", ran.stderr


def test_the_variables_are_those_that_the_suites_read():
    """Checked on transformers 5.24, diffusers 0.42 and accelerate 1.15, and again where they are installed."""
    assert set(settings.OTHERS) == {
        "TRANSFORMERS_TEST_DEVICE",
        "TRANSFORMERS_TEST_BACKEND",
        "DIFFUSERS_TEST_DEVICE",
        "DIFFUSERS_TEST_BACKEND",
        "ACCELERATE_TORCH_DEVICE",
    }
    readers = {"transformers": "testing_utils.py", "diffusers": "utils/testing_utils.py", "accelerate": "state.py"}
    for package, file in readers.items():
        found = importlib.util.find_spec(package)
        if found is None:
            continue
        (folder,) = found.submodule_search_locations
        with open(f"{folder}/{file}") as opened:
            text = opened.read()
        wanted = [name for name in settings.OTHERS if name.startswith(package.upper())]
        assert wanted and all(f'"{name}"' in text for name in wanted)
        assert all(f'"{name}"' in text or f".{name}" in text for name in NAMES.get(package, ()))
