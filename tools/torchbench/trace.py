#!/usr/bin/env python3
"""Records the requests of a torchbench workload as a trace that fragtest replays.

usage: trace.py FOLDER NAME[:STEPS]...

docs/trace-format.md describes the format. Runs under PyTorch's native allocator and reads its history.
"""
import gzip
import os
import sys
import time

ENTRIES = 4000000  # of the history: more events than any workload makes


def lines(events, steps):
    """The lines of a trace, with a note where each step begins. Leaves out blocks that were allocated before the
    history started. steps: when they began, in microseconds."""
    live, streams, number, step = {}, {}, 0, 0
    for event in events:
        while step < len(steps) and event["time_us"] >= steps[step]:
            step += 1
            yield "#@ note step %d\n" % step
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
    measure.set_seeds()
    torch.cuda.memory._record_memory_history("all", context=None, max_entries=ENTRIES)
    workload = workloads.kind(name)()
    began = []
    for number in range(steps or workloads.PLACES[name].steps):
        torch.cuda.synchronize()
        began.append(1e6 * time.time())
        workload.step(number)
    torch.cuda.synchronize()
    events = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    torch.cuda.memory._record_memory_history(enabled=None)
    if len(events) >= ENTRIES:
        raise RuntimeError("%s: more than %d events" % (name, ENTRIES))
    return events, began


def main(folder, *plan):
    import workloads
    os.makedirs(folder, exist_ok=True)
    for part in plan:
        name, _, steps = part.partition(":")
        path = os.path.join(folder, name + ".trace.gz")
        with gzip.open(path, "wt") as file:
            file.writelines(lines(*record(workloads, name, int(steps or 0))))
        print("%s: %d KiB" % (path, os.path.getsize(path) >> 10), flush=True)


main(*sys.argv[1:])
