"""memory_summary(): the table that people know from PyTorch, and what there is to tell beyond it."""
from __future__ import annotations

from . import _device, _layout, _sizes
from ._figures import Figures
from ._stats import memory_stats

_WIDTH = 79
_COLUMNS = ("current", "peak", "allocated", "freed")

# key, its name, whether it counts bytes, whether it is reported by pool
_ROWS = (
    ("allocated_bytes", "Allocated memory", True, True),
    ("active_bytes", "Active memory", True, True),
    ("requested_bytes", "Requested memory", True, True),
    ("reserved_bytes", "GPU reserved memory", True, True),
    ("inactive_split_bytes", "Pinned by live blocks", True, True),
    ("allocation", "Allocations", False, True),
    ("active", "Active allocs", False, True),
    ("segment", "Chunks", False, True),
)

# numbers of vmm_stats
_NUMBERS = ("idle_bytes", "limbo_bytes", "largest_free_bytes", "unmovable_bytes", "retained_bytes", "clock_ticks",
            "limit_bytes", "compactions", "pressure_calls", "stream_waits", "stalls", "driver_ns", "places",
            "occupied_bytes")
_WRITERS = {_layout.UNIT_BYTES: _sizes.text, _layout.UNIT_COUNT: str,
            _layout.UNIT_NANOSECONDS: lambda value: f"{value / 1e6:.1f} ms"}


def memory_summary(device=None, abbreviated: bool = False) -> str:
    """A table of a device's statistics; abbreviated: without small and large requests apart."""
    number = _device.index(device)
    stats, figures = memory_stats(number), Figures(number)
    lines = ["=" * _WIDTH, f"libvmmcache memory summary, device {number}".center(_WIDTH),
             "-" * _WIDTH, _split(f"CUDA OOMs: {stats['num_ooms']}",
                                  f"allocation retries: {stats['num_alloc_retries']}"),
             "=" * _WIDTH, _row("Metric", "Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed")]
    for key, name, is_bytes, by_pool in _ROWS:
        lines.append("-" * _WIDTH)
        lines += _metric(stats, key, name, is_bytes, by_pool and not abbreviated)
    lines.append("=" * _WIDTH)
    numbers = [_number(name, figures.number(name)) for name in _NUMBERS]
    lines += [_split(*numbers[at:at + 2]) for at in range(0, len(numbers), 2)]
    lines.append("=" * _WIDTH)
    return "".join(f"|{line}|\n" for line in lines)


def _number(name: str, value: int) -> str:
    """With the label that the library has for it."""
    label, unit = _layout.Stats.labels[name]
    return f"{label}: {_WRITERS[unit](value)}"


def _row(name: str, *values: str) -> str:
    return f" {name:<21} |" + "|".join(f" {value:>11} " for value in values)


def _split(left: str, right: str = "") -> str:
    half = _WIDTH // 2
    return f"  {left}".ljust(half) + f"  {right}".ljust(_WIDTH - half)


def _metric(stats: dict, key: str, name: str, is_bytes: bool, by_pool: bool) -> list:
    pools = [("all", name)]
    if by_pool:
        pools += [("large_pool", "      from large pool"), ("small_pool", "      from small pool")]
    write = _sizes.text if is_bytes else str
    return [_row(label, *(write(stats[f"{key}.{pool}.{column}"]) for column in _COLUMNS))
            for pool, label in pools]
