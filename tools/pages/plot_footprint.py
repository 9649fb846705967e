#!/usr/bin/env python3
"""Builds fragtest, replays the bundled traces on the sim driver, writes the tables of docs/results/footprint.md and
draws its charts. Needs no GPU and takes about a minute.

usage: tools/pages/plot_footprint.py

Each table replaces the lines between its two marks. Exits with 1 if the baselines depend on the lag, or if a run
failed.
"""
import csv
import itertools
import os
import subprocess
import sys

from footprint_svg import KnobPicture, TimePicture, pictures_write
from documents import measured, replace_region, table
from replays import output, replay

HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DOCUMENT = os.path.join(HOME, "docs", "results", "footprint.md")
FRAGTEST = os.path.join(HOME, "build", "tools", "bin", "fragtest")
TRACES = ("detection", "encoder_streams", "gnn", "llm_generate", "llm_train_varlen")
BASELINES = ("block-splitting", "expandable")
LAGS = ("0", "100", "1000", "10000")
KNOBS = ("1", "2", "5", "10", "20", "50", "100", "250", "any")
DEFAULT_KNOB = "10"
STREAMS = "encoder_streams"
WAITS = STREAMS + ", waiting"
ALL = [word for trace in TRACES for word in ("--trace", trace)]  # traces
WAITING = ("--trace", STREAMS, "--policy", "vmmcache", "--reuse", "stream_wait")


class Run:
    """The samples of a trace under a policy, in order."""

    def __init__(self):
        self.ops, self.live, self.reserved = [], [], []

    def add(self, row):
        self.ops.append(int(row["operation"]))
        self.live.append(int(row["live_bytes"]))
        self.reserved.append(int(row["reserved_bytes"]))


def timelines(*options):
    """{trace: {policy: Run}}, in the order of the runs."""
    traces = {}
    text = output(FRAGTEST, "--driver", "sim", "--memory", "none", "--quiet", *options, "--timeline", "-")
    for row in csv.DictReader(text.splitlines()):
        runs = traces.setdefault(row["trace"], {})
        runs.setdefault(row["policy"], Run()).add(row)
    return traces


def replayed(*options):
    """{(trace, policy): run}, of runs that all went well."""
    runs = replay(FRAGTEST, "--memory", "none", *options)
    for (trace, policy), run in runs.items():
        if not run["ok"]:
            raise SystemExit("%s: %s failed with %s: %s" % (trace, policy, " ".join(options), run["reason"]))
    return runs


def vmmcache(*options):
    """{trace: run}, with the trace of several streams twice."""
    runs = {}
    for (trace, _), run in replayed(*ALL, "--policy", "vmmcache", *options).items():
        runs[trace] = run
        if trace == STREAMS:
            runs[WAITS] = replayed(*WAITING, *options)[STREAMS, "vmmcache"]
    return runs


def ratio(value):
    return "%.3f" % value


def footprints():
    baselines, lagged = (replayed(*ALL, "--policy", ",".join(BASELINES), "--lag", lag) for lag in ("0", "10000"))
    if any(run["peak_reserved_mib"] != baselines[key]["peak_reserved_mib"] for key, run in lagged.items()):
        raise SystemExit("the baselines depend on the lag, so one column is not enough for them")
    lags = [vmmcache("--lag", lag) for lag in LAGS]
    head = ["trace", "peak live", *BASELINES] + ["vmmcache, lag " + lag for lag in LAGS]
    rows = []
    for trace in lags[0]:
        source = STREAMS if trace == WAITS else trace
        cells = [ratio(baselines[source, policy]["footprint"]) for policy in BASELINES]
        cells += [ratio(runs[trace]["footprint"]) for runs in lags]
        live = baselines[source, BASELINES[0]]["peak_live_mib"] / 1024
        rows.append([trace, "%.2f GiB" % live] + cells)
    return table(head, rows)


def streams():
    head = ["lag", "peak live", "lower bound", "finished: reserved", "/ lower bound", "/ live", "driver ms",
            "wait: reserved", "/ live", "driver ms"]
    rows = []
    for lag in LAGS:
        runs = vmmcache("--lag", lag)
        finished, waits = runs[STREAMS], runs[WAITS]
        rows.append([lag, "%.0f MiB" % finished["peak_live_mib"],
                     "%.0f MiB" % finished["lower_bound_mib"],
                     "%.0f MiB" % finished["peak_reserved_mib"],
                     ratio(finished["over_lower_bound"]), ratio(finished["footprint"]),
                     "%.0f" % finished["driver_ms"],
                     "%.0f MiB" % waits["peak_reserved_mib"], ratio(waits["footprint"]),
                     "%.0f" % waits["driver_ms"]])
    return table(head, rows)


def pass_cells(run):
    first, second = run["driver_ms_per_pass"]
    return ["%.0f" % first, "%.0f" % second, "%.0f %%" % (100 * second / first)]


def times():
    head = ["trace"]
    for lag in ("0", "1000"):
        head += ["lag %s: first pass" % lag, "second", "of the first"]
    both = [vmmcache("--lag", lag, "--passes", "2") for lag in ("0", "1000")]
    rows = [[trace, *pass_cells(both[0][trace]), *pass_cells(both[1][trace]),
             "%d" % sum(runs[trace]["stalls"] for runs in both)] for trace in both[0]]
    return table(head + ["waits of the host"], rows)


def comparison(cell, *options):
    """A row for each trace: the baselines, and vmmcache without and with compaction."""
    every = replayed(*ALL, "--lag", "1000", *options, "--compaction", "on")
    off = replayed(*ALL, "--policy", "vmmcache", "--lag", "1000", *options, "--compaction", "off")
    head = ["trace", *BASELINES, "vmmcache, compaction off", "on"]
    return table(head, [[trace, *[cell(every[trace, policy]) for policy in BASELINES],
                         cell(off[trace, "vmmcache"]), cell(every[trace, "vmmcache"])]
                        for trace in TRACES])


def least_cell(run):
    if run["least_mib"] is None:
        return "none found"
    return "%.2f GiB, %.3f" % (run["least_mib"] / 1024, run["least_mib"] / run["peak_live_mib"])


def trims_cell(run):
    text = "%.1f MiB at %.2f GiB" % (run["trim_worst_excess_mib"], run["trim_worst_live_mib"] / 1024)
    return text + "; %d; %.0f ms, %d waits" % (run["trims_over_bar"], run["driver_ms"], run["stalls"])


def knob_footprint(trace, run):
    """Streams that do not wait for each other are measured against their lower bound."""
    return run["over_lower_bound" if trace == STREAMS else "footprint"]


def knob_cell(trace, run):
    first, second = run["driver_ms_per_pass"]
    return "%.3f; %.0f, %.0f" % (knob_footprint(trace, run), first, second)


def knob_runs():
    """(value, {trace: run})"""
    return [(value, vmmcache("--lag", "1000", "--passes", "2", "--footprint", value)) for value in KNOBS]


def knob():
    found = knob_runs()
    rows = [[value + " (default)" if value == DEFAULT_KNOB else value, *itertools.starmap(knob_cell, runs.items())]
            for value, runs in found]
    return table(["`footprint_permille`", *found[0][1]], rows)


def knob_lines():
    lines = {}
    for value, runs in knob_runs():
        for trace, run in runs.items():
            lines.setdefault(trace, []).append((value, run["driver_ms_per_pass"][0], knob_footprint(trace, run)))
    return lines


def pictures():
    """(name, SVG)"""
    lagged = vmmcache("--lag", "1000")
    traces = timelines(*ALL, "--lag", "1000")
    waits = timelines(*WAITING, "--lag", "1000")[STREAMS]["vmmcache"]
    for trace, runs in traces.items():
        if trace == STREAMS:
            runs["vmmcache, waiting"] = waits
        bound_bytes = lagged[trace]["lower_bound_mib"] * 2 ** 20
        yield trace, TimePicture(trace, runs, bound_bytes).draw()
    yield "knob", KnobPicture(knob_lines(), DEFAULT_KNOB).draw()


def main():
    subprocess.run([os.path.join(HOME, "tools", "run-fragtest.sh"), "--help"], stdout=subprocess.DEVNULL, check=True)
    pictures_write(os.path.splitext(DOCUMENT)[0], pictures())
    with open(DOCUMENT, encoding="utf-8") as file:
        text = file.read()
    regions = {"commit": ["Measured: %s." % measured()], "footprints": footprints(), "streams": streams(),
               "times": times(), "knob": knob(), "least": comparison(least_cell, "--least"),
               "trims": comparison(trims_cell, "--trims", "100")}
    for name, lines in regions.items():
        text = replace_region(text, name, "tools/pages/plot_footprint.py", lines)
    with open(DOCUMENT, "w", encoding="utf-8") as file:
        file.write(text)


if len(sys.argv) != 1:
    sys.exit("usage: tools/pages/plot_footprint.py")
main()
