"""The physical memory behind a tensor."""
from __future__ import annotations

import ctypes

from . import _control, _device, _layout, _library

_FIELDS = ("address", "bytes", "handle", "handle_bytes", "offset")


def parts(memory, device=None) -> list:
    """The physical parts of the block of a tensor, or of the block at an address, as dictionaries, for those who
    register memory: docs/guide.md, "Registering memory"."""
    found = []

    def visit(_, part):
        found.append({field: getattr(part.contents, field) for field in _FIELDS})
        return 0
    if not isinstance(memory, int):
        memory, device = memory.untyped_storage().data_ptr(), memory.device
    cache = _control.opened(_device.index(device))
    _library.check(_library.load().vmm_parts_walk(cache, memory, _layout.PART_FN(visit), None),
                   "the block has no list of parts")
    return found
