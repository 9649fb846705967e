#!/usr/bin/env python3
"""Writes a document about measurements of tools/measure/torchbench.sh, and its charts into a folder of the same name.

usage: tools/torchbench/report.py FOLDER... [--also FOLDER] DOCUMENT

Every figure comes from the folders. Several folders may hold parts of one measurement; the folder behind --also holds
another measurement; the document shows only its first table.
"""
import os
import sys

import results
from allocators import EXPANDABLE, NATIVE, OURS, WAITING
from footprint_svg import pictures_write
from documents import code, document, section, table
from pictures import pictures
from results import shown
from workloads import PLACES

MOST_FOOTPRINT = 1.02  # peak reserved over what is needed
MOST_INSIDE = 0.05, 0.01  # time inside the allocator above native's, of a step: in the first ones, later
LAST_LINES = 6         # of a traceback


def texts(folders, name):
    """The lines of this file in all folders that have it."""
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                yield from file.read().rstrip("\n").splitlines()


def machine_part(folders):
    lines = list(dict.fromkeys(texts(folders, "log.txt")))
    return section(
        "# PyTorch on libvmmcache, measured",
        "Written by `tools/torchbench/report.py` from measurements of `tools/measure/torchbench.sh`. *native* is "
        "PyTorch's default allocator, *expandable* the same with `expandable_segments:True`, *vmmcache* is "
        "`vmmcache.install(native=True)`, *vmmcache-wait* the same with `reuse='stream_wait'`.",
        code(line for line in lines if not line.startswith(("run: ", "note: "))),
        "Commands, with their exit status:",
        code(line[len("run: "):] for line in lines if line.startswith("run: ")))


def bar_row(data, workload):
    """The figures of a workload, and whether it meets the bars."""
    if not data.runs(workload, OURS):
        return [workload, "failed" if data.failed(workload, OURS) else "-"] + ["-"] * 6
    above = data.inside_above(workload, OURS)
    needed, waiting = (data.median(workload, name, results.footprint_needed) for name in (OURS, WAITING))
    verdict = data.verdict(workload, OURS)
    is_met = (waiting or needed) <= MOST_FOOTPRINT and not verdict.startswith("DIFFERS") and all(
        share is None or share <= most for share, most in zip(above, MOST_INSIDE))
    return [workload, verdict, *(shown(share, "%+.2f %%", 100) for share in above),
            shown(data.median(workload, OURS, results.footprint), "%.3f"), shown(needed, "%.3f"),
            shown(waiting, "%.3f"), "yes" if is_met else "**no**"]


def bars_table(data):
    return table(["workload", "results", "inside the allocator, first ten steps", "later", "reserved / live",
                  "reserved / needed", "streams wait: reserved / needed", "met"],
                 [bar_row(data, workload) for workload in data.workloads("steps")], texts=2)


def also_part(folder):
    """The table of another run. Machines are shared, and differ by more than the allocators do."""
    return section("## The same in another run", code(texts([folder], "log.txt")), bars_table(results.Data([folder])))


def bars_part(data):
    return section(
        "## Bars and measurements",
        "Bars: results bit-equal to native's, or no further from it than runs with one allocator are apart; time "
        "inside the allocator at most %d %% of native's step above native's in the first ten steps, and at most "
        "%d %% later; peak reserved memory at most %.2f of what is needed: memory that is live, or freed and "
        "still used by another stream, what captured graphs keep, and what unfinished work of other streams uses."
        " The last one is the difference to *vmmcache-wait*, where streams wait for each other; where that was "
        "measured, its figure counts. Whole steps have no bar, because the machine is shared."
        % (*(100 * share for share in MOST_INSIDE), MOST_FOOTPRINT),
        bars_table(data))


def cap_row(data, workload):
    found = {name: data.largest(workload, name) for name in data.capped()}
    runs = [run for name in data.capped() for run in data.runs(workload, name, "cap") if "cap" in run]
    ours, theirs = found.get(OURS), found.get(EXPANDABLE)
    more = None if not ours or not theirs else 100.0 * (ours - theirs) / theirs
    return [workload, runs[0]["unit"] if runs else "-",
            shown(runs[0]["cap"] if runs else None, "%.0f GiB", 1 / results.GIB),
            *(shown(found.get(name), "%d") for name in data.capped()), shown(more, "%+.1f %%")]


def cap_part(data):
    if not data.capped():
        return ()
    return section(
        "## The largest size that trains under a limit",
        "Each allocator has the same limit in bytes. A size counts if six steps of sizes up to it finish, starting "
        "with an empty cache. The search uses coarse increments, then fine ones.",
        table(["workload", "unit", "limit", *data.capped(), "vmmcache against expandable"],
              [cap_row(data, workload) for workload in data.workloads("cap")], texts=2))


def workload_part(data, workload):
    return section("### %s: %s" % (workload, PLACES[workload].title),
                   table(results.STEP_HEAD, results.step_rows(data, workload), texts=1))


def steps_part(data):
    return section(
        "## Workloads",
        "The measurement waits for each step. Figures are medians over processes: of the median and 95th percentile "
        "of a process's steps, and of peaks. *sum* is the time of all steps after the first few. *live* is the peak "
        "of allocated blocks, *reserved* that of the allocator's memory, *driver* the growth of the GPU memory in "
        "use during the workload, read after each step. *graphs* is what captured graphs keep at the end beside "
        "live blocks. *needed* is the peak of memory that is live, or freed and still used by another stream "
        "(`record_stream`), after the first few steps together with *graphs*. *first steps* is the time of the "
        "first ten (or fewer) steps together, in which the allocator adapts to a program. *quiet* is the median of "
        "steps, each as in the fastest repetition, over native's.",
        "![median time of a step](%s/steps.svg)" % data.name,
        "![reserved above live memory](%s/footprint.svg)" % data.name)


def failure_part(record, count):
    error = record["error"]
    return section(
        "* %s, %s, %s, in %s: %s: %s" % (
            record["kind"], record["workload"], record["allocator"],
            "one process" if count == 1 else "%d processes" % count, error["type"],
            " ".join(error["message"].split())[:400]),
        ["  " + line for line in code(error["traceback"][-LAST_LINES:])])


def errors_part(data):
    return section("## Failures", *(() if data.errors else ("Nothing failed.",)))


def inside_row(data, workload, name):
    steps = data.inside(workload, name)
    first, later = steps[:results.FIRST], steps[results.FIRST:]
    above = data.inside_above(workload, name) if name != NATIVE else (None, None)
    spread = data.spread(workload, name)
    return [workload, name, shown(data.median(workload, name, results.requests), "%.0f"),
            shown(data.ticks(workload, name), "%.2f") if name in (OURS, WAITING) else "-",
            shown(sum(first) / len(first), "%.3f", 1e3), shown(sum(later) / len(later), "%.3f", 1e3),
            *(shown(share, "%+.2f %%", 100) for share in above), "%.2f to %.2f" % spread if spread else "-"]


def inside_part(data):
    found = [inside_row(data, workload, name) for workload in data.workloads("steps") for name in data.allocators
             if len(data.inside(workload, name)) > results.FIRST and any(data.inside(workload, name))]
    if not found:
        return ()
    return section(
        "## Time inside the allocator",
        "Taken in place while the workload runs (`inside.cpp`): allocations and frees of all threads, with their "
        "driver calls. Each step counts as in the repetition in which it spends the least there; *above* is the "
        "difference to native, over native's whole steps. The last column shows whole steps, as a range: the "
        "median step of each repetition over the median of native's repetitions.",
        table(["workload", "allocator", "requests a step", "ticks a step", "ms a step, first ten",
               "ms a step, later", "above native's, first ten", "above native's, later", "whole step, x native"],
              found, texts=2))


def said_part(folders, name, title):
    lines = list(texts(folders, name))
    return section("## " + title, code(lines)) if lines else ()


def main(*arguments):
    folders, path = list(arguments[:-1]), arguments[-1]
    also = folders.pop(folders.index("--also") + 1) if "--also" in folders else None
    folders = [folder for folder in folders if folder != "--also"]
    data = results.Data(folders)
    folder = os.path.splitext(path)[0]
    data.name = os.path.basename(folder)
    pictures_write(folder, pictures(data))
    text = document([
        machine_part(folders), bars_part(data), cap_part(data), steps_part(data),
        *(workload_part(data, workload) for workload in data.workloads("steps")),
        errors_part(data), *(failure_part(*each) for each in data.failures()), also_part(also) if also else (),
        inside_part(data), said_part(folders, "equality.txt", "The same training, compared"),
        said_part(folders, "checks.txt", "The allocator class, checked")])
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


if len(sys.argv) < 3:
    sys.exit("usage: tools/torchbench/report.py FOLDER... DOCUMENT")
main(*sys.argv[1:])
