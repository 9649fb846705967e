"""Writes the requests of a snapshot as a trace (docs/trace-format.md), which fragtest replays.

A block ends where its free was completed: from then on its stream could use the memory again.
"""
from __future__ import annotations

import gzip

from . import _file
from .report_recording import Recording


def write(recording: Recording, path: str) -> None:
    """Raises OSError, and ReportError for what a trace cannot have. A name that ends with .gz gets compressed."""
    data = b"".join(_lines(recording))
    _file.write(path, gzip.compress(data, mtime=0) if path.endswith(".gz") else data)


def has_history(recording: Recording) -> bool:
    """Whether the recording says what the program allocated or freed, and not only what is live."""
    return any(recording.start) or any(recording.life)


def _lines(recording: Recording):
    yield b"# device %d of a memory snapshot\n" % recording.device
    for number, text in zip(recording.stream_numbers(), recording.streams.texts):
        yield f"#@ stream {number} {text}\n".encode()
    for line, _ in recording.lines():
        yield line
