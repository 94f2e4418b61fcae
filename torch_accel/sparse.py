"""Sparse COO tensor types named by dtype, as torch.cuda.sparse has them."""

import torch

from ._legacy import tensor_types

_TYPES = tensor_types("torch.accel.sparse", torch.sparse_coo)
del _TYPES["BoolTensor"]  # torch.cuda.sparse has none
globals().update(_TYPES)
