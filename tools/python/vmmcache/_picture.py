"""A picture of one device, as vmm_torch_snapshot_take() makes it, in records of Python."""
from __future__ import annotations

import ctypes
import struct
from typing import Iterator, List, NamedTuple

from . import _layout, _library

FREE, LIVE, WAITING = range(3)  # vmm_item_state


class Event(NamedTuple):
    """vmm_torch_event"""
    address: int
    bytes: int
    stream: int
    time_us: int
    stack: int
    pool_first: int
    pool_second: int
    action: int
    device: int


class Block(NamedTuple):
    """vmm_torch_block"""
    address: int
    bytes: int
    requested_bytes: int
    stack: int
    state: int
    reserved: int


class Segment(NamedTuple):
    """vmm_torch_segment"""
    address: int
    bytes: int
    stream: int
    pool_first: int
    pool_second: int
    first_block: int
    block_count: int
    is_small: int
    device: int


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
            list(_records(Segment, _layout.SEGMENT_FORMAT, raw.segments, raw.segment_count)),
            list(_records(Block, _layout.BLOCK_FORMAT, raw.blocks, raw.block_count)),
            list(_records(Event, _layout.EVENT_FORMAT, raw.events, raw.event_count)),
            raw.lost_events)
    finally:
        library.vmm_torch_snapshot_drop(address)


def _records(kind, layout: str, address, count: int) -> Iterator:
    if not count:
        return iter(())
    data = ctypes.string_at(address, count * struct.calcsize(layout))
    return map(kind._make, struct.iter_unpack(layout, data))
