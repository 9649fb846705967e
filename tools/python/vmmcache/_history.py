"""record_history(): what the library records of allocations and frees, and with which stacks."""
from __future__ import annotations

import sys

from . import _interrupts, _library, _stacks
from ._guard import Guard

UNBOUNDED = sys.maxsize
ENTRIES = 1 << 20  # of each device, where the caller sets no bound: up to 64 MiB

_ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map",
            "segment_unmap", "oom", "snapshot")

_guard = Guard()
_recorded = None  # settings of what is recorded now


def record_history(enabled="all", context="all", stacks="python", max_entries=UNBOUNDED,
                   device=None, clear_history=False, compile_context=False,
                   global_record_annotations=False, skip_actions=None) -> None:
    """Starts to record allocations and frees of all devices, for snapshot() and live_blocks().

    enabled: 'all' records every allocation and free; 'state' live blocks only; None stops and forgets what was
    recorded. context: which Python stacks are recorded: 'all', 'alloc' or 'state' (both of allocations only), or
    None. max_entries: how many events of each device are kept, the last ones; 2^20 by default. clear_history:
    forget what was recorded so far. skip_actions: actions that snapshots leave out.

    The other arguments of torch.cuda.memory._record_memory_history are accepted and have no effect: all
    devices are recorded, stacks have Python frames only, and there are no annotations.
    """
    global _recorded
    settings = None if enabled is None else _checked(enabled, context, stacks, max_entries, skip_actions)
    with _guard.lock:
        if settings is not None and settings == _recorded and not clear_history:
            return
        _stop()
        if settings is not None:
            _start(settings)
        _recorded = settings


def _checked(enabled, context, stacks, max_entries, skip_actions) -> dict:
    for name, value, choices in (("enabled", enabled, ("all", "state")),
                                 ("context", context, ("all", "alloc", "state", None)),
                                 ("stacks", stacks, ("python", "all"))):
        if value not in choices:
            raise ValueError(f"{name}={value!r} is not one of {', '.join(map(repr, choices))}")
    unknown = set(skip_actions or ()) - set(_ACTIONS)
    if unknown:
        raise ValueError(f"skip_actions has unknown actions {sorted(unknown)}; known are {', '.join(_ACTIONS)}")
    if isinstance(max_entries, bool) or not isinstance(max_entries, int) or max_entries < 1:
        raise ValueError(f"max_entries={max_entries!r} is not a whole number of at least 1")
    entries = ENTRIES if max_entries >= UNBOUNDED else max_entries
    return {"events": enabled == "all", "entries": entries if enabled == "all" else 1, "context": context,
            "skipped": frozenset(skip_actions or ())}


def _start(settings: dict) -> None:
    _interrupts.watch(_stacks.number, BaseException)
    callback = _stacks.NO_CALLBACK if settings["context"] is None else _stacks.CALLBACK
    library = _library.load()
    _library.end_with_python("vmm_torch_history_stop")  # refused in a child that forked: its parent's goes on
    status = library.vmm_torch_history_start(settings["entries"], callback,
                                             int(settings["context"] == "all"))
    _library.check(status, "history cannot be recorded")


def _stop() -> None:
    global _recorded
    if _library.is_loaded():
        _library.check(_library.load().vmm_torch_history_stop(), "history did not end")
    _recorded = None
    _stacks.forget()


def is_enabled() -> bool:
    """Whether anything is recorded, with or without stacks."""
    return _recorded is not None


def is_recorded() -> bool:
    """Whether stacks of live blocks are known."""
    return _recorded is not None and _recorded["context"] is not None


def shown() -> frozenset:
    """The actions whose events snapshots have now; what is recorded may be changed by any thread."""
    settings = _recorded
    if settings is None:
        return frozenset(_ACTIONS)
    return frozenset(_ACTIONS) - settings["skipped"] if settings["events"] else frozenset()
