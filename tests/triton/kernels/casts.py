"""Casts between all types, bitcasts, rounding modes."""

import numpy as np
import torch
import triton
import triton.language as tl

from tests.triton.corpus import Case, bits, stored


@triton.jit
def cast(x, y, T: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + i).to(T))


@triton.jit
def cast_toward_zero(x, y, T: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + i).to(T, fp_downcast_rounding="rtz"))


@triton.jit
def bitcast(x, y, T: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + i).to(T, bitcast=True))


B = 128
TORCH = {
    "fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16,
    "fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2, "fp8e4b8": torch.float8_e4m3fnuz, "fp8e5b16": torch.float8_e5m2fnuz,
    "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8, "u32": torch.uint32,
}  # fmt: skip
NAMES = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8e4nv": "float8e4nv", "fp8e5": "float8e5",
         "fp8e4b8": "float8e4b8", "fp8e5b16": "float8e5b16"}  # fmt: skip
EDGES = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    448.0,
    464.0,
    465.0,
    -1000.0,
    61440.0,
    1e-3,
    2.5,
    3.5,
    -0.5,
    0.015625,
    65519.0,
    65520.0,
]
INT_EDGES = [
    2147483648.0,
    -2147483649.0,
    1e30,
    -1e30,
    127.5,
    128.0,
    -128.9,
    255.9,
    256.0,
    -0.9,
    4294967296.0,
    9.3e18,
    1.9e19,
]


def of(name):
    short = {"i": "int", "u": "uint"}
    return getattr(tl, NAMES.get(name) or short[name[0]] + name[1:])


def floats(rng, edges):
    array = rng.normal(size=B) * np.exp2(rng.integers(-12, 16, B))
    array[: len(edges)] = edges
    return array


def make(old, new):
    def arguments(rng):
        if TORCH[old].is_floating_point:
            edges = EDGES if TORCH[new].is_floating_point else [*EDGES[:5], *INT_EDGES]
            source = stored(floats(rng, edges), TORCH[old])
        else:
            source = ints(rng, TORCH[old])
        return [source, bits(torch.zeros(B, dtype=TORCH[new]))]

    return arguments


def ints(rng, dtype):
    info = torch.iinfo(dtype)
    array = rng.integers(info.min, info.max, B, dtype=f"{'u' * (info.min == 0)}int{info.bits}", endpoint=True)
    array[:8] = [info.min, info.max, 0, 1, 3, 17, 100, 127]
    return array


def tensor(array, name):
    dtype = TORCH[name]
    return torch.from_numpy(array.view(np.int16) if array.dtype == np.uint16 else array).view(dtype)


def want(old, new):
    def values(x, y):
        source = tensor(x, old)
        if TORCH[old].is_floating_point and not TORCH[new].is_floating_point:
            info = torch.iinfo(TORCH[new])
            rows = [
                0 if v != v else min(max(int(max(min(v, 1e20), -1e20)), info.min), info.max)
                for v in source.double().tolist()
            ]
            return {1: np.array(rows, dtype=y.dtype)}
        if TORCH[old] == torch.float64 and TORCH[new].itemsize < 4:
            # torch rounds twice, by way of float32; the IR once. An odd float32 in between makes it once.
            near = source.float()
            off = (near.double() != source) & source.isfinite()
            pattern = near.view(torch.int32) - ((near.double().abs() > source.abs()) & off).int()
            source = torch.where(off, pattern | 1, pattern).view(torch.float32)
        return {1: bits(source.to(TORCH[new]))}

    return values


def toward_zero_want(name):
    def values(x, y):
        codes = torch.arange(65536 if TORCH[name].itemsize == 2 else 256, dtype=torch.int32)
        known = codes.to(torch.int16 if TORCH[name].itemsize == 2 else torch.uint8).view(TORCH[name])
        numbers = known.double()
        result = []
        for v in x.tolist():
            fits = numbers.isfinite() & (numbers.abs() <= abs(v)) & (torch.signbit(numbers) == (str(v)[0] == "-"))
            result.append(known[torch.where(fits, numbers.abs(), -1).argmax()])
        return {1: bits(torch.stack(result))}

    return values


FLOATS = ("fp64", "fp32", "fp16", "bf16", "fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16")
PAIRS = [
    *((old, new) for old in FLOATS[:4] for new in FLOATS if old != new),
    *((old, "fp32") for old in FLOATS[4:]),
    *((old, new) for old in ("fp32", "fp64", "bf16") for new in ("i8", "i16", "i32", "i64", "u8", "u32")),
    *((old, new) for old in ("i8", "i32", "i64", "u8", "u32") for new in ("fp64", "fp32", "fp16", "bf16")),
    *((old, new) for old in ("i8", "i32", "i64", "u8") for new in ("i8", "i16", "i32", "i64", "u32") if old != new),
]

CASES = [
    *(
        Case(cast, f"x:*{old} y:*{new}", make(old, new), want(old, new), {"T": of(new), "B": B}, label=f"{old}-{new}")
        for old, new in PAIRS
    ),
    *(
        Case(
            cast_toward_zero, f"x:*fp32 y:*{new}",
            lambda rng, new=new: [
                np.where(np.arange(B) < 4, [0.0, -0.0, 0.3, -0.3] * (B // 4), rng.normal(size=B) * 20).astype(np.float32),
                bits(torch.zeros(B, dtype=TORCH[new])),
            ],
            toward_zero_want(new), {"T": of(new), "B": B}, label=new,
        )
        for new in ("fp16", "bf16", "fp8e5")
    ),
    *(
        Case(
            bitcast, f"x:*{old} y:*{new}", lambda rng, new=new, old=old: [ints(rng, {2: torch.int16, 4: torch.int32, 8: torch.int64}[TORCH[old].itemsize]).view(stored(np.zeros(1), TORCH[old]).dtype), bits(torch.zeros(B, dtype=TORCH[new]))],
            lambda x, y: {1: x.view(y.dtype)}, {"T": of(new), "B": B}, label=f"{old}-{new}",
        )
        for old, new in (("fp32", "i32"), ("i64", "fp64"), ("fp16", "bf16"), ("bf16", "i16"))
    ),
]  # fmt: skip
