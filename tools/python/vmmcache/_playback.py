"""A device's trace, played back from the memory that a snapshot shows.

Undoing the last event first, each event must find what it changed: memory that was mapped is there, a
block that was allocated is live. So the viewer on the web finds out what memory looked like before.
"""
from __future__ import annotations

import reprlib
from bisect import bisect_left, bisect_right, insort

_most = reprlib.Repr()
_most.maxstring = _most.maxother = 60


def shown(thing) -> str:
    """Anything in one short line: a snapshot from elsewhere may hold anything."""
    if type(thing) is int and thing.bit_length() > 64:
        return f"a number of {thing.bit_length()} bits"
    return _most.repr(thing)


def play_back(segments: list, device: int, trace: list):
    """Yields a fault for each event that contradicts what is there; stops at the first of a device."""
    memory, blocks = _Memory(), _Blocks()
    for segment in segments:
        if segment["device"] != device:
            continue
        memory.add(segment["address"], segment["total_size"], segment["stream"])
        for block in segment["blocks"]:
            if block["state"] != "inactive":
                blocks.add(block["address"], block["requested_size"], block["state"] != "active_allocated")
    later = None
    for number in range(len(trace) - 1, -1, -1):
        event = trace[number]
        if later is not None and event["time_us"] > later:
            yield f"device {device}, event {number} is later than the one after it"
        later = event["time_us"]
        fault = _undo(event, memory, blocks)
        if fault:
            yield f"device {device}, event {number} ({shown(event['action'])} of {event['size']} bytes): {fault}"
            return


def _undo(event, memory, blocks):
    """Undoes an event; returns what contradicts it, or None."""
    action, address, size = event["action"], event.get("addr", 0), event["size"]
    if action == "alloc":
        return _undo_alloc(address, size, memory, blocks)
    if action == "free_requested":
        return blocks.wait(address, size, False)
    if action == "free_completed":
        return (None if memory.holds(address, size) else "no memory is mapped there") or blocks.add(
            address, size, True)
    if action in ("segment_map", "segment_alloc"):
        if blocks.any_in(address, size):
            return "a live block lies there already"
        return memory.remove(address, size, event["stream"])
    if action in ("segment_unmap", "segment_free"):
        return memory.add(address, size, event["stream"])
    return None if action in ("oom", "snapshot") else "unknown action"


def _undo_alloc(address, size, memory, blocks):
    fault = blocks.wait(address, size, False, already=True) or blocks.remove(address)
    return fault or (None if memory.holds(address, size) else "no memory is mapped there")


class _Blocks:
    """Live blocks by address: the bytes asked for, and whether they wait for other streams."""

    def __init__(self):
        self._addresses, self._known = [], {}

    def add(self, address, size, waits):
        at = bisect_left(self._addresses, address)
        if address in self._known or self._covers(at - 1, address):
            return "another block is live there"
        if at < len(self._addresses) and self._addresses[at] < address + size:
            return "another live block begins in it"
        self._addresses.insert(at, address)
        self._known[address] = [size, waits]
        return None

    def _covers(self, at, address):
        return at >= 0 and address < self._addresses[at] + self._known[self._addresses[at]][0]

    def wait(self, address, size, waits, already=False):
        """Sets whether a block waits; it must have been otherwise, or the same with already."""
        block = self._known.get(address)
        if block is None:
            return "no block is live there"
        if block[0] != size:
            return f"the block there has {block[0]} bytes"
        if (block[1] == waits) != already:
            return "the block is still live" if not already else "the block was freed already"
        block[1] = waits
        return None

    def remove(self, address):
        del self._known[address]
        del self._addresses[bisect_left(self._addresses, address)]

    def any_in(self, address, size):
        at = bisect_left(self._addresses, address)
        return self._covers(at - 1, address) or (
            at < len(self._addresses) and self._addresses[at] < address + size)


class _Memory:
    """Ranges of mapped memory, each of one stream; neighbours of one stream are one range."""

    def __init__(self):
        self._starts, self._known = [], {}  # start: (end, stream)

    def add(self, address, size, stream):
        end, at = address + size, bisect_right(self._starts, address)
        if size <= 0:
            return "it has a size of 0 or less"
        if at and self._known[self._starts[at - 1]][0] > address:
            return "memory is mapped there already"
        if at < len(self._starts) and self._starts[at] < end:
            return "memory is mapped there already"
        if at < len(self._starts) and self._starts[at] == end and self._known[end][1] == stream:
            end = self._take(at)[1]
        if at and self._known[self._starts[at - 1]] == (address, stream):
            address = self._take(at - 1)[0]
        self._put(address, end, stream)
        return None

    def remove(self, address, size, stream):
        at = bisect_right(self._starts, address) - 1
        if at < 0 or self._known[self._starts[at]][0] < address + size:
            return "not all of it is mapped"
        if self._known[self._starts[at]][1] != stream:
            return f"the memory belongs to stream {self._known[self._starts[at]][1]}"
        start, end = self._take(at)
        if start < address:
            self._put(start, address, stream)
        if address + size < end:
            self._put(address + size, end, stream)
        return None

    def holds(self, address, size):
        at = bisect_right(self._starts, address) - 1
        return at >= 0 and address + size <= self._known[self._starts[at]][0]

    def _put(self, start, end, stream):
        insort(self._starts, start)
        self._known[start] = (end, stream)

    def _take(self, at):
        start = self._starts.pop(at)
        return start, self._known.pop(start)[0]
