"""Reads a trace (docs/trace-format.md) with its notes, into a Recording. Refuses what fragtest refuses."""
from __future__ import annotations

import gzip
import re

from .report_recording import MOST_STREAM, Recording, ReportError

GZIP = b"\x1f\x8b"
HEAD = b"# recorded by libvmmcache"
PIECE_BYTES = 1 << 20
MOST_LINE_BYTES = 255
MOST_BYTES, MOST_LIVE_BYTES = 1 << 46, 1 << 60
MOST_ID = (1 << 64) - 1
MOST_NUMBER = 1 << 63  # of a note
# Frames of the hooks between a program and the library, which are the innermost ones of each of its stacks.
HOOKS = re.compile(r"(.* \()?(libvmmcache_(torch|preload)\.so[.\d]*|shim-[-\w.]+\.so)\+0x[0-9a-f]+\)?$")


def unpacked(file):
    """The text of a binary file that is open, also if it is gzip."""
    start = file.read(len(GZIP))
    file.seek(0)
    return gzip.open(file) if start == GZIP else file


def read(file, path: str, name: str) -> Recording:
    """The trace in a binary file that is open; path is for messages. A packed recording that ends too early, as that of
    a program that was killed, is read up to its last whole line."""
    reader = _Reader(path, Recording(name, "trace"))
    rest, is_recorded = b"", None
    try:
        while piece := file.read1(PIECE_BYTES):  # read() loses what comes before a cut
            if is_recorded is None:
                is_recorded = piece.startswith(HEAD)
            lines = (rest + piece).split(b"\n")
            rest = lines.pop()
            reader.take(lines)
            reader.demand_length(rest)  # now: the file may have no end of a line at all
    except EOFError:
        if not is_recorded:
            raise
        rest, reader.recording.is_cut = b"", True
    reader.take([rest] if rest else [])
    return reader.finish()


class _Reader:
    def __init__(self, path: str, recording: Recording):
        self.path, self.recording = path, recording
        self.line = 0
        self.live = {}  # id: block
        self.live_bytes = 0
        self.streams = {}  # number in the trace: number in the recording
        self.frames = {0: 0}
        self.next = {}  # what `#@ next` says of the next operation
        self.time = 0
        recording.pools.number(0, "default pool")

    def take(self, lines: list) -> None:
        if max(map(len, lines), default=0) <= MOST_LINE_BYTES:
            self._take_whole(lines)
            return
        for line in lines:
            self.demand_length(line)
            self._take_whole([line])

    def demand_length(self, line: bytes) -> None:
        """Refuses the next line if it is too long."""
        if len(line) > MOST_LINE_BYTES:
            self.line += 1
            self._fail(f"a line of more than {MOST_LINE_BYTES} bytes")

    def _take_whole(self, lines: list) -> None:
        try:
            self._take(lines)
        except ValueError:  # Python refuses thousands of digits
            self._fail("a number is too large")

    def _take(self, lines: list) -> None:
        """The quick way handles the operations of a plain trace; every other line goes to _other()."""
        recording, live, streams = self.recording, self.live, self.streams
        start, life, size_of = recording.start, recording.life, recording.bytes
        for line in lines:
            self.line += 1
            fields = line.split(b" ")
            count = len(fields)
            if count == 2 and fields[0] == b"-" and fields[1].isdigit():
                block = live.pop(int(fields[1]), None)
                if block is not None:
                    self._operation()
                    life[block] = recording.operations - start[block]
                    self.live_bytes -= size_of[block]
                    continue
            elif count == 4 and fields[0] == b"+" and fields[3] in streams and fields[2].isdigit():
                name = int(fields[1]) if fields[1].isdigit() else None
                if name is not None and name not in live:
                    self._alloc(name, int(fields[2]), streams[fields[3]])
                    continue
            elif count > 2 and fields[1] == b"next" and fields[0] == b"#@" and b"\0" not in line:
                self._next(line.split()[2:])
                continue
            self._other(line, line[:2])

    def finish(self) -> Recording:
        if not self.recording.start:
            raise ReportError(f"{self.path}:{self.line + 1}: no operations")
        self.recording.finish()
        return self.recording

    def _fail(self, what: str):
        raise ReportError(f"{self.path}:{self.line}: {what}")

    def _operation(self) -> None:
        """Counts an operation; its time is that of the last `next` with one."""
        recording = self.recording
        recording.operations += 1
        if self.next:
            self.time = self.next.get("time", self.time)
            if not recording.times and "time" in self.next:
                recording.times.extend([self.time] * recording.operations)
            self.next = {}
        if recording.times:
            recording.times.append(self.time)

    def _alloc(self, name: int, size: int, stream: int) -> None:
        if name > MOST_ID or not 0 < size <= MOST_BYTES:
            self._fail(f"id {name}; 0 to 2^64 - 1 can be" if name > MOST_ID
                       else f"a block of {size} bytes; 1 to 2^46 can be")
        self.live_bytes += size
        if self.live_bytes > MOST_LIVE_BYTES:
            self._fail("more than 2^60 bytes live at once")
        about = self.next
        self._operation()
        if not about:
            self.live[name] = self.recording.alloc(size, stream)
            return
        frame = self.frames.get(about.get("frame", 0))
        if frame is None:
            self._fail(f"frame {about['frame']} is not known")
        pool = self._pool(about.get("pool", 0))
        self.live[name] = self.recording.alloc(size, stream, about.get("address", 0), pool, frame)

    def _other(self, line: bytes, kind: bytes) -> None:
        line = line.rstrip(b"\r\t ")
        if b"\0" in line:
            self._fail("a zero byte")
        if not line or (line.startswith(b"#") and not line.startswith(b"#@")):
            return
        if kind == b"+ ":
            self._alloc_line(line)
        elif kind == b"- ":
            self._free_line(line)
        elif kind == b"#@":
            self._note(line[2:].decode(errors="replace").split())
        else:
            self._fail('a line starts with "+ ", "- " or "#"')

    def _next(self, fields: list) -> None:
        """The note that a trace may have before each operation."""
        try:
            for field in fields:
                key, value = field.split(b"=")
                self.next[key.decode()] = _number(value)
        except ValueError:
            self._fail("wrong fields in the note 'next'")

    def _alloc_line(self, line: bytes) -> None:
        fields = line[2:].split(b" ")
        if len(fields) != 3 or not all(map(bytes.isdigit, fields)):
            self._fail('not of the form "+ ID BYTES STREAM"')
        name, size, stream = fields
        name = int(name)
        if name in self.live:
            self._fail(f"id {name} is allocated while it is live")
        if int(stream) > MOST_STREAM:
            self._fail(f"stream {int(stream)}; 0 to {MOST_STREAM} can be")
        self._alloc(name, int(size), self._stream(int(stream)))

    def _free_line(self, line: bytes) -> None:
        name = line[2:]
        if not name.isdigit():
            self._fail('not of the form "- ID"')
        block = self.live.pop(int(name), None)
        if block is None:
            self._fail(f"id {int(name)} is freed but not live: unknown or freed before")
        self._operation()
        self.recording.free(block)
        self.live_bytes -= self.recording.bytes[block]

    def _stream(self, number: int) -> int:
        code = self.recording.streams.number(number, f"stream {number}" if number else "default stream")
        self.streams[b"%d" % number] = code
        return code

    def _pool(self, number: int) -> int:
        return self.recording.pools.number(number, f"pool {number}")

    # Notes: lines that begin with "#@". fragtest skips them, as comments.

    def _note(self, words: list) -> None:
        take = getattr(self, "_note_" + words[0], None) if words else None
        if take is None:
            return
        try:
            take(*words[1:])
        except (TypeError, ValueError, KeyError, OverflowError):
            self._fail(f"wrong fields in the note '{words[0]}'")

    def _note_frame(self, number, parent, *text):
        if not _number(number):
            raise ValueError
        known, text = self.frames[_number(parent)], " ".join(text)
        self.frames[_number(number)] = known if HOOKS.match(text) else self.recording.frames.child(known, text)

    def _note_stream(self, number, *text):
        self.recording.streams.rename(_number(number), " ".join(text))
        self._stream(_number(number))

    def _note_pool(self, number, *text):
        self.recording.pools.rename(_number(number), " ".join(text))

    def _note_chunk(self, size):
        self.recording.chunk_bytes = _size(size)

    def _note_map(self, address, size, stream, pool=None):
        span = _number(address), _size(size), self._stream(_number(stream)), self._pool(_number(pool or "0"))
        if self.recording.spans.is_mapped(*span[:2]):
            self._fail(f"{size} bytes at {address} meet memory that is reserved already")
        self.recording.spans.map(self._change(), *span)

    def _note_unmap(self, address, size):
        span = _number(address), _size(size)
        self.recording.spans.unmap(self._change(), *span, 0, 0)

    def _change(self) -> int:
        """The state of a change of reserved memory."""
        time = self.next.get("time", self.time)
        if not self.recording.is_same_change(time):
            self._operation()
        self.next = {}
        return self.recording.note_change(time)

    def _note_home(self, chunk, address, size):
        self._mapping(_number(chunk), _number(address), _size(size))

    def _note_place(self, chunk, address):
        self._mapping(_number(chunk), _number(address), 0)

    def _mapping(self, chunk, address, size):
        fault = self.recording.mappings.fault(chunk, address, size)
        if fault:
            self._fail(fault)
        self.recording.mappings.begin(self.recording.operations, chunk, address, size)

    def _note_gone(self, address):
        self.recording.mappings.end(self.recording.operations, _number(address))

    def _note_wait(self, name):
        block = self.live[_id(name)]
        self._operation()
        self.recording.wait(block)

    def _note_name(self, name, *text):
        self.recording.set_label(self.live[_id(name)], " ".join(text))

    def _note_note(self, *text):
        self.recording.notes.append((self.recording.operations, " ".join(text)))


def _number(text) -> int:
    """Of a note; raises ValueError for one that the page cannot hold."""
    number = int(text) if text.isdigit() else MOST_NUMBER
    if number >= MOST_NUMBER:
        raise ValueError
    return number


def _id(text: str) -> int:
    """Of a block."""
    if not text.isdigit():
        raise ValueError
    return int(text)


def _size(text: str) -> int:
    if not 0 < _number(text) <= MOST_BYTES:
        raise ValueError
    return int(text)
