"""check_snapshot(): whether a snapshot is complete and consistent.

Fields and types; segments that do not overlap, blocks that tile them, sums; and each device's trace
played back from the segments, event by event, as the viewer on the web does it.
"""
from __future__ import annotations

from ._playback import play_back, shown

_NUMBER, _WORD, _FRAMES = int, str, list

_TOP = {"segments": list, "device_traces": list, "allocator_settings": dict,
        "external_annotations": list}
_SEGMENT = {"device": _NUMBER, "address": _NUMBER, "total_size": _NUMBER, "allocated_size": _NUMBER,
            "active_size": _NUMBER, "requested_size": _NUMBER, "stream": _NUMBER,
            "segment_type": _WORD, "segment_pool_id": tuple, "is_expandable": bool,
            "frames": _FRAMES, "blocks": list}
_BLOCK = {"address": _NUMBER, "size": _NUMBER, "requested_size": _NUMBER, "state": _WORD,
          "frames": _FRAMES}
_EVENT = {"action": _WORD, "size": _NUMBER, "stream": _NUMBER, "time_us": _NUMBER,
          "compile_context": _WORD, "user_metadata": _WORD, "pool_id": tuple, "frames": _FRAMES}
_FRAME = {"filename": _WORD, "line": _NUMBER, "name": _WORD}

_STATES = ("active_allocated", "active_pending_free", "inactive")
_MOST_FAULTS = 100


def check_snapshot(snapshot: dict) -> list:
    """The faults of a snapshot, one line each, at most 100; empty if there are none."""
    faults = []
    for fault in _faults(snapshot):
        faults.append(fault)
        if len(faults) == _MOST_FAULTS:
            break
    return faults


def _faults(snapshot):
    bad = list(_fields("snapshot", snapshot, _TOP))
    yield from bad
    if bad:
        return
    for number, segment in enumerate(snapshot["segments"]):
        bad = list(_segment_fields(f"segment {number}", segment))
        yield from bad
        if bad:
            return
        yield from _segment_sums(f"segment {number}", segment)
    yield from _overlaps(snapshot["segments"])
    seen = set()
    for device, trace in enumerate(snapshot["device_traces"]):
        if type(trace) is not list:
            yield f"device {device}: its trace is {shown(trace)}, not list"
            continue
        bad = [fault for number, event in enumerate(trace)
               for fault in _event_fields(f"device {device}, event {number}", event, seen)]
        yield from bad
        if not bad:
            yield from play_back(snapshot["segments"], device, trace)


def _fields(what, thing, fields):
    if type(thing) is not dict:
        yield f"{what} is not a dict but {type(thing).__name__}"
        return
    for name, kind in fields.items():
        if name not in thing:
            yield f"{what} has no {name}"
        elif type(thing[name]) is not kind:
            yield f"{what}: {name} is {shown(thing[name])}, not {kind.__name__}"
        elif kind is _NUMBER and not -(1 << 63) <= thing[name] < 1 << 64:
            yield f"{what}: {name} is a number of more than 64 bits"


def _segment_fields(what, segment):
    bad = list(_fields(what, segment, _SEGMENT))
    yield from bad
    if bad:
        return
    if segment["segment_type"] not in ("small", "large"):
        yield f"{what}: segment_type is {shown(segment['segment_type'])}"
    yield from _pool_id(what, segment["segment_pool_id"])
    for number, block in enumerate(segment["blocks"]):
        name = f"{what}, block {number}"
        bad = list(_fields(name, block, _BLOCK))
        yield from bad or _frames(name, block["frames"], set())


def _pool_id(what, pool):
    if len(pool) != 2 or any(type(part) is not int for part in pool):
        yield f"{what}: {shown(pool)} is not a pair of numbers"


def _frames(what, frames, seen):
    if id(frames) in seen:
        return
    seen.add(id(frames))
    for frame in frames:
        yield from _fields(f"{what}, frame", frame, _FRAME)


def _event_fields(what, event, seen):
    bad = list(_fields(what, event, _EVENT))
    yield from bad
    if bad:
        return
    place = "device_free" if event["action"] == "oom" else "addr"
    yield from _fields(what, event, {place: int})
    yield from _pool_id(what, event["pool_id"])
    yield from _frames(what, event["frames"], seen)


def _segment_sums(what, segment):
    blocks, at = segment["blocks"], segment["address"]
    for number, block in enumerate(blocks):
        name = f"{what}, block {number}"
        if block["state"] not in _STATES:
            yield f"{name}: its state is {shown(block['state'])}"
        if block["address"] != at:
            yield f"{name} begins at {block['address']:#x}, but the one before ends at {at:#x}"
        if block["size"] <= 0 or block["requested_size"] > block["size"]:
            yield f"{name}: {block['requested_size']} bytes were requested of {block['size']}"
        at = block["address"] + block["size"]
    if at != segment["address"] + segment["total_size"]:
        yield f"{what}: its blocks end at {at:#x}, not where it ends"
    live = [block for block in blocks if block["state"] == "active_allocated"]
    active = [block for block in blocks if block["state"] != "inactive"]
    for name, told, found in (
            ("allocated_size", segment["allocated_size"], sum(block["size"] for block in live)),
            ("active_size", segment["active_size"], sum(block["size"] for block in active)),
            ("requested_size", segment["requested_size"],
             sum(block["requested_size"] for block in active))):
        if told != found:
            yield f"{what}: {name} is {told}, but its blocks have {found}"


def _overlaps(segments):
    ends = {}
    for number, segment in enumerate(segments):
        device = segment["device"]
        if segment["address"] < ends.get(device, 0):
            yield f"segment {number} begins before the one before it on its device ends"
        ends[device] = segment["address"] + segment["total_size"]
