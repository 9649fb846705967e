"""What changes a cache at run time: giving memory back, and limits."""
from __future__ import annotations

import sys

from . import _device, _library, _sizes
from ._errors import VmmError


def empty_cache() -> None:
    """Gives idle memory of all devices back to the driver. Never waits for work in flight."""
    _library.load().vmm_torch_reset()


def set_memory_limit(limit, device=None) -> None:
    """Sets the most physical memory that a device's cache may hold.

    limit: bytes (an int, or a string such as '8GiB'), a share of the device's memory (a float such as
    0.8, or '80%'), or None for no limit. What is held already beyond it stays until empty_cache(). A
    device that was not used yet is opened.
    """
    number = _device.index(device)
    bytes_, share = _sizes.parse(limit)
    library = _library.load()
    if share is not None or library.vmm_torch_cache(number) is None:  # this opens a device, too
        library.vmm_torch_memory_fraction(share or 1.0, number)
    cache = library.vmm_torch_cache(number)
    if cache is None:
        raise VmmError(f"device {number} cannot be opened: {_library.last_error()}")
    if share is None:
        _library.check(library.vmm_limit_set(cache, bytes_), f"device {number} has no new limit")


def mem_get_info(device=None) -> tuple:
    """(free, total) bytes of a device, of all processes, as the driver tells PyTorch or CuPy."""
    for name in ("torch", "cupy"):
        module = sys.modules.get(name)
        if module is None:
            continue
        if name == "torch":
            return module.cuda.mem_get_info(_device.index(device))
        with module.cuda.Device(_device.index(device)):
            return module.cuda.runtime.memGetInfo()
    raise VmmError("mem_get_info() asks PyTorch or CuPy, and neither is imported")
