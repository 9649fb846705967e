"""Reads the measurements of tools/measure/bench.sh: medians by bench, allocator and argument.

Imported by: bench_report.py, bench_bars.py, bench_svg.py.
"""
import json
import os
import statistics

# vmmcache first; then the other allocators of the device, then the reference on the host.
OURS_CUDA, OURS_SIM, OURS_LOOSE = "vmmcache-cuda", "vmmcache-sim", "vmmcache-cuda-loose"
NATIVE, EXPANDABLE = "torch-native", "torch-expandable"
ALLOCATORS = (OURS_CUDA, OURS_LOOSE, OURS_SIM, NATIVE, EXPANDABLE, "cudaMallocAsync", "cudaMalloc", "rmm-pool",
              "rmm-arena", "glibc")
FILES = ("bench", "torch-native", "torch-expandable")
# Fields of Google Benchmark that are not figures.
NOT_FIGURES = ("family_index", "per_family_instance_index", "repetitions", "repetition_index",
               "threads", "iterations")


def parts(run_name):
    """The bench, its allocator and its arguments, without what Google Benchmark appends to the name."""
    bench, allocator, *rest = [part for part in run_name.split("/")
                               if ":" not in part and part != "manual_time"]
    return bench, allocator, "/".join(rest)


class Data:
    """Medians over the repetitions; time is in ns."""

    def __init__(self, folder):
        self.folder = folder
        self.rows = {}     # (bench, allocator, argument): {figure: [values]}
        self.errors = []   # lines
        self.versions = {} # allocator: text
        for name in FILES:
            path = os.path.join(folder, name + ".json")
            if os.path.exists(path):
                self.read(path)
        with open(os.path.join(folder, "machine.txt"), encoding="utf-8") as file:
            self.machine = [line.rstrip("\n").split(": ", 1) for line in file]
        self.allocators = [name for name in ALLOCATORS
                           if any(key[1] == name for key in self.rows)]
        self.has_gpu = OURS_CUDA in self.allocators
        self.ours = OURS_CUDA if self.has_gpu else OURS_SIM
        self.peers = [name for name in self.allocators
                      if not name.startswith("vmmcache") and (name != "glibc" or not self.has_gpu)]

    def read(self, path):
        with open(path, encoding="utf-8") as file:
            measured = json.load(file)
        self.versions.update({name: text for name, text in measured["context"].items()
                              if name in ALLOCATORS})
        for row in measured["benchmarks"]:
            if row.get("run_type") == "aggregate":
                continue
            if row.get("error_occurred"):
                self.errors.append("%s: %s" % (row["run_name"], row.get("error_message", "")))
                continue
            figures = self.rows.setdefault(parts(row["run_name"]), {})
            for name, value in row.items():
                if isinstance(value, (int, float)) and name not in NOT_FIGURES:
                    figures.setdefault(name, []).append(value)

    def figure(self, bench, allocator, argument="", name="real_time"):
        """The median, or None if it was not measured."""
        values = self.rows.get((bench, allocator, argument), {}).get(name)
        return statistics.median(values) if values else None

    def arguments(self, bench):
        """The arguments, in the order of the benches."""
        return list(dict.fromkeys(argument for found, _, argument in self.rows if found == bench))

    def best_peer(self, bench, argument, name="real_time", highest=False):
        """(figure, peer), or None."""
        found = [(self.figure(bench, peer, argument, name), peer) for peer in self.peers]
        found = [pair for pair in found if pair[0] is not None]
        if not found:
            return None
        return max(found) if highest else min(found)
