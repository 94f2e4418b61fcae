"""Loss scaling for float16 gradients."""

import torch

__all__ = ["GradScaler"]


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("accel", ...)``, with the arguments and defaults of ``torch.cuda.amp.GradScaler``.

    Args:
        init_scale: initial scale factor.
        growth_factor: factor of the scale after ``growth_interval`` steps without inf or NaN gradients.
        backoff_factor: factor of the scale after a step with inf or NaN gradients.
        growth_interval: number of consecutive good steps before the scale grows.
        enabled: whether it does anything.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("accel", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
