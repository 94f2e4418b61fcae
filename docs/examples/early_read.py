"""The shortest fault that only a device shows: the host reads a copy that has not been made yet."""

import sys

import torch

losses = torch.full((3,), 2.0, device=sys.argv[1])
host = torch.empty(3, pin_memory=sys.argv[1] != "cpu")
host.copy_(losses, non_blocking=True)
print(host.tolist())
