"""Writes a recording as a trace of the Chrome format, which Perfetto opens: https://ui.perfetto.dev.

Memory is in counters, what happened once is in instants, and sleeps of pools and the largest blocks are in slices.
"""
from __future__ import annotations

import gzip
import json
from array import array

from . import _file
from .report_recording import Recording, is_failure

SAMPLES_MOST = 100_000  # of a counter: beyond, each is the most of an interval
BLOCKS_MOST = 200  # as in the page's table
PROCESS, EVENTS = 1, 1
_SLEEP, _WAKE = "vmm_pool_sleep: ", "vmm_pool_wake: "


def write(recording: Recording, path: str) -> None:
    """Raises OSError. A name that ends with .gz gets compressed."""
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events(recording))
    text = '{"displayTimeUnit":"ms","traceEvents":[\n%s\n]}\n' % lines
    data = text.encode()
    _file.write(path, gzip.compress(data, mtime=0) if path.endswith(".gz") else data)


def events(recording: Recording):
    """All events: those that name things, then the others in order of time."""
    clock = _Clock(recording)
    yield _named("process_name", recording.name)
    yield _named("thread_name", "events")
    found = [*_memory(recording, clock), *_pools(recording, clock), *_notes(recording, clock),
             *_blocks(recording, clock)]
    yield from sorted(found, key=lambda event: event["ts"])


class _Clock:
    """Microseconds of a state; a recording without times has one operation in each."""

    def __init__(self, recording: Recording):
        self.times = recording.times or range(recording.operations + 1)
        self.begin, self.end = self.times[0], self.times[-1]
        self.step = (self.end - self.begin) // SAMPLES_MOST + 1

    def __call__(self, state: int) -> int:
        return self.times[state]

    def sample(self, state: int) -> int:
        """The interval of a state."""
        return (self.times[state] - self.begin) // self.step

    def sample_time(self, sample: int) -> int:
        return self.begin + sample * self.step


def _named(what: str, name: str) -> dict:
    return {"ph": "M", "pid": PROCESS, "tid": EVENTS, "name": what, "args": {"name": name}}


def _counter(name: str, time: int, **values) -> dict:
    return {"ph": "C", "pid": PROCESS, "ts": time, "name": name, "args": values}


def _slice(phase: str, time: int, category: str, number: int, name: str, **values) -> dict:
    return {"ph": phase, "pid": PROCESS, "tid": EVENTS, "ts": time, "cat": category, "id": number, "name": name,
            "args": values}


# ---- Counters -------------------------------------------------------------------------------------------------------

def _live_end(recording: Recording, block: int) -> int:
    """The state in which the program has freed a block; 0: none."""
    life = recording.held[block] or recording.life[block]
    return recording.start[block] + life if life else 0


def _changes(recording: Recording):
    """By state: the changes of live, busy and reserved bytes."""
    live, busy, reserved = (array("q", bytes(8 * (recording.operations + 1))) for _ in range(3))
    for block, size in enumerate(recording.bytes):
        start, life, end = recording.start[block], recording.life[block], _live_end(recording, block)
        live[start] += size
        busy[start] += size
        if end:
            live[end] -= size
        if life:
            busy[start + life] -= size
    spans = recording.spans
    for start, life, size in zip(spans.start, spans.life, spans.bytes):
        reserved[start] += size
        if life:
            reserved[start + life] -= size
    return live, busy, reserved


def _memory(recording: Recording, clock: _Clock):
    """The most of each interval, and the end."""
    now, most, last = [0, 0, 0], [0, 0, 0], 0
    for state, changes in enumerate(zip(*_changes(recording))):
        sample = clock.sample(state)
        if sample != last:
            yield _memory_counter(clock.sample_time(last), most)
            most, last = now[:], sample
        for i, change in enumerate(changes):
            now[i] += change
            most[i] = max(most[i], now[i])
    yield _memory_counter(clock.sample_time(last), most)
    yield _memory_counter(clock.end + 1, now)


def _memory_counter(time: int, values: list) -> dict:
    return _counter("memory", time, live=values[0], busy=values[1], reserved=values[2])


def _pools(recording: Recording, clock: _Clock):
    """Live bytes of each pool at the end of each interval, if there are several pools."""
    if len(recording.pools.texts) < 2:
        return
    changes = [{} for _ in recording.pools.texts]
    for block, size in enumerate(recording.bytes):
        changed, end = changes[recording.pool[block]], _live_end(recording, block)
        for state, change in ((recording.start[block], size), (end, -size)):
            if change > 0 or end:
                sample = clock.sample(state)
                changed[sample] = changed.get(sample, 0) + change
    for number, (name, changed) in enumerate(zip(recording.pools.texts, changes)):
        live = 0
        for sample in sorted(changed):
            live += changed[sample]
            yield _counter(f"pool {number}: {name}", clock.sample_time(sample), live=live)


# ---- Instants and slices --------------------------------------------------------------------------------------------

def _notes(recording: Recording, clock: _Clock):
    """A pool that falls asleep begins a slice, which its wake, or the recording, ends."""
    asleep = {}  # name: number of the slice
    for number, (state, text) in enumerate(recording.notes):
        time, has_failed = clock(state), is_failure(text)
        if text.startswith(_SLEEP) and not has_failed:
            name = text[len(_SLEEP):]
            if name not in asleep:
                asleep[name] = number
                yield _slice("b", time, "sleep", number, f"{name} asleep")
        elif text.startswith(_WAKE) and not has_failed:
            name = text[len(_WAKE):]
            if name in asleep:
                yield _slice("e", time, "sleep", asleep.pop(name), f"{name} asleep")
        else:
            yield {"ph": "i", "pid": PROCESS, "tid": EVENTS, "ts": time, "s": "p",
                   "cat": "failure" if has_failed else "note", "name": text.split(":")[0], "args": {"text": text}}
    for name, number in asleep.items():
        yield _slice("e", clock.end + 1, "sleep", number, f"{name} asleep")


def _stack(recording: Recording, frame: int) -> list:
    """The innermost frame first."""
    frames = []
    while frame:
        frames.append(recording.frames.texts[frame])
        frame = recording.frames.parents[frame]
    return frames


def _blocks(recording: Recording, clock: _Clock):
    """The life of each of the largest blocks."""
    largest = sorted(range(len(recording.bytes)), key=recording.bytes.__getitem__, reverse=True)[:BLOCKS_MOST]
    for block in largest:
        stack = _stack(recording, recording.frame[block])
        label = recording.labels.texts[recording.label[block]]
        name = label or (stack[0] if stack else "block")
        life = recording.life[block]
        begin = clock(recording.start[block])
        end = clock(recording.start[block] + life) if life else clock.end + 1
        yield _slice("b", begin, "block", block, name, bytes=recording.bytes[block],
                     address="0x%x" % recording.address[block], stack=stack,
                     stream=recording.streams.texts[recording.stream[block]],
                     pool=recording.pools.texts[recording.pool[block]])
        yield _slice("e", max(end, begin), "block", block, name)
