"""What install() says about the limits of the allocator."""
from __future__ import annotations

import os
import re
import warnings

from ._errors import VmmWarning

_NEVER = ("torch.cuda.MemPool", "sharing CUDA tensors with other processes", "NCCL's registration of tensor memory",
          "torch.backends.cudnn.benchmark", "the profiler's profile_memory",
          "stacks of C++ and annotations in snapshots",
          "memory that PyTorch frees before a request fails")
_WITHOUT_PLAIN_GRAPHS = "torch.compile(mode='reduce-overhead') without install(plain_graphs=True)"

_SETTINGS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")

# Keys that tell PyTorch's own allocator how to cut, keep or reserve memory. Those of pinned memory work as ever.
_WITHOUT_EFFECT = ("max_split_size_mb", "max_non_split_rounding_mb", "large_segment_size_mb",
                   "garbage_collection_threshold", "release_lock_on_cudamalloc", "throw_on_cudamalloc_oom",
                   "expandable_segments_reserve", "expandable_segments_reserve_by_class")
_WITHOUT_EFFECT_ON_PLUG_IN = ("per_process_memory_fraction", "graph_capture_record_stream_reuse",
                              "roundup_power2_divisions", *_WITHOUT_EFFECT)


def unsupported(has_plain_graphs: bool, has_graphs: bool, has_record_stream: bool) -> list:
    """Features of PyTorch that do not work with the plug-in, as a person reads them."""
    features = list(_NEVER)
    if not has_plain_graphs:
        features.append(_WITHOUT_PLAIN_GRAPHS)
    if not has_graphs:
        features.append("CUDA graphs")
    if not has_record_stream:
        features.append("Tensor.record_stream")
    return features


def warn(why_not, features: list, ended: list) -> None:
    """Warns the caller of install(). why_not: None with the allocator class; else why PyTorch has the plug-in, or empty
    if that was asked for. features: what does not work. ended: variables of NCCL's registration that were set to 0."""
    for name in _SETTINGS:
        given = _pairs(name)
        known = _WITHOUT_EFFECT if why_not is None else _WITHOUT_EFFECT_ON_PLUG_IN
        ignored = [key for key in known if key in given]
        if ignored:
            warnings.warn(f"{name} has {', '.join(ignored)}, without effect on vmmcache: see docs/pytorch.md#settings",
                          VmmWarning, stacklevel=3)
        if given.get("expandable_segments", "").lower() == "true":
            warnings.warn(f"{name} has expandable_segments:True, which has no effect on vmmcache's memory but changes "
                          "what some frameworks (vLLM, SGLang) do: see docs/pytorch.md#sleep", VmmWarning, stacklevel=3)
    for name in ended:
        warnings.warn(f"{name} has no effect on vmmcache, as with expandable segments; register a torch.cuda.MemPool: "
                      "see docs/pytorch.md#registration-with-nccl", VmmWarning, stacklevel=3)
    if why_not is not None:
        reason = f", because its allocator class cannot be used: {why_not}" if why_not else ""
        warnings.warn(f"vmmcache uses PyTorch's plug-in interface{reason}; "
                      f"these do not work with it: {', '.join(features)}", VmmWarning, stacklevel=3)


def other_backend():
    """The setting that gives PyTorch another allocator than its default, as (variable, value); None: there is none."""
    for name in _SETTINGS:
        value = _pairs(name).get("backend", "native")
        if value != "native":
            return name, value
    return None


def _pairs(name: str) -> dict:
    """The settings of a variable such as 'max_split_size_mb:64,roundup_power2_divisions:[256:1,>:8]'. Of a key that is
    there twice the last one counts, as in PyTorch."""
    text = re.sub(r"\[[^]]*\]", "[]", os.environ.get(name, ""))
    pairs = (setting.partition(":") for setting in text.split(","))
    return {key.strip().lower(): value.strip() for key, _, value in pairs if key.strip()}
