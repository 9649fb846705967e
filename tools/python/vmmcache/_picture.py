"""A picture of one device, as vmm_torch_snapshot_take() makes it, in records of Python."""
from __future__ import annotations

import ctypes
import struct
from collections import namedtuple
from typing import Iterator, List, NamedTuple

from . import _layout, _library

FREE, LIVE, WAITING = range(3)  # vmm_item_state

# vmm_torch_event, vmm_torch_block and vmm_torch_segment
Event = namedtuple("Event", "address bytes stream time_us stack pool_first pool_second action device")
Block = namedtuple("Block", "address bytes requested_bytes stack state reserved")
Segment = namedtuple("Segment", "address bytes stream pool_first pool_second first_block block_count is_small device")

# How an array of them is read: much faster than by ctypes, one item at a time.
FORMATS = {Event: "=7Q2i", Block: "=4Q2i", Segment: "=7Q2i"}


class Picture(NamedTuple):
    """vmm_torch_snapshot"""
    segments: List[Segment]
    blocks: List[Block]
    events: List[Event]
    lost_events: int

    def blocks_of(self, segment: Segment) -> List[Block]:
        return self.blocks[segment.first_block:segment.first_block + segment.block_count]


def take(device: int) -> Picture:
    """The picture of a device; empty if it has no cache."""
    library = _library.load()
    address = ctypes.c_void_p()
    status = library.vmm_torch_snapshot_take(device, ctypes.byref(address))
    _library.check(status, f"no snapshot of device {device}")
    try:
        raw = _layout.Snapshot.from_address(address.value)
        return Picture(
            list(_records(Segment, raw.segments, raw.segment_count)),
            list(_records(Block, raw.blocks, raw.block_count)),
            list(_records(Event, raw.events, raw.event_count)),
            raw.lost_events)
    finally:
        library.vmm_torch_snapshot_drop(address)


def _records(kind, address, count: int) -> Iterator:
    if not count:
        return iter(())
    data = ctypes.string_at(address, count * struct.calcsize(FORMATS[kind]))
    return map(kind._make, struct.iter_unpack(FORMATS[kind], data))
