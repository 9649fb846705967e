"""Charts of the benches' measurements, as SVG: lines over threads, and bars side by side.

Imported by: bench_report.py. Uses the frame of footprint_svg.py, so that all charts look alike.
"""
import math

from bench_data import ALLOCATORS, OURS_LOOSE
from footprint_svg import BOTTOM, HEIGHT, LEFT, LINE_COLOURS, RIGHT, WIDTH, LogPicture, width_of

# Allocators that are in no chart need no colour.
COLOURS = dict(zip((name for name in ALLOCATORS if name != OURS_LOOSE),
                   LINE_COLOURS[:1] + LINE_COLOURS[5:] + LINE_COLOURS[1:5] +
                   ("#1b7c83", "#a475f9", "#8b949e")))


def colours_of(allocators):
    return {name: COLOURS[name] for name in allocators}


class ThreadsPicture(LogPicture):
    """Pairs per second over threads, one line for each allocator."""

    def __init__(self, title, lines):
        """lines: {allocator: [(threads, millions of pairs a second)]}"""
        super().__init__(title, colours_of(lines), [rate for points in lines.values() for _, rate in points])
        self.lines = lines
        self.counts = sorted({count for points in lines.values() for count, _ in points})

    def x(self, count):
        inner = WIDTH - LEFT - RIGHT - 40
        return LEFT + 20 + inner * math.log(count) / math.log(max(self.counts[-1], 2))

    def draw(self):
        self.levels()
        for count in self.counts:
            self.text(self.x(count), HEIGHT - BOTTOM + 17, "%d" % count)
        self.names("threads", "million pairs a second")
        for name, points in self.lines.items():
            self.curve(name, [(self.x(count), self.y(rate)) for count, rate in points], width_of(name))
        return self.to_svg()


class BarsPicture(LogPicture):
    """Groups of bars, one bar for each allocator."""

    def __init__(self, title, allocators, groups, unit):
        super().__init__(title, colours_of(allocators), [value for _, bars in groups for value in bars.values()])
        self.allocators, self.groups, self.unit = allocators, groups, unit

    @classmethod
    def drawn(cls, title, allocators, groups, unit):
        """groups: [(name, {allocator: value})], where a value may be missing. None: all are."""
        groups = [(name, {allocator: value for allocator, value in bars.items() if value}) for name, bars in groups]
        allocators = [name for name in allocators if any(name in bars for _, bars in groups)]
        return cls(title, allocators, groups, unit).draw() if allocators else None

    def bars_draw(self, left, width, bars):
        step = width / len(self.allocators)
        for number, name in enumerate(self.allocators):
            if name not in bars:
                continue
            top = self.y(bars[name])
            self.svg.append('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>' %
                            (left + number * step, top, step * 0.85, HEIGHT - BOTTOM - top,
                             self.colours[name]))

    def draw(self):
        self.levels()
        room = (WIDTH - LEFT - RIGHT) / len(self.groups)
        for number, (name, bars) in enumerate(self.groups):
            left = LEFT + number * room
            self.bars_draw(left + room * 0.1, room * 0.8, bars)
            self.text(left + room / 2, HEIGHT - BOTTOM + 17, name)
        self.names("", self.unit)
        return self.to_svg()
