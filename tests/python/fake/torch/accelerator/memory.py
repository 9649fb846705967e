"""torch.accelerator.memory: each function first asks whether the allocator of the accelerator is initialised."""
import torch

__all__ = ["empty_cache", "get_memory_info", "max_memory_allocated", "max_memory_reserved", "memory_allocated",
           "memory_reserved", "memory_stats", "reset_accumulated_memory_stats", "reset_peak_memory_stats"]


def empty_cache():
    if torch._C._accelerator_isAllocatorInitialized():
        torch._C._accelerator_emptyCache()


def memory_stats(device=None):
    if not torch._C._accelerator_isAllocatorInitialized():
        return {}
    return {f"{name}.{pool}.{column}": value
            for name, pools in torch._C._accelerator_getDeviceStats(0).items() if isinstance(pools, dict)
            for pool, columns in pools.items() if isinstance(columns, dict)
            for column, value in columns.items()}


def memory_allocated(device=None):
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device=None):
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device=None):
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device=None):
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


def reset_accumulated_memory_stats(device=None):
    torch._C._accelerator_resetAccumulatedStats(0)


def reset_peak_memory_stats(device=None):
    torch._C._accelerator_resetPeakStats(0)


def get_memory_info(device=None):
    return torch._C._accelerator_getMemoryInfo(0)
