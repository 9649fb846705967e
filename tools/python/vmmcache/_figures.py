"""What the library counts of a device, read in one go, and since when it counts.

PyTorch can set what was ever allocated and freed back to zero without touching peaks; the library counts
since a cache was made. So this module remembers the values at which counting was begun anew, and the
highest values that were seen of what the library has no peak of.
"""
from __future__ import annotations

import ctypes
from typing import NamedTuple

from . import _layout, _library
from ._guard import Guard

KINDS = ("all", "small", "large")

_guard = Guard()
_since = {}  # device: Figures at the last reset_accumulated()
_highest = {}  # device: {name: highest value that was seen}


class Figure(NamedTuple):
    """One figure over time: vmm_stat."""
    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0


class Figures:
    """A device's figures at one moment; all zero if it has no cache yet."""

    def __init__(self, device: int):
        library = _library.load()
        self.device = device
        cache, kinds = library.vmm_torch_cache(device), _layout.TorchFigures()
        self._all = _layout.Stats() if cache is None else _library.stats(cache)
        if cache is not None:
            status = library.vmm_torch_stats_get(device, ctypes.byref(kinds))
            _library.check(status, f"no figures of device {device}")
        self._kinds = {"all": self._all, "small": kinds.small, "large": kinds.large}
        self._before = _since.get(device)

    def figure(self, kind: str, name: str) -> Figure:
        """Of all requests: a figure of vmm_stats; of small and large ones: of vmm_torch_kind_stats.
        What was allocated and freed is counted since reset_accumulated()."""
        raw = getattr(self._kinds[kind], name)
        if self._before is None:
            return Figure(raw.current, raw.peak, raw.allocated, raw.freed)
        before = getattr(self._before._kinds[kind], name)
        return Figure(raw.current, raw.peak, raw.allocated - before.allocated,
                      raw.freed - before.freed)

    def number(self, name: str) -> int:
        """A plain number of vmm_stats, as it is now."""
        return getattr(self._all, name)

    def count(self, name: str) -> int:
        """A plain number of vmm_stats that counts calls, since reset_accumulated()."""
        before = 0 if self._before is None else self._before.number(name)
        return self.number(name) - before

    def highest(self, name: str, value: int) -> int:
        """The highest value under this name that was seen since reset_peaks()."""
        with _guard.lock:
            seen = _highest.setdefault(self.device, {})
            seen[name] = max(seen.get(name, 0), value)
            return seen[name]


def reset_peaks(device: int) -> None:
    """Peaks begin anew at what is there now."""
    library = _library.load()
    with _guard.lock:
        _highest.pop(device, None)
    cache = library.vmm_torch_cache(device)
    if cache is None:
        return
    what = f"the peaks of device {device} were not reset"
    _library.check(library.vmm_torch_stats_reset(device, 0), what)
    _library.check(library.vmm_stats_reset_peak(cache), what)


def reset_accumulated(device: int) -> None:
    """What was ever allocated and freed, and the number of calls, begin anew at zero."""
    now = Figures(device)
    now._before = None
    with _guard.lock:
        _since[device] = now
