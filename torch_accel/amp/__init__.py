"""Automatic mixed precision: ``torch.amp`` with the device filled in, as ``torch.cuda.amp``."""

from .autocast_mode import autocast, custom_bwd, custom_fwd, get_amp_supported_dtype
from .grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "get_amp_supported_dtype"]
