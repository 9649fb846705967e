#!/usr/bin/env python3
"""Writes what a workload of torchbench asks of its allocator as a trace that fragtest replays.

usage: trace.py FOLDER NAME[:STEPS]...

A trace has a line for each operation: `+ ID BYTES STREAM` as it was requested, `- ID` when the block had come
free for its stream. Runs under PyTorch's native allocator, whose history it reads.
"""
import gzip
import os
import sys

ENTRIES = 4000000  # of history: more than any workload here makes


def lines(events):
    """Blocks that were there before the history began are left out."""
    live, streams, number = {}, {}, 0
    for event in events:
        if event["action"] == "alloc" and event["size"] > 0:
            number += 1
            live[event["addr"]] = number
            stream = streams.setdefault(event["stream"], len(streams))
            yield "+ %d %d %d\n" % (number, event["size"], stream)
        elif event["action"] == "free_completed" and event["addr"] in live:
            yield "- %d\n" % live.pop(event["addr"])


def record(workloads, name, steps):
    import torch
    import measure
    measure.clean()
    measure.seeds_set()
    torch.cuda.memory._record_memory_history("all", context=None, max_entries=ENTRIES)
    workload = workloads.kind(name)()
    for number in range(steps or workloads.PLACES[name].steps):
        workload.step(number)
    torch.cuda.synchronize()
    events = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    torch.cuda.memory._record_memory_history(enabled=None)
    if len(events) >= ENTRIES:
        raise RuntimeError("%s: more than %d events" % (name, ENTRIES))
    return events


def main(folder, *plan):
    import workloads
    os.makedirs(folder, exist_ok=True)
    for part in plan:
        name, _, steps = part.partition(":")
        path = os.path.join(folder, name + ".trace.gz")
        with gzip.open(path, "wt") as file:
            file.writelines(lines(record(workloads, name, int(steps or 0))))
        print("%s: %d KiB" % (path, os.path.getsize(path) >> 10), flush=True)


main(*sys.argv[1:])
