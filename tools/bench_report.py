#!/usr/bin/env python3
"""Writes docs/benchmarks.md and its pictures from what tools/bench.sh measured.

usage: tools/bench_report.py FOLDER DOCUMENT

Every figure comes from FOLDER. Pictures go into the folder that is named as DOCUMENT is, without its
ending.
"""
import os
import sys

from bench_bars import bars
from bench_data import Data, OURS_LOOSE
from bench_svg import BarsPicture, ThreadsPicture
from footprint_svg import pictures_write
from markdown import table

PERCENTILES = (("p50_ns", "p50"), ("p99_ns", "p99"), ("p999_ns", "p99.9"), ("max_ns", "max"))


def shown(value, scale=1.0):
    """Three digits that count."""
    if value is None:
        return "-"
    value *= scale
    if value >= 100:
        return "%.0f" % value
    return "%.1f" % value if value >= 10 else "%.2f" % value


def ratio(data, row, name, scale, highest):
    """How many times better ours is than the best peer."""
    bench, argument = row
    ours, peer = data.figure(bench, data.ours, argument, name), \
        data.best_peer(bench, argument, name, highest)
    if not ours or not peer or not peer[0]:
        return "-"
    return "%s (%s)" % (shown(ours / peer[0] if highest else peer[0] / ours), peer[1])


def compared(data, head, rows, name="real_time", scale=1.0, highest=False):
    """A table with a column for each allocator that has a figure in it. rows: (label, bench, argument)."""
    columns = [allocator for allocator in data.allocators
               if any(data.figure(bench, allocator, argument, name) is not None
                      for _, bench, argument in rows)]
    if not columns:
        return ["Not measured here."]
    lines = [[label] + [shown(data.figure(bench, allocator, argument, name), scale)
                        for allocator in columns] +
             [ratio(data, (bench, argument), name, scale, highest)]
             for label, bench, argument in rows]
    return table([head, *columns, "ours, times better than the best peer"], lines)


def rows_of(data, bench):
    return [(argument.replace("/", ", ") or bench, bench, argument)
            for argument in data.arguments(bench)]


def figures_of(data, bench, figures):
    """A table with a row for each allocator and argument, and a column for each figure."""
    lines = []
    for argument in data.arguments(bench):
        for allocator in data.allocators:
            values = [data.figure(bench, allocator, argument, name) for name, _, _ in figures]
            if any(value is not None for value in values):
                lines.append([argument, allocator] +
                             [shown(value, scale) for value, (_, _, scale) in zip(values, figures)])
    return table(["", "allocator"] + [label for _, label, _ in figures], lines, texts=2)


def machine_part(data):
    yield "# Benches"
    yield ""
    yield "Written by `tools/bench_report.py` from what `tools/bench.sh` measured, in one go:"
    yield ""
    yield "```"
    for line in data.machine:
        yield ": ".join(line)
    for name, text in data.versions.items():
        yield "%s: %s" % (name, text)
    yield "```"
    yield ""
    yield ("Figures are medians of repetitions of at least 50 ms. Every bench verifies its blocks: none "
           "overlap, all are aligned and keep their bytes (on a GPU by kernels), and none is left. "
           "`vmmcache-sim` is ours on a driver that has rules only: what the library costs by itself. "
           "`glibc` is malloc and free of host memory, a floor.")


def bars_part(data):
    yield "## Bars"
    yield ""
    yield from table(["figure", "bar", "measured", "met"], [bar.cells() for bar in bars(data)], texts=4)
    if not data.has_gpu:
        yield ""
        yield "There was no GPU here, which the other bars need."


def picture(name, title):
    return "![%s](benchmarks/%s.svg)" % (title, name)


def pairs_part(data):
    yield "## A pair: an allocation and its free, in ns"
    yield ""
    yield picture("pair", "ns a pair, by size")
    yield ""
    yield from compared(data, "size", rows_of(data, "pair") +
                        [("2000 live, 512 B to 8 MiB", "mixed", "")])


def threads_part(data):
    yield "## Threads, in million pairs a second"
    for bench, title in (("threads", "Each thread with a stream of its own"),
                         ("shared", "All threads with one stream"),
                         ("handoff", "Half of the threads allocate, the others free what they pass on")):
        yield ""
        yield "### " + title
        yield ""
        if bench != "handoff":
            yield picture(bench, title)
            yield ""
        yield from compared(data, "size, threads", rows_of(data, bench), "items_per_second", 1e-6,
                            highest=True)


def trace_part(data):
    yield "## Traces, in ns an operation"
    if OURS_LOOSE in data.allocators:
        yield ""
        yield ("*%s* may reserve 5 %% more than what is active (`footprint_permille = 50`); by default it is "
               "1 %%." % OURS_LOOSE)
    for name, title in (("first_ns", "First pass, the driver's calls included"),
                        ("later_ns", "A later pass, after five that warm up")):
        yield ""
        yield "### " + title
        yield ""
        yield from compared(data, "trace", rows_of(data, "trace"), name)
    yield ""
    yield "### What the driver did, and the footprint: peak reserved over peak live memory"
    yield ""
    yield from figures_of(data, "trace", (
        ("first_calls", "calls, first pass", 1), ("first_driver_ms", "driver ms", 1),
        ("later_calls", "calls, later pass", 1), ("later_driver_ms", "driver ms", 1),
        ("footprint", "footprint", 1)))


def growth_part(data):
    yield "## 32 GiB taken and given back"
    for bench, name, title, highest in (
            ("growth", "growth_gib_s", "Growth, in GiB/s", True),
            ("growth", "trim_gib_s", "Trim, in GiB/s", True),
            ("trim_busy", "trim_ms", "Trim while a kernel of 200 ms runs on another stream, in ms", False)):
        yield ""
        yield "### " + title
        yield ""
        yield from compared(data, "blocks of", rows_of(data, bench), name, highest=highest)
    yield ""
    yield "### Driver calls, own time, and what a trim left"
    yield ""
    yield from figures_of(data, "growth", (
        ("driver_calls", "driver calls of the growth", 1), ("driver_ms", "driver ms", 1),
        ("own_percent", "own time, % of that", 1), ("trim_ms", "trim ms", 1),
        ("kept_gib", "GiB kept", 1)))


def latency_part(data):
    yield "## Latency of an allocation while another thread grows and trims, in ns"
    yield ""
    yield picture("latency", "microseconds of an allocation, by percentile")
    yield ""
    yield "The other thread takes 1 GiB in pieces of 64 MiB on its own stream, frees it and trims, over and over."
    for argument in data.arguments("latency"):
        yield ""
        yield "### " + argument
        yield ""
        yield from table(["", *(label for _, label in PERCENTILES)],
                         [[name] + [shown(data.figure("latency", name, argument, figure))
                                    for figure, _ in PERCENTILES]
                          for name in data.allocators
                          if data.figure("latency", name, argument) is not None])


def heap_part(data):
    yield "## Whether cost grows with the heap: 2-MiB blocks, replaced one by one, in ns"
    yield ""
    for order, bench in (("From the oldest to the youngest", "heap"), ("At random", "heap_random")):
        yield "### " + order
        yield ""
        yield from compared(data, "live", rows_of(data, bench), "pair_ns")


def threads_lines(data, bench, size):
    lines = {}
    for allocator in data.allocators:
        points = [(int(argument.split("/")[1]),
                   data.figure(bench, allocator, argument, "items_per_second"))
                  for argument in data.arguments(bench) if argument.startswith(size + "/")]
        points = [(count, rate / 1e6) for count, rate in points if rate]
        if points:
            lines[allocator] = points
    return lines


def bars_picture(data, title, rows, upright, scale):
    """rows: (label, bench, argument, figure); None where nobody has a figure."""
    groups = []
    for label, bench, argument, figure in rows:
        found = {name: data.figure(bench, name, argument, figure) for name in data.allocators}
        groups.append((label, {name: value * scale for name, value in found.items() if value}))
    allocators = [name for name in data.allocators if any(name in values for _, values in groups)]
    return BarsPicture(title, allocators, groups, upright).draw() if allocators else None


def pictures(data):
    """(name, SVG)"""
    for bench, title in (("threads", "own streams"), ("shared", "one shared stream")):
        lines = threads_lines(data, bench, "512B")
        if lines:
            yield bench, ThreadsPicture("pairs of 512 B over threads, " + title, lines).draw()
    rows = [(argument, "pair", argument, "real_time") for argument in data.arguments("pair")]
    rows.append(("mixed", "mixed", "", "real_time"))
    yield "pair", bars_picture(data, "a pair, by size", rows, "ns", 1)
    rows = [("%s %s" % (argument, label), "latency", argument, figure)
            for argument in data.arguments("latency") for figure, label in PERCENTILES]
    yield "latency", bars_picture(data, "latency of an allocation", rows, "microseconds", 1e-3)


def main(folder, document):
    data = Data(folder)
    pictures_write(os.path.splitext(document)[0],
                   [(name, svg) for name, svg in pictures(data) if svg is not None])
    lines = list(machine_part(data))
    for part in (bars_part, pairs_part, threads_part, trace_part, growth_part, latency_part, heap_part):
        lines += ["", *part(data)]
    if data.errors:
        lines += ["", "## Errors", "", *("* " + error for error in data.errors)]
    with open(document, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


if len(sys.argv) != 3:
    sys.exit("usage: tools/bench_report.py FOLDER DOCUMENT")
main(*sys.argv[1:])
