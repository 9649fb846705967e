#!/usr/bin/env python3
"""Writes the tables of docs/results/footprint.md and draws its charts from fragtest's measurements.

usage: tools/pages/plot_footprint.py FOLDER DOCUMENT

tools/measure/plot_footprint.sh fills FOLDER, describes its files, and calls this. The charts' folder has the name of
DOCUMENT without its extension; each table replaces the lines between its two marks in DOCUMENT. Exits with 1 if the
baselines depend on the lag, or if a run failed.
"""
import csv
import json
import os
import sys

from footprint_svg import KnobPicture, TimePicture, pictures_write
from documents import measured, replace_region, table

BASELINES = ("block-splitting", "expandable")
LAGS = ("0", "100", "1000", "10000")
KNOBS = ("1", "2", "5", "10", "20", "50", "100", "250", "any")
DEFAULT_KNOB = "10"
STREAMS = "encoder_streams"
WAITS = STREAMS + ", waiting"


class Run:
    """The samples of a trace under a policy, in order."""

    def __init__(self):
        self.ops, self.live, self.reserved = [], [], []

    def add(self, row):
        self.ops.append(int(row["operation"]))
        self.live.append(int(row["live_bytes"]))
        self.reserved.append(int(row["reserved_bytes"]))


def timelines(path):
    """{trace: {policy: Run}}, in the order of the file."""
    traces = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            runs = traces.setdefault(row["trace"], {})
            runs.setdefault(row["policy"], Run()).add(row)
    return traces


class Data:
    """The measurements of a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.baselines = self.runs("baselines-0")
        self.traces = list(dict.fromkeys(trace for trace, _ in self.baselines))
        if any(run["peak_reserved_mib"] != self.baselines[key]["peak_reserved_mib"]
               for key, run in self.runs("baselines-10000").items()):
            raise SystemExit("the baselines depend on the lag, so one column is not enough for them")

    def path(self, name):
        return os.path.join(self.folder, name)

    def runs(self, name):
        """{(trace, policy): run}"""
        with open(self.path(name + ".json"), encoding="utf-8") as file:
            runs = {(run["trace"], run["policy"]): run for run in json.load(file)["runs"]}
        for (trace, policy), run in runs.items():
            if not run["ok"]:
                raise SystemExit("%s: %s failed in %s: %s" % (name, policy, trace, run["reason"]))
        return runs

    def vmmcache(self, name):
        """{trace: run}, and the run with waiting streams under a separate name."""
        runs = {trace: run for (trace, policy), run in self.runs(name).items()
                if policy == "vmmcache"}
        runs[WAITS] = self.runs(name + "-wait")[STREAMS, "vmmcache"]
        return runs

    def rows(self):
        """The traces, with the trace of several streams twice."""
        at = self.traces.index(STREAMS) + 1
        return self.traces[:at] + [WAITS] + self.traces[at:]


def ratio(value):
    return "%.3f" % value


def footprints(data):
    lags = [data.vmmcache("lag-" + lag) for lag in LAGS]
    head = ["trace", "peak live", *BASELINES] + ["vmmcache, lag " + lag for lag in LAGS]
    rows = []
    for trace in data.rows():
        source = STREAMS if trace == WAITS else trace
        cells = [ratio(data.baselines[source, policy]["footprint"]) for policy in BASELINES]
        cells += [ratio(runs[trace]["footprint"]) for runs in lags]
        live = data.baselines[source, BASELINES[0]]["peak_live_mib"] / 1024
        rows.append([trace, "%.2f GiB" % live] + cells)
    return table(head, rows)


def streams(data):
    head = ["lag", "peak live", "lower bound", "finished: reserved", "/ lower bound", "/ live", "driver ms",
            "wait: reserved", "/ live", "driver ms"]
    rows = []
    for lag in LAGS:
        runs = data.vmmcache("lag-" + lag)
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


def times(data):
    head = ["trace"]
    for lag in ("0", "1000"):
        head += ["lag %s: first pass" % lag, "second", "of the first"]
    both = [data.vmmcache("passes-" + lag) for lag in ("0", "1000")]
    rows = [[trace, *pass_cells(both[0][trace]), *pass_cells(both[1][trace]),
             "%d" % sum(runs[trace]["stalls"] for runs in both)] for trace in data.rows()]
    return table(head + ["waits of the host"], rows)


def comparison(data, name, cell):
    """A row for each trace: the baselines, and vmmcache without and with compaction."""
    every, off = data.runs(name + "-on"), data.runs(name + "-off")
    head = ["trace", *BASELINES, "vmmcache, compaction off", "on"]
    return table(head, [[trace, *[cell(every[trace, policy]) for policy in BASELINES],
                         cell(off[trace, "vmmcache"]), cell(every[trace, "vmmcache"])]
                        for trace in data.traces])


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


def knob(data):
    rows = []
    for value in KNOBS:
        runs = data.vmmcache("knob-" + value)
        name = value + " (default)" if value == DEFAULT_KNOB else value
        rows.append([name] + [knob_cell(trace, runs[trace]) for trace in data.rows()])
    return table(["`footprint_permille`"] + data.rows(), rows)


def knob_lines(data):
    lines = {trace: [] for trace in data.rows()}
    for value in KNOBS:
        for trace, run in data.vmmcache("knob-" + value).items():
            lines[trace].append((value, run["driver_ms_per_pass"][0], knob_footprint(trace, run)))
    return lines


def pictures(data):
    """(name, SVG)"""
    lagged = data.vmmcache("lag-1000")
    traces = timelines(data.path("time.csv"))
    waits = timelines(data.path("time-wait.csv"))[STREAMS]["vmmcache"]
    for trace, runs in traces.items():
        if trace == STREAMS:
            runs["vmmcache, waiting"] = waits
        bound_bytes = lagged[trace]["lower_bound_mib"] * 2 ** 20
        yield trace, TimePicture(trace, runs, bound_bytes).draw()
    yield "knob", KnobPicture(knob_lines(data), DEFAULT_KNOB).draw()


def main(folder, document):
    data = Data(folder)
    pictures_write(os.path.splitext(document)[0], pictures(data))
    with open(document, encoding="utf-8") as file:
        text = file.read()
    regions = {"commit": ["Measured: %s." % measured()], "footprints": footprints(data), "streams": streams(data),
               "times": times(data), "knob": knob(data), "least": comparison(data, "least", least_cell),
               "trims": comparison(data, "trims", trims_cell)}
    for name, lines in regions.items():
        text = replace_region(text, name, "tools/pages/plot_footprint.py", lines)
    with open(document, "w", encoding="utf-8") as file:
        file.write(text)


if len(sys.argv) != 3:
    sys.exit("usage: tools/pages/plot_footprint.py FOLDER DOCUMENT")
main(*sys.argv[1:])
