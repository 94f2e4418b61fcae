"""Every operator of ``op_db``: kinds.py says in which kinds of test, checks.py what they compare."""

from .kinds import KINDS, operator_tests
from .torch_internals import instantiate_device_type_tests, op_db

TestOperators = operator_tests("TestOperators", op_db, KINDS, __name__)
instantiate_device_type_tests(TestOperators, globals(), only_for="privateuse1")
