"""Other processes on a device: what they have, and what a cache could get."""
from __future__ import annotations

import ctypes

from . import _control, _device, _layout, _library


def neighbours(device=None) -> list:
    """The caches of this user's processes on a device that have neighbours, as dictionaries: this process's own one
    first, if it has (install(neighbours=True)), else an empty list. What the others show is up to half a second old;
    docs/guide.md, "Several processes on one GPU", explains it. Opens the device if it was not used yet."""
    found = _library.listed("vmm_neighbours_walk", _layout.NEIGHBOUR_FN, "the neighbours could not be listed",
                            _control.opened(_device.index(device)))
    return [{**one, "is_self": bool(one["is_self"])} for one in found]


def available(device=None) -> int:
    """An estimate of the bytes that PyTorch could get on a device now: free there, idle in this process, or idle in
    neighbours, as far as the limit allows. For programs that size something when they start. Opens the device if it
    was not used yet."""
    result = ctypes.c_uint64()
    cache = _control.opened(_device.index(device))
    _library.check(_library.load().vmm_available_get(cache, ctypes.byref(result)),
                   "the driver does not report the device's memory")
    return result.value
