"""Every ``_foreach_`` operator, over torch's databases of them."""

from .kinds import FOREACH_KINDS, operator_tests
from .torch_internals import foreach_op_db, instantiate

TestForeach = operator_tests("TestForeach", foreach_op_db, FOREACH_KINDS, __name__)
instantiate(TestForeach, globals())
