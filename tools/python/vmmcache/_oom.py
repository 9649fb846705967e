"""on_out_of_memory(): functions that are called when a request has failed."""
from __future__ import annotations

import sys

from . import _interrupts, _layout, _library
from ._guard import Guard

_guard = Guard()
_observers: tuple = ()


def on_out_of_memory(observer) -> None:
    """Has the library call a function whenever a request has failed because memory ran out, before the error is
    raised, with (device, requested bytes, the limit or the device's memory, free bytes of that).

    The function may do anything, such as dump_snapshot(). Its exceptions are written to standard error. It
    cannot be removed.
    """
    global _observers
    if not callable(observer):
        raise TypeError(f"on_out_of_memory() needs a function, not {observer!r}")
    with _guard.lock:
        if not _observers:
            _interrupts.watch(_tell)
            _library.load().vmm_torch_oom_listen(_CALLBACK)
            _library.end_with_python("vmm_torch_oom_listen", _layout.OOM_FN())
        _observers += (observer,)


def _tell(*what) -> None:
    for observer in _observers:
        try:
            observer(*what)
        except Exception:
            sys.excepthook(*sys.exc_info())


_CALLBACK = _layout.OOM_FN(_tell)
