"""``pytest --pyargs torch_accel.conformance`` runs the suite under the settings that it needs."""

import pytest
from expecttest import assert_expected_inline

from tests.testing.conftest import outcomes
from torch_accel.conformance import ENVIRONMENT, conftest


@pytest.fixture
def other_settings(monkeypatch):
    for name in ENVIRONMENT:
        monkeypatch.setenv(name, "other")


def test_random_numbers_are_the_cpus(project):
    """Bit for bit, which the device's own generator would not be."""
    options = ("--pyargs", "torch_accel.conformance", "-k", "test_forward_bernoulli_accel_float32")
    assert outcomes(project.passes(*options))["passed"] == 1


def test_settings_that_come_too_late(other_settings):
    import torch

    torch.ones(1, device="accel")
    with pytest.raises(pytest.UsageError) as error:
        conftest.pytest_pycollect_makemodule()
    assert_expected_inline(
        str(error.value),
        """accel is initialised already, and the conformance suite needs other settings: run it alone, or set ACCEL_RNG=cpu ACCEL_FALLBACK=allow""",
    )
