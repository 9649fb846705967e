#!/usr/bin/env python3
"""Draws live and reserved memory over time, and writes the table that goes with it.

usage: tools/plot_footprint.py CSV DOCUMENT

CSV is what fragtest --timeline writes. For each trace one SVG goes into the folder that is named as
DOCUMENT is, without its ending; the table replaces what lies between DOCUMENT's two marks.
tools/plot_footprint.sh does all of it.
"""
import csv
import math
import os
import sys

GIB = 2.0 ** 30
MARKS = "<!-- table by tools/plot_footprint.py -->", "<!-- end of table -->"

# Readable on white and on black: the background is transparent.
TEXT = "#6e7781"
LIVE = "#8b949e"
COLOURS = {"block-splitting": "#e16f24", "expandable": "#388bfd", "vmmcache": "#2da44e"}

WIDTH, HEIGHT = 860, 340
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 40, 44
TOLERANCE = 0.35  # pixels that a simplified line may be off


class Run:
    """A trace through a policy: its samples, in order."""

    def __init__(self):
        self.ops, self.live, self.reserved = [], [], []

    def add(self, row):
        self.ops.append(int(row["operation"]))
        self.live.append(int(row["live_bytes"]))
        self.reserved.append(int(row["reserved_bytes"]))

    def footprint(self):
        return max(self.reserved) / max(self.live)


def read(path):
    """{trace: {policy: Run}}, in the order of the file."""
    traces = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            runs = traces.setdefault(row["trace"], {})
            runs.setdefault(row["policy"], Run()).add(row)
    return traces


def simplified(points):
    """The fewest of the points that leave the line where it is, to TOLERANCE (Douglas, Peucker)."""
    keep = {0, len(points) - 1}
    spans = [(0, len(points) - 1)]
    while spans:
        first, last = spans.pop()
        (x0, y0), (x1, y1) = points[first], points[last]
        length = math.hypot(x1 - x0, y1 - y0) or 1.0
        far, at = 0.0, None
        for number in range(first + 1, last):
            x, y = points[number]
            off = abs((x1 - x0) * (y - y0) - (y1 - y0) * (x - x0)) / length
            if off > far:
                far, at = off, number
        if far > TOLERANCE:
            keep.add(at)
            spans += [(first, at), (at, last)]
    return [points[number] for number in sorted(keep)]


def path_of(points):
    return "M" + "L".join("%g %.1f" % point for point in points)


def round_step(top, most):
    """A step of 1, 2 or 5 times a power of ten that divides 0..top into at most `most` parts."""
    power = 10.0 ** math.floor(math.log10(top / most))
    return next(power * factor for factor in (1, 2, 5, 10) if top / (power * factor) <= most)


def ticks(top, most):
    step = round_step(top, most)
    return [number * step for number in range(int(top / step + 1e-9) + 1)]


class Plot:
    """One trace's picture."""

    def __init__(self, trace, runs):
        self.trace, self.runs = trace, runs
        self.ops = max(run.ops[-1] for run in runs.values())
        self.top = max(max(run.reserved) for run in runs.values()) / GIB * 1.04
        self.svg = []

    def x(self, op):
        return LEFT + (WIDTH - LEFT - RIGHT) * op / self.ops

    def y(self, gib):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * gib / self.top

    def text(self, x, y, text, anchor="middle", more=""):
        self.svg.append('<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>' %
                        (x, y, anchor, more, text))

    def line(self, points, style):
        self.svg.append('<path d="%s" %s/>' % (path_of(points), style))

    def axes(self):
        for gib in ticks(self.top, 6):
            self.line([(LEFT, self.y(gib)), (WIDTH - RIGHT, self.y(gib))],
                      'stroke="%s" stroke-opacity="%s"' % (TEXT, "0.9" if gib == 0 else "0.25"))
            self.text(LEFT - 6, self.y(gib) + 4, "%g" % round(gib, 6), "end")
        scale, unit = (1000, "thousand operations") if self.ops > 2000 else (1, "operations")
        for count in ticks(self.ops / scale, 8):
            self.text(self.x(count * scale), HEIGHT - BOTTOM + 17, "%g" % round(count, 6))
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, unit)
        middle = (TOP + HEIGHT - BOTTOM) / 2
        self.text(14, middle, "GiB", more=' transform="rotate(-90 14 %.1f)"' % middle)

    def points(self, ops, values):
        """The highest value of each pixel, so that a short peak stays as wide as can be seen."""
        highest = {}
        for op, value in zip(ops, values):
            pixel = int(self.x(op))
            highest[pixel] = max(value, highest.get(pixel, 0))
        return simplified([(pixel, self.y(value / GIB)) for pixel, value in highest.items()])

    def curves(self):
        run = next(iter(self.runs.values()))
        points = self.points(run.ops, run.live)
        floor = self.y(0)
        area = [(points[0][0], floor)] + points + [(points[-1][0], floor)]
        self.line(area, 'fill="%s" fill-opacity="0.45"' % LIVE)
        for policy, run in self.runs.items():
            self.line(self.points(run.ops, run.reserved), 'stroke="%s" stroke-width="%s"' %
                      (COLOURS[policy], "2" if policy == "vmmcache" else "1.5"))

    def legend(self):
        live = max(next(iter(self.runs.values())).live) / GIB
        entries = [("live: peak %.2f" % live, LIVE, 10)]
        entries += [("%s: %.2f (&#215; %.3f)" % (policy, max(run.reserved) / GIB, run.footprint()),
                     COLOURS[policy], 3) for policy, run in self.runs.items()]
        x = float(LEFT)
        for text, colour, height in entries:
            self.svg.append('<rect x="%.1f" y="%.1f" width="16" height="%d" fill="%s"/>' %
                            (x, 21 - height / 2, height, colour))
            self.text(x + 21, 25, text, "start")
            x += 21 + 6.6 * len(text.replace("&#215;", "x")) + 16

    def draw(self):
        self.axes()
        self.curves()
        self.legend()
        return "\n".join([
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" fill="none" '
            'stroke-linejoin="round" font-family="sans-serif" font-size="12">' % (WIDTH, HEIGHT),
            "<title>%s: live and reserved memory over time</title>" % self.trace,
            '<g fill="%s">' % TEXT, *[part for part in self.svg if part.startswith("<text")],
            "</g>", *[part for part in self.svg if not part.startswith("<text")], "</svg>", ""])


def table(traces):
    policies = list(next(iter(traces.values())))
    yield "| trace | peak live | %s |" % " | ".join(policies)
    yield "|---|--:|" + "--:|" * len(policies)
    for trace, runs in traces.items():
        first = next(iter(runs.values()))
        cells = ["%.2f GiB, %.3f" % (max(runs[policy].reserved) / GIB, runs[policy].footprint())
                 for policy in policies]
        yield "| %s | %.2f GiB | %s |" % (trace, max(first.live) / GIB, " | ".join(cells))


def document_update(path, lines):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    before, rest = text.split(MARKS[0] + "\n")
    _, after = rest.split(MARKS[1])
    with open(path, "w", encoding="utf-8") as file:
        file.write("%s%s\n%s\n%s%s" % (before, MARKS[0], "\n".join(lines), MARKS[1], after))


def main(data, document):
    traces = read(data)
    folder = os.path.splitext(document)[0]
    os.makedirs(folder, exist_ok=True)
    for trace, runs in traces.items():
        with open(os.path.join(folder, trace + ".svg"), "w", encoding="utf-8") as file:
            file.write(Plot(trace, runs).draw())
    document_update(document, table(traces))


if len(sys.argv) != 3:
    sys.exit("usage: tools/plot_footprint.py CSV DOCUMENT")
main(*sys.argv[1:])
