"""torch.cuda.memory, as far as vmmcache uses or replaces it: each function asks torch._C when called."""
import ctypes

import torch

__all__ = ["memory_stats", "memory_allocated", "max_memory_allocated", "memory_reserved",
           "max_memory_reserved", "memory_summary", "memory_snapshot", "reset_peak_memory_stats",
           "reset_accumulated_memory_stats", "empty_cache", "mem_get_info", "get_allocator_backend",
           "set_per_process_memory_fraction", "get_per_process_memory_fraction",
           "memory_stats_as_nested_dict", "caching_allocator_alloc", "caching_allocator_delete"]


class CUDAPluggableAllocator:
    def __init__(self, path, alloc, free):
        library = ctypes.CDLL(path)
        addresses = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in (alloc, free)]
        self._allocator = torch._C._cuda_customAllocator(*addresses)

    def allocator(self):
        return self._allocator


def change_current_allocator(allocator):
    torch._C._cuda_changeCurrentAllocator(allocator.allocator())


def caching_allocator_alloc(size, device=0, stream=0):
    return torch._C._cuda_cudaCachingAllocator_raw_alloc(size, stream)


def caching_allocator_delete(address):
    torch._C._cuda_cudaCachingAllocator_raw_delete(address)


def empty_cache():
    torch._C._cuda_emptyCache()


def memory_stats_as_nested_dict(device=None):
    return torch._C._cuda_memoryStats(0)


def memory_stats(device=None):
    return {f"{name}.{pool}.{column}": value
            for name, pools in memory_stats_as_nested_dict(device).items() if isinstance(pools, dict)
            for pool, columns in pools.items() if isinstance(columns, dict)
            for column, value in columns.items()}


def memory_allocated(device=None):
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device=None):
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device=None):
    return memory_stats(device)["reserved_bytes.all.current"]


def max_memory_reserved(device=None):
    return memory_stats(device)["reserved_bytes.all.peak"]


def reset_peak_memory_stats(device=None):
    torch._C._cuda_resetPeakMemoryStats(0)


def reset_accumulated_memory_stats(device=None):
    torch._C._cuda_resetAccumulatedMemoryStats(0)


def memory_summary(device=None, abbreviated=False):
    return str(memory_stats(device))


def memory_snapshot(mempool_id=None, include_traces=True):
    first, second = mempool_id or (0, 0)
    return torch._C._cuda_memorySnapshot((first, second, include_traces))["segments"]


def _snapshot(device=None):
    return torch._C._cuda_memorySnapshot(None)


def _record_memory_history(enabled="all", context="all", stacks="all", max_entries=1 << 62, device=None,
                           clear_history=False):
    torch._C._cuda_record_memory_history(enabled, context, stacks, max_entries, clear_history, False,
                                         False, [])


def set_per_process_memory_fraction(fraction, device=None):
    torch._C._cuda_setMemoryFraction(fraction, 0)


def get_per_process_memory_fraction(device=None):
    return torch._C._cuda_getMemoryFraction(0)


def get_allocator_backend():
    return torch._C._cuda_getAllocatorBackend()


def mem_get_info(device=None):
    return 1 << 30, 2 << 30
