"""Reads the measurements of run.py: figures by workload and allocator, compared with PyTorch's own allocator.

Imported by: run.py, report.py. Needs only the standard library.
"""
import fnmatch
import glob
import itertools
import json
import math
import os
import statistics
import tarfile

from allocators import ALLOCATORS, EXPANDABLE, NATIVE
from workloads import NAMES

GIB = 2.0 ** 30
PATTERN = "*.*.*.*.json"
FIRST = 10  # steps in which an allocator adapts to a program
ARCHIVE = "results.tar.gz"


def difference(one, other):
    """The largest relative difference of two runs' results; 0.0: bit-equal."""
    one, other = ([value for step in run for value in step] for run in (one, other))
    if len(one) != len(other):
        return math.inf
    far = 0.0
    for a, b in zip(one, other):
        if a != b and not (math.isnan(a) and math.isnan(b)):
            far = max(far, abs(a - b) / max(abs(a), abs(b)) if math.isfinite(a - b) else math.inf)
    return far


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def records_read(folder):
    """Yields the records of a folder, or of the archive that torchbench.sh made of it, in the order of their names."""
    archive = os.path.join(folder, ARCHIVE)
    if os.path.exists(archive):
        with tarfile.open(archive) as files:
            for member in sorted(files.getmembers(), key=lambda each: each.name):
                if fnmatch.fnmatch(os.path.basename(member.name), PATTERN):
                    yield json.load(files.extractfile(member))
    for path in sorted(glob.glob(os.path.join(folder, PATTERN))):
        with open(path, encoding="utf-8") as file:
            yield json.load(file)


class Data:
    """Records by kind, workload and allocator; failed repetitions are in `errors` only."""

    def __init__(self, folders):
        self.records = {}  # (kind, workload, allocator): [record]
        self.errors = []   # records
        for record in itertools.chain.from_iterable(map(records_read, folders)):
            if record["error"]:
                self.errors.append(record)
            if not record["error"] or record["kind"] == "cap":
                key = record["kind"], record["workload"], record["allocator"]
                self.records.setdefault(key, []).append(record)
        self.allocators = [name for name in ALLOCATORS if any(key[2] == name for key in self.records)]

    def capped(self):
        """The allocators for which there was a search for the largest size."""
        return [name for name in self.allocators if any(key[0] == "cap" and key[2] == name
                                                        for key in self.records)]

    def workloads(self, kind):
        """The workloads that were run, successfully or not."""
        found = {key[1] for key in self.records if key[0] == kind}
        found.update(record["workload"] for record in self.errors if record["kind"] == kind)
        return [name for name in NAMES if name in found]

    def runs(self, workload, allocator, kind="steps"):
        return self.records.get((kind, workload, allocator), [])

    def failed(self, workload, allocator, kind="steps"):
        return any((record["kind"], record["workload"], record["allocator"]) == (kind, workload, allocator)
                   for record in self.errors)

    def failures(self):
        """[(first record, count)] of failures of the same kind."""
        found = {}
        for record in self.errors:
            key = record["kind"], record["workload"], record["allocator"], record["error"]["type"]
            found.setdefault(key, []).append(record)
        return [(records[0], len(records)) for records in found.values()]

    def median(self, workload, allocator, figure):
        """The median of figure(record) over repetitions; None without any."""
        values = [figure(record) for record in self.runs(workload, allocator)]
        return statistics.median(values) if values else None

    def ticks(self, workload, allocator):
        """Of the clock, in a step after the first few: their mean, because many steps have none. None without any."""
        steps = [count for record in self.runs(workload, allocator)
                 for count in record.get("ticks", [])[record["warm"]:]]
        return sum(steps) / len(steps) if steps else None

    def quiet_times(self, workload, allocator, warm=False):
        """Each step's time in its fastest repetition, which leaves out other load of the machine: of the steps after
        the warm-up, or of those of the warm-up."""
        runs = [record["times"][:record["warm"]] if warm else record["times"][record["warm"]:]
                for record in self.runs(workload, allocator)]
        return [min(times) for times in zip(*runs)]

    def quiet_ratio(self, workload, allocator, warm=False):
        """The median of quiet_times() over native's; for the warm-up, the sum over native's."""
        ours, theirs = (self.quiet_times(workload, name, warm) for name in (allocator, NATIVE))
        figure = sum if warm else statistics.median
        return figure(ours) / figure(theirs) if ours and theirs else None

    def inside(self, workload, allocator):
        """Seconds that each step spends inside the allocator, in the repetition in which it spends the least there."""
        runs = [record.get("inside", ()) for record in self.runs(workload, allocator)]
        return [min(steps) for steps in zip(*runs)]

    def inside_above(self, workload, allocator):
        """By which share of native's steps the allocator's time is above native's: in the first steps, and later."""
        ours, theirs = (self.inside(workload, name) for name in (allocator, NATIVE))
        whole = self.quiet_times(workload, NATIVE, warm=True) + self.quiet_times(workload, NATIVE)
        if not any(ours) or not any(theirs):
            return None, None
        return tuple((sum(ours[part]) - sum(theirs[part])) / sum(whole[part])
                     for part in (slice(FIRST), slice(FIRST, None)))

    def spread(self, workload, allocator):
        """The least and the largest median step of a repetition over the median of native's repetitions."""
        native = self.median(workload, NATIVE, step_median)
        steps = [step_median(record) for record in self.runs(workload, allocator)]
        return (min(steps) / native, max(steps) / native) if native and steps else None

    def times_native(self, workload, allocator, figure):
        ours, theirs = (self.median(workload, name, figure) for name in (allocator, NATIVE))
        return None if ours is None or theirs is None else ours / theirs

    def differences(self, workload, allocator):
        """The differences of all pairs of its runs and native ones. For native: of the runs of PyTorch's allocators
        with each other."""
        native = [record["results"] for record in self.runs(workload, NATIVE)]
        if allocator == NATIVE:
            both = native + [record["results"] for record in self.runs(workload, EXPANDABLE)]
            pairs = itertools.combinations(both, 2)
        else:
            pairs = itertools.product(native, (record["results"] for record in
                                               self.runs(workload, allocator)))
        return [difference(*pair) for pair in pairs]

    def own_noise(self, workload, allocator):
        """The largest difference of two of its runs; 0.0 without two."""
        runs = [record["results"] for record in self.runs(workload, allocator)]
        return max((difference(*pair) for pair in itertools.combinations(runs, 2)), default=0.0)

    def verdict(self, workload, allocator):
        """Whether an allocator computed the same as native: a word, and the figures behind it. Noise is by how much
        runs of one program with one allocator differ."""
        noise, found = self.differences(workload, NATIVE), self.differences(workload, allocator)
        if not found:
            return "-"
        if max(found) == 0:
            return "bit-equal"
        if not noise:
            return "differs by %.1e; noise unknown" % statistics.median(found)
        own = self.own_noise(workload, allocator)
        word = "within noise" if statistics.median(found) <= max(*noise, own) else "DIFFERS"
        return "%s (%.1e; noise: native's %.1e, its own %.1e)" % (word, statistics.median(found), max(noise), own)

    def largest(self, workload, allocator):
        """The largest size that trained under the limit; None if none did, or none was tried."""
        runs = self.runs(workload, allocator, "cap")
        return runs[0]["largest"] if runs else None


def step_median(record):
    return statistics.median(record["times"][record["warm"]:])


def step_p95(record):
    return percentile(record["times"][record["warm"]:], 0.95)


def requests(record):
    return statistics.median(record.get("requests") or [0])


def total(record):
    return sum(record["times"][record["warm"]:])


def peak(name):
    return lambda record: record["peaks"][name]


def footprint(record):
    """Peak reserved over peak live."""
    return record["peaks"]["reserved"] / max(record["peaks"]["allocated"], 1)


def needed(record):
    """The peak of what no allocator can use for something else: memory that is live, or freed and still used by
    another stream, and later what captured graphs keep as well."""
    return max(record["peaks"]["active"], record["later_peaks"]["active"] + record["graph_bytes"], 1)


def footprint_needed(record):
    return record["peaks"]["reserved"] / needed(record)


def used(record):
    """How much the memory in use on the device grew."""
    return record["device_used"] - record["device_used_before"]


def shown(value, form="%.2f", scale=1.0):
    return "-" if value is None else form % (value * scale)


def step_rows(data, workload):
    """Yields a row for each allocator."""
    for name in data.allocators:
        if not data.runs(workload, name):
            if data.failed(workload, name):
                yield [name, "failed"] + ["-"] * 13
            continue
        yield [name, str(len(data.runs(workload, name))),
               shown(data.median(workload, name, step_median), "%.2f", 1e3),
               shown(data.median(workload, name, step_p95), "%.2f", 1e3),
               shown(data.quiet_ratio(workload, name), "%.3f"),
               shown(data.quiet_ratio(workload, name, warm=True), "%.2f"),
               shown(data.times_native(workload, name, step_median), "%.3f"),
               shown(data.times_native(workload, name, total), "%.3f"),
               shown(data.median(workload, name, peak("allocated")), "%.2f", 1 / GIB),
               shown(data.median(workload, name, peak("reserved")), "%.2f", 1 / GIB),
               shown(data.median(workload, name, footprint), "%.3f"),
               shown(data.median(workload, name, lambda record: record["graph_bytes"]), "%.2f", 1 / GIB),
               shown(data.median(workload, name, footprint_needed), "%.3f"),
               shown(data.median(workload, name, used), "%.2f", 1 / GIB),
               data.verdict(workload, name) if name != NATIVE else "-"]


STEP_HEAD = ["allocator", "runs", "step ms", "p95 ms", "quiet, x native", "first steps, x native", "x native",
             "sum, x native", "live GiB", "reserved GiB", "reserved / live", "graphs GiB", "reserved / needed",
             "driver GiB", "results against native"]


def summary(data):
    """The lines of a summary for a terminal."""
    for workload in data.workloads("steps"):
        yield ""
        yield workload
        for row in [STEP_HEAD, *step_rows(data, workload)]:
            yield "  " + "  ".join("%-*s" % (max(len(head), 8), cell)
                                   for head, cell in zip(STEP_HEAD, row))
    for workload in data.workloads("cap"):
        yield ""
        yield "largest of %s: %s" % (workload, ", ".join(
            "%s %s" % (name, shown(data.largest(workload, name), "%d")) for name in data.capped()))
    for record, count in data.failures():
        yield "error: %s, %s, %s, %d times: %s: %s" % (
            record["kind"], record["workload"], record["allocator"], count, record["error"]["type"],
            record["error"]["message"][:300])
