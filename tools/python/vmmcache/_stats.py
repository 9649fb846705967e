"""memory_stats() and what follows from it, under the names and keys that PyTorch has for them.

What differs in meaning from PyTorch's own allocator:
- segment counts chunks, the physical handles that are held. Small requests have chunks of one granule,
  which is how their number follows from their bytes.
- inactive_split_bytes is free memory in chunks that live blocks keep from going back. Of small requests it
  is taken to be all that is free in their chunks, as far as that fits. Its peak is the highest value that
  any query has seen. Free blocks are not counted, so inactive_split is 0.
- The peak of active is not tracked either: it is the highest that a query has seen, but at least what the
  peaks of its parts tell.
- num_sync_all_streams counts waits of the host for the device, num_device_alloc and num_device_free chunks
  made and given back.
"""
from __future__ import annotations

from collections import OrderedDict

from . import _device
from ._figures import Figure, Figures, reset_accumulated, reset_peaks

GRANULE = 2 << 20

_BYTES = ("allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes")
_POOLS = {"all": "all", "small_pool": "small", "large_pool": "large"}


def memory_stats_as_nested_dict(device=None) -> dict:
    """The statistics of a device, as torch.cuda.memory_stats_as_nested_dict() nests them."""
    figures = Figures(_device.index(device))
    stats = {name: _by_pool(figures, name) for name in _BYTES}
    stats["allocation"] = _by_pool(figures, "allocations")
    stats["active"] = _active(figures)
    stats["segment"] = _segments(figures)
    stats["inactive_split_bytes"] = _pinned_bytes(figures)
    stats["inactive_split"] = {pool: _entry(Figure()) for pool in _POOLS}
    stats["oversize_allocations"] = _entry(Figure())
    stats["oversize_segments"] = _entry(Figure())
    stats["num_alloc_retries"] = figures.count("retries")
    stats["num_ooms"] = figures.count("ooms")
    stats["num_oom_rejections"] = 0
    stats["num_sync_all_streams"] = figures.count("stalls")
    stats["num_device_alloc"] = figures.count("create_calls")
    stats["num_device_free"] = figures.count("release_calls")
    stats["max_split_size"] = -1
    return stats


def memory_stats(device=None) -> OrderedDict:
    """The same, flattened: keys such as 'allocated_bytes.all.current', in alphabetical order."""
    flat = []

    def add(prefix, value):
        if not isinstance(value, dict):
            flat.append((prefix, value))
            return
        for name, below in value.items():
            add(f"{prefix}.{name}" if prefix else name, below)

    add("", memory_stats_as_nested_dict(device))
    return OrderedDict(sorted(flat))


def _entry(figure: Figure) -> dict:
    return figure._asdict()


def _by_pool(figures: Figures, name: str) -> dict:
    small, large = (figures.figure(kind, name) for kind in ("small", "large"))
    return _pools(_total(small, large, figures.figure("all", name).peak), small, large)


def _pools(whole: Figure, small: Figure, large: Figure) -> dict:
    return {"all": _entry(whole), "small_pool": _entry(small), "large_pool": _entry(large)}


def _total(small: Figure, large: Figure, peak: int) -> Figure:
    """The sum of both, with the peak of the sum, which cannot lie below what the parts tell."""
    current = small.current + large.current
    return Figure(current, max(peak, current, small.peak, large.peak),
                  small.allocated + large.allocated, small.freed + large.freed)


def _active(figures: Figures) -> dict:
    small, large = (figures.figure(kind, "active") for kind in ("small", "large"))
    seen = figures.highest("active", small.current + large.current)
    return _pools(_total(small, large, max(seen, figures.figure("all", "allocations").peak)),
                  small, large)


def _segments(figures: Figures) -> dict:
    chunks = figures.figure("all", "chunks")
    small = Figure(*(count // GRANULE for count in figures.figure("small", "reserved_bytes")))
    small = Figure(*map(min, small, chunks))
    large = Figure(*(all_ - part for all_, part in zip(chunks, small)))
    peak = figures.highest("large segments", large.current)
    return _pools(chunks, small, large._replace(peak=peak))


def _pinned_bytes(figures: Figures) -> dict:
    pinned = figures.number("pinned_bytes")
    free = (figures.figure("small", "reserved_bytes").current
            - figures.figure("small", "active_bytes").current)
    small = min(pinned, max(0, free))
    values = {"all": pinned, "small_pool": small, "large_pool": pinned - small}
    return {pool: _entry(Figure(value, figures.highest("pinned " + pool, value), value, 0))
            for pool, value in values.items()}


def memory_allocated(device=None) -> int:
    """Bytes of live blocks."""
    return _whole(device, "allocated_bytes").current


def max_memory_allocated(device=None) -> int:
    """The peak of memory_allocated() since reset_peak_memory_stats()."""
    return _whole(device, "allocated_bytes").peak


def memory_reserved(device=None) -> int:
    """Bytes of physical memory that are held from the driver."""
    return _whole(device, "reserved_bytes").current


def max_memory_reserved(device=None) -> int:
    """The peak of memory_reserved() since reset_peak_memory_stats()."""
    return _whole(device, "reserved_bytes").peak


def _whole(device, name: str) -> Figure:
    return Figure(**_by_pool(Figures(_device.index(device)), name)["all"])


def reset_peak_memory_stats(device=None) -> None:
    """Peaks begin anew at what is there now."""
    reset_peaks(_device.index(device))


def reset_accumulated_memory_stats(device=None) -> None:
    """What was ever allocated and freed, retries and out-of-memory errors begin anew at 0."""
    reset_accumulated(_device.index(device))
