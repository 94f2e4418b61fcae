"""Tensors in each layout that kernels tell apart."""

import torch


def layouts(*sizes: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Values around zero, with ties, in each layout of tensors of these sizes that kernels tell apart."""
    count = int(torch.tensor(sizes).prod()) if sizes else 1
    values = (torch.arange(count) * 7 % 11 - 5).to(dtype) / (2 if dtype.is_floating_point or dtype.is_complex else 1)
    if dtype.is_complex:
        values = values + 1j * values.flip(0)
    plain = values.to(dtype).reshape(sizes)
    result = [plain]
    if len(sizes) >= 2:
        result.append(plain.transpose(0, -1).contiguous().transpose(0, -1))
        result.append(plain.repeat_interleave(2, -1)[..., ::2])
    if len(sizes) == 4:
        result.append(plain.contiguous(memory_format=torch.channels_last))
    if len(sizes) == 5:
        result.append(plain.contiguous(memory_format=torch.channels_last_3d))
    return result
