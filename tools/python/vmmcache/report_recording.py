"""What the report shows: blocks and reserved memory over the operations of one recording, in columns.

State 0 is before the first operation, state n after the n-th. A block is live in the states from its `start` on,
for as many as its `life` says; 0: to the end. A reader makes the columns grow, then report_pack writes them.

Called by: the readers (report_trace, report_snapshot) fill it; report_pack and report_what_if read it.
"""
from __future__ import annotations

import itertools
import re
from array import array
from bisect import bisect_left, insort

MOST_STREAM = 1023  # of a trace
TICK_US = 10000  # the longest tick of the clock that recordings use, CLOCK_MONOTONIC_COARSE
_FAILURE = re.compile(r"^alloc: |^out of memory: |^the recording ends here: |: VMM_ERR_\w+$|"
                      r"^vmm_\w+: .*(is not|no memory)")


def is_failure(note: str) -> bool:
    """Whether a note says that something failed."""
    return bool(_FAILURE.search(note))


class ReportError(Exception):
    """Input that cannot be shown: one line that says what is wrong and where."""


class Columns:
    """Arrays of equal length, one for each of TYPES: the type of its items by its name."""

    TYPES: dict = {}

    def __init__(self):
        for name, code in self.TYPES.items():
            setattr(self, name, array(code))

    def add(self, *row: int) -> None:
        for name, value in zip(self.TYPES, row):
            getattr(self, name).append(value)

    def choose(self, rows: list) -> None:
        """Keeps these rows, in this order."""
        for name, code in self.TYPES.items():
            setattr(self, name, array(code, map(getattr(self, name).__getitem__, rows)))


class Recording(Columns):
    """Each row is a block; `spans` has reserved memory. held: life until its free is requested."""

    TYPES = {"start": "I", "life": "I", "bytes": "Q", "stream": "I",
             "held": "I", "address": "Q", "pool": "I", "frame": "I", "label": "I"}
    RARE = ("held", "address", "pool", "frame", "label")

    def __init__(self, name: str, kind: str):
        super().__init__()
        self.name, self.kind = name, kind
        self.device, self.devices = 0, 1
        self.operations = 0
        self.is_cut = False  # the end of its file is missing
        self.times = array("Q")  # microseconds, one for each state; empty: unknown
        self.spans, self.mappings = Spans(), Mappings()
        self.frames = Frames()
        self.streams, self.pools = Names(), Names()
        self.labels = Names([""])
        self.notes = []  # (state, text)
        self._is_sorted = True  # blocks by their start
        self.chunk_bytes = 0  # memory is returned in chunks of so many bytes; 0: in whole ranges
        self._changed = 0, 0  # state and time of the last change of reserved memory

    def is_same_change(self, time: int) -> bool:
        """Whether a change of reserved memory belongs to the operation of the one before. A view takes memory from many
        ranges and puts it into another one: several changes at once, and what is reserved stays the same."""
        state, before = self._changed
        return state == self.operations > 0 and time - before <= TICK_US

    def note_change(self, time: int) -> int:
        """Remembers that this state changes reserved memory; returns the state."""
        self._changed = self.operations, time
        return self.operations

    def alloc(self, size: int, stream: int, address: int = 0, pool: int = 0, frame: int = 0,
              before: bool = False) -> int:
        """Adds a block at this state, or one that was live before the first; returns its number."""
        self._is_sorted = self._is_sorted and (not before or self.operations == 0)
        self.start.append(0 if before else self.operations)
        self.life.append(0)
        self.bytes.append(size)
        self.stream.append(stream)
        if address or pool or frame:
            self._pad(len(self.start) - 1)
            self.held.append(0)
            self.address.append(address)
            self.pool.append(pool)
            self.frame.append(frame)
            self.label.append(0)
        return len(self.start) - 1

    def set_label(self, block: int, text: str) -> None:
        self._pad(len(self.start))
        self.label[block] = self.labels.number(text)

    def _pad(self, count: int) -> None:
        """Makes the columns that are 0 for most blocks so long."""
        missing = count - len(self.label)
        for name in self.RARE if missing > 0 else ():
            column = getattr(self, name)
            column.frombytes(bytes(missing * column.itemsize))

    def wait(self, block: int) -> None:
        """The program freed the block; its work is under way."""
        self._pad(len(self.start))
        self.held[block] = self.operations - self.start[block]

    def free(self, block: int) -> None:
        self.life[block] = self.operations - self.start[block]

    def finish(self) -> None:
        """Ends mappings and spans, sorts blocks by their start, and makes times of all states increase."""
        self.mappings.finish()
        self.spans.finish()
        self._pad(len(self.start))
        if not self._is_sorted:
            self.choose(sorted(range(len(self.start)), key=self.start.__getitem__))
        if self.times:
            self.times = array("Q", itertools.accumulate(self.times, max))

    def stream_numbers(self) -> list:
        """The number of each stream in a trace: 0 for the default stream, the others count. Raises ReportError."""
        default, count = self.streams.known(0), itertools.count(1)
        numbers = [0 if code == default else next(count) for code in range(len(self.streams.texts))]
        if max(numbers, default=0) > MOST_STREAM:
            raise ReportError(f"{self.name}: {max(numbers)} streams besides the default one; "
                              f"a trace can have {MOST_STREAM}")
        return numbers

    def lines(self):
        """Allocations and frees in order, as lines of a trace; and the state after each. Raises ReportError."""
        streams = self.stream_numbers()
        freed = array("I", bytes(4 * (self.operations + 1)))  # by state: number of the block + 1
        for block, (start, life) in enumerate(zip(self.start, self.life), 1):
            if life:
                freed[start + life] = block
        block, count = 0, len(self.start)
        for state in range(self.operations + 1):
            if freed[state]:
                yield b"- %d\n" % (freed[state] - 1), state
            while block < count and self.start[block] == state:
                # a snapshot may have blocks without bytes, a trace has none
                yield b"+ %d %d %d\n" % (block, self.bytes[block] or 1, streams[self.stream[block]]), state
                block += 1


class Names:
    """Names known by small numbers."""

    def __init__(self, texts=()):
        self.texts = list(texts)
        self._numbers = {text: number for number, text in enumerate(self.texts)}

    def known(self, key):
        """Its number; None: it has none."""
        return self._numbers.get(key)

    def number(self, key, text=None) -> int:
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self.texts)
            self.texts.append(str(key) if text is None else text)
        return known

    def rename(self, key, text: str) -> None:
        self.texts[self.number(key)] = text


class Frames:
    """A tree of stack frames: a stack is the number of its innermost frame; 0 is no stack."""

    def __init__(self):
        self.parents, self.texts = array("I", [0]), [""]
        self._known = {}

    def child(self, parent: int, text: str) -> int:
        key = (parent, text)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = len(self.texts)
            self.parents.append(parent)
            self.texts.append(text)
        return known


class Spans(Columns):
    """Reserved memory: each span is a range of addresses from the state that mapped it to the one that unmapped it."""

    TYPES = {"start": "I", "life": "I", "address": "Q", "bytes": "Q", "stream": "I", "pool": "I"}

    def __init__(self):
        super().__init__()
        self._mapped = []  # (address, number) of the spans that are mapped now, sorted
        self._unseen = set()  # numbers of the spans that one operation began and ended

    def finish(self) -> None:
        """Drops the spans that are in no state."""
        if self._unseen:
            self.choose([number for number in range(len(self.start)) if number not in self._unseen])
        self._unseen.clear()

    def is_mapped(self, address: int, size: int) -> bool:
        """Whether a part of a range is mapped now."""
        return bool(self._overlapping(address, address + size))

    def map(self, state: int, address: int, size: int, stream: int, pool: int) -> None:
        insort(self._mapped, (address, len(self.start)))
        self.add(state, 0, address, size, stream, pool)

    def unmap(self, state: int, address: int, size: int, stream: int, pool: int) -> None:
        """Ends what is mapped of the range. What is not known of it was mapped before the first state."""
        at = address
        for low, high, number in self._overlapping(address, address + size):
            if at < low:
                self._before(state, at, low, stream, pool)
            self._cut(state, number, low, high)
            at = high
        if at < address + size:
            self._before(state, at, address + size, stream, pool)

    def known_before(self, address: int, size: int, stream: int, pool: int) -> None:
        """Adds what is not known of a range that is mapped at the end: it was mapped before the first state."""
        at = address
        for low, high, _ in self._overlapping(address, address + size):
            if at < low:
                self.map(0, at, low - at, stream, pool)
            at = high
        if at < address + size:
            self.map(0, at, address + size - at, stream, pool)

    def _overlapping(self, low: int, high: int) -> list:
        """(first address, end, number) of the parts of a range that are mapped."""
        first = bisect_left(self._mapped, (low, 0))
        if first and self._end(self._mapped[first - 1][1]) > low:
            first -= 1
        found = []
        for address, number in itertools.islice(self._mapped, first, None):
            if address >= high:
                break
            found.append((max(address, low), min(self._end(number), high), number))
        return found

    def _end(self, number: int) -> int:
        return self.address[number] + self.bytes[number]

    def _before(self, state: int, low: int, high: int, stream: int, pool: int) -> None:
        self.map(0, low, high - low, stream, pool)
        self._end_span(state, len(self.start) - 1)

    def _end_span(self, state: int, number: int) -> None:
        self.life[number] = max(state - self.start[number], 1)
        if state == self.start[number]:
            self._unseen.add(number)
        del self._mapped[bisect_left(self._mapped, (self.address[number], number))]

    def _cut(self, state: int, number: int, low: int, high: int) -> None:
        """Ends one part of a span; the parts around it go on as spans of the same start."""
        address, end, start = self.address[number], self._end(number), self.start[number]
        stream, pool = self.stream[number], self.pool[number]
        del self._mapped[bisect_left(self._mapped, (address, number))]
        self.address[number], self.bytes[number] = low, high - low
        insort(self._mapped, (low, number))
        self._end_span(state, number)
        if address < low:
            self.map(start, address, low - address, stream, pool)
        if high < end:
            self.map(start, high, end - high, stream, pool)


class Mappings(Columns):
    """Where chunks are mapped: at their home, and at further places in views, which have 0 bytes here."""

    TYPES = {"start": "I", "life": "I", "chunk": "Q", "address": "Q", "bytes": "Q"}

    def __init__(self):
        super().__init__()
        self._now = {}  # address: (start, chunk, bytes) of what is mapped
        self._addresses = []  # of what is mapped, sorted
        self._chunks = {}  # of what is mapped: [bytes, number of its mappings]

    def fault(self, chunk: int, address: int, size: int) -> str:
        """Why begin() cannot be; empty: it can. No two mappings meet, and all of a chunk have the size of its home."""
        known, count = self._chunks.get(chunk, (size, 0))
        count -= self._now.get(address, (0, None))[1] == chunk  # begin() ends it
        if not known:
            return f"chunk {chunk} has no home"
        if size and size != known and count:
            return f"chunk {chunk} is mapped with {known} bytes, not {size}"
        at = bisect_left(self._addresses, address)
        for other in self._addresses[max(at - 1, 0):at + 2]:  # a mapping at the address itself ends
            owner = self._now[other][1]
            if other != address and other < address + (size or known) and address < other + self._chunks[owner][0]:
                return f"chunk {chunk} at {address} meets chunk {owner} at {other}"
        return ""

    def begin(self, state: int, chunk: int, address: int, size: int) -> None:
        self.end(state, address)
        self._now[address] = state, chunk, size
        insort(self._addresses, address)
        known = self._chunks.setdefault(chunk, [size, 0])
        known[0], known[1] = size or known[0], known[1] + 1

    def end(self, state: int, address: int) -> None:
        if address not in self._now:
            return
        start, chunk, size = self._now.pop(address)
        if start < state:
            self.add(start, state - start, chunk, address, size)
        del self._addresses[bisect_left(self._addresses, address)]
        self._chunks[chunk][1] -= 1
        if not self._chunks[chunk][1]:
            del self._chunks[chunk]

    def finish(self) -> None:
        for address, (start, chunk, size) in self._now.items():
            self.add(start, 0, chunk, address, size)
        self._now.clear()
