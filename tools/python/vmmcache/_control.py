"""Changes a cache at run time: releases memory, sets limits."""
from __future__ import annotations

import ctypes

from . import _config, _device, _library, _sizes
from ._errors import VmmError


def empty_cache() -> None:
    """Waits for the work of the streams that use the library's memory, then releases all idle memory to the
    driver, on all devices."""
    _library.load().vmm_torch_reset()


def compact(device=None, budget_ms: int = 0) -> int:
    """Releases memory that a few live tensors pin, and returns how many bytes. Call it between two steps: it waits for
    the device, copies tensors to other memory under their old addresses, and no thread of the program may submit work
    meanwhile, or data is corrupted silently. Memory of CUDA graphs stays.

    budget_ms: after so many milliseconds it begins no further copy; 0: no limit. Raises VmmError during a capture, with
    VMM_DEBUG, or if the driver fails.
    """
    number, budget_ms = _device.index(device), _config.number("budget_ms", budget_ms, 0xFFFFFFFF)
    library, released = _library.load(), ctypes.c_uint64()
    cache = library.vmm_torch_cache(number)
    _device.demand_no_capture("memory cannot be compacted")
    if cache is not None:
        _device.synchronize(number)
        _library.check(library.vmm_compact(cache, budget_ms, None, ctypes.byref(released)),
                       f"memory of device {number} was not compacted")
    return released.value


def set_memory_limit(limit, device=None) -> None:
    """Sets the most physical memory that a device's cache may hold.

    limit: bytes (an int, or a string such as '8GiB'), a share of the device's memory (a float such as
    0.8, or '80%'), or None (or 0) for no limit. Memory that is already reserved beyond it stays until
    empty_cache(). Opens the device if it was not used yet.
    """
    number = _device.index(device)
    _sizes.parse(limit)  # raises what is wrong with it, before a device is opened
    limit_set(opened(number), limit, f"the limit of device {number} was not changed")


def mem_get_info(device=None) -> tuple:
    """(free, total) bytes of a device as its driver counts them, for all processes. Opens the device if it was
    not used yet."""
    return memory(opened(_device.index(device)))


def opened(device: int) -> int:
    """The cache of a device, made if there is none."""
    library = _library.load()
    if library.vmm_torch_cache(device) is None:
        library.vmm_torch_free(library.vmm_torch_try_alloc(1, device, None), 1, device, None)
    cache = library.vmm_torch_cache(device)
    if cache is None:
        raise VmmError(f"device {device} cannot be opened: {_library.last_error()}")
    return cache


def limit_set(cache, limit, what: str) -> None:
    """set_memory_limit(), of any cache. what: has failed, if it does."""
    bytes_, share = _sizes.parse(limit)
    if share is not None:
        bytes_ = max(1, int(share * memory(cache)[1]))  # 0 is no limit
    _library.check(_library.load().vmm_limit_set(cache, bytes_), what)


def memory(cache) -> tuple:
    """mem_get_info(), of any cache."""
    free, total = ctypes.c_uint64(), ctypes.c_uint64()
    status = _library.load().vmm_device_memory(cache, ctypes.byref(free), ctypes.byref(total))
    _library.check(status, "the driver does not report the device's memory")
    return free.value, total.value
