"""install(): makes libvmmcache the allocator of PyTorch."""
from __future__ import annotations

import contextlib
import importlib
import re

from . import _config, _library, _native, _notices, _patch
from ._errors import InstallError, VmmError
from ._guard import Guard

ALLOC, FREE, FREE_UNSIZED = "vmm_torch_alloc", "vmm_torch_free", "vmm_torch_free_unsized"

# These versions may free a block with the size of an earlier block at the same address.
_WRONG_SIZES = ((2, 5), (2, 8))

# PyTorch's setter: our function
HOOKS = {
    "set_init_fn": "vmm_torch_init",
    "set_reset_fn": "vmm_torch_reset",
    "set_memory_fraction_fn": "vmm_torch_memory_fraction",
    "set_base_alloc_fn": "vmm_torch_base",
    "set_record_stream_fn": "vmm_torch_record_stream",
    "set_begin_allocate_to_pool": "vmm_torch_pool_begin",
    "set_end_allocate_to_pool_fn": "vmm_torch_pool_end",
    "set_release_pool": "vmm_torch_pool_release",
}
_GRAPH_HOOKS = ("set_begin_allocate_to_pool", "set_end_allocate_to_pool_fn", "set_release_pool")

_guard = Guard()
_settings = None  # of the install() that succeeded
_is_automatic = False  # the environment called install(), not yet the program
_allocator = None  # PyTorch's wrapper; must live as long as the process
_has_plain_graphs = False
_set_hooks: list = []
_missing_hooks: list = []


def install(*, limit=None, footprint=None, reuse=None, compaction=None, decay_ms=None,
            decay_keep=None, decay_thread=None, no_caching=None, peers="auto", pressure=None, ipc=None,
            neighbours=None, patch=True, plain_graphs=False, native=None) -> None:
    """Makes libvmmcache PyTorch's allocator for the rest of the process. Call it before the first use of CUDA.

    limit: the most physical memory on each device: bytes, '8GiB', or a share of the device: 0.8, '80%'.
    footprint: by how many thousandths reserved memory may exceed the peak of live memory; 'any'.
    reuse: 'any_use', 'declared' or 'stream_wait'. compaction: 'off' or 'on'; read the warning in vmmcache.h.
    decay_ms, decay_keep, decay_thread: release memory that was idle for so long. no_caching: every allocation
    goes to the driver and back, to find bugs. An argument that is left out or None comes from the environment
    (VMM_LIMIT and so on), else it is the library's default. An argument overrides its variable, which is then
    removed from os.environ, so that child processes do not have it either.

    peers: devices that may use each other's memory: a list of ordinals, None, or 'auto': with the class those that
    PyTorch asks for, when it does; with the plug-in all that can.
    pressure: a function that takes a number of bytes, frees some if it can, and returns whether it did. The
    library calls it before a request fails.

    native: True: an allocator class that is compiled against this PyTorch at its first use (2.9 or later); False: a
    plug-in (torch.cuda.memory.CUDAPluggableAllocator), with which less of PyTorch works; None (default): the class, or
    the plug-in and a warning that says what is missing.
    ipc: whether CUDA tensors can be sent to other processes, which works with the class only. None: with the class,
    on devices that can share memory. False saves a part of the driver's time for new memory.
    neighbours: True: processes that share a GPU give each other idle memory before a request fails; a floor and more:
    VMM_NEIGHBOURS_FLOOR and other variables.
    patch: with the plug-in, torch.cuda.memory_allocated(), torch.accelerator.memory_stats() and the like answer from
    the library; with the class they do anyway.
    plain_graphs: torch.compile(mode='reduce-overhead') captures each function as a plain CUDA graph, which the
    plug-in needs: it has no graph trees. The next call of a compiled function then overwrites what the last one
    returned.

    Warns (VmmWarning), once, if PyTorch has the plug-in, and which features of PyTorch do not work with it.
    Raises ValueError or TypeError for an invalid argument; InstallError if PyTorch is missing, has no CUDA or
    has used it already, if the environment is invalid, if other settings are installed, or if a device was
    opened before (by CuPy's arrays, set_memory_limit(), mem_get_info()); LibraryError if the shared library is
    missing or was built without the CUDA driver. Calling it again with the same settings does nothing except
    patch. After an installation by VMMCACHE_AUTOINSTALL the first call may have other settings.
    """
    settings = {name: value for name, value in locals().items() if name not in ("patch", "plain_graphs", "native")}
    is_first, why_not = _install(settings, patch, plain_graphs, native)
    if is_first:
        _notices.warn(why_not, _unsupported(), _native.end_registration() if _native.is_installed() else [])


def install_automatically(**choices) -> None:
    """install() for a program that does not call it, or not yet."""
    global _is_automatic
    install(**choices)
    _is_automatic = True


def _install(settings, patch, plain_graphs, native) -> tuple:
    """Whether this call has installed it, and why PyTorch has the plug-in."""
    global _settings, _has_plain_graphs, _is_automatic
    why_not = None
    if native not in (None, True, False):
        raise TypeError(f"native must be True, False or None, not {native!r}")
    native = native if native is None else bool(native)
    with contextlib.suppress(ImportError):
        importlib.import_module("torch")  # which may install automatically, and so takes the lock
    with _guard.lock:
        is_first = _settings is None
        if is_first:
            torch = _usable_torch()
            _library.demand_gpu()
            why_not = _install_first(torch, settings, native)
        else:
            _demand_same(settings, native)
        _settings, _is_automatic = settings, False
        if patch and not _native.is_installed():
            _patch.patch(importlib.import_module("torch"))
        if plain_graphs:
            _patch.use_plain_graphs()
            _has_plain_graphs = True
    return is_first, why_not


def _install_first(torch, settings, native):
    """Returns why PyTorch has the plug-in, or None. A call that fails leaves the settings and the environment as they
    were: what takes long comes first, and the rest is taken back."""
    _config.translated(**settings)  # raises what is wrong with an argument, before the compiler runs
    shim, why_not = _class_of(torch, native)
    undo = _configure(settings)
    try:
        if shim is not None:
            why_not = _install_class(shim, native)
        if why_not is not None:
            _put_in(torch)
    except BaseException:
        undo()
        raise
    return why_not


def _demand_same(settings, native) -> None:
    """Takes the settings of a program whose installation was automatic. Any others must be those of before."""
    if settings != _settings and not _is_automatic:
        raise InstallError(f"vmmcache is installed already, with {_told(_settings)}; PyTorch can "
                           "change its allocator only once")
    if native is not None and native != _native.is_installed():
        raise InstallError(f"vmmcache is installed already, with native={_native.is_installed()}")
    if settings != _settings:
        _configure(settings)


def _class_of(torch, native) -> tuple:
    """The allocator class, or None; and why PyTorch gets the plug-in instead: empty if that is what was asked for."""
    if native is False:
        return None, ""
    try:
        return _native.load(torch), None
    except _native.NativeError as error:
        return None, _why_not(error, native)


def _install_class(shim, native):
    """None, or why PyTorch gets the plug-in instead."""
    try:
        _native.install(shim)
    except _native.NativeError as error:
        return _why_not(error, native)
    return None


def _why_not(error, native) -> str:
    """Raises InstallError if the plug-in will not do."""
    if native:
        raise InstallError(f"the allocator class cannot be used: {error}") from error
    return str(error)


def _configure(settings: dict):
    try:
        return _config.configure(**settings)
    except VmmError as error:
        raise InstallError(f"vmmcache.install(): {error}") from error


def _told(settings: dict) -> str:
    told = [f"{name}={value!r}" for name, value in settings.items() if value not in (None, False)]
    return ", ".join(told)


def _usable_torch():
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise InstallError(f"PyTorch cannot be imported ({error}); for CuPy call "
                           "vmmcache.install_cupy()") from error
    if getattr(torch.version, "cuda", None) is None:
        raise InstallError(f"PyTorch {torch.__version__} was built without CUDA")
    if not hasattr(torch.cuda.memory, "CUDAPluggableAllocator"):
        raise InstallError(f"PyTorch {torch.__version__} cannot change its allocator; 2.0 and later can")
    other = _notices.other_backend()
    if other is not None:
        raise InstallError(f"{other[0]} has backend:{other[1]}, which is another allocator: take it out, or do without "
                           "vmmcache")
    if torch.cuda.is_initialized():
        raise InstallError("CUDA is initialised already: call vmmcache.install() before anything uses a "
                           "GPU, best right after the imports")
    return torch


def _put_in(torch) -> None:
    global _allocator
    library = _library.load()
    _set_hooks.clear()
    _missing_hooks.clear()
    allocator = torch.cuda.memory.CUDAPluggableAllocator(_library.path(), ALLOC, _free_function(torch))
    for setter, name in HOOKS.items():
        set_hook = getattr(allocator.allocator(), setter, None)
        if set_hook is None:
            _missing_hooks.append(setter)
            continue
        set_hook(_library.address(getattr(library, name)))
        _set_hooks.append(setter)
    try:
        torch.cuda.memory.change_current_allocator(allocator)
    except RuntimeError as error:
        raise InstallError(f"PyTorch refused the allocator: {error}") from error
    _allocator = allocator


def _free_function(torch) -> str:
    """The name of the function with which this version of PyTorch frees."""
    version = re.match(r"(\d+)\.(\d+)", torch.__version__)
    is_wrong = version is not None and _WRONG_SIZES[0] <= tuple(map(int, version.groups())) <= _WRONG_SIZES[1]
    return FREE_UNSIZED if is_wrong else FREE


def uninstall() -> None:
    """Always raises VmmError: PyTorch cannot change its allocator back. Start a new process without install()."""
    if _settings is None:
        raise VmmError("vmmcache is not installed")
    raise VmmError("PyTorch cannot change its allocator back, because each block must be freed by the allocator "
                   "that it came from. Start a new process without install()")


def is_installed() -> bool:
    """Whether PyTorch allocates from the library."""
    return _settings is not None


def _has_graphs() -> bool:
    return _native.is_installed() or all(hook in _set_hooks for hook in _GRAPH_HOOKS)


def _has_record_stream() -> bool:
    return _native.is_installed() or "set_record_stream_fn" in _set_hooks


def _unsupported() -> list:
    if _native.is_installed():
        return list(_native.UNSUPPORTED)
    return _notices.unsupported(_has_plain_graphs, _has_graphs(), _has_record_stream())


def capabilities() -> dict:
    """What works here: 'library' and 'torch' (versions), 'installed', 'native' (whether the allocator is the class,
    not the plug-in), 'hooks' that PyTorch accepted,
    'missing_hooks' that this version does not have, 'cuda_graphs' and 'record_stream' (whether their
    hooks are there), 'patched' functions of PyTorch, 'unsupported' features of PyTorch."""
    torch = importlib.import_module("torch") if _settings is not None else None
    return {
        "library": _library.version(),
        "torch": getattr(torch, "__version__", None),
        "installed": is_installed(),
        "native": _native.is_installed(),
        "hooks": list(_set_hooks),
        "missing_hooks": list(_missing_hooks),
        "cuda_graphs": _has_graphs(),
        "record_stream": _has_record_stream(),
        "patched": _patch.patched(),
        "unsupported": _unsupported(),
    }
