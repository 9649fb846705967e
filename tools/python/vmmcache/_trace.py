"""trace(): records what the caches allocate, for vmmcache-report and fragtest."""
from __future__ import annotations

import ctypes
import os
from contextlib import contextmanager

from . import _control, _device, _layout, _library


@contextmanager
def trace(path, stacks: bool = False, device=None):
    """Records a device's cache to a file while the `with` statement runs, and opens the device if it was not used yet.

    A path that ends with .gz makes the file gzip. stacks: with the native stack of each allocation. Raises VmmError if
    the file cannot be written; the statement inside runs to its end first if that shows only later.
    """
    library, cache = _library.load(), _control.opened(_device.index(device))
    options = _layout.TraceOptions(ctypes.sizeof(_layout.TraceOptions), int(stacks))
    status = library.vmm_trace_start(cache, _library.c_string("the path", os.fsencode(path)), ctypes.byref(options))
    _library.check(status, f"the recording to {os.fspath(path)} was not started")
    try:
        yield
    finally:
        status = library.vmm_trace_stop(cache)
    _library.check(status, f"the recording to {os.fspath(path)} failed")


def trace_note(text: str, device=None) -> None:
    """Marks this moment in the recording, such as a step. Without a recording it does nothing."""
    library, cache = _library.load(), _library.load().vmm_torch_cache(_device.index(device))
    if cache is not None:
        _library.check(library.vmm_trace_note(cache, _library.c_string("a note", text)), "the note was not recorded")
