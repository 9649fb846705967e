#!/usr/bin/env python3
"""Runs real models under PyTorch's allocators and vmmcache: step times, peaks of memory, results, and the largest size
that trains under a limit.

usage: run.py --out FOLDER [--workloads a,b] [--allocators native,expandable,vmmcache] [--repeat 3]
              [--parts steps,cap] [--seconds 520]

Writes a JSON file for each workload, allocator and repetition into FOLDER, and prints tables. Needs VMMCACHE_LIBRARY
(libvmmcache_torch.so). Allocators alternate, in another order each time. Jobs that do not fit into --seconds are left
out, last repetitions first, and listed. Exits with 1 if a workload fails with an allocator.
"""
import argparse
import os
import sys
import time

import allocators
import results
import workloads
from jobs import Job

def options_read():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--workloads", default=",".join(workloads.NAMES))
    parser.add_argument("--allocators", default=",".join(allocators.ALLOCATORS))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--parts", default="steps,cap")
    parser.add_argument("--seconds", type=float, default=520)
    options = parser.parse_args()
    options.allocators = allocators.parse_names(options.allocators)
    options.workloads = options.workloads.split(",")
    unknown = set(options.workloads) - set(workloads.NAMES)
    if unknown:
        parser.error("no such workload: %s; use %s" % (", ".join(sorted(unknown)),
                                                        ", ".join(workloads.NAMES)))
    return options


def in_turn(names, repeat):
    """The names, starting with a different one for each repetition."""
    at = repeat % len(names)
    return names[at:] + names[:at]


def steps_jobs(options):
    for repeat in range(options.repeat):
        places = {name: workloads.PLACES[name] for name in options.workloads}
        steps = {name: place.steps for name, place in places.items() if repeat < place.repeats}
        for allocator in in_turn(options.allocators, repeat):
            suited = {name: count for name, count in steps.items()
                      if allocator != allocators.WAITING or name in workloads.STREAMED}
            if suited:
                yield "steps", allocator, repeat, suited


def cap_jobs(options):
    names = [name for name in options.workloads if name in workloads.CAPPED]
    for allocator in options.allocators:
        if names and allocator != allocators.WAITING:
            yield "cap", allocator, 0, dict.fromkeys(names, 0)


def plan_jobs(options):
    """The first repetition, then the searches, then the other repetitions, which are left out first."""
    parts = options.parts.split(",")
    steps = list(steps_jobs(options)) if "steps" in parts else []
    caps = list(cap_jobs(options)) if "cap" in parts else []
    first = len(options.allocators) if steps else 0
    return steps[:first] + caps + steps[first:]


def main(options):
    os.makedirs(options.out, exist_ok=True)
    start = time.perf_counter()
    jobs = [Job(*plan, options.out) for plan in plan_jobs(options)]
    longest = 0.0
    for job in jobs:
        began = time.perf_counter()
        if began - start + longest > options.seconds:
            print("left out, as time ran out: %s %s %d" % (job.kind, job.allocator, job.repeat))
            job.batch.end()
            continue
        job.run()
        longest = max(longest, time.perf_counter() - began) if job.kind == "steps" else longest
    print("%.0f s in total" % (time.perf_counter() - start))
    data = results.Data([options.out])
    for line in results.summary(data):
        print(line)
    return 1 if data.errors else 0


sys.exit(main(options_read()))
