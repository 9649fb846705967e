#!/usr/bin/env python3
"""Measures the time that each step of a workload spends inside the allocator: records the workload's requests under
PyTorch's allocator, and replays them through each allocator without the workload's kernels.

usage: inside.py FOLDER [NAME...]        needs VMMCACHE_LIBRARY

Writes FOLDER/inside.NAME.ALLOCATOR.json: nanoseconds of each step, the least of several processes that each begin
with an empty cache; and FOLDER/inside.NAME.trace.gz. Where FOLDER has records of run.py, the table compares with their
steps under PyTorch's allocator. Replays count the functions of the allocator and its driver calls, nothing of PyTorch
above it.
"""
import collections
import ctypes
import glob
import gzip
import json
import os
import statistics
import subprocess
import sys

import allocators
from workloads import NAMES

ALLOCATORS = (allocators.NATIVE, allocators.EXPANDABLE, allocators.OURS)
PROCESSES = 3
FIRST = 10        # steps in which an allocator gets to know a program
MOST_SECONDS = 240
ALLOCATE, FREE, STEP = range(3)  # as in inside.cpp


class Requests:
    """The requests of a trace, for inside.cpp."""

    def __init__(self, path):
        self.rows, self.steps, self.block_count = [], 0, 0
        self.streams = {}
        live = {}
        with gzip.open(path, "rt") as lines:
            for line in lines:
                self.add(line.split(), live)

    def add(self, fields, live):
        if fields[:1] == ["+"]:
            live[fields[1]] = self.block_count
            stream = self.streams.setdefault(fields[3], len(self.streams))
            self.rows.append((ALLOCATE, self.block_count, int(fields[2]), stream))
            self.block_count += 1
        elif fields[:1] == ["-"]:
            self.rows.append((FREE, live.pop(fields[1]), 0, 0))
        elif fields[:3] == ["#@", "note", "step"]:
            self.rows.append((STEP, 0, 0, 0))
            self.steps += 1

    def replay(self, library, streams):
        """Nanoseconds of each step."""
        flat = [value for row in self.rows for value in row]
        requests = (ctypes.c_uint64 * len(flat))(*flat)
        blocks = (ctypes.c_void_p * max(self.block_count, 1))()
        handles = (ctypes.c_void_p * max(len(streams), 1))(*streams)
        step_ns = (ctypes.c_uint64 * max(self.steps, 1))()
        library.replay.restype = None
        library.replay(requests, ctypes.c_size_t(len(self.rows)), blocks, ctypes.c_size_t(self.block_count), handles,
                       step_ns)
        return list(step_ns)[:self.steps]


def compiled(folder):
    """Compiles inside.cpp; returns the library's path."""
    from torch.utils import cpp_extension
    os.makedirs(folder, exist_ok=True)
    return cpp_extension.load("inside", [os.path.join(os.path.dirname(__file__), "inside.cpp")], with_cuda=True,
                              is_python_module=False, is_standalone=False, build_directory=folder)


def replay_here(name, library, traces):
    """Replays in this process; prints nanoseconds of each step as JSON for each trace."""
    import torch
    allocators.install(name)
    torch.cuda.init()
    allocators.verify(name)
    library = ctypes.CDLL(library)
    for trace in traces:
        requests = Requests(trace)
        streams = [0] + [torch.cuda.Stream() for _ in range(max(len(requests.streams) - 1, 0))]
        handles = [getattr(stream, "cuda_stream", 0) for stream in streams]
        print(json.dumps(requests.replay(library, handles)), flush=True)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def run(command, allocator):
    """The lines that a process prints."""
    done = subprocess.run([sys.executable, *command], env=allocators.environment(allocator), text=True, check=True,
                          stdout=subprocess.PIPE, timeout=MOST_SECONDS)
    return done.stdout.splitlines()


def measure(folder, names):
    """{(workload, allocator): nanoseconds of each step}"""
    here = os.path.abspath(__file__)
    traces = [os.path.join(folder, "inside.%s.trace.gz" % name) for name in names]
    run([os.path.join(os.path.dirname(here), "trace.py"), folder, *names], allocators.NATIVE)
    for name, trace in zip(names, traces):
        os.replace(os.path.join(folder, name + ".trace.gz"), trace)
    build = os.path.join(folder, "log", "inside")
    compiled(build)
    library = glob.glob(os.path.join(build, "inside*.so"))[0]
    runs = collections.defaultdict(list)
    for _ in range(PROCESSES):
        for allocator in ALLOCATORS:
            lines = run([here, "--replay", allocator, library, *traces], allocator)
            for name, line in zip(names, [line for line in lines if line.startswith("[")]):
                runs[name, allocator].append(json.loads(line))
    return {key: [min(step) for step in zip(*steps)] for key, steps in runs.items()}


def native_steps(folder, name):
    """Seconds of each step under PyTorch's allocator, in the fastest repetition; None without records."""
    records = []
    for path in glob.glob(os.path.join(folder, "steps.%s.%s.*.json" % (name, allocators.NATIVE))):
        with open(path, encoding="utf-8") as file:
            records.append(json.load(file))
    return [min(times) for times in zip(*(record["times"] for record in records))] or None


def shares(ours, native, steps):
    """How much longer ours is inside the allocator than native, in % of native's steps: of the first ones, and of the
    median later one."""
    first = 1e-7 * (sum(ours[:FIRST]) - sum(native[:FIRST])) / sum(steps[:FIRST])
    later = [1e-7 * (a - b) / step for a, b, step in zip(ours, native, steps)][FIRST:]
    return first, 1e-7 * (sum(ours[FIRST:]) - sum(native[FIRST:])) / sum(steps[FIRST:]), statistics.median(later)


def rows(found, folder):
    """Yields the rows of a table of a workload and an allocator each."""
    for (name, allocator), steps in sorted(found.items(), key=lambda item: NAMES.index(item[0][0])):
        whole = native_steps(folder, name)
        native = found[name, allocators.NATIVE]
        row = [name, allocator, "%.1f" % (1e-3 * sum(steps[:FIRST]) / FIRST),
               "%.1f" % (1e-3 * sum(steps[FIRST:]) / len(steps[FIRST:]))]
        if whole and allocator != allocators.NATIVE:
            row += ["%+.2f %%" % share for share in shares(steps, native, whole)]
        yield row + ["-"] * (7 - len(row))


HEAD = ["workload", "allocator", "us a step, first ten", "us a step, later", "above native, first ten",
        "above native, later", "above native, median later step"]


def main(folder, *names):
    os.makedirs(folder, exist_ok=True)
    found = measure(folder, names or NAMES)
    for (name, allocator), steps in found.items():
        with open(os.path.join(folder, "inside.%s.%s.json" % (name, allocator)), "w", encoding="utf-8") as file:
            json.dump(steps, file)
    for row in [HEAD, *rows(found, folder)]:
        print("  ".join("%-*s" % (len(head), cell) for head, cell in zip(HEAD, row)).rstrip())


if len(sys.argv) < 2:
    sys.exit("usage: inside.py FOLDER [NAME...]")
if sys.argv[1] == "--replay":
    replay_here(sys.argv[2], sys.argv[3], sys.argv[4:])
else:
    main(*sys.argv[1:])
