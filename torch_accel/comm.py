"""Copies of tensors to, from and between several devices, as torch.cuda.comm has them.

The functions are torch.nn.parallel.comm's: see there for their arguments. They queue, as copies between devices do.
"""

from torch.nn.parallel.comm import broadcast, broadcast_coalesced, gather, reduce_add, reduce_add_coalesced, scatter

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]
