"""trace(): records what the caches allocate, for vmmcache-report and fragtest."""
from __future__ import annotations

import ctypes
import os
import warnings
from contextlib import contextmanager

from . import _control, _device, _layout, _library
from ._errors import VmmWarning


@contextmanager
def trace(path, stacks: bool = False, device=None):
    """Records a device's cache to a file while the `with` statement runs, and opens the device if it was not used yet.
    The cache is that of install(), install_cupy() and vmmcache.numba; a vmmcache.Cache has a trace() of its own.

    A path that ends with .gz makes the file gzip. stacks: with the native stack of each allocation. Raises VmmError if
    the file cannot be written; the statement inside runs to its end first if that shows only later. Warns (VmmWarning)
    if the recording has no allocation.
    """
    cache = _control.opened(_device.index(device))
    before = _library.stats(cache).requested_bytes
    with record(cache, path, stacks):
        yield
    if not before.current and _library.stats(cache).requested_bytes.allocated == before.allocated:
        warnings.warn(f"the recording to {os.fspath(path)} has no allocation: nothing was allocated by PyTorch after "
                      "install(), or by CuPy or Numba on its cache. Cache.trace() records a vmmcache.Cache",
                      VmmWarning, stacklevel=3)


@contextmanager
def record(cache, path, stacks: bool):
    """trace(), of any cache."""
    library = _library.load()
    options = _layout.TraceOptions(stacks=int(stacks))
    status = library.vmm_trace_start(cache, _library.c_string("the path", os.fsencode(path)), ctypes.byref(options))
    _library.check(status, f"the recording to {os.fspath(path)} was not started")
    try:
        yield
    finally:
        status = library.vmm_trace_stop(cache)
    _library.check(status, f"the recording to {os.fspath(path)} failed")


def trace_note(text: str, device=None) -> None:
    """Marks this moment in the recording of trace(), such as a step. Without a recording it does nothing."""
    cache = _library.load().vmm_torch_cache(_device.index(device))
    if cache is not None:
        note(cache, text)


def note(cache, text: str) -> None:
    """trace_note(), of any cache."""
    _library.check(_library.load().vmm_trace_note(cache, _library.c_string("a note", text)),
                   "the note was not recorded")
