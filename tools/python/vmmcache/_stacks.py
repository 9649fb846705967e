"""Stacks of Python, each known by a number: what the library stores with allocations and frees.

The library calls number() on any thread, in the middle of any operation. Therefore it takes no lock,
allocates little and raises nothing of its own: a stack that is known already costs a walk over its frames and one
look-up. Lines and names are resolved only when they are read.

A stack is a tuple of code objects and positions in them. Its key has the code objects' addresses, which
is safe since the table keeps every code object that it knows.
"""
from __future__ import annotations

import dis
import itertools
import sys

from . import _interrupts, _layout

DEPTH = 64  # innermost frames that are kept
_DEPTHS = range(DEPTH)

_numbers = {}  # key: number
_stacks = {}  # number: ((code, position), ...), innermost first
_frames = {}  # number: frames as snapshots have them
_next = itertools.count(1)
_getframe = sys._getframe


def number() -> int:
    """The number of the calling thread's stack; 0 if it runs no Python or the interpreter ends."""
    try:
        frame, address_of, key = _getframe().f_back, id, []
        add = key.append
        for _ in _DEPTHS:
            if frame is None:
                break
            add(address_of(frame.f_code))
            add(frame.f_lasti)
            frame = frame.f_back
        key = tuple(key)
        known = _numbers.get(key)
        return _intern(key) if known is None else known
    except (MemoryError, RecursionError):
        pass
    except BaseException as error:  # of a signal handler: nothing else here raises any
        _interrupts.raise_later(error)
    return 0


def _intern(key: tuple) -> int:
    if not key:
        return 0
    frame = _getframe(2)  # the caller of number()
    stack = []
    while frame is not None and 2 * len(stack) < len(key):
        stack.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    new = next(_next)
    _stacks[new] = tuple(stack)
    return _numbers.setdefault(key, new)


def forget() -> None:
    """Forgets all stacks. Only while nothing is recorded."""
    for table in (_numbers, _stacks, _frames):
        table.clear()


def frames(number_: int) -> list:
    """The frames of a stack, innermost first: dicts with filename, line and name. The same list each
    time, so that a pickle holds it once."""
    if not number_:
        return _NO_FRAMES
    known = _frames.get(number_)
    if known is None:
        known = [_frame(code, position) for code, position in _stacks.get(number_, ())]
        _frames[number_] = known
    return known


_NO_FRAMES: list = []


def _frame(code, position: int) -> dict:
    return {"filename": code.co_filename, "line": _line(code, position), "name": code.co_name}


def _line(code, position: int) -> int:
    line = code.co_firstlineno
    for start, at in dis.findlinestarts(code):
        if start > position:
            break
        line = at or line
    return line


CALLBACK = _layout.STACK_FN(number)
NO_CALLBACK = _layout.STACK_FN()
