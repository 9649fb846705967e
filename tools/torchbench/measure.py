"""Runs one workload: its steps timed one by one, what they computed, and the peaks of memory.

May be imported by: worker.py.
"""
import gc
import random
import time
import traceback

import torch

from places import placeless

SEED = 20
LAST_LINES = 12  # of a traceback


def clean():
    """Leaves as little as possible of the workload before."""
    gc.collect()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


def seeds_set():
    random.seed(SEED)
    torch.manual_seed(SEED)


def failure(error):
    """What a record says of an error."""
    return {"type": type(error).__name__, "message": placeless(str(error)[:2000]),
            "traceback": placeless(traceback.format_exc().rstrip()).splitlines()[-LAST_LINES:]}


def steps_run(workload, count, meter, record):
    """Fills the record step by step, so that what came before a failure is kept."""
    for number in range(count):
        torch.cuda.synchronize()
        start = time.perf_counter()
        result = workload.step(number)
        torch.cuda.synchronize()
        record["times"].append(time.perf_counter() - start)
        record["results"].append(torch.atleast_1d(result.detach()).double().tolist())
        record["device_used"] = max(record["device_used"], meter.device_used())


def measured(kind, count, meter):
    """The record of a workload; an error is a part of it."""
    clean()
    meter.peaks_reset()
    seeds_set()
    record = {"times": [], "results": [], "warm": kind.WARM, "error": None,
              "device_used_before": meter.device_used(), "device_used": 0,
              "reserved_before": meter.stats()["reserved_bytes.all.current"]}
    start = time.perf_counter()
    try:
        workload = kind()
        record["setup_seconds"] = time.perf_counter() - start
        steps_run(workload, count, meter, record)
        record["peaks"] = meter.peaks()
        record["stats"] = meter.stats()
    except Exception as error:
        record["error"] = failure(error)
    record["seconds"] = time.perf_counter() - start
    return record
