"""The shared library libvmmcache_torch.so: where it lies, its functions, its errors.

Loaded once, by the first call that needs it. ctypes gives up the GIL for each call, so that a thread
that waits in the library for another never keeps that other from Python.
"""
from __future__ import annotations

import atexit
import ctypes
import os

from . import _layout
from ._errors import LibraryError, VmmError
from ._guard import Guard
from ._layout import pointer, size_t, u64

FILE_NAME = "libvmmcache_torch.so"
ENVIRONMENT = "VMMCACHE_LIBRARY"

# name: (result, arguments)
_FUNCTIONS = {
    "vmm_version": (ctypes.c_char_p, []),
    "vmm_has_driver": (ctypes.c_int, [ctypes.c_int]),
    "vmm_last_error": (ctypes.c_char_p, []),
    "vmm_status_name": (ctypes.c_char_p, [ctypes.c_int]),
    "vmm_create": (ctypes.c_int, [ctypes.POINTER(_layout.Config), ctypes.POINTER(pointer)]),
    "vmm_destroy": (ctypes.c_int, [pointer]),
    "vmm_alloc": (ctypes.c_int, [pointer, size_t, pointer, ctypes.POINTER(pointer)]),
    "vmm_free": (ctypes.c_int, [pointer, pointer]),
    "vmm_record_stream": (ctypes.c_int, [pointer, pointer, pointer]),
    "vmm_trim": (ctypes.c_int, [pointer, size_t, ctypes.POINTER(size_t)]),
    "vmm_wait": (ctypes.c_int, [pointer]),
    "vmm_stats_get": (ctypes.c_int, [pointer, ctypes.POINTER(_layout.Stats)]),
    "vmm_stat_describe": (ctypes.POINTER(_layout.StatDescription), [ctypes.c_uint]),
    "vmm_stats_reset_peak": (ctypes.c_int, [pointer]),
    "vmm_stream_end": (ctypes.c_int, [pointer, pointer]),
    "vmm_limit_set": (ctypes.c_int, [pointer, u64]),
    "vmm_device_memory": (ctypes.c_int, [pointer, ctypes.POINTER(u64), ctypes.POINTER(u64)]),
    "vmm_neighbours_walk": (ctypes.c_int, [pointer, _layout.NEIGHBOUR_FN, pointer]),
    "vmm_parts_walk": (ctypes.c_int, [pointer, pointer, _layout.PART_FN, pointer]),
    "vmm_available_get": (ctypes.c_int, [pointer, ctypes.POINTER(u64)]),
    "vmm_compact": (ctypes.c_int, [pointer, ctypes.c_uint32, ctypes.POINTER(u64), ctypes.POINTER(u64)]),
    "vmm_pool_sleep": (ctypes.c_int, [ctypes.POINTER(pointer), size_t, ctypes.POINTER(_layout.SleepOptions), pointer]),
    "vmm_pool_wake": (ctypes.c_int, [ctypes.POINTER(pointer), size_t, ctypes.POINTER(_layout.SleepOptions), pointer]),
    "vmm_pool_state": (ctypes.c_int, [pointer, ctypes.POINTER(ctypes.c_int)]),
    "vmm_pool_stats_get": (ctypes.c_int, [pointer, ctypes.POINTER(_layout.Stats)]),
    "vmm_backup_find": (ctypes.c_int, [pointer, pointer, ctypes.POINTER(pointer)]),
    "vmm_backup_drop": (ctypes.c_int, [pointer]),
    "vmm_torch_region_begin": (ctypes.c_int, [ctypes.c_int, ctypes.c_char_p, ctypes.c_int]),
    "vmm_torch_region_end": (ctypes.c_int, [ctypes.c_int]),
    "vmm_torch_pools_list": (ctypes.c_int, [ctypes.c_int, ctypes.POINTER(_layout.TorchPool), size_t,
                                            ctypes.POINTER(size_t)]),
    "vmm_torch_unmapping": (None, [pointer, pointer, u64, u64]),
    "vmm_torch_mapped": (None, [pointer, pointer, u64, u64]),
    "vmm_torch_provider": (pointer, []),
    "vmm_trace_start": (ctypes.c_int, [pointer, ctypes.c_char_p, ctypes.POINTER(_layout.TraceOptions)]),
    "vmm_trace_stop": (ctypes.c_int, [pointer]),
    "vmm_trace_note": (ctypes.c_int, [pointer, ctypes.c_char_p]),
    "vmm_torch_configure": (ctypes.c_int, [ctypes.POINTER(_layout.Config)]),
    "vmm_torch_limit_share": (ctypes.c_int, [ctypes.c_double]),
    "vmm_torch_cache": (pointer, [ctypes.c_int]),
    "vmm_torch_try_alloc": (pointer, [size_t, ctypes.c_int, pointer]),
    "vmm_torch_free": (None, [pointer, size_t, ctypes.c_int, pointer]),
    "vmm_torch_reset": (None, []),
    "vmm_torch_memory_fraction": (None, [ctypes.c_double, ctypes.c_int]),
    "vmm_torch_base": (pointer, [pointer, ctypes.POINTER(size_t)]),
    "vmm_torch_record_stream": (None, [pointer, pointer]),
    "vmm_torch_oom_listen": (None, [_layout.OOM_FN]),
    "vmm_torch_pressure_end": (None, []),
    "vmm_torch_stats_get": (ctypes.c_int, [ctypes.c_int, ctypes.POINTER(_layout.TorchFigures)]),
    "vmm_torch_stats_reset": (ctypes.c_int, [ctypes.c_int, ctypes.c_int]),
    "vmm_torch_action_word": (ctypes.c_char_p, [ctypes.c_int]),
    "vmm_torch_history_start": (ctypes.c_int, [u64, _layout.STACK_FN, ctypes.c_int]),
    "vmm_torch_history_stop": (ctypes.c_int, []),
    "vmm_torch_snapshot_take": (ctypes.c_int, [ctypes.c_int, ctypes.POINTER(pointer)]),
    "vmm_torch_snapshot_drop": (None, [pointer]),
    "vmm_torch_dlpack_delete": (None, [pointer]),
    "vmm_torch_dlpack_end": (None, [pointer]),
}

_guard = Guard()
_loaded = None
_last_calls: set = set()  # names of functions that end_with_python() has registered


def path() -> str:
    """Where the library is expected: VMMCACHE_LIBRARY, else beside this package's files."""
    return os.path.abspath(os.environ.get(ENVIRONMENT)
                           or os.path.join(os.path.dirname(__file__), FILE_NAME))


def load() -> ctypes.CDLL:
    """The library. Raises LibraryError, with what to do about it."""
    global _loaded
    if _loaded is None:
        with _guard.lock:
            if _loaded is None:
                _loaded = _open(path())
    return _loaded


def _open(where: str) -> ctypes.CDLL:
    if not os.path.exists(where):
        raise LibraryError(
            f"{where} is missing. Wheels contain it; in a checkout build it with\n"
            "  tools/build.sh wheel --target vmmcache_torch\n"
            f"and set {ENVIRONMENT} to the path of the {FILE_NAME} that this makes.")
    try:
        library = ctypes.CDLL(where)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise LibraryError(f"{where} cannot be used: {error}") from error
    _demand_version(where, library.vmm_version().decode())
    _layout.describe_stats(library.vmm_stat_describe)
    return library


def _demand_version(where: str, found: str) -> None:
    """Libraries of another major or minor version may have other structures."""
    wanted = "{}.{}".format(*_layout.VERSION)
    if found.split(".")[:2] != wanted.split("."):
        raise LibraryError(f"{where} has version {found}; this package needs {wanted}")


def demand_gpu() -> None:
    """Raises LibraryError if the library was built without the CUDA driver, unless VMM_DRIVER names another."""
    if os.environ.get("VMM_DRIVER", "") in ("", "cuda") and not load().vmm_has_driver(_layout.DRIVER_CUDA):
        raise LibraryError(f"{path()} was built without the CUDA driver: cuda.h of the CUDA toolkit was "
                           "missing. Build it with -DVMM_WITH_CUDA=ON")


def driver_of(config) -> int:
    """The number of the driver that a cache of this configuration has."""
    names = {"host": _layout.DRIVER_HOST, "sim": _layout.DRIVER_SIM}
    return config.driver or names.get(os.environ.get("VMM_DRIVER", ""), _layout.DRIVER_CUDA)


def end_with_python(name: str, *arguments) -> None:
    """Has a function of the library called when Python ends, once: the library must not call Python after that."""
    if name not in _last_calls:
        _last_calls.add(name)
        atexit.register(getattr(load(), name), *arguments)


def is_loaded() -> bool:
    return _loaded is not None


def version() -> str:
    """The version of the library."""
    return load().vmm_version().decode()


def c_string(what: str, text) -> bytes:
    """Of a str, or of the bytes of a path. C would cut it at a zero byte."""
    data = text if isinstance(text, bytes) else text.encode()
    if b"\0" in data:
        raise ValueError(f"{what} has a zero byte: {text!r}")
    return data


def last_error() -> str:
    """One line about this thread's last call that failed."""
    return load().vmm_last_error().decode(errors="replace")


def address(function) -> int:
    """Of a function of C, or of one that ctypes made."""
    return ctypes.cast(function, pointer).value


def stats(cache) -> _layout.Stats:
    """The statistics of a cache."""
    found = _layout.Stats()
    check(load().vmm_stats_get(cache, ctypes.byref(found)), "there are no statistics")
    return found


def listed(walk: str, kind, what: str, *arguments) -> list:
    """What a function of the library that calls back for each item shows, as dictionaries."""
    found = []

    def visit(_, item):
        found.append(_layout.value_of(item.contents))
        return 0
    check(getattr(load(), walk)(*arguments, kind(visit), None), what)
    return found


def check(status: int, what: str) -> None:
    """Raises VmmError for any status but success."""
    if status == _layout.STATUS_OK:
        return
    name = load().vmm_status_name(status).decode()
    raise VmmError(f"{what}: {last_error() or name} ({name})")
