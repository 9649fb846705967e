"""Searches upward for the largest size that trains under a memory limit.

A size counts as trained if all of its steps finish. Each size starts with an empty cache, so the result for a size does
not depend on the sizes before it. The search uses coarse increments first, then fine ones from the largest size that
was trained.

Imported by: worker.py.
"""
import gc

import torch

from measure import clean, failure, set_seeds

STEPS = 6


def is_out_of_memory(error):
    """Whether this is PyTorch's out-of-memory error, or the error that replaces it in versions that cannot raise it."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and ("out of memory" in str(error).lower() or
                                                "bad_alloc" in str(error))


def trains(workload, size):
    """Whether the steps of a size find memory."""
    try:
        for number in range(STEPS):
            workload.fit(size, number, STEPS)
        torch.cuda.synchronize()
        return True
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return False


def search_upward(workload, first, last, increment):
    """The largest size before the first that does not train; None: the first one does not."""
    largest = None
    for size in range(first, last + 1, increment):
        is_trained = trains(workload, size)
        workload.clear()
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        if not is_trained:
            break
        largest = size
    return largest


def search(kind, meter):
    """Runs the search; returns its record."""
    clean()
    set_seeds()
    coarse, fine = kind.CAP_COARSE, kind.CAP_FINE
    record = {"cap": kind.CAP_BYTES, "unit": kind.CAP_UNIT, "largest": None, "error": None}
    try:
        workload = kind()
        workload.fit(kind.CAP_FIRST // 2, 0, 1)
        workload.clear()
        meter.limit(kind.CAP_BYTES)
        largest = search_upward(workload, kind.CAP_FIRST, 64 * kind.CAP_FIRST, coarse)
        if largest is not None:
            record["largest"] = search_upward(workload, largest + fine, largest + coarse - fine, fine) or largest
    except Exception as error:
        record["error"] = failure(error)
    finally:
        meter.unlimit()
    return record
