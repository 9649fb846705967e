#!/usr/bin/env python3
"""Writes docs/results/benchmarks.md and its charts from the measurements of tools/measure/bench.sh.

usage: tools/pages/bench_report.py FOLDER DOCUMENT

Every figure comes from FOLDER. The charts' folder has the name of DOCUMENT without its extension.
"""
import os
import sys

from bench_bars import bars
from bench_data import Data, OURS_LOOSE
from bench_svg import BarsPicture, ThreadsPicture
from footprint_svg import pictures_write
from documents import code, document, section, table

PERCENTILES = (("p50_ns", "p50"), ("p99_ns", "p99"), ("p999_ns", "p99.9"), ("max_ns", "max"))


def format_digits(value, scale=1.0):
    """Three significant digits."""
    if value is None:
        return "-"
    value *= scale
    if value >= 100:
        return "%.0f" % value
    return "%.1f" % value if value >= 10 else "%.2f" % value


def ratio(data, row, name, scale, highest):
    """How many times better vmmcache is than the best peer."""
    bench, argument = row
    ours, peer = data.figure(bench, data.ours, argument, name), \
        data.best_peer(bench, argument, name, highest)
    if not ours or not peer or not peer[0]:
        return "-"
    return "%s (%s)" % (format_digits(ours / peer[0] if highest else peer[0] / ours), peer[1])


def comparison(data, head, rows, name="real_time", scale=1.0, highest=False):
    """A table with a column for each allocator that has a figure. rows: (label, bench, argument)."""
    columns = [allocator for allocator in data.allocators
               if any(data.figure(bench, allocator, argument, name) is not None
                      for _, bench, argument in rows)]
    if not columns:
        return ["Not measured here."]
    lines = [[label] + [format_digits(data.figure(bench, allocator, argument, name), scale)
                        for allocator in columns] +
             [ratio(data, (bench, argument), name, scale, highest)]
             for label, bench, argument in rows]
    return table([head, *columns, "vmmcache, times better than the best peer"], lines)


def rows_of(data, bench):
    return [(argument.replace("/", ", ") or bench, bench, argument)
            for argument in data.arguments(bench)]


def figures_of(data, bench, figures):
    """A table with a row for each allocator and argument, and a column for each figure."""
    lines = []
    for argument in data.arguments(bench):
        for allocator in data.allocators:
            values = [data.figure(bench, allocator, argument, name) for name, _ in figures]
            if any(value is not None for value in values):
                lines.append([argument, allocator, *map(format_digits, values)])
    return table(["", "allocator"] + [label for _, label in figures], lines, texts=2)


def machine_part(data):
    return section(
        "# Benches",
        "Written by `tools/pages/bench_report.py` from one run of `tools/measure/bench.sh`:",
        code(": ".join(line) for line in [*data.machine, *data.versions.items()]),
        "Figures are medians of repetitions of at least 50 ms. Every bench checks its blocks: no two overlap, all "
        "are aligned and keep their contents (checked by kernels on a GPU), and no live block is left. "
        "`vmmcache-sim` is vmmcache on a simulated driver whose calls only keep books: the cost of the library "
        "itself. `glibc` is malloc and free of host memory, as a reference.")


def bars_part(data):
    return section(
        "## Bars", table(["figure", "bar", "measured", "met"], bars(data), texts=4),
        *(() if data.has_gpu else ("The other bars need a GPU, and this machine has none.",)))


def picture(name, title):
    return "![%s](benchmarks/%s.svg)" % (title, name)


def pairs_part(data):
    rows = rows_of(data, "pair") + [("2000 live, 512 B to 8 MiB", "mixed", "")]
    return section("## A pair: an allocation and its free, in ns", picture("pair", "ns a pair, by size"),
                   comparison(data, "size", rows))


def threads_part(data):
    parts = ["## Threads, in million pairs a second"]
    for bench, title in (("threads", "Each thread with a stream of its own"),
                         ("shared", "All threads with one stream"),
                         ("handoff", "Half of the threads allocate and hand the blocks to the others, which free them"),
                         ("handoff_shared", "The same, all with one stream")):
        parts += ["### " + title] + ([] if bench.startswith("handoff") else [picture(bench, title)])
        parts.append(comparison(data, "size, threads", rows_of(data, bench), "items_per_second", 1e-6, highest=True))
    return section(*parts)


def trace_part(data):
    parts = ["## Traces, in ns an operation"]
    if OURS_LOOSE in data.allocators:
        parts.append("*%s* may reserve 5 %% more than is active (`footprint_permille = 50`); the default is 1 %%."
                     % OURS_LOOSE)
    for name, title in (("first_ns", "First pass, including driver calls"),
                        ("later_ns", "A later pass, after five warm-up passes")):
        parts += ["### " + title, comparison(data, "trace", rows_of(data, "trace"), name)]
    return section(
        *parts, "### Driver calls, and the footprint: peak reserved over peak live memory",
        figures_of(data, "trace", (
            ("first_calls", "calls, first pass"), ("first_driver_ms", "driver ms"),
            ("later_calls", "calls, later pass"), ("later_driver_ms", "driver ms"), ("footprint", "footprint"))))


def growth_part(data):
    parts = ["## Growing by 32 GiB, and releasing it"]
    for bench, name, title, highest in (
            ("growth", "growth_gib_s", "Growth, in GiB/s", True),
            ("growth", "trim_gib_s", "Trim, in GiB/s", True),
            ("trim_busy", "trim_ms", "Trim while a kernel of 200 ms runs on another stream, in ms", False)):
        parts += ["### " + title, comparison(data, "blocks of", rows_of(data, bench), name, highest=highest)]
    return section(
        *parts, "### Driver calls, own time, and memory left by a trim",
        figures_of(data, "growth", (
            ("driver_calls", "driver calls of the growth"), ("driver_ms", "driver ms"),
            ("own_percent", "own time, % of that"), ("trim_ms", "trim ms"), ("kept_gib", "GiB kept"))))


def latency_part(data):
    parts = ["## Latency of an allocation while another thread grows and trims, in ns",
             picture("latency", "microseconds of an allocation, by percentile"),
             "The other thread repeats: allocate 1 GiB in pieces of 64 MiB on its own stream, free it and trim."]
    for argument in data.arguments("latency"):
        rows = [[name] + [format_digits(data.figure("latency", name, argument, figure)) for figure, _ in PERCENTILES]
                for name in data.allocators if data.figure("latency", name, argument) is not None]
        parts += ["### " + argument, table(["", *(label for _, label in PERCENTILES)], rows)]
    return section(*parts)


def heap_part(data):
    return section("## Cost by heap size: 2-MiB blocks, replaced one by one, in ns",
                   "### Oldest first", comparison(data, "live", rows_of(data, "heap"), "pair_ns"),
                   "### At random", comparison(data, "live", rows_of(data, "heap_random"), "pair_ns"))


def errors_part(data):
    return section("## Errors", ["* " + error for error in data.errors]) if data.errors else ()


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


def bars_picture(data, title, rows, upright, scale=1):
    """rows: (label, bench, argument, figure)"""
    return BarsPicture.drawn(title, data.allocators, [
        (label, {name: (data.figure(bench, name, argument, figure) or 0) * scale for name in data.allocators})
        for label, bench, argument, figure in rows], upright)


def pictures(data):
    """(name, SVG)"""
    for bench, title in (("threads", "own streams"), ("shared", "one shared stream")):
        lines = threads_lines(data, bench, "512B")
        if lines:
            yield bench, ThreadsPicture("pairs of 512 B over threads, " + title, lines).draw()
    rows = [(argument, "pair", argument, "real_time") for argument in data.arguments("pair")]
    rows.append(("mixed", "mixed", "", "real_time"))
    yield "pair", bars_picture(data, "a pair, by size", rows, "ns")
    rows = [("%s %s" % (argument, label), "latency", argument, figure)
            for argument in data.arguments("latency") for figure, label in PERCENTILES]
    yield "latency", bars_picture(data, "latency of an allocation", rows, "microseconds", 1e-3)


def main(folder, path):
    data = Data(folder)
    pictures_write(os.path.splitext(path)[0],
                   [(name, svg) for name, svg in pictures(data) if svg is not None])
    parts = (machine_part, bars_part, pairs_part, threads_part, trace_part, growth_part, latency_part, heap_part,
             errors_part)
    with open(path, "w", encoding="utf-8") as file:
        file.write(document(part(data) for part in parts))


if len(sys.argv) != 3:
    sys.exit("usage: tools/pages/bench_report.py FOLDER DOCUMENT")
main(*sys.argv[1:])
