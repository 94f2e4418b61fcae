"""What attention costs on accel: time against CPU tensors, and memory over the length of the sequence.

    python -m benchmarks.attention

harness.py says what is printed. The second table is the peak of device memory beyond the operands, of a forward and a
backward; its last column is the growth from one length to the next of twice its size: 2 where memory is linear.
"""

from collections.abc import Callable

import torch
from rich.table import Table
from torch.nested import nested_tensor_from_jagged
from torch.nn.functional import scaled_dot_product_attention as attention

from benchmarks.harness import Work, Workload, main, terminal

HEADS, FEATURES = 8, 64


def operands(device: str, batch: int, length: int, key_heads: int = HEADS, dtype: torch.dtype = torch.float32) -> list:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(batch, heads, length, FEATURES, generator=generator).to(dtype).to(device)
        for heads in (HEADS, key_heads, key_heads)
    ]


def forward(device: str, batch: int, length: int, dtype: torch.dtype = torch.float32, **options: object) -> Work:
    q, k, v = operands(device, batch, length, 2 if options.get("enable_gqa") else HEADS, dtype)
    return lambda: attention(q, k, v, **options)


def step(device: str, batch: int, length: int, dtype: torch.dtype = torch.float32, **options: object) -> Work:
    leaves = [
        t.requires_grad_() for t in operands(device, batch, length, 2 if options.get("enable_gqa") else HEADS, dtype)
    ]
    grad = torch.ones(batch, HEADS, length, FEATURES, dtype=dtype, device=device)
    return lambda: torch.autograd.grad(attention(*leaves, **options), leaves, grad)


def jagged(device: str, lengths: list[int], nested: bool) -> Work:
    """Sequences of several lengths: in one nested call, or one by one."""
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(sum(lengths), HEADS, FEATURES, generator=generator).to(device) for _ in range(3)]
    if not nested:
        parts = [[p.transpose(0, 1)[None] for p in v.split(lengths)] for v in values]
        return lambda: [attention(*part, is_causal=True) for part in zip(*parts, strict=True)]
    offsets = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()]).to(device)
    q, k, v = (nested_tensor_from_jagged(value, offsets).transpose(1, 2) for value in values)
    return lambda: attention(q, k, v, is_causal=True)


def encoder_layer(device: str) -> Work:
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoderLayer(256, 8, 512, batch_first=True).eval().to(device)
    x = torch.randn(8, 64, 256).to(device)

    def call() -> torch.Tensor:
        with torch.inference_mode():
            return model(x)

    return call


def pair(name: str, calls: int, **options: object) -> list[Workload]:
    batch, length = options.pop("batch"), options.pop("length")
    return [
        Workload.on_devices(f"{name}, {title}", lambda d, make=make: make(d, batch, length, **options), calls)
        for title, make in (("forward", forward), ("forward and backward", step))
    ]


LENGTHS = [5, 17, 33, 64, 90, 128, 200]

WORKLOADS = [
    *pair("8 x 16", 200, batch=8, length=16),
    *pair("2 x 512", 5, batch=2, length=512),
    *pair("2 x 512, causal", 5, batch=2, length=512, is_causal=True),
    *pair("2 x 512, grouped", 5, batch=2, length=512, enable_gqa=True),
    *pair("2 x 512, bfloat16", 5, batch=2, length=512, dtype=torch.bfloat16),
    *pair("1 x 2048, causal", 1, batch=1, length=2048, is_causal=True),
    *pair("2 x 512, dropout", 3, batch=2, length=512, dropout_p=0.1),
    *pair("1 x 2048, dropout, causal", 1, batch=1, length=2048, dropout_p=0.1, is_causal=True),
    Workload(
        "jagged in one accel call against one by one on the CPU",
        lambda: jagged("cpu", LENGTHS, False),
        lambda: jagged("accel", LENGTHS, True),
        5,
    ),
    Workload.on_devices("encoder layer, fast path", encoder_layer, 10),
]


def peak(work: Callable[[], object]) -> int:
    torch.accelerator.synchronize()
    before = torch.accelerator.memory_allocated()
    torch.accelerator.reset_peak_memory_stats()
    work()
    torch.accelerator.synchronize()
    return torch.accelerator.max_memory_allocated() - before


def memory_over_length() -> None:
    table = Table("1 x length", "none, MiB", "causal, MiB", "dropout, MiB", "growth")
    previous = None
    for length in (512, 1024, 2048, 4096):
        peaks = [peak(step("accel", 1, length, **options)) for options in ({}, {"is_causal": True}, {"dropout_p": 0.1})]
        growth = "" if previous is None else ", ".join(f"{p / q:.2f}" for p, q in zip(peaks, previous, strict=True))
        table.add_row(str(length), *(f"{p / 2**20:.1f}" for p in peaks), growth)
        previous = peaks
    terminal().print(table)


if __name__ == "__main__":
    if main(__doc__, WORKLOADS):
        memory_over_length()
