"""The functions of libdevice that accel has. Triton's IR names them ``accel_NAME``, the tile IR ``extern_math.NAME``."""

from __future__ import annotations

PREFIX = "accel_"

_ONE = (
    *(
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "cbrt",
        "ceil",
        "cos",
        "cosh",
        "cospi",
        "erf",
        "erfc",
        "erfinv",
    ),
    *(
        "exp",
        "exp10",
        "exp2",
        "expm1",
        "floor",
        "lgamma",
        "log",
        "log10",
        "log1p",
        "log2",
        "logb",
        "nearbyint",
        "normcdf",
    ),
    *("rcbrt", "rint", "round", "rsqrt", "sin", "sinh", "sinpi", "sqrt", "tan", "tanh", "tgamma", "trunc"),
)
_TWO = ("atan2", "copysign", "fdim", "fmod", "hypot", "nextafter", "pow", "remainder")

# name: letters of the operands and of the result: f the float type (f32 or f64), i i32, l i64.
FUNCTIONS: dict[str, tuple[str, str]] = {
    **dict.fromkeys((*_ONE, "fabs", "saturatef"), ("f", "f")),
    **dict.fromkeys(_TWO, ("ff", "f")),
    "fma": ("fff", "f"),
    **dict.fromkeys(("ldexp", "scalbn"), ("fi", "f")),
    **dict.fromkeys(("ilogb", "isinf", "isnan", "isfinite", "signbit"), ("f", "i")),
    **dict.fromkeys(("llrint", "llround"), ("f", "l")),
}
# Names of Triton's module that are another function of the table: the fast ones of float32 are the same ones here.
ALIASES = {
    "abs": "fabs",
    "finitef": "isfinite",
    "isfinited": "isfinite",
    "fma_rn": "fma",
    "sqrt_rn": "sqrt",
    "rsqrt_rn": "rsqrt",
    **{f"fast_{name}f": name for name in ("cos", "exp", "exp10", "log", "log10", "log2", "pow", "sin", "tan", "tanh")},
}
