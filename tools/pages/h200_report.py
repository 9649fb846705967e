#!/usr/bin/env python3
"""Writes docs/results/h200.md from the measurements of tools/measure/h200.sh.

usage: tools/pages/h200_report.py FOLDER >docs/results/h200.md      FOLDER: docs/results/h200

Every figure comes from the files of FOLDER or from tests/data/peers.csv. Exits with 1 if the sim driver's clock is off
by more than its bar.
"""
import csv
import json
import os
import re
import statistics
import sys
import textwrap

from documents import code, document, section, table

HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
POLICIES = ("block-splitting", "expandable", "vmmcache")
VERIFIED = {True: "yes", False: "NO", None: "-"}
MOST_DIFFERENCE = 25.0  # %, between the sim driver's time and the device's


class Data:
    """The measurements: runs by trace and policy, and the lines of the log."""

    def __init__(self, folder):
        self.folder = folder
        self.machine = self.json("all")["machine"]
        self.card = re.search(r"NVIDIA (\w+)", self.machine).group(1)
        self.all = self.runs("all")
        self.limit = self.runs("limit")
        self.tight = self.runs("tight")
        self.wait = self.runs("wait")
        self.trims = self.runs("trims")
        self.device = [self.runs("cuda%d" % number) for number in (1, 2, 3)]
        self.sim = self.runs("sim")
        self.default = self.text("default.txt").splitlines()
        self.log = [line.split(": ", 1) for line in self.text("log.txt").splitlines()]
        with open(os.path.join(HOME, "tests/data/peers.csv"), encoding="utf-8") as file:
            self.peers = {row["trace"]: row for row in csv.DictReader(file)}
        self.traces = list(dict.fromkeys(trace for trace, _ in self.all))

    def text(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()

    def json(self, name):
        return json.loads(self.text(name + ".json"))

    def runs(self, name):
        return {(run["trace"], run["policy"]): run for run in self.json(name)["runs"]}

    def log_values(self, key):
        return [value for name, value in self.log if name == key]

    def device_ms(self, trace):
        return statistics.median(runs[trace, "vmmcache"]["driver_ms"] for runs in self.device)


def range_text(values, form="%.0f"):
    """The range of some values."""
    texts = form % min(values), form % max(values)
    return texts[0] if texts[0] == texts[1] else "%s to %s" % texts


def paragraph(text, indent=""):
    """Wraps a text to lines of at most 104 characters."""
    return textwrap.wrap(text, 104, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def is_good(run):
    return run["ok"] and run["verified"] is not False


def machine_part(data):
    every = " ".join("--trace " + trace for trace in sorted(data.traces))
    memory = data.log_values("gpu")[0].split(", ")[-1]
    commands = [line.split(": ", 1)[1].replace(every, "$TRACES") for line in data.log_values("run")]
    return section(
        "# Measured on an %s" % data.card,
        "Machine: %s; %s of GPU memory. Commit %s." % (data.machine, memory, data.log_values("commit")[0]),
        "Written by `tools/pages/h200_report.py` from measurements of `tools/measure/h200.sh` (stored in "
        "`docs/results/%s/`) with:" % data.card.lower(),
        code(["TRACES=\"%s\"" % every, *commands], "sh"),
        paragraph(
            "The traces are requests of real programs, recorded under PyTorch 2.11 on an H200. Driver ms is "
            "the host's time in calls of the CUDA driver; ns per operation is a policy's whole time, including "
            "those calls, divided by the allocations and frees of the trace."))


def footprint_part(data):
    rows = []
    for trace in data.traces:
        peer = data.peers[trace]
        live = float(peer["peak_live_mib"])
        ours = [data.all[trace, policy]["footprint"] for policy in POLICIES]
        quiet = max(runs[trace, "vmmcache"]["footprint"] for runs in data.device)
        real = [float(peer[kind + "_reserved_mib"]) / live
                for kind in ("native", "expandable", "async")]
        rows.append([trace, "%.2f" % (data.all[trace, "vmmcache"]["peak_live_mib"] / 1024)] +
                    ["%.3f" % value for value in
                     (ours[0], real[0], ours[1], real[1], real[2], ours[2], quiet)])
    return section(
        "## Footprint",
        paragraph(
            "Peak reserved over peak live memory, no limit. The columns in italics are the real allocators, measured "
            "on an H200 (`tests/data/peers.csv`); the others are fragtest's policies. *Busy*: kernels fill and check "
            "every block, two passes, so that work on freed memory often still runs when another stream makes a "
            "request. *Quiet*: no work on the GPU, one pass."),
        table(["trace", "peak live GiB", "block-splitting", "*PyTorch native*", "expandable", "*PyTorch expandable*",
               "*cudaMallocAsync*", "vmmcache, busy", "vmmcache, quiet"], rows))


def differences(data):
    return {trace: (data.sim[trace, "vmmcache"]["driver_ms"] / data.device_ms(trace) - 1) * 100
            for trace in data.traces}


def sim_part(data):
    worst = max(differences(data).values(), key=abs)
    about = ("vmmcache's driver ms in one pass, no work on the GPU: the median of three runs on the %s against "
             "the sim driver's modelled time. The bar is a difference of %.0f %%; the largest is %.0f %%." %
             (data.card, MOST_DIFFERENCE, abs(worst)))
    if abs(worst) > MOST_DIFFERENCE:
        about += (" The bar is not met on this machine: the time of driver calls differs from one machine to the next. "
                  "On the H200s that the clock was fitted to, the difference was 7 %.")
    rows = []
    for trace in data.traces:
        runs = sorted(runs[trace, "vmmcache"]["driver_ms"] for runs in data.device)
        calls = sum(data.sim[trace, "vmmcache"]["driver_calls"].values())
        rows.append([trace, "%d" % calls, "%.1f" % data.device_ms(trace),
                     "%.1f to %.1f" % (runs[0], runs[-1]),
                     "%.1f" % data.sim[trace, "vmmcache"]["driver_ms"],
                     "%+.0f %%" % differences(data)[trace]])
    return section("## The sim driver's clock", paragraph(about), table(
        ["trace", "driver calls", data.card + " ms", "the three runs", "sim ms", "difference"], rows))


def passes_part(data):
    rows = []
    for trace in data.traces:
        for policy in POLICIES:
            run = data.all[trace, policy]
            ns, ms = run["ns_per_op"], run["driver_ms_per_pass"]
            rows.append([trace, policy, "%.0f" % ns[0], "%.0f" % ns[1], "%.1f" % ms[0],
                         "%.1f" % ms[1], "%d" % run["stalls"],
                         VERIFIED[run["verified"]]])
    return section(
        "## Time",
        paragraph("The same trace twice in a row, no limit. Kernels fill every block after its allocation and check it "
                  "before its free. Stalls are waits of the host for the GPU."),
        table(["trace", "policy", "ns/op, first pass", "second", "driver ms, first pass", "second", "stalls",
               "verified"], rows, texts=2))


def outcome_text(run):
    if run["ok"]:
        return "%s, %.0f ms" % ("survived" if is_good(run) else "survived, WRONG DATA",
                                run["driver_ms"])
    return "out of memory at %.0f %%" % (100 * run["ops_done"] / run["ops"])


def limit_percent(data):
    run = data.limit[data.traces[0], "vmmcache"]
    return 100 * run["limit_mib"] / run["peak_live_mib"]


def limit_part(data):
    rows = []
    for trace in data.traces:
        peer = data.peers[trace]
        rows.append([trace] + [outcome_text(data.limit[trace, policy]) for policy in POLICIES] +
                    ["%.1f %%" % (100 * float(peer[kind + "_least_mib"]) /
                                  float(peer["peak_live_mib"])) for kind in ("native", "expandable")])
    failed = [(trace, data.limit[trace, "vmmcache"]["reason"]) for trace in data.traces]
    return section(
        "## In %.0f %% of peak live memory" % limit_percent(data),
        paragraph("One pass, verified, with driver ms. *Least* is the smallest limit in which PyTorch itself replays "
                  "the trace, in % of peak live memory (`tests/data/peers.csv`)."),
        table(["trace", *POLICIES, "*least: native*", "*least: expandable*"], rows),
        *(paragraph("vmmcache on %s: %s." % (trace, reason)) for trace, reason in failed if reason))


def tight_part(data):
    runs = [data.tight[trace, "vmmcache"] for trace in data.traces]
    return section(
        "## In %.1f %% of peak live memory" % (100 * runs[0]["limit_mib"] / runs[0]["peak_live_mib"]),
        paragraph("vmmcache alone, one pass, verified: compaction moves live bytes if nothing else frees enough. "
                  "Stalls are waits of the host, for the device and for its copies."),
        table(["trace", "limit MiB", "vmmcache", "stalls"],
              [[run["trace"], "%.1f" % run["limit_mib"], outcome_text(run), "%d" % run["stalls"]] for run in runs]))


def wait_part(data):
    rows = []
    for trace, policy in data.wait:
        run, apart = data.wait[trace, policy], data.all[trace, policy]
        ms = run["driver_ms_per_pass"]
        rows.append([trace, "%.3f" % run["footprint"], "%.3f" % apart["footprint"], "%.1f" % ms[0],
                     "%.1f" % ms[1], "%d" % run["stalls"]])
    return section(
        "## Streams that wait for each other",
        paragraph("Two passes, verified, no limit: a stream that reuses memory of another stream's unfinished work "
                  "waits for that work on the device (`--reuse stream_wait`)."),
        table(["trace", "footprint", "without waiting", "driver ms, first pass", "second", "stalls of the host"], rows))


def trims_part(data):
    runs = [data.trims[trace, "vmmcache"] for trace in data.traces]
    return section(
        "## Trimming",
        paragraph("Trims completely at %d random moments of each trace, after the device has finished; verified. *Most "
                  "beyond live* is the largest amount that stayed reserved above live memory. The bar is live bytes "
                  "plus 2 %% and 16 MiB." % runs[0]["trims"]),
        table(["trace", "most beyond live", "live at that moment", "over the bar", "verified"],
              [[run["trace"], "%.1f MiB" % run["trim_worst_excess_mib"], "%.1f MiB" % run["trim_worst_live_mib"],
                "%d" % run["trims_over_bar"], VERIFIED[run["verified"]]] for run in runs]))


def moved_part(data):
    return section(
        "## Growth while work runs",
        paragraph("A kernel of 50 ms uses a block of 64 MiB, which is freed; a larger block is requested while the "
                  "kernel runs. The cache maps the chunks at new addresses; the host never waits. 20 rounds each "
                  "(`tests/api/test_cache_handover.c`)."),
        code(data.log_values("moved")))


def default_part(data):
    """The closing table of the run without arguments; its charts are in README.md."""
    start = next(number for number, line in enumerate(data.default) if " operations, limit " in line)
    return section("## fragtest without arguments", code(data.default[start:]))


def tests_part(data):
    before, after = data.log_values("memory before")[0], data.log_values("memory after")[0]
    tests = [line.split(": ", 2) for line in data.log_values("test")]
    return section(
        "## API tests on the GPU",
        "GPU memory in use before all of these measurements: %s; after them and the tests: %s." % (before, after),
        code("%-24s %s  %s" % (name, "ok    " if status == "0" else "FAILED", output)
             for status, name, output in tests))


def memory_text(data):
    quiet = [runs[trace, "vmmcache"]["footprint"] for runs in data.device for trace in data.traces]
    busy = [data.all[trace, "vmmcache"]["footprint"] for trace in data.traces]
    survivors = tuple(sum(is_good(data.limit[trace, policy]) for trace in data.traces)
                      for policy in reversed(POLICIES))
    return ("* **Memory.** vmmcache reserves %s times the live memory while the GPU is quiet, and %s times "
            "while it is busy: it does not reuse memory that another stream's work may still use, and creates "
            "new memory instead. In %.0f %% of the live memory it completes %d of %d traces, expandable %d, "
            "block-splitting %d." % (range_text(quiet, "%.2f"), range_text(busy, "%.2f"), limit_percent(data),
                                     survivors[0], len(data.traces), survivors[1], survivors[2]))


def driver_ms(data, policies, number):
    return range_text([data.all[trace, policy]["driver_ms_per_pass"][number]
                  for trace in data.traces for policy in policies])


def driver_time_text(data):
    slower = [trace for trace in data.traces
              if data.all[trace, "vmmcache"]["ns_per_op"][1] >
              2 * data.all[trace, "block-splitting"]["ns_per_op"][1]]
    text = ("* **Driver time.** A first pass of vmmcache spends %s ms in the driver, of expandable %s, of "
            "block-splitting %s: views map chunks a second time. A second pass of vmmcache "
            "spends %s ms, of the other two %s." %
            (driver_ms(data, ["vmmcache"], 0), driver_ms(data, ["expandable"], 0),
             driver_ms(data, ["block-splitting"], 0), driver_ms(data, ["vmmcache"], 1),
             driver_ms(data, POLICIES[:2], 1)))
    if slower:
        text += (" In the second pass an operation still takes more than twice as long as with "
                 "block-splitting on %s." % ", ".join(slower))
    return text


def waits_text(data):
    free = [data.all[trace, "vmmcache"] for trace in data.traces]
    limited = [data.limit[trace, "vmmcache"] for trace in data.traces]
    others = [run for runs in (data.tight, data.wait, data.trims) for run in runs.values()]
    return ("* **Waits and contents.** Without a limit the host waited for the GPU %d times under vmmcache, in "
            "%.0f %% of the live memory %d times. In %d of %d verified runs of vmmcache every block kept its "
            "contents." %
            (sum(run["stalls"] for run in free), limit_percent(data),
             sum(run["stalls"] for run in limited),
             sum(run["verified"] is True for run in free + limited + others),
             len(free + limited + others)))


def results_part(data):
    """The results in words, with figures from the data."""
    texts = memory_text(data), driver_time_text(data), waits_text(data)
    return section("## Results", [line for text in texts for line in paragraph(text, "  ")])


PARTS = (machine_part, results_part, footprint_part, sim_part, passes_part, limit_part, tight_part,
         wait_part, trims_part, moved_part, default_part, tests_part)


def main(folder):
    data = Data(folder)
    print(document(part(data) for part in PARTS), end="")
    off = {trace: value for trace, value in differences(data).items()
           if abs(value) > MOST_DIFFERENCE}
    for trace, value in off.items():
        print("error: %s: the sim driver's clock is off by %+.0f %%" % (trace, value), file=sys.stderr)
    sys.exit(1 if off else 0)


if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
    sys.exit("usage: tools/pages/h200_report.py FOLDER >docs/results/h200.md")
main(sys.argv[1])
