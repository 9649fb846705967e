"""libvmmcache for PyTorch and CuPy: device memory without fragmentation.

    import vmmcache
    vmmcache.install()          # before the first use of CUDA

docs/pytorch.md of libvmmcache describes every function. The package needs Python's standard library and the
shared library only, which lies beside this file in wheels.
"""
from ._cache import Block, Cache
from ._check import check_snapshot
from ._control import compact, empty_cache, mem_get_info, set_memory_limit
from ._cupy import install_cupy
from ._errors import InstallError, LibraryError, VmmError, VmmWarning
from ._history import record_history
from ._install import capabilities, install, is_installed, uninstall
from ._leaks import Site, Sites, leaks, live_blocks
from ._library import version
from ._neighbours import available, neighbours
from ._oom import on_out_of_memory
from ._parts import parts
from ._sleep import backup_drop, region, sleep, sleep_state, wake
from ._snapshot import dump_snapshot, snapshot
from ._stats import (max_memory_allocated, max_memory_reserved, memory_allocated, memory_reserved,
                     memory_stats, memory_stats_as_nested_dict, reset_accumulated_memory_stats,
                     reset_peak_memory_stats)
from ._summary import memory_summary
from ._trace import trace, trace_note

__all__ = [
    "Block", "Cache", "InstallError", "LibraryError", "Site", "Sites", "VmmError", "VmmWarning", "available",
    "backup_drop", "capabilities", "check_snapshot", "compact", "dump_snapshot", "empty_cache", "install",
    "install_cupy", "is_installed", "leaks", "live_blocks", "max_memory_allocated", "max_memory_reserved",
    "mem_get_info", "memory_allocated", "memory_reserved", "memory_stats", "memory_stats_as_nested_dict",
    "memory_summary", "neighbours", "on_out_of_memory", "parts", "record_history", "region",
    "reset_accumulated_memory_stats", "reset_peak_memory_stats", "set_memory_limit", "sleep", "sleep_state", "snapshot",
    "trace", "trace_note", "uninstall", "version", "wake",
]
