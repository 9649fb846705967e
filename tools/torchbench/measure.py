"""Runs one workload: times each step, and records its results and the peaks of memory.

Imported by: worker.py.
"""
import contextlib
import gc
import random
import time
import traceback

import torch

from places import placeless

SEED = 20
LAST_LINES = 12  # of a traceback


def clean():
    """Frees as much as possible of the previous workload."""
    gc.collect()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


def set_seeds():
    random.seed(SEED)
    torch.manual_seed(SEED)


def failure(error):
    """The entry of an error in a record."""
    return {"type": type(error).__name__, "message": placeless(str(error)[:2000]),
            "traceback": placeless(traceback.format_exc().rstrip()).splitlines()[-LAST_LINES:]}


def run_steps(workload, steps, meter, inside, record):
    """Adds to the record after each step, so that a failure keeps the steps before it."""
    for number in steps:
        torch.cuda.synchronize()
        spent, requests = inside.read()
        ticks = meter.ticks()
        start = time.perf_counter()
        result = workload.step(number)
        torch.cuda.synchronize()
        record["times"].append(time.perf_counter() - start)
        ended = inside.read()
        record["inside"].append(ended[0] - spent)
        record["requests"].append(ended[1] - requests)
        record["ticks"].append(meter.ticks() - ticks)
        record["results"].append(torch.atleast_1d(result.detach()).double().tolist())
        record["device_used"] = max(record["device_used"], meter.device_used())


def measure(kind, count, meter, inside):
    """Runs a workload and returns its record, which includes an error if there is one."""
    clean()
    meter.peaks_reset()
    set_seeds()
    record = {"times": [], "inside": [], "requests": [], "ticks": [], "results": [], "warm": kind.WARM, "error": None,
              "device_used_before": meter.device_used(), "device_used": 0}
    try:
        workload = kind()
        with contextlib.nullcontext() if getattr(kind, "HAS_TREES", False) else inside.begun():
            run_steps(workload, range(min(kind.WARM, count)), meter, inside, record)
            first = meter.peaks()
            meter.peaks_reset()
            run_steps(workload, range(min(kind.WARM, count), count), meter, inside, record)
        record["later_peaks"] = meter.peaks()  # graphs are captured in the first steps
        record["peaks"] = {name: max(first[name], later) for name, later in record["later_peaks"].items()}
        record["graph_bytes"] = meter.graph_bytes() if getattr(kind, "HAS_GRAPHS", True) else 0
        if hasattr(workload, "close"):
            workload.close()
    except Exception as error:
        record["error"] = failure(error)
    return record
