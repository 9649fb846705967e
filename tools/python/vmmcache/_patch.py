"""install(patch=True): PyTorch's own functions answer from the library.

This module replaces two kinds of functions:
- Functions of torch._C that refuse a plugged-in allocator, or that ask PyTorch's own allocator instead. All of
  PyTorch that is built on them then works, also functions that a program imported by name before.
- Functions of torch.cuda and torch.cuda.memory for which ours are faster or say more.
"""
from __future__ import annotations

import importlib
import sys

from . import _control, _device, _history, _oom, _snapshot, _stats, _summary
from ._errors import VmmError
from ._figures import Figures

_patched: list = []

_NAMES = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")


def patch(torch) -> None:
    """Replaces the functions below, as far as this PyTorch has them. Later calls do nothing."""
    if _patched:
        return
    _replace(torch._C, "torch._C", _PRIMITIVES)
    functions = {name: getattr(_stats, name) for name in _NAMES}
    functions["memory_summary"] = _summary.memory_summary
    _replace(torch.cuda.memory, "torch.cuda.memory", functions)
    _replace(torch.cuda, "torch.cuda", functions)


def _replace(module, name: str, functions: dict) -> None:
    for function, ours in functions.items():
        if hasattr(module, function):
            setattr(module, function, ours)
            _patched.append(f"{name}.{function}")


def patched() -> list:
    """Full names of the replaced functions."""
    return list(_patched)


def use_plain_graphs() -> None:
    """Has torch.compile's reduce-overhead mode capture plain CUDA graphs instead of graph trees, and turns
    donated buffers off: PyTorch runs a function once on the same inputs before it launches the function's plain
    graph, so a backward pass must not overwrite what its forward pass saved."""
    config = importlib.import_module("torch._inductor.config")
    config.triton.cudagraph_trees = False
    try:
        functions = importlib.import_module("torch._functorch.config")
    except ImportError:
        return
    if hasattr(functions, "donated_buffer"):  # since 2.6
        functions.donated_buffer = False


# PyTorch adds arguments to the functions below from version to version. Those that are unknown here say what to
# record beyond what the library records, and are ignored.


def _memory_snapshot(which=None, *_, **__) -> dict:
    """torch._C._cuda_memorySnapshot. which: None for everything, or (id, id, include traces) for one pool."""
    traces = which is None or len(which) < 3 or bool(which[2])
    picture = _snapshot.snapshot(include_traces=traces)
    pool = tuple(which[:2]) if which is not None else (0, 0)
    if pool != (0, 0):
        picture["segments"] = [segment for segment in picture["segments"]
                               if segment["segment_pool_id"] == pool]
    return picture


def _record_memory_history(enabled="all", context="all", stacks="all", max_entries=sys.maxsize,
                           clear_history=False, compile_context=False, global_record_annotations=False,
                           skip_actions=None, *_, **__) -> None:
    """torch._C._cuda_record_memory_history"""
    _history.record_history(enabled, context, stacks, max_entries, None, clear_history, compile_context,
                            global_record_annotations, skip_actions)


def _record_memory_history_legacy(enabled, record_context=True, trace_alloc_max_entries=1,
                                  trace_alloc_record_context=False, *_, **__) -> None:
    """torch._C._cuda_record_memory_history_legacy, which _record_memory_history(True) calls."""
    context = None if not record_context else "alloc" if trace_alloc_record_context else "state"
    mode = None if not enabled else "all" if trace_alloc_max_entries > 1 else "state"
    _history.record_history(mode, context, "python", max(1, trace_alloc_max_entries))


def _memory_fraction(device) -> float:
    """torch._C._cuda_getMemoryFraction"""
    limit = Figures(_device.index(device)).number("limit_bytes")
    return min(1.0, limit / _control.mem_get_info(device)[1]) if limit else 1.0


def _is_initialized() -> bool:
    """torch._C._accelerator_isAllocatorInitialized: whether PyTorch has initialised CUDA."""
    return _device.torch_in_use() is not None


def _refuse_graph_trees(*_, **__) -> None:
    """The functions of torch._C that save, restore and check the state of a memory pool."""
    raise VmmError("torch.compile(mode='reduce-overhead') shares memory between CUDA graphs in a way that only "
                   "PyTorch's own allocator supports; vmmcache.install(plain_graphs=True) compiles to plain CUDA "
                   "graphs instead")


_PRIMITIVES = {
    "_cuda_memoryStats": _stats.memory_stats_as_nested_dict,
    "_cuda_resetPeakMemoryStats": _stats.reset_peak_memory_stats,
    "_cuda_resetAccumulatedMemoryStats": _stats.reset_accumulated_memory_stats,
    "_cuda_memorySnapshot": _memory_snapshot,
    "_cuda_record_memory_history": _record_memory_history,
    "_cuda_record_memory_history_legacy": _record_memory_history_legacy,
    "_cuda_attach_out_of_memory_observer": _oom.on_out_of_memory,
    "_cuda_isHistoryEnabled": _history.is_enabled,
    "_cuda_checkPoolLiveAllocations": _refuse_graph_trees,
    "_cuda_getCheckpointState": _refuse_graph_trees,
    "_cuda_setCheckpointPoolState": _refuse_graph_trees,
    "_cuda_getMemoryFraction": _memory_fraction,
    "_cuda_getAllocatorBackend": lambda: "vmmcache",
    "_accelerator_isAllocatorInitialized": _is_initialized,
    "_accelerator_emptyCache": _control.empty_cache,
    "_accelerator_getMemoryInfo": _control.mem_get_info,
    "_accelerator_getDeviceStats": _stats.memory_stats_as_nested_dict,
    "_accelerator_resetPeakStats": _stats.reset_peak_memory_stats,
    "_accelerator_resetAccumulatedStats": _stats.reset_accumulated_memory_stats,
}
