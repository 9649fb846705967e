"""The physical memory behind a tensor."""
from __future__ import annotations

from . import _control, _device, _layout, _library


def parts(memory, device=None) -> list:
    """The physical parts of the block of a tensor, or of the block at an address, as dictionaries, for those who
    register memory: docs/guide.md, "Registering memory"."""
    if not isinstance(memory, int):
        memory, device = memory.untyped_storage().data_ptr(), memory.device
    return _library.listed("vmm_parts_walk", _layout.PART_FN, "the block has no list of parts",
                           _control.opened(_device.index(device)), memory)
