"""Every operator of ``op_db``: kinds.py says in which kinds of test, checks.py what they compare."""

from .kinds import KINDS, operator_tests
from .torch_internals import instantiate, op_db

TestOperators = operator_tests("TestOperators", op_db, KINDS, __name__)
instantiate(TestOperators, globals())
