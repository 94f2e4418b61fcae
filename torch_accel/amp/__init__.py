"""Automatic mixed precision."""

import torch

__all__ = ["get_amp_supported_dtype"]


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast("accel", dtype=...)`` accepts."""
    return [torch.float16, torch.bfloat16]
