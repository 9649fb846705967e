#!/usr/bin/env python3
"""Measures the report's page on a large trace: time to write it, to its first picture, and pictures a second.

usage: measure.py [--operations N] [--notes]

Makes a trace of N operations (default 10 million), the page, and opens it in Chromium without a window. With --notes
the trace says what a recording of the library says: addresses, maps, stacks, times. Fails if the first picture takes
more than 3 s, or if panning misses more than one picture of 60 a second.
"""
import argparse
import gzip
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "tests", "report"), os.path.join(HERE, "..", "python")]
import browser  # noqa: E402

MOST_SECONDS = 3.0
LEAST_PICTURES = 60
PAN_STEPS = 240
SIZES = (512, 2048, 65536, 1 << 20, 3 << 20, 20 << 20)
BASE, CHUNK = 0x7F2000000000, 2 << 20  # addresses; what is mapped at once
TICK_US, TICK_OPERATIONS = 4000, 300  # the clock of recordings
TRUNK, BRANCHES, LEVELS = 8, 3, 5  # stacks: frames that all have, then a tree

# Notes when each picture starts, while the chart is dragged.
WATCH = """
window.pictures = [];
window.watching = true;
(function note(time) { pictures.push(time); if (watching) requestAnimationFrame(note); })(performance.now());
"""


class Notes:
    """The notes of a recording: each frame once, a time at each tick, each chunk that is mapped, and the address and
    the stack of each block. A block lies where one of its size was freed, else beyond all others."""

    def __init__(self):
        self._draw, self._idle, self._blocks = random.Random(2), {}, {}
        self._next = self._mapped = BASE
        self._time = b""  # of a tick that no note has told
        self.frames, self._stacks = self._tree()

    @staticmethod
    def _tree():
        """The lines of all frames, and the numbers of the innermost ones."""
        lines, level, number = [b"#@ chunk %d\n" % CHUNK], [0], 0
        for depth in range(TRUNK + LEVELS):
            callers, level = level, []
            for caller in callers:
                for _ in range(BRANCHES if depth >= TRUNK else 1):
                    number += 1
                    lines.append(b"#@ frame %d %d layer_%d::forward (model.py:%d)\n" % (number, caller, depth, number))
                    level.append(number)
        return lines, level

    def tick(self, operation):
        if operation % TICK_OPERATIONS == 0:
            self._time = b"time=%d " % (operation // TICK_OPERATIONS * TICK_US)

    def alloc(self, lines, number, size, stream):
        idle = self._idle.get(size)
        address = idle.pop() if idle else self._new(lines, size, stream)
        self._blocks[number] = address, size
        frame = self._stacks[self._draw.randrange(len(self._stacks))]
        lines.append(b"#@ next %saddress=%d frame=%d\n" % (self._time, address, frame))
        self._time = b""

    def free(self, number):
        address, size = self._blocks.pop(number)
        self._idle.setdefault(size, []).append(address)

    def _new(self, lines, size, stream):
        address, self._next = self._next, self._next + size
        missing = -(-(self._next - self._mapped) // CHUNK) * CHUNK
        if missing > 0:
            if self._time:
                lines.append(b"#@ next %s\n" % self._time.rstrip())
                self._time = b""
            lines.append(b"#@ map %d %d %d 0\n" % (self._mapped, missing, stream))
            self._mapped += missing
        return address


def write_trace(path, operations, notes=None):
    """Steps of a program: each allocates and frees, and keeps a little."""
    draw, live, number = random.Random(1), [], 0
    with gzip.open(path, "wb", compresslevel=1) as file:
        lines = list(notes.frames) if notes else []
        for operation in range(operations):
            if notes:
                notes.tick(operation)
            if live and (len(live) > 20000 or draw.random() < 0.5):
                chosen = draw.randrange(len(live)) if operation % 7 == 0 else len(live) - 1
                live[chosen], live[-1] = live[-1], live[chosen]
                if notes:
                    notes.free(live[-1])
                lines.append(b"- %d\n" % live.pop())
            else:
                number += 1
                live.append(number)
                size = SIZES[draw.randrange(len(SIZES))] + 512 * draw.randrange(256)
                if notes:
                    notes.alloc(lines, number, size, number & 3)
                lines.append(b"+ %d %d %d\n" % (number, size, number & 3))
            if len(lines) >= 100000:
                file.write(b"".join(lines))
                lines.clear()
        file.write(b"".join(lines))


def write_page(trace, page):
    began = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": os.path.join(HERE, "..", "python")}
    subprocess.run([sys.executable, "-m", "vmmcache.report", trace, "-o", page], check=True, env=environment)
    return time.monotonic() - began


def open_page(page, steps=PAN_STEPS):
    """Seconds to the first picture, and the median and 95th percentile of milliseconds between pictures."""
    with browser.Browser() as chromium:
        chromium.resize(1600, 1000)
        chromium.open(page)
        first = chromium.run("performance.getEntriesByName('first picture')[0].startTime") / 1000
        chromium.click("button[aria-label='Zoom in']")
        left, top, width, height = chromium.box(".plot .u-over")
        y, right = top + height / 2, left + width - 20
        chromium.mouse("mouseMoved", right, y)
        chromium.mouse("mousePressed", right, y, buttons=1)
        chromium.run(WATCH)
        began = time.monotonic()
        for step in range(steps):
            chromium.mouse("mouseMoved", right - (width - 40) * step / steps, y, buttons=1)
            time.sleep(max(began + (step + 1) / LEAST_PICTURES - time.monotonic(), 0))
        starts = chromium.run("watching = false, pictures")
        chromium.mouse("mouseReleased", left + 20, y)
        if chromium.complaints:
            sys.exit("the page complains: " + "; ".join(chromium.complaints))
    gaps = sorted(late - early for early, late in zip(starts[2:], starts[3:]))
    return first, statistics.median(gaps), gaps[len(gaps) * 95 // 100], 1000 * len(gaps) / sum(gaps)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=10_000_000)
    parser.add_argument("--notes", action="store_true", help="addresses, maps, stacks and times in the trace")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vmmcache-report-") as folder:
        trace, page = os.path.join(folder, "large.trace.gz"), os.path.join(folder, "large.html")
        write_trace(trace, options.operations, Notes() if options.notes else None)
        written = write_page(trace, page)
        print(f"{options.operations} operations, trace {os.path.getsize(trace) >> 20} MiB")
        print(f"page: {os.path.getsize(page) >> 20} MiB, written in {written:.1f} s")
        first, median, high, rate = open_page(page)
    print(f"first picture after {first:.2f} s")
    print(f"panning: {rate:.1f} pictures a second, {median:.1f} ms apart (median), {high:.1f} ms (95 %)")
    sys.exit(0 if first <= MOST_SECONDS and round(rate) >= LEAST_PICTURES - 1 else 1)


if __name__ == "__main__":
    main()
