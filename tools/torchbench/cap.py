"""The largest size that trains under a limit of memory, searched upward.

A size is trained if all of its steps end; each size starts with an emptied cache, so that what a size
reaches does not depend on those before it. Coarse increments first, then fine ones from the last size
that was trained.

May be imported by: worker.py.
"""
import gc
import time

import torch

from measure import clean, failure, seeds_set

STEPS = 6


def is_out_of_memory(error):
    """PyTorch's error; where the version offers no way to raise it, what its parent then says."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and ("out of memory" in str(error).lower() or
                                                "bad_alloc" in str(error))


def steps_end(workload, size):
    """None, or what went wrong: (error's type, its first words)."""
    try:
        for number in range(STEPS):
            workload.fit(size, number, STEPS)
        torch.cuda.synchronize()
        return None
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return type(error).__name__, str(error)[:300]


def tried(workload, size, meter):
    meter.peaks_reset()
    start = time.perf_counter()
    said = steps_end(workload, size)
    row = {"size": size, "trained": said is None, "seconds": time.perf_counter() - start,
           "peaks": meter.peaks()}
    if said:
        row["error_type"], row["message"] = said
    workload.clear()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return row


def upward(workload, meter, rows, first, last, increment):
    """Appends a row a size, up to the first that is not trained; the largest trained, or None."""
    largest = None
    for size in range(first, last + 1, increment):
        rows.append(tried(workload, size, meter))
        if not rows[-1]["trained"]:
            break
        largest = size
    return largest


def searched(kind, meter):
    """The record of a search."""
    clean()
    seeds_set()
    coarse, fine = kind.CAP_COARSE, kind.CAP_FINE
    record = {"cap": kind.CAP_BYTES, "unit": kind.CAP_UNIT, "fine": fine, "rows": [], "largest": None,
              "error": None}
    start = time.perf_counter()
    try:
        workload = kind()
        workload.fit(kind.CAP_FIRST // 2, 0, 1)
        workload.clear()
        meter.limit(kind.CAP_BYTES)
        rows = record["rows"]
        largest = upward(workload, meter, rows, kind.CAP_FIRST, 64 * kind.CAP_FIRST, coarse)
        if largest is not None:
            record["largest"] = upward(workload, meter, rows, largest + fine, largest + coarse - fine,
                                       fine) or largest
    except Exception as error:
        record["error"] = failure(error)
    finally:
        meter.unlimit()
    record["seconds"] = time.perf_counter() - start
    return record
