"""Searches upward for the largest size that trains under a memory limit.

A size counts as trained if all of its steps finish. Each size starts with an empty cache, so the result for a size does
not depend on the sizes before it. The search uses coarse increments first, then fine ones from the largest size that
was trained.

Imported by: worker.py.
"""
import gc
import time

import torch

from measure import clean, failure, set_seeds

STEPS = 6


def is_out_of_memory(error):
    """Whether this is PyTorch's out-of-memory error, or the error that replaces it in versions that cannot raise it."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and ("out of memory" in str(error).lower() or
                                                "bad_alloc" in str(error))


def run_steps(workload, size):
    """Runs the steps; returns None, or (type, first words) of the out-of-memory error."""
    try:
        for number in range(STEPS):
            workload.fit(size, number, STEPS)
        torch.cuda.synchronize()
        return None
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return type(error).__name__, str(error)[:300]


def try_size(workload, size, meter):
    meter.peaks_reset()
    start = time.perf_counter()
    error = run_steps(workload, size)
    row = {"size": size, "trained": error is None, "seconds": time.perf_counter() - start,
           "peaks": meter.peaks()}
    if error:
        row["error_type"], row["message"] = error
    workload.clear()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return row


def search_upward(workload, meter, rows, first, last, increment):
    """Appends a row for each size, up to the first that is not trained; returns the largest trained, or None."""
    largest = None
    for size in range(first, last + 1, increment):
        rows.append(try_size(workload, size, meter))
        if not rows[-1]["trained"]:
            break
        largest = size
    return largest


def search(kind, meter):
    """Runs the search; returns its record."""
    clean()
    set_seeds()
    coarse, fine = kind.CAP_COARSE, kind.CAP_FINE
    record = {"cap": kind.CAP_BYTES, "unit": kind.CAP_UNIT, "rows": [], "largest": None,
              "error": None}
    try:
        workload = kind()
        workload.fit(kind.CAP_FIRST // 2, 0, 1)
        workload.clear()
        meter.limit(kind.CAP_BYTES)
        rows = record["rows"]
        largest = search_upward(workload, meter, rows, kind.CAP_FIRST, 64 * kind.CAP_FIRST, coarse)
        if largest is not None:
            record["largest"] = search_upward(workload, meter, rows, largest + fine, largest + coarse - fine,
                                       fine) or largest
    except Exception as error:
        record["error"] = failure(error)
    finally:
        meter.unlimit()
    return record
