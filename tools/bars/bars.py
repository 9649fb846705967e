#!/usr/bin/env python3
"""Measures what views must reach on the sim driver and prints a table: figure, trace, bar, measured, met, command.

usage: bars.py BIN [--only NAME]... [--markdown]

BIN is the bin folder of a Release build without checks. --only measures some figures; --help lists the names.
--markdown writes docs/results/bars.md. Times of the host are those of this machine, driver times those of the sim
driver's model of an H200. Exits with 1 if a bar is missed.
"""
import argparse
import json
import os
import sys
import textwrap

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pages"))
from documents import measured, table  # noqa: E402
from replays import output, replay  # noqa: E402

TRACES = ("detection", "encoder_streams", "gnn", "llm_generate", "llm_train_varlen")
STREAMS = "encoder_streams"
MOST_PLACES = 31  # beyond a chunk's home
JITTER_PASSES = 50
MOMENTS = 100
ALTERNATE_BEFORE = {"32MiB": 384 + 192, "2MiB": 6144 + 3072}  # operations before the large requests
WHOLES, WHOLE_MIB, REST_MIB = 11, 512, 64


class Bars:
    """The rows, and how to get the measurements."""

    def __init__(self, options):
        self.bin, self.rows = options.bin, []

    def output(self, program, *arguments):
        return output(os.path.join(self.bin, program), *arguments)

    def runs(self, *arguments):
        """{policy: run}, and the command for people."""
        found = replay(os.path.join(self.bin, "fragtest"), *arguments)
        return {policy: run for (_, policy), run in found.items()}, "fragtest --driver sim " + " ".join(arguments)

    def run(self, source, *arguments):
        kind = "--workload" if ":" in source or source == "steady" else "--trace"
        runs, command = self.runs("--policy", "vmmcache", kind, source, *arguments)
        return runs["vmmcache"], command

    def scene(self, name):
        text = self.output("bars_scenes", name)
        return {key: float(value) for key, value in (line.split() for line in text.splitlines())}, "bars_scenes " + name

    def add(self, figure, trace, bar, measured, is_met, command):
        self.rows.append((figure, trace, bar, measured, "met" if is_met else "NO", command))

    def skip(self, figure, bar, reason):
        self.rows.append((figure, "", bar, reason, "-", ""))


def later_ms(run):
    return run["driver_ms_per_pass"][1:]


def failure(run):
    return "failed: " + run["reason"][:100]


def footprint(bars):
    figure = "footprint, no limit, three passes"
    for trace in TRACES:
        for lag in ("0", "100", "1000", "10000"):
            if trace == STREAMS:  # the bars of several streams are others; here they wait
                arguments = ("--passes", "3", "--lag", lag, "--reuse", "stream_wait")
            else:
                arguments = ("--passes", "3", "--lag", lag)
            run, command = bars.run(trace, *arguments)
            name = trace + (", waiting" if trace == STREAMS else "")
            bars.add(figure + ", lag " + lag, name, "<= 1.02", "%.4f" % run["footprint"],
                     run["ok"] and run["footprint"] <= 1.02, command)


def streams_idle(bars):
    run, command = bars.run(STREAMS, "--passes", "4")
    bars.add("several streams, lag 0: footprint", STREAMS, "<= 1.03", "%.4f" % run["footprint"],
             run["footprint"] <= 1.03, command)
    later = run["driver_ms_per_pass"][2:]
    bars.add("several streams, lag 0: driver ms from the third pass on", STREAMS, "0",
             ", ".join("%.1f" % ms for ms in later), max(later) == 0, command)


def streams_busy(bars):
    for lag, most in (("100", 1.65), ("1000", 2.0), ("10000", 3.6)):
        run, command = bars.run(STREAMS, "--passes", "3", "--lag", lag)
        first = run["driver_ms_per_pass"][0]
        bars.add("several busy streams, lag %s: reserved / live; first pass" % lag, STREAMS,
                 "<= %.2f; <= 110 ms" % most, "%.3f; %.1f ms" % (run["footprint"], first),
                 run["footprint"] <= most and first <= 110, command)


def passes(bars):
    for trace in TRACES:
        run, command = bars.run(trace, "--passes", "6")
        first, second = run["driver_ms_per_pass"][:2]
        ns = min(run["ns_per_op"][2:])
        bars.add("driver time of the first pass", trace, "<= 100 ms", "%.1f ms" % first, first <= 100, command)
        bars.add("driver time of the second pass", trace, "<= 20 ms", "%.1f ms" % second, second <= 20, command)
        bars.add("third to sixth pass, host and driver, the fastest", trace, "<= 100 ns/op", "%.0f ns" % ns, ns <= 100,
                 command)
        bars.add("host stalls without a limit", trace, "0", "%d" % run["stalls"], run["stalls"] == 0, command)


def jitter(bars):
    for trace in TRACES:
        half, _ = bars.run(trace, "--passes", str(JITTER_PASSES // 2), "--jitter", "10")
        run, command = bars.run(trace, "--passes", str(JITTER_PASSES), "--jitter", "10")
        mean = sum(later_ms(run)) / len(later_ms(run))
        most = 20 if trace == STREAMS else 10
        bars.add("sizes within 10 %%, %d passes: driver time, mean" % JITTER_PASSES, trace, "<= %d ms" % most,
                 "%.2f ms (most %.1f), %d evictions" % (mean, max(later_ms(run)), run["evictions"]),
                 run["ok"] and mean <= most, command)
        bars.add("the same: places of a chunk with its home", trace, "<= 32", "%d" % (run["places_max"] + 1),
                 run["places_max"] <= MOST_PLACES, command)
        bars.add("the same: places, views after %d / %d passes" % (JITTER_PASSES, JITTER_PASSES // 2), trace,
                 "<= 1.1 x", "%d / %d, %d / %d" % (run["places"], half["places"], run["views"], half["views"]),
                 run["places"] <= 1.1 * half["places"] and run["views"] <= 1.1 * half["views"], command)


def knob(bars):
    """The closest setting whose first pass is no dearer than that of expandable segments."""
    for trace in TRACES:
        runs, _ = bars.runs("--policy", "expandable", "--trace", trace, "--passes", "3")
        peer = runs["expandable"]["driver_ms_per_pass"][0]
        found = []
        for value in ("10", "12", "15", "18", "20", "25", "30", "40", "50", "100", "any"):
            run, command = bars.run(trace, "--passes", "3", "--footprint", value)
            if run["driver_ms_per_pass"][0] <= peer:
                found.append((run["footprint"], value, run["driver_ms_per_pass"][0], command))
        best = min(found, default=None)
        text = "none" if best is None else "%.4f with %s (%.1f ms)" % best[:3]
        bars.add("a setting as cheap as expandable's first pass (3 of 5)", trace, "<= 1.03 (%.1f ms)" % peer, text,
                 best is not None and best[0] <= 1.03, best[3] if best else "")


def least(bars):
    for trace in TRACES:
        for compaction, figure, most in (("off", "least memory / peak live, nothing moved", 1.008),
                                         ("on", "least memory / peak live, with compaction", 1.005)):
            run, command = bars.run(trace, "--least", "--compaction", compaction)
            value = (run["least_mib"] or 0) / run["peak_live_mib"]
            bars.add(figure, trace, "<= %.3f" % most, "%.4f" % value, 0 < value <= most, command)


def tight(bars):
    for trace in TRACES:
        run, command = bars.run(trace, "--memory", "105%", "--passes", "3")
        if not run["ok"]:
            bars.add("driver time at a limit of 105 %", trace, "<= 300, 100 ms", failure(run), False, command)
            continue
        first, second, third = run["driver_ms_per_pass"]
        most = 200 if trace == STREAMS else 100
        bars.add("driver time at a limit of 105 %: first, second pass", trace, "<= 300, %d ms" % most,
                 "%.0f, %.0f ms (third %.0f); %d stalls" % (first, second, third, run["stalls"]),
                 first <= 300 and second <= most, command)


def trims(bars):
    for trace in TRACES:
        run, command = bars.run(trace, "--trims", str(MOMENTS))
        live, worst, median = (run[key] for key in ("peak_live_mib", "trim_worst_excess_mib", "trim_median_excess_mib"))
        driver = run["trim_worst_driver_ms"]
        most, middle = 0.03 * live + 512, 0.01 * live + 256
        bars.add("vmm_trim(0) at %d moments: reserved - live, worst; median; driver time" % MOMENTS, trace,
                 "<= %.0f; %.0f MiB; 40 ms" % (most, middle), "%.0f; %.0f MiB; %.1f ms" % (worst, median, driver),
                 run["ok"] and worst <= most and median <= middle and driver <= 40, command)


def compacts(bars):
    for trace in TRACES:
        run, command = bars.run(trace, "--compacts", str(MOMENTS))
        worst, most = run["compact_worst_excess_mib"], 0.02 * run["peak_live_mib"] + 16
        bars.add("vmm_compact() at the same moments: reserved - live, worst", trace, "<= %.0f MiB" % most,
                 "%.0f MiB (median %.0f; worst %.1f ms)" % (worst, run["compact_median_excess_mib"],
                                                            run["compact_worst_driver_ms"]),
                 run["ok"] and worst <= most, command)


def had_mib(run, size):
    """What the large requests got."""
    served = max(0, run["ops_done"] - ALTERNATE_BEFORE[size])
    return min(served, WHOLES) * WHOLE_MIB + max(0, served - WHOLES) * REST_MIB


def alternate(bars):
    run, command = bars.run("alternate:32MiB", "--memory", "12.2GiB")
    had = had_mib(run, "32MiB")
    bars.add("12 GiB of 32-MiB blocks, every other freed: had of 6144 MiB, nothing moved", "", ">= 5632 MiB",
             "%d MiB (%.0f ms)" % (had, run["driver_ms"]), had >= 6144 - 512, command)
    run, command = bars.run("alternate:2MiB", "--memory", "12.2GiB")
    reason = run["reason"] or ""
    names = [text for text in ("pinned", "vmm_compact()") if text in reason]
    bars.add("the same of 2-MiB blocks: the failure line", "", "names pinned bytes and vmm_compact()",
             "had %d MiB; names %s" % (had_mib(run, "2MiB"), " and ".join(names) or "neither"), len(names) == 2,
             command)
    scene, command = bars.scene("compact")
    had = scene["had_512_mib"] + scene["had_64_mib"]
    bars.add("the same after vmm_compact()", "", ">= 6080 of 6144 MiB; <= 500 ms",
             "%d MiB; %.0f ms (%d MiB moved)" % (had, scene["compact_driver_ms"] + scene["compact_host_ms"],
                                                 scene["moved_mib"]),
             had >= 6080 and scene["compact_driver_ms"] + scene["compact_host_ms"] <= 500, command)


def planning(bars):
    scene, command = bars.scene("planning")
    bars.add("planning a miss at 139 GiB, 5000 chunks, 200 views", "", "<= 100 us",
             "%.1f us (%d chunks, 150 to %d views)" % (scene["plan_us"], scene["chunks"], scene["views"]),
             scene["plan_us"] <= 100, command)
    for trace in TRACES:
        run, command = bars.run(trace, "--passes", "3")
        share = run["planning_ns"] / 1e6 / run["driver_ms"] * 100
        bars.add("planning in a trace, three passes, evictions included", trace, "<= 10 % of driver time",
                 "%.1f %% (%d plans)" % (share, run["plans"]), share <= 10, command)


def loop(bars):
    run, command = bars.run("steady", "--passes", "3")
    bars.add("a loop of fixed shapes: driver ms of passes 2, 3", "steady", "0",
             ", ".join("%.2f" % ms for ms in later_ms(run)), max(later_ms(run)) == 0, command)


def growth(bars):
    scene, command = bars.scene("growth")
    for size in ("2", "32", "1024"):
        for what in ("growth", "trim"):
            ours, native, expandable = (scene["%s_%s_%s_ms" % (policy, size, what)]
                                        for policy in ("vmmcache", "block-splitting", "expandable"))
            if size != "1024":
                most, bar = min(native, expandable), "<= the faster, %.1f ms"
            elif what == "growth":
                most, bar = expandable / 5, "<= expandable's / 5, %.1f ms"
            else:
                most, bar = 2 * native, "<= 2 x native's, %.1f ms"
            bars.add("%s of 32 GiB in %s-MiB blocks (peers: fragtest's models)" % (what, size), "", bar % most,
                     "%.1f ms" % ours, ours <= most, command)


def host(bars):
    text = bars.output("vmmcache_bench", "--benchmark_filter=^(mixed|pair/vmmcache-sim/512B)",
                       "--benchmark_format=json")
    times = {}
    for run in json.loads(text)["benchmarks"]:
        if run.get("aggregate_name", "median") == "median":
            times["/".join(run["run_name"].split("/")[:2])] = run["cpu_time"]
    ours = times["mixed/vmmcache-sim"]
    bars.add("mixed pairs, 2000 live", "", "<= 80 ns", "%.0f ns (glibc %.0f)" % (ours, times["mixed/glibc"]),
             ours <= 80,
             "vmmcache_bench --benchmark_filter=mixed")
    bars.skip("one thread allocates, another frees", ">= 10 x the fastest peer",
              "needs a GPU's peers: tools/measure/bench.sh")


FIGURES = {"footprint": footprint, "streams-idle": streams_idle, "streams-busy": streams_busy, "passes": passes,
           "jitter": jitter, "knob": knob, "least": least, "tight": tight, "trims": trims, "compacts": compacts,
           "alternate": alternate, "planning": planning, "loop": loop, "growth": growth, "host": host}
HEAD = ("figure", "trace", "bar", "measured", "met", "command")


def text_write(rows):
    widths = [max(len(row[i]) for row in [HEAD, *rows]) for i in range(len(HEAD))]
    for row in [HEAD, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(": ", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")
    return "%s, %d CPUs, %s" % (model, os.cpu_count(), os.uname().sysname)


def markdown_write(bars):
    """A table of the rows, and one of the commands, with TRACE for the trace's name."""
    print("# Bars of views\n")
    print("Written by `tools/bars/bars.py BIN --markdown`. Do not edit the tables by hand.\n")
    text = "Measured: %s. Machine: %s; %s. " % (measured(), machine(), bars.output("fragtest", "--version").strip())
    text += ("The sim driver models an H200 with 139 GiB: footprints and driver times are the model's, and times of "
             "the host are the machine's.")
    print(textwrap.fill(text, 118) + "\n")
    rows, commands, last = [], {}, None
    for figure, trace, bar, value, met, command in bars.rows:
        rows.append(["" if figure == last else figure, trace, bar, value, met])
        last = figure
        name = trace.split(",")[0]
        commands.setdefault(command.replace("--trace " + name, "--trace TRACE") if name else command, []).append(figure)
    print("\n".join(table(HEAD[:5], rows, 5)))
    print("\n## Commands\n")
    print("\n".join(table(("command", "figures"), [["`%s`" % command, "; ".join(dict.fromkeys(figures))]
                                                  for command, figures in commands.items() if command], 2)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", help="the bin folder of a build")
    parser.add_argument("--only", metavar="NAME", action="append", choices=FIGURES,
                        help="one of: " + ", ".join(FIGURES))
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    bars = Bars(options)
    for name, measure in FIGURES.items():
        if options.only is None or name in options.only:
            measure(bars)
    missed = sum(row[4] == "NO" for row in bars.rows)
    summary = "%d of %d bars are missed." % (missed, sum(row[4] != "-" for row in bars.rows))
    if options.markdown:
        markdown_write(bars)
        print()
    else:
        text_write(bars.rows)
    print(summary)
    sys.exit(1 if missed else 0)


main()
