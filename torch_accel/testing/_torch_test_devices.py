"""What torch's test suite reads through TORCH_TEST_DEVICES: the base class of the tests on accel.

torch.testing._internal.common_device_type runs this file among its own names, before any test class is made, and wants a
``TEST_CLASS``. torch has a base class for any registered device, but names it ``privateuse1`` until a first class has
been set up: names of tests depend on what ran before, and tests in the style of ``only_for="accel"`` or
``PYTORCH_TESTING_DEVICE_FOR_CUSTOM=accel`` are left out in silence. This class takes its place.
"""

from typing import Any

import torch_accel

_namespace: dict[str, Any] = globals()
if "PrivateUse1TestBase" not in _namespace:
    raise ImportError(f"{__file__} is not for import: set TORCH_TEST_DEVICES to its path, and torch's tests run it")
if not torch_accel.is_available():
    raise RuntimeError("TORCH_TEST_DEVICES names accel, but there is no device: unset ACCEL_DEVICES=0")

_Generic: Any = _namespace["PrivateUse1TestBase"]
_bases: list[Any] = _namespace["device_type_test_bases"]
_bases[:] = [base for base in _bases if base is not _Generic]  # or every test would run twice


class AccelTestBase(_Generic):
    """Makes and runs the tests of a device-generic class on accel."""

    device_type = "accel"


TEST_CLASS = AccelTestBase
