"""torch's tools for tests of every device type know accel: who reuses torch's test suite for accel relies on them."""

from expecttest import assert_expected_inline

# In a process of its own: torch keeps the settings of a device type in one class for all.
TESTS = """
import unittest
import torch
from torch.testing._internal import common_device_type as t
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.opinfo.core import DecorateInfo

CHOSEN = [op for op in op_db if op.full_name in ("add", "mul", "abs")]

class TestMarks(TestCase):
    @t.onlyCPU
    def test_only_cpu(self, device): pass
    @t.onlyCUDA
    def test_only_cuda(self, device): self.assertEqual(torch.ones(2, device=device).device.type, "accel")
    @t.onlyOn(["cpu", "cuda"])
    def test_only_on(self, device): pass
    @t.onlyNativeDeviceTypes
    def test_native(self, device): self.assertEqual(device, "accel:0")
    @t.onlyPRIVATEUSE1
    def test_only_privateuse1(self, device): self.assertTrue(torch.ones(2, device=device).is_accel)
    @t.skipPRIVATEUSE1
    def test_skip_privateuse1(self, device): raise AssertionError
    @t.skipPRIVATEUSE1If(torch.accel.device_count() > 7, "many devices")
    def test_condition(self, device): pass
    @t.skipCPUIf(True, "not on the CPU")
    def test_skip_cpu(self, device): self.assertTrue(device.startswith("accel"))
    @t.skipCUDAIf(True, "not on CUDA")
    def test_skip_cuda(self, device): self.assertTrue(device.startswith("accel"))
    def test_at_run_time(self, device):
        if torch.device(device).type == "accel":
            self.skipTest("decided inside")
    @t.dtypes(torch.float32, torch.int64)
    @t.dtypesIfPRIVATEUSE1(torch.bfloat16)
    def test_dtypes(self, device, dtype): self.assertEqual(torch.ones(2, dtype=dtype, device=device).dtype, torch.bfloat16)
    @t.deviceCountAtLeast(2)
    def test_several(self, devices): self.assertEqual(devices, ["accel:0", "accel:1"])
    def test_excluded(self, device): raise AssertionError

class TestOperators(TestCase):
    @t.ops(CHOSEN, allowed_dtypes=[torch.float32])
    def test_op(self, device, dtype, op):
        for sample in op.sample_inputs(device, dtype):
            self.assertTrue(op(sample.input, *sample.args, **sample.kwargs).is_accel)

class TestEverywhere(TestCase):
    def test_here(self, device): self.assertEqual(torch.ones(2, device=device).sum().item(), 2)

def outcomes(*templates, **options):
    scope = {}
    for template in templates:
        # A copy: torch takes the tests out of a template.
        scope[template.__name__] = type(template.__name__, template.__bases__, dict(vars(template)))
        t.instantiate_device_type_tests(scope[template.__name__], scope, **options)
    suite = unittest.TestSuite()
    for test_class in scope.values():
        suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(test_class))
    result = unittest.TestResult()
    names = [test.id().split(".")[-1] for test in suite]
    suite.run(result)
    bad = {test.id().split(".")[-1]: text.splitlines()[-1] for test, text in result.failures + result.errors}
    skipped = {test.id().split(".")[-1]: reason for test, reason in result.skipped}
    for name in sorted(names):
        print(f"    {name}: {bad.get(name) or skipped.get(name) or 'passed'}")

base = t.PrivateUse1TestBase
base.setUpClass()
base.set_test_configs(test_exclusions={"TestMarks": ["test_excluded"]}, op_allowlist={"add", "mul"}, op_overrides={
    "mul": [DecorateInfo(unittest.skip("not yet"))]})
print("for accel only")
outcomes(TestMarks, TestOperators, only_for="accel")
print("without the restrictions")
base.bypass_device_restrictions = True
outcomes(TestMarks, only_for="privateuse1")
base.bypass_device_restrictions = False
print("for all but the CPU")
outcomes(TestEverywhere, except_for="cpu")
print("for all but accel")
outcomes(TestEverywhere, except_for="accel")
"""


def test_marks_exclusions_and_dtypes(script):
    assert_expected_inline(
        script(TESTS, ACCEL_DEVICES="2").stdout,
        """\
for accel only
    test_at_run_time_accel: decided inside
    test_condition_accel: passed
    test_dtypes_accel_bfloat16: passed
    test_native_accel: passed
    test_only_cpu_accel: Only runs on cpu
    test_only_cuda_accel: Only runs on cuda
    test_only_on_accel: Only runs on ['cpu', 'cuda']
    test_only_privateuse1_accel: passed
    test_op_add_accel_float32: passed
    test_op_mul_accel_float32: not yet
    test_several_accel: passed
    test_skip_cpu_accel: passed
    test_skip_cuda_accel: passed
    test_skip_privateuse1_accel: test doesn't work on privateuse1 backend
without the restrictions
    test_at_run_time_accel: decided inside
    test_condition_accel: passed
    test_dtypes_accel_bfloat16: passed
    test_native_accel: passed
    test_only_cpu_accel: passed
    test_only_cuda_accel: passed
    test_only_on_accel: passed
    test_only_privateuse1_accel: passed
    test_several_accel: passed
    test_skip_cpu_accel: passed
    test_skip_cuda_accel: passed
    test_skip_privateuse1_accel: test doesn't work on privateuse1 backend
for all but the CPU
    test_here_accel: passed
for all but accel
    test_here_cpu: passed
""",
    )
