"""What differs from the CPU for a cause inside torch. Every entry is run and must fail; at most 60."""

from __future__ import annotations

from typing import NamedTuple


class Known(NamedTuple):
    """One test that differs."""

    #: operator or module, with its variant
    name: str
    #: dtype without ``torch.``; ``*``: every dtype that the kind of test has
    dtype: str
    #: kind of test
    kind: str
    #: what torch does
    cause: str


_CHUNKED = (
    "torch/nn/modules/linear_cross_entropy_options.py has defaults of its own for the CPU in narrow dtypes (policy and "
    "chunks), so another algorithm runs there"
)

_ONEDNN_RNN = (
    "on the CPU torch.lstm and torch.gru in bfloat16 take oneDNN or a chain of operators that rounds elsewhere than "
    "the fused cells that torch asks every other device for"
)

KNOWN: tuple[Known, ...] = (
    Known(
        "nn.functional.max_pool1d",
        "float32",
        "neg_view",
        "the CPU's kernel for inputs without a gradient reads memory past the neg bit; accel gives the right values",
    ),
    Known(
        "gradient",
        "None",
        "errors",
        "the database puts its second tensor on another device, which is meta for the CPU and the CPU for accel",
    ),
    Known(
        "nn.functional.scaled_dot_product_attention",
        "float32",
        "second_backward",
        "both raise, naming the operator without a derivative: torch has another one for the CPU than for other devices",
    ),
    Known("nn.LSTM eval", "bfloat16", "module_forward", _ONEDNN_RNN),
    Known("nn.LSTM eval", "bfloat16", "module_backward", _ONEDNN_RNN),
    Known("nn.LSTM eval", "bfloat16", "module_noncontiguous", _ONEDNN_RNN),
    Known("nn.LSTM eval", "bfloat16", "module_pickling", _ONEDNN_RNN),
    Known("nn.LSTM train", "bfloat16", "module_forward", _ONEDNN_RNN),
    Known("nn.LSTM train", "bfloat16", "module_backward", _ONEDNN_RNN),
    Known("nn.LSTM train", "bfloat16", "module_noncontiguous", _ONEDNN_RNN),
    Known("nn.LSTM train", "bfloat16", "module_pickling", _ONEDNN_RNN),
    Known("nn.GRU eval", "bfloat16", "module_backward", _ONEDNN_RNN),
    Known("nn.GRU train", "bfloat16", "module_backward", _ONEDNN_RNN),
    Known("nn.LinearCrossEntropyLoss", "bfloat16", "module_backward", _CHUNKED),
    Known(
        "narrow_copy",
        "None",
        "errors",
        "the database expects texts that the CPU does not raise; accel raises the CPU's",
    ),
    Known("addmv", "float32", "zero_size", "the CPU's kernel gives a 0-dim result where its meta function says (n,)"),
    Known("addmv", "int64", "zero_size", "the CPU's kernel gives a 0-dim result where its meta function says (n,)"),
    Known("lu", "float32", "out", "torch.lu copies its results into out= in Python, onto whatever device"),
    Known("lu", "complex64", "out", "torch.lu copies its results into out= in Python, onto whatever device"),
    Known("nn.functional.linear_cross_entropy.chunked", "float16", "forward", _CHUNKED),
    Known("nn.functional.linear_cross_entropy.chunked", "bfloat16", "forward", _CHUNKED),
    Known("nn.functional.linear_cross_entropy.chunked", "bfloat16", "backward", _CHUNKED),
    Known("nn.functional.linear_cross_entropy.chunked_none", "float16", "forward", _CHUNKED),
    Known("nn.functional.linear_cross_entropy.chunked_none", "bfloat16", "forward", _CHUNKED),
    Known("nn.functional.linear_cross_entropy.chunked_none", "bfloat16", "backward", _CHUNKED),
)


def cause_of(name: str, dtype: str, kind: str) -> str | None:
    """The cause of the entry for a test, or None."""
    for entry in KNOWN:
        if (entry.name, entry.kind) == (name, kind) and entry.dtype in ("*", dtype):
            return entry.cause
    return None
