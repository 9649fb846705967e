"""Reads a memory snapshot of PyTorch or of vmmcache.dump_snapshot(), pickle or JSON, into a Recording.

The blocks and segments are those of the moment of the snapshot. The device's trace, if there is one, says what they
were before; what it does not mention was there from the start.
"""
from __future__ import annotations

import json
import pickle

from . import _pickle_file, _playback, _sizes
from .report_recording import Recording, ReportError

CHUNK_BYTES = 2 << 20  # of expandable segments, and of vmmcache
MOST_BYTES = 1 << 46  # of a block or segment: beyond any device's memory
_MAPS, _UNMAPS = ("segment_map", "segment_alloc"), ("segment_unmap", "segment_free")


def load_pickle(path: str) -> dict:
    try:
        return _pickle_file.read(path)[0]
    except pickle.UnpicklingError as error:
        raise ReportError(f"{path}: not a snapshot: {error}") from error


def load_json(data: bytes, path: str) -> dict:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path}: not JSON: {error}") from error
    if not isinstance(found, dict) or "segments" not in found:
        raise ReportError(f"{path}: not a snapshot: it has no segments")
    return found


def read(snapshot: dict, path: str, name: str, device=None) -> Recording:
    """One device of a snapshot; by default the one with the most memory."""
    reader = None
    try:
        used = _used(snapshot)
        chosen = max(used, key=used.get) if device is None and used else device or 0
        if chosen not in used:
            raise ReportError(f"{path}: device {chosen} has neither memory nor events")
        reader = _Reader(Recording(name, "snapshot"), chosen)
        reader.recording.devices = len(used)
        return reader.take(snapshot)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        place = "segments" if reader is None else reader.place
        told = f"no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        raise ReportError(f"{path}: {place}: {told}") from error


def _size(thing: dict, key: str) -> int:
    if type(thing[key]) is not int or not 0 <= thing[key] <= MOST_BYTES:
        raise ValueError(f"{key} is {_playback.shown(thing[key])}, not a number of bytes up to 2^46")
    return thing[key]


def _used(snapshot: dict) -> dict:
    """{device: (reserved bytes, events)} of the devices that have any."""
    used = {}
    for segment in snapshot["segments"]:
        reserved, events = used.get(segment.get("device", 0), (0, 0))
        used[segment.get("device", 0)] = reserved + _size(segment, "total_size"), events
    for device, trace in enumerate(snapshot.get("device_traces", ())):
        if trace:
            used[device] = used.get(device, (0, 0))[0], len(trace)
    return used


class _Reader:
    def __init__(self, recording: Recording, device: int):
        self.recording, self.device = recording, device
        self.place = "segments"  # what is being read, for messages
        self.open = {}  # address: block
        self.stacks = {}  # id() of a list of frames: its number. The snapshot keeps the lists.

    def take(self, snapshot: dict) -> Recording:
        recording = self.recording
        recording.device = self.device
        recording.chunk_bytes = CHUNK_BYTES if self._has_chunks(snapshot["segments"]) else 0
        traces = snapshot.get("device_traces", [])
        for number, event in enumerate(traces[self.device] if self.device < len(traces) else []):
            self.place = f"device {self.device}, event {number}"
            self._event(event)
        for number, segment in enumerate(snapshot["segments"]):
            self.place = f"segment {number}"
            if segment.get("device", 0) == self.device:
                self._segment(segment)
        if not recording.start and not len(recording.spans.start):
            raise ValueError("no blocks, segments or events")
        if not any(recording.times):
            del recording.times[:]
        recording.finish()
        return recording

    def _has_chunks(self, segments: list) -> bool:
        return any(segment.get("is_expandable") for segment in segments if segment.get("device", 0) == self.device)

    def _operation(self, event: dict) -> int:
        recording = self.recording
        time = event.get("time_us", 0)
        if not recording.times:
            recording.times.append(time)
        recording.times.append(time)
        recording.operations += 1
        return recording.operations

    def _event(self, event: dict) -> None:
        action, size = event["action"], _size(event, "size")
        if action == "oom":
            free = _sizes.text(event.get("device_free", 0))
            self.recording.notes.append(
                (self.recording.operations, f"out of memory: {_sizes.text(size)} requested, {free} free on the device"))
        elif action == "alloc":
            self._alloc(event, event["addr"], size)
        elif action == "free_requested":
            self._wait(event, event["addr"], size)
        elif action == "free_completed":
            self._free(event, event["addr"], size)
        elif action in _MAPS or action in _UNMAPS:
            spans = self.recording.spans
            change = spans.map if action in _MAPS else spans.unmap
            time = event.get("time_us", 0)
            if not self.recording.is_same_change(time):
                self._operation(event)
            change(self.recording.note_change(time), event["addr"], size, self._stream(event), self._pool(event))

    def _alloc(self, event: dict, address: int, size: int) -> None:
        if address in self.open:  # its free is not in the trace
            self._free(event, address, size)
        self._operation(event)
        self._open(event, address, size, False)

    def _open(self, event: dict, address: int, size: int, before: bool) -> int:
        frame = 0 if before else self._stack(event.get("frames"))
        block = self.recording.alloc(size, self._stream(event), address, self._pool(event), frame, before)
        self.open[address] = block
        return block

    def _known(self, event: dict, address: int, size: int) -> int:
        """The block at an address; one that the trace does not mention was live before."""
        block = self.open.get(address)
        return self._open(event, address, size, True) if block is None else block

    def _wait(self, event: dict, address: int, size: int) -> None:
        block = self._known(event, address, size)
        self._operation(event)
        self.recording.wait(block)

    def _free(self, event: dict, address: int, size: int) -> None:
        block = self._known(event, address, size)
        self._operation(event)
        self.recording.free(block)
        del self.open[address]

    def _segment(self, segment: dict) -> None:
        stream, pool = self._stream(segment), self._pool(segment)
        self.recording.spans.known_before(segment["address"], _size(segment, "total_size"), stream, pool)
        address = segment["address"]
        for block in segment["blocks"]:
            address = block.get("address", address)
            if block["state"].startswith("active"):
                self._block(block, address, stream, pool)
            address += _size(block, "size")

    def _block(self, block: dict, address: int, stream: int, pool: int) -> None:
        """A block that is live at the end: the trace has opened it, or it was live before."""
        frames = self._stack(block.get("frames") or next(iter(block.get("history", ())), {}).get("frames"))
        if address in self.open:
            number = self.open[address]
        else:
            size = _size(block, "requested_size" if "requested_size" in block else "size")
            number = self.recording.alloc(size, stream, address, pool, 0, True)
        self.recording.frame[number] = self.recording.frame[number] or frames

    def _stream(self, thing: dict) -> int:
        number = thing.get("stream", 0)
        return self.recording.streams.number(number, f"stream {number:#x}" if number else "default stream")

    def _pool(self, thing: dict) -> int:
        pool = tuple(thing.get("pool_id") or thing.get("segment_pool_id") or (0, 0))
        return self.recording.pools.number(pool, "default pool" if not any(pool) else "graph pool {}.{}".format(*pool))

    def _stack(self, frames) -> int:
        if not frames:
            return 0
        known = self.stacks.get(id(frames))
        if known is None:
            known = 0
            for frame in reversed(frames):
                text = "{name} ({filename}:{line})".format_map(frame)
                known = self.recording.frames.child(known, text)
            self.stacks[id(frames)] = known
        return known
