"""What install() says about the limits of the allocator."""
from __future__ import annotations

import os
import warnings

from ._errors import VmmWarning

_NEVER = ("torch.cuda.MemPool", "sharing CUDA tensors with other processes", "NCCL's registration of tensor memory")
_WITHOUT_PLAIN_GRAPHS = "torch.compile(mode='reduce-overhead') without install(plain_graphs=True)"

_SETTINGS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def unsupported(has_plain_graphs: bool, has_graphs: bool, has_record_stream: bool) -> list:
    """Features of PyTorch that do not work with the library, as a person reads them."""
    features = list(_NEVER)
    if not has_plain_graphs:
        features.append(_WITHOUT_PLAIN_GRAPHS)
    if not has_graphs:
        features.append("CUDA graphs")
    if not has_record_stream:
        features.append("Tensor.record_stream")
    return features


def warn(features: list, why_not) -> None:
    """Warns the caller of install(). why_not: why PyTorch has the plug-in, not the allocator class."""
    if why_not:
        warnings.warn(f"vmmcache uses PyTorch's plug-in interface, because its allocator class cannot be used: {why_not}",
                      VmmWarning, stacklevel=3)
    for name in _SETTINGS:
        if _has_expandable_segments(os.environ.get(name, "")):
            warnings.warn(f"{name} has expandable_segments:True, which does nothing to vmmcache but changes what "
                          "some frameworks (vLLM, SGLang) do: remove it", VmmWarning, stacklevel=3)
    warnings.warn(f"these do not work with vmmcache: {', '.join(features)}", VmmWarning, stacklevel=3)


def _has_expandable_segments(settings: str) -> bool:
    """Whether a list such as 'max_split_size_mb:64,expandable_segments:True' turns them on."""
    pairs = (setting.partition(":") for setting in settings.lower().split(","))
    return any(name.strip() == "expandable_segments" and value.strip() == "true" for name, _, value in pairs)
