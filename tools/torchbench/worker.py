#!/usr/bin/env python3
"""One process of torchbench: runs several workloads with one allocator, one after the other. run.py starts it.

usage: worker.py steps|cap ALLOCATOR REPEAT FOLDER NAME:STEPS...

Imports everything, and waits for its turn before it uses the GPU. So many workers can start at once, and imports do not
slow a measurement. Runs those of the workloads that processes.given() names, and writes
FOLDER/KIND.NAME.ALLOCATOR.REPEAT.json after each one. Ends itself if an error left the GPU unusable.
"""
import json
import os
import sys
import warnings

import allocators
import processes


def write(path, record):
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(record, file)
    os.replace(path + ".new", path)


def load(name):
    """The workload's class, or a record of the error if it cannot be imported."""
    import measure
    import workloads
    try:
        return workloads.kind(name), None
    except Exception as error:
        return None, {"times": [], "results": [], "warm": 0, "error": measure.failure(error)}


def is_usable():
    import torch
    try:
        torch.cuda.synchronize()
        return True
    except RuntimeError:
        return False


def main(kind, allocator, repeat, folder, *plan):
    warnings.filterwarnings("ignore")
    import torch
    allocators.install(allocator)
    import cap
    import measure
    from inside import Inside
    inside = Inside(os.path.join(os.path.abspath(folder), "log", "inside"))
    steps = dict(part.split(":") for part in plan)
    parts = [(name, int(steps[name]), *load(name)) for name in processes.given(steps)]
    processes.wait_for_turn()
    torch.cuda.init()
    allocators.verify(allocator)
    meter = allocators.Meter(allocator)
    for name, steps, workload, record in parts:
        processes.begin(name)
        if workload is not None:
            record = cap.search(workload, meter) if kind == "cap" else \
                measure.measure(workload, steps, meter, inside)
        record.update(workload=name, allocator=allocator, repeat=int(repeat), kind=kind)
        write(os.path.join(folder, "%s.%s.%s.%s.json" % (kind, name, allocator, repeat)), record)
        processes.end(name, processes.PASS)
        if record["error"] and not is_usable():
            sys.stdout.flush()
            os._exit(processes.UNUSABLE)


if __name__ == "__main__":  # processes of a workload import this file, too
    main(*sys.argv[1:])
