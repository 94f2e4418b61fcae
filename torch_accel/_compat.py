"""Every private API of torch that this package uses from Python, each behind a name of ours. Checked on torch 2.13.0."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch
import torch.nested._internal.ops as nested_ops
import torch.nested._internal.sdpa as nested_sdpa
import torch.utils._triton as triton_support
from torch._higher_order_ops.flex_attention import flex_attention as flex_operator
from torch._library.custom_ops import CustomOpDef
from torch.amp.autocast_mode import _cast as cast_tensor
from torch.multiprocessing import reductions
from torch.nested._internal.nested_tensor import NestedTensor, nested_view_from_values_offsets_lengths
from torch.nn.attention import flex_attention as flex_module
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from ._version import __version__

TORCH_MINOR = ".".join(__version__.split(".")[:2])
BACKEND_NAME_DEFAULT = "privateuseone"

__all__ = [
    "BACKEND_NAME_DEFAULT",
    "TORCH_MINOR",
    "CustomOpDef",
    "accelerator_device_stats",
    "allow_on_uninitialized",
    "augment_memory_snapshot",
    "autograd_threads",
    "backend_name",
    "cache_shared_storage",
    "cached_shared_storage",
    "check_torch_version",
    "computed_kernel",
    "cuda_patches",
    "derivative_names",
    "extend_flex_attention",
    "extend_jagged_attention",
    "has_computed_kernel",
    "install_parallel",
    "legacy_storage_type",
    "memory_viz",
    "neg_view",
    "operator_names",
    "parse_schema",
    "recognise_triton_kernels",
    "reduce_storage",
    "reduce_tensor",
    "register_device_module",
    "valgrind_counters",
    "wrap",
]


def check_torch_version() -> None:
    """Raises ImportError unless the installed torch is of the minor release this package was built for."""
    installed = str(torch.__version__)
    if ".".join(installed.split(".")[:2]) != TORCH_MINOR:
        raise ImportError(
            f"torch_accel {__version__} is built for torch {TORCH_MINOR}, but torch {installed} is installed. "
            f"Run: pip install 'torch=={TORCH_MINOR}.*'"
        )


def backend_name() -> str:
    """The name that the PrivateUse1 backend has now."""
    return str(torch._C._get_privateuse1_backend_name())


def register_device_module(module: ModuleType) -> None:
    """Makes ``module`` torch.accel."""
    torch._register_device_module("accel", module)


def allow_on_uninitialized(method: str, attribute: str) -> None:
    """Lets parameters and buffers of lazy modules have a method and an attribute of Tensor, as torch lets ``cuda``."""
    allowed = (getattr(torch.Tensor, method), getattr(torch.Tensor, attribute).fget)
    UninitializedTensorMixin._allowed_methods.extend(allowed)


def autograd_threads() -> bool:
    """Whether the engine has started its threads, which it names; it starts them at the first backward."""

    def is_one(name: Path) -> bool:
        with contextlib.suppress(OSError):  # it has just ended
            return name.read_text().startswith("pt_autograd")
        return False

    return any(map(is_one, Path("/proc/self/task").glob("*/comm")))


def accelerator_device_stats(index: int) -> dict[str, Any]:
    """The nested dict behind torch.accelerator.memory_stats."""
    return dict(torch._C._accelerator_getDeviceStats(index))


def tensor_metadata(tensor: torch.Tensor) -> dict[str, bool]:
    """What torch.save writes about a tensor beside its data: the conj and neg bits, and the flags of a backend."""
    return dict(torch._utils.get_tensor_metadata(tensor))


def set_tensor_metadata(tensor: torch.Tensor, metadata: dict[str, bool]) -> None:
    """What torch.load does with it: sets the bits that are there, replaces the flags of a backend."""
    torch._utils.set_tensor_metadata(tensor, metadata)


def augment_memory_snapshot(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Adds the original source lines to the frames of code that torch.fx generated."""
    from torch._utils import _augment_memory_snapshot_stack_traces

    return dict(_augment_memory_snapshot_stack_traces(snapshot))  # type: ignore[arg-type]


def memory_viz() -> ModuleType:
    """What draws memory snapshots; it knows no device."""
    from torch.cuda import _memory_viz

    return _memory_viz


def legacy_storage_type(name: str, dtype: torch.dtype, doc: str) -> type:
    """A class as torch.FloatStorage, for accel."""
    from torch.storage import _LegacyStorage

    # torch reads the device from the last part of the module's name.
    return type(name, (_LegacyStorage,), {"dtype": dtype, "_dtype": dtype, "__module__": "torch.accel", "__doc__": doc})


def _is_for_accel(tensors: torch.Tensor | Sequence[torch.Tensor]) -> bool:
    first = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
    if first is None or first.device.type == "cpu":
        return str(torch._utils._get_available_device_type()) == "accel"  # what torch.nn.DataParallel uses
    return first.device.type == "accel"


def _choose(function: Callable[..., Any], others: Callable[..., Any] | None, tensors: Any, *arguments: Any) -> Any:
    return (function if others is None or _is_for_accel(tensors) else others)(tensors, *arguments)


def install_parallel(functions: dict[str, Callable[..., Any]]) -> None:
    """Makes torch.nn.parallel work on accel: it calls functions of torch._C that only torch's CUDA builds have.

    Args:
        functions: ``scatter``, ``gather``, ... -> the function for accel tensors, and for those of the CPU where
            torch.nn.DataParallel uses accel. Others go to torch's function, if there is one.
    """
    for name, function in functions.items():
        others = getattr(torch._C, f"_{name}", None)
        setattr(torch._C, f"_{name}", partial(_choose, function, others))

    from torch.nn.parallel import comm

    nccl = comm.nccl

    class Nccl:
        """torch.cuda.nccl without its warning that a CPU build of torch has no NCCL."""

        def __getattr__(self, name: str) -> Any:
            return getattr(nccl, name)

        def is_available(self, tensors: Sequence[torch.Tensor]) -> bool:
            return not _is_for_accel(tensors) and bool(nccl.is_available(tensors))

    comm.nccl = Nccl()  # type: ignore[assignment, unused-ignore]


def reduce_storage(storage: torch.UntypedStorage) -> Any:
    """How torch.multiprocessing pickles a storage of its own devices."""
    return reductions.reduce_storage(storage)


def reduce_tensor(tensor: torch.Tensor) -> Any:
    """How torch.multiprocessing pickles a tensor: for what is not CUDA or meta, its storage and how it lies there."""
    return reductions.reduce_tensor(tensor)


def cached_shared_storage(key: tuple[Any, ...]) -> torch.UntypedStorage | None:
    """The living storage that torch.multiprocessing's cache has under a key, or None."""
    return reductions.storage_from_cache(torch.UntypedStorage, key)


def cache_shared_storage(key: tuple[Any, ...], storage: torch.UntypedStorage) -> None:
    """Puts a weak reference to a storage into torch.multiprocessing's cache."""
    reductions.shared_cache[key] = reductions.StorageWeakRef(storage)


def neg_view(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's negative over the same memory, with the bit set."""
    return torch._neg_view(tensor)


def valgrind_counters() -> tuple[Callable[[], None], Callable[[], None]]:
    """What starts or stops callgrind's counting, and what does so and writes the counts to the next file."""
    return torch._C._valgrind_toggle, torch._C._valgrind_toggle_and_dump_stats


def wrap(owner: type, name: str, wrapper: Callable[[Any], Any]) -> None:
    """Puts ``wrapper(method)`` in the place of a method: of those that know torch's own devices and have no hook."""
    setattr(owner, name, wrapper(getattr(owner, name)))


def parse_schema(text: str) -> torch._C.FunctionSchema:
    """Parses ``ns::name(Tensor x) -> Tensor``; raises RuntimeError for anything else."""
    return torch._C.parse_schema(text)


def computed_kernel(operator: str, key: str) -> str:
    """What the dispatcher runs for ``aten::name.overload`` under a key: ``registered at FILE:LINE [kind]``."""
    table = torch._C._dispatch_dump_table(operator)
    return next((line for line in table.splitlines() if line.startswith(f"{key}: ")), "")


def has_computed_kernel(operator: str, key: str) -> bool:
    """Whether the dispatcher has a kernel for an operator under a key, a composite one included."""
    return torch._C._dispatch_has_computed_kernel_for_dispatch_key(operator, key)


def _naming_accel(function: Callable[..., Any], position: int, name: str) -> Callable[..., Any]:
    """``function`` with "accel" for "cuda" in an argument of that position and name."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > position and args[position] == "cuda":
            args = (*args[:position], "accel", *args[position + 1 :])
        if kwargs.get(name) == "cuda":
            kwargs[name] = "accel"
        return function(*args, **kwargs)

    return call


def cuda_patches(get_device_index: Callable[..., int]) -> list[tuple[Any, str, Any]]:
    """What torch_accel.as_cuda() puts in the place of torch's own: (owner, name, value).

    They compare a name that the program gave, "cuda", with that of a tensor's device.
    """
    import torch.cuda._utils
    from torch.amp import autocast_mode
    from torch.autograd import profiler

    start = profiler.profile.__init__

    def start_profile(
        self: Any, *args: Any, use_cuda: bool = False, use_device: str | None = None, **kwargs: Any
    ) -> None:
        start(self, *args, use_device="accel" if use_cuda or use_device == "cuda" else use_device, **kwargs)

    return [
        (torch.cuda._utils, "_get_device_index", get_device_index),
        (autocast_mode, "_cast", _naming_accel(autocast_mode._cast, 1, "device_type")),
        (
            torch.serialization,
            "_validate_device",
            _naming_accel(torch.serialization._validate_device, 1, "backend_name"),
        ),
        (profiler.profile, "__init__", start_profile),
    ]


def _described(file: str) -> list[dict[str, Any]]:
    import torchgen  # type: ignore[import-untyped]
    import yaml  # type: ignore[import-untyped]

    return list(yaml.safe_load((Path(torchgen.__file__).parent / "packaged" / file).read_text()))


def operator_names() -> list[str]:
    """``aten::name.overload`` of every operator of native_functions.yaml that is registered."""
    described = {entry["func"].split("(")[0] for entry in _described("ATen/native/native_functions.yaml")}
    bases = {name.split(".")[0] for name in described}  # torchgen adds out= and functional forms to them
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    return sorted(name for name in names if name.removeprefix("aten::").split(".")[0] in bases)


def derivative_names() -> set[str]:
    """Base names of the operators that have a formula in derivatives.yaml."""
    return {entry["name"].split("(")[0].split(".")[0] for entry in _described("autograd/derivatives.yaml")}


def extend_flex_attention() -> None:
    """Lets flex_attention take accel tensors: torch has a list of device names, and casts for CPU and CUDA only."""
    validate = flex_module._validate_device

    def validate_device(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != "accel":
            validate(query, key, value)

    flex_module._validate_device = validate_device
    autocast = torch._C.DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]

    @flex_operator.py_impl(autocast)
    def cast(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any) -> Any:
        dtype = torch.get_autocast_dtype("accel")
        casts = [cast_tensor(tensor, "accel", dtype) for tensor in (query, key, value)]
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(autocast)):
            return flex_operator(*casts, *rest)


def recognise_triton_kernels() -> None:
    """Lets Dynamo take ``@triton.jit`` kernels in compiled functions for kernels: torch has a list of the devices that run them.

    Many modules hold a reference to ``has_triton``, so its code is what changes.
    """
    has_triton = triton_support.has_triton
    usual = FunctionType(has_triton.__wrapped__.__code__, vars(triton_support))

    def runs_triton() -> bool:
        accel: ModuleType = torch.accel  # type: ignore[attr-defined]
        return usual() or (triton_support.has_triton_package() and accel.is_available())

    def code() -> bool:
        import torch.utils._triton as module  # code of another function has that function's names

        return bool(vars(module)["_runs_triton"]())

    vars(triton_support)["_runs_triton"] = runs_triton
    has_triton.__wrapped__.__code__ = code.__code__
    has_triton.cache_clear()


def _is_fused(query: Any, key: Any, value: Any, mask: object, enable_gqa: bool) -> bool:
    """Whether accel's operators over packed sequences compute attention over these nested tensors."""
    tensors = (query, key, value)
    if mask is not None or not all(
        isinstance(tensor, NestedTensor)
        and tensor.dim() == 4
        and tensor._ragged_idx == 2
        and tensor.lengths() is None
        and tensor.is_floating_point()
        for tensor in tensors
    ):
        return False
    heads, key_heads = query.size(1), key.size(1)
    return (
        (heads == key_heads or (enable_gqa and heads % key_heads == 0))
        and key_heads == value.size(1)
        and query.size(3) == key.size(3)
        and key._size[2] == value._size[2]
        and query.size(0) == key.size(0)
    )


def extend_jagged_attention(philox: Callable[[], bool]) -> None:
    """Lets attention over nested tensors of jagged layout take accel's operators over packed sequences, also causal and grouped.

    ``philox``: whether the generator draws for them. Elsewhere, and with only SDPBackend.MATH, torch's own form runs.
    """
    theirs = nested_sdpa.jagged_scaled_dot_product_attention

    def attention(  # NestedTensor has no types
        query: Any,
        key: Any,
        value: Any,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        enabled = torch._C._get_overrideable_sdp_enabled() or torch._C._get_flash_sdp_enabled()
        if (
            query.device.type != "accel"
            or not enabled
            or not (dropout_p == 0.0 or philox())
            or not _is_fused(query, key, value, attn_mask, enable_gqa)
        ):
            return theirs(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        query, key, value, _ = nested_sdpa._autocast(query, key, value, None)
        nested_sdpa._validate_sdpa_input(query, key, value)
        q, k, v = (tensor.transpose(1, 2).values() for tensor in (query, key, value))
        offsets, key_offsets = query.offsets(), key.offsets()
        if not is_causal or query._size[2] == key._size[2]:
            # Asks for no longest length, which may lie on the device.
            out = torch.ops.aten._flash_attention_forward(
                q, k, v, offsets, key_offsets, 0, 0, dropout_p, is_causal, False, scale=scale
            )[0]
        else:  # the diagonal begins in the upper left corner
            longest = query._get_max_seqlen(), key._get_max_seqlen()
            q, k, v = (tensor.unsqueeze(0) for tensor in (q, k, v))
            out = torch.ops.aten._efficient_attention_forward(
                q, k, v, None, offsets, key_offsets, *longest, dropout_p, 1, True, scale=scale
            )[0].squeeze(0)
        return nested_view_from_values_offsets_lengths(
            out,
            offsets,
            None,
            min_seqlen=query._maybe_min_seqlen,
            max_seqlen=query._maybe_max_seqlen,
        ).transpose(1, 2)

    nested_ops.jagged_scaled_dot_product_attention = attention
