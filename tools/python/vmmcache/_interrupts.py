"""Exceptions that come from signal handlers while the library calls Python.

Python runs handlers between any two steps of the main thread, also when that has just entered a function
that the library calls, which cannot tell the program of an exception. What a handler raises there, such as
KeyboardInterrupt, is kept and raised again when the library has returned.
"""
from __future__ import annotations

import _thread
import atexit
import ctypes
import os
import signal
import sys
import threading
import time

_PAUSE_S = 0.001

_watched: list = []  # (function, the exceptions that it never raises itself)
_before = None  # sys.unraisablehook, as it was


def watch(function, foreign=KeyboardInterrupt) -> None:
    """Has exceptions of these classes raised again that leave a function that the library calls."""
    global _before
    if not any(one is function for one, _ in _watched):
        _watched.append((function, foreign))
    if sys.unraisablehook is not _hook:
        _before, sys.unraisablehook = sys.unraisablehook, _hook
        atexit.register(_end)


def _hook(unraisable) -> None:
    error = unraisable.exc_value
    if any(one is unraisable.object and isinstance(error, foreign) for one, foreign in _watched):
        raise_later(error)
    else:
        _before(unraisable)


def _end() -> None:
    """What the hook holds would outlive the program's modules."""
    if sys.unraisablehook is _hook:
        sys.unraisablehook = _before


def raise_later(error: BaseException) -> None:
    """Raises an exception of a signal handler in the main thread, once that has left the library."""
    if sys.is_finalizing() or threading.current_thread() is not threading.main_thread():
        return
    try:
        _thread.start_new_thread(_raise_in, (threading.get_ident(), error))
    except RuntimeError:  # no threads any more: the program ends
        pass


def _raise_in(ident: int, error: BaseException) -> None:
    class Again(BaseException):
        """Is made where it is raised, and is the exception that there was."""
        def __new__(cls):
            return error

    time.sleep(_PAUSE_S)
    is_ctrl_c = isinstance(error, KeyboardInterrupt)
    if is_ctrl_c and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        os.kill(os.getpid(), signal.SIGINT)  # which wakes the thread, too
    else:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(Again))
