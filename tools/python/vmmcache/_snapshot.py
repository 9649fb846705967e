"""snapshot() and dump_snapshot(): pictures that PyTorch's viewers open.

Only dict, list, tuple, str, int, float and bool, and pickle's protocol 4: the viewer on the web reads
nothing else.
"""
from __future__ import annotations

import os
import pickle

from . import _device, _file, _history, _library, _picture, _stacks

PICKLE_PROTOCOL = 4

_STATES = {_picture.LIVE: "active_allocated", _picture.WAITING: "active_pending_free"}


def snapshot(device=None, include_traces: bool = True) -> dict:
    """Memory and recorded history of a device, or of all, in the form of torch.cuda.memory._snapshot()."""
    devices = range(_device.count()) if device is None else [_device.index(device)]
    segments, traces = [], []
    for number in devices:
        picture = _picture.take(number)
        segments += [_segment(picture, segment) for segment in picture.segments]
        traces += [[] for _ in range(len(traces), number + 1)]
        if include_traces:
            traces[number] = _trace(picture.events)
    while len(traces) > 1 and not traces[-1] and not _is_shown(len(traces) - 1, segments):
        traces.pop()
    return {"segments": segments, "device_traces": traces, "allocator_settings": _settings(),
            "external_annotations": []}


def dump_snapshot(path="dump_snapshot.pickle", device=None) -> None:
    """Writes snapshot() to a file, for https://pytorch.org/memory_viz or torch.cuda._memory_viz. If that
    fails it raises, and what was there before stays."""
    _file.write(path, pickle.dumps(snapshot(device), protocol=PICKLE_PROTOCOL))


def _is_shown(device: int, segments: list) -> bool:
    in_use = _device.torch_in_use()
    if in_use is not None:
        return device < in_use.cuda.device_count()
    return any(segment["device"] == device for segment in segments)


def _segment(picture: _picture.Picture, segment: _picture.Segment) -> dict:
    blocks = picture.blocks_of(segment)
    active = [block for block in blocks if block.state in _STATES]
    live = [block for block in active if block.state == _picture.LIVE]
    return {
        "device": segment.device,
        "address": segment.address,
        "total_size": segment.bytes,
        "allocated_size": sum(block.bytes for block in live),
        "active_size": sum(block.bytes for block in active),
        "requested_size": sum(block.requested_bytes for block in active),
        "stream": segment.stream,
        "segment_type": "small" if segment.is_small else "large",
        "segment_pool_id": (segment.pool_first, segment.pool_second),
        "is_expandable": True,
        "frames": [],
        "blocks": [_block(block) for block in blocks],
    }


def _block(block: _picture.Block) -> dict:
    return {
        "address": block.address,
        "size": block.bytes,
        "requested_size": block.requested_bytes,
        "state": _STATES.get(block.state, "inactive"),
        "frames": _stacks.frames(block.stack),
    }


def _trace(events: list) -> list:
    words, shown = {}, _history.shown()
    trace = []
    for event in events:
        word = words.get(event.action)
        if word is None:
            word = words[event.action] = _library.load().vmm_torch_action_word(event.action).decode()
        if word in shown:
            trace.append(_entry(event, word))
    return trace


def _entry(event: _picture.Event, word: str) -> dict:
    return {
        "action": word,
        "device_free" if word == "oom" else "addr": event.address,
        "size": event.bytes,
        "stream": event.stream,
        "time_us": event.time_us,
        "compile_context": "N/A",
        "user_metadata": "",
        "pool_id": (event.pool_first, event.pool_second),
        "frames": _stacks.frames(event.stack),
    }


def _settings() -> dict:
    return {
        "PYTORCH_CUDA_ALLOC_CONF": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
        "max_split_size": -1,
        "garbage_collection_threshold": 0.0,
        "expandable_segments": True,
        "pinned_num_register_threads": 1,
        "release_lock_on_cudamalloc": False,
        "pinned_use_cuda_host_register": False,
        "graph_capture_record_stream_reuse": False,
        "roundup_power2_divisions": {},
    }
