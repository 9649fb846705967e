"""on_out_of_memory(): functions that are told when a request has failed."""
from __future__ import annotations

import atexit
import sys

from . import _interrupts, _layout, _library
from ._guard import Guard

_guard = Guard()
_observers: tuple = ()


def on_out_of_memory(observer) -> None:
    """Has a function called whenever a request has failed for want of memory, before the error is raised,
    with (device, bytes that were asked for, the limit or what the device has, what of it is free).

    It may do anything, such as dump_snapshot(); what it raises is written to the standard error. There is
    no way to take it back.
    """
    global _observers
    if not callable(observer):
        raise TypeError(f"{observer!r} cannot be called")
    with _guard.lock:
        if not _observers:
            _interrupts.watch(_tell)
            _library.load().vmm_torch_shortage_watch(_CALLBACK)
            atexit.register(_end)  # the library must not call Python once that has ended
        _observers += (observer,)


def _tell(*what) -> None:
    for observer in _observers:
        try:
            observer(*what)
        except Exception:
            sys.excepthook(*sys.exc_info())


def _end() -> None:
    _library.load().vmm_torch_shortage_watch(_layout.SHORTAGE_FN())


_CALLBACK = _layout.SHORTAGE_FN(_tell)
