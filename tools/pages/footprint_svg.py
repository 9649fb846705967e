"""Charts of footprint as SVG: memory over time, and the cost of the footprint knob.

Imported by: plot_footprint.py, bench_svg.py, bench_report.py. Needs only the standard library.
"""
import math
import os

GIB = 2.0 ** 30

# Readable on white and on black, because the background is transparent.
TEXT = "#6e7781"
LIVE = "#8b949e"
COLOURS = {"block-splitting": "#e16f24", "expandable": "#388bfd", "vmmcache": "#2da44e",
           "vmmcache, waiting": "#bf3989"}
LINE_COLOURS = ("#2da44e", "#388bfd", "#e16f24", "#bf3989", "#8250df", "#bf8700")

WIDTH, HEIGHT = 860, 340
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 40, 44
LEGEND_STEP = 18
LETTER = 6.6      # average width of a letter, in pixels
TOLERANCE = 0.35  # error of a simplified line, in pixels


def simplify(points):
    """The fewest of the points that keep the line within TOLERANCE (Douglas, Peucker)."""
    keep = {0, len(points) - 1}
    segments = [(0, len(points) - 1)]
    while segments:
        first, last = segments.pop()
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
            segments += [(first, at), (at, last)]
    return [points[number] for number in sorted(keep)]


def width_of(name):
    """Of the line of a policy or an allocator."""
    return "2" if name.startswith("vmmcache") else "1.5"


def path_of(points):
    return "M" + "L".join("%g %.1f" % point for point in points)


def round_step(top, most):
    """A step of 1, 2 or 5 times a power of ten that divides 0..top into at most `most` parts."""
    power = 10.0 ** math.floor(math.log10(top / most))
    return next(power * factor for factor in (1, 2, 5, 10) if top / (power * factor) <= most)


def ticks(top, most):
    step = round_step(top, most)
    return [number * step for number in range(int(top / step + 1e-9) + 1)]


def log_ticks(low, high):
    """1, 2 and 5 times the powers of ten from low to high."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [factor * 10.0 ** power for power in powers for factor in (1, 2, 5)]
    return [value for value in values if low <= value <= high]


def log_range(values):
    """The bounds of a logarithmic axis that shows the values."""
    return min(values) / 1.35, max(values) * 1.35


def log_share(value, bounds):
    """Where a value lies between the bounds, from 0 to 1."""
    return math.log(value / bounds[0]) / math.log(bounds[1] / bounds[0])


def pictures_write(folder, pictures):
    """pictures: (name, SVG)"""
    os.makedirs(folder, exist_ok=True)
    for name, svg in pictures:
        with open(os.path.join(folder, name + ".svg"), "w", encoding="utf-8") as file:
            file.write(svg)


class Picture:
    """The frame, texts, lines and legend that all charts have."""

    def __init__(self, title, legend):
        """legend: (text, colour, height of its sign); the frame starts below it."""
        self.title = title
        self.svg = []
        self.top_edge = TOP
        self.legend(legend)

    def text(self, x, y, text, anchor="middle", more=""):
        self.svg.append('<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>' %
                        (x, y, anchor, more, text))

    def line(self, points, style):
        self.svg.append('<path d="%s" %s/>' % (path_of(points), style))

    def legend(self, entries):
        x, y = float(LEFT), 21
        for text, colour, height in entries:
            width = 21 + LETTER * len(text.replace("&#215;", "x"))
            if x > LEFT and x + width > WIDTH:
                x, y = float(LEFT), y + LEGEND_STEP
                self.top_edge += LEGEND_STEP
            self.svg.append('<rect x="%.1f" y="%.1f" width="16" height="%d" fill="%s"/>' %
                            (x, y - height / 2, height, colour))
            self.text(x + 21, y + 4, text, "start")
            x += width + 16

    def level(self, y, text, strong=False):
        """A horizontal line, with its value to the left."""
        self.line([(LEFT, y), (WIDTH - RIGHT, y)],
                  'stroke="%s" stroke-opacity="%s"' % (TEXT, "0.9" if strong else "0.25"))
        self.text(LEFT - 6, y + 4, text, "end")

    def names(self, across, upright):
        middle = (self.top_edge + HEIGHT - BOTTOM) / 2
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, across)
        self.text(14, middle, upright, more=' transform="rotate(-90 14 %.1f)"' % middle)

    def to_svg(self):
        texts = [part for part in self.svg if part.startswith("<text")]
        others = [part for part in self.svg if not part.startswith("<text")]
        return "\n".join([
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" fill="none" '
            'stroke-linejoin="round" font-family="sans-serif" font-size="12">' % (WIDTH, HEIGHT),
            "<title>%s</title>" % self.title, '<g fill="%s">' % TEXT, *texts, "</g>", *others,
            "</svg>", ""])


class TimePicture(Picture):
    """One trace: live memory, and the memory that each policy reserved, over its operations."""

    def __init__(self, trace, runs, bound_bytes):
        """runs: {policy: Run}; bound_bytes: the lower bound, drawn if it is above peak live."""
        self.runs = runs
        live = max(next(iter(runs.values())).live)
        self.bound = bound_bytes / GIB if bound_bytes > live else None
        entries = [("live: peak %.2f" % (live / GIB), LIVE, 10)]
        if self.bound:
            entries.append(("lower bound %.2f" % self.bound, LIVE, 1))
        entries += [("%s: %.2f (&#215; %.3f)" % (name, max(run.reserved) / GIB,
                                                 max(run.reserved) / live), COLOURS[name], 3)
                    for name, run in runs.items()]
        super().__init__("%s: live and reserved memory over time" % trace, entries)
        self.ops = max(run.ops[-1] for run in runs.values())
        self.top = max(max(run.reserved) for run in runs.values()) / GIB * 1.04

    def x(self, op):
        return LEFT + (WIDTH - LEFT - RIGHT) * op / self.ops

    def y(self, gib):
        return HEIGHT - BOTTOM - (HEIGHT - self.top_edge - BOTTOM) * gib / self.top

    def axes(self):
        for gib in ticks(self.top, 6):
            self.level(self.y(gib), "%g" % round(gib, 6), strong=gib == 0)
        scale, unit = (1000, "thousand operations") if self.ops > 2000 else (1, "operations")
        for count in ticks(self.ops / scale, 8):
            self.text(self.x(count * scale), HEIGHT - BOTTOM + 17, "%g" % round(count, 6))
        self.names(unit, "GiB")

    def points(self, ops, values):
        """The highest value of each pixel, so that a short peak stays visible."""
        highest = {}
        for op, value in zip(ops, values):
            pixel = int(self.x(op))
            highest[pixel] = max(value, highest.get(pixel, 0))
        return simplify([(pixel, self.y(value / GIB)) for pixel, value in highest.items()])

    def draw(self):
        self.axes()
        run = next(iter(self.runs.values()))
        points = self.points(run.ops, run.live)
        floor = self.y(0)
        area = [(points[0][0], floor)] + points + [(points[-1][0], floor)]
        self.line(area, 'fill="%s" fill-opacity="0.45"' % LIVE)
        if self.bound:
            self.line([(LEFT, self.y(self.bound)), (WIDTH - RIGHT, self.y(self.bound))],
                      'stroke="%s" stroke-dasharray="6 4"' % LIVE)
        for name, run in self.runs.items():
            self.line(self.points(run.ops, run.reserved), 'stroke="%s" stroke-width="%s"' %
                      (COLOURS[name], width_of(name)))
        return self.to_svg()


class LogPicture(Picture):
    """A chart with a logarithmic upright axis, and a colour for each name of its legend."""

    MOST_LEVELS = 9  # with more, only powers of ten have one

    def __init__(self, title, colours, values):
        """colours: {name: colour}; values: all that it shows."""
        super().__init__(title, [(name, colour, 3) for name, colour in colours.items()])
        self.colours, self.upright = colours, log_range(values)

    def y(self, value):
        return HEIGHT - BOTTOM - (HEIGHT - self.top_edge - BOTTOM) * log_share(value, self.upright)

    def levels(self):
        values = log_ticks(*self.upright)
        if len(values) > self.MOST_LEVELS:
            values = [value for value in values if "%e" % value == "%e" % 10 ** round(math.log10(value))]
        for value in values:
            self.level(self.y(value), "%g" % value)
        self.level(HEIGHT - BOTTOM, "", strong=True)

    def curve(self, name, places, width="1.5", radius=lambda number: "2.2"):
        """A line with a dot at each place."""
        self.line(places, 'stroke="%s" stroke-width="%s"' % (self.colours[name], width))
        for number, (x, y) in enumerate(places):
            self.svg.append('<circle cx="%.1f" cy="%.1f" r="%s" fill="%s"/>' %
                            (x, y, radius(number), self.colours[name]))


class KnobPicture(LogPicture):
    """The effect of each value of the knob: excess memory over driver time, both logarithmic, with a line for each
    trace and a dot for each value."""

    LEAST = 0.1  # %, the smallest excess that a chart shows
    MOST_LEVELS = 20

    def __init__(self, lines, default):
        """lines: {trace: [(knob, driver ms, footprint)]}; default: the knob with a larger dot."""
        self.lines = {trace: [(knob, ms, max(100 * (footprint - 1), self.LEAST))
                              for knob, ms, footprint in points]
                      for trace, points in lines.items()}
        every = [point for points in self.lines.values() for point in points]
        super().__init__("footprint and driver time by knob", dict(zip(lines, LINE_COLOURS)),
                         [excess for _, _, excess in every])
        self.default, self.across = default, log_range([ms for _, ms, _ in every])

    def x(self, ms):
        return LEFT + (WIDTH - LEFT - RIGHT) * log_share(ms, self.across)

    def draw(self):
        self.levels()
        for ms in log_ticks(*self.across):
            self.text(self.x(ms), HEIGHT - BOTTOM + 17, "%g" % ms)
        self.names("driver ms of the first pass", "% above the least possible")
        for trace, points in self.lines.items():
            places = [(self.x(ms), self.y(excess)) for _, ms, excess in points]
            self.curve(trace, places, radius=lambda number: "4.5" if points[number][0] == self.default else "2.2")
            for at in (0, -1):
                self.text(places[at][0], places[at][1] - 7, points[at][0])
        return self.to_svg()
