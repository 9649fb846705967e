"""The allocator class of PyTorch that uses the library: loaded and installed."""
from __future__ import annotations

import ctypes
import os

from . import _build, _library
from ._build import NativeError

# With these, PyTorch registers all memory with NCCL.
_REGISTRATION = ("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK")

# Features of PyTorch that the class refuses.
UNSUPPORTED = (f"registration of all memory with NCCL ({_REGISTRATION[0]})",)

_shim = None  # once installed


def load(torch) -> ctypes.CDLL:
    """The build of the class, which is compiled if it is not there. Raises NativeError."""
    path = _build.built(torch)
    try:
        shim = ctypes.CDLL(path)
        shim.vmm_shim_install.restype = ctypes.c_char_p
        shim.vmm_shim_install.argtypes = [ctypes.c_void_p]
    except (OSError, AttributeError) as error:
        raise NativeError(f"its build cannot be loaded: {error}") from error
    return shim


def install(shim: ctypes.CDLL) -> None:
    """Makes the class PyTorch's allocator. Raises NativeError, and PyTorch has the allocator that it had."""
    global _shim
    library = _library.load()
    problem = shim.vmm_shim_install(library.vmm_torch_provider())
    if problem is not None:
        raise NativeError(f"PyTorch cannot use it: {problem.decode(errors='replace')}")
    _library.end_with_python("vmm_torch_history_stop")  # its recorder calls Python
    _shim = shim


def end_registration() -> list:
    """Has PyTorch leave out the registration of all memory, as it does with expandable segments: parts of the memory
    come and go. Returns the variables that asked for it."""
    found = [name for name in _REGISTRATION if os.environ.get(name, "").lower()[:1] in ("1", "y", "t")]
    os.environ.update(dict.fromkeys(found, "0"))
    return found


def is_installed() -> bool:
    """Whether PyTorch's allocator is the class, not the plug-in."""
    return _shim is not None
