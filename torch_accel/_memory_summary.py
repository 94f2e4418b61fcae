"""The table of ``torch.accel.memory_summary``, as torch.cuda.memory_summary prints it."""

from __future__ import annotations

from collections.abc import Callable, Mapping


def _format_size(value: int, scale: int) -> str:
    unit = 0
    while scale >= 768 * 1024 and unit < 5:
        value, scale, unit = value // 1024, scale // 1024, unit + 1
    return f"{value:6d} {('B  ', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[unit]}"


def _format_count(value: int, scale: int) -> str:
    unit = 0
    while scale >= 750 * 1000 and unit < 2:
        value, scale, unit = value // 1000, scale // 1000, unit + 1
    return f"{value:7d} {' KM'[unit]} "


_Format = Callable[[int, int], str]
_POOLED: tuple[tuple[str, str, _Format], ...] = (
    ("allocated_bytes", "Allocated memory", _format_size),
    ("active_bytes", "Active memory", _format_size),
    ("requested_bytes", "Requested memory", _format_size),
    ("reserved_bytes", "Reserved memory", _format_size),
    ("inactive_split_bytes", "Non-releasable memory", _format_size),
    ("allocation", "Allocations", _format_count),
    ("active", "Active allocs", _format_count),
    ("segment", "Reserved segments", _format_count),
    ("inactive_split", "Non-releasable allocs", _format_count),
)
_UNPOOLED: tuple[tuple[str, str, _Format], ...] = (
    ("oversize_allocations", "Oversize allocations", _format_count),
    ("oversize_segments", "Oversize segments", _format_count),
)


def summary(stats: Mapping[str, int], index: int, abbreviated: bool) -> str:
    """The statistics of device ``index``, those of ``torch.accel.memory_stats``, as a table."""

    def row(label: str, prefix: str, scale_prefix: str, form: _Format) -> str:
        columns = ("current", "peak", "allocated", "freed")
        cells = [form(stats[f"{prefix}.{column}"], stats[f"{scale_prefix}.{column}"]) for column in columns]
        return f" {label:<21} | " + " | ".join(cells) + " "

    thick, thin = "=" * 75, "-" * 75
    title = f" {'':16} PyTorch accel memory summary, device ID {index:<16d} "
    events = f"  {'':9} accel OOMs: {stats['num_ooms']:<11d} | {'':6} accelMalloc retries: {stats['num_alloc_retries']:<7d}  "
    header = "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  "
    lines = [thick, title, thin, events, thick, header]
    for key, name, form in _POOLED:
        labels = [("all", name)]
        if not abbreviated:
            labels += [("large_pool", "      from large pool"), ("small_pool", "      from small pool")]
        lines.append(thin)
        lines += [row(label, f"{key}.{pool}", f"{key}.all", form) for pool, label in labels]
    for key, name, form in _UNPOOLED:
        lines += [thin, row(name, key, key, form)]
    lines.append(thick)
    return "".join(f"|{line}|\n" for line in lines)
