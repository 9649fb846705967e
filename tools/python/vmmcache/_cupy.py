"""install_cupy(): makes libvmmcache the allocator of CuPy."""
from __future__ import annotations

import importlib
import sys

from . import _device, _library
from ._errors import InstallError
from ._guard import Guard

_guard = Guard()
_allocator = None


def install_cupy() -> None:
    """Makes CuPy allocate from the library, on CuPy's current stream; PyTorch's memory and CuPy's then
    come from one cache on each device. Arrays that exist already stay where they are.

    Raises InstallError if CuPy is missing, LibraryError if the shared library is, or was built without the CUDA
    driver.
    """
    global _allocator
    with _guard.lock:
        if _allocator is not None:
            return
        try:
            cupy = importlib.import_module("cupy")
        except ImportError as error:
            raise InstallError(f"CuPy cannot be imported: {error}") from error
        if not hasattr(cupy.cuda, "PythonFunctionAllocator"):
            raise InstallError(f"CuPy {cupy.__version__} does not accept an allocator written in Python; "
                               "8 and later do")
        _library.demand_gpu()
        allocator = cupy.cuda.PythonFunctionAllocator(*_functions(cupy))
        cupy.cuda.set_allocator(allocator.malloc)
        _device.cupy_is_installed(cupy)
        _allocator = allocator


def is_installed() -> bool:
    """Whether CuPy allocates from the library."""
    return _allocator is not None


def _counted(table: dict) -> list:
    """(key, references to its object, those of this very question among them)"""
    return [(key, sys.getrefcount(held)) for key, held in list(table.items())]


_OWN_REFERENCES = _counted({0: object()})[0][1]


class _Streams:
    """The streams that memory was taken on. CuPy destroys a stream with its object, and the library must know before:
    so each object is held here until no other reference is left, and released after the library freed the block."""

    def __init__(self, library):
        self._library = library
        self._held = {}

    def see(self, device: int, stream) -> None:
        if (device, stream.ptr) in self._held:
            return
        self._let_go()
        if stream.ptr:
            self._held[device, stream.ptr] = stream

    def _let_go(self) -> None:
        for (device, handle), references in _counted(self._held):
            if references > _OWN_REFERENCES:
                continue
            if self._library.vmm_stream_end(self._library.vmm_torch_cache(device), handle) == 0:
                self._held.pop((device, handle), None)


def _functions(cupy) -> tuple:
    """malloc(size, device) and free(address, device) as CuPy calls them."""
    library = _library.load()
    streams = _Streams(library)
    current_stream, out_of_memory = cupy.cuda.get_current_stream, cupy.cuda.memory.OutOfMemoryError

    def malloc(size, device):
        stream = current_stream()
        streams.see(device, stream)
        address = library.vmm_torch_try_alloc(size, device, stream.ptr)
        if address is None:
            error = out_of_memory(size, -1)
            error.args = (_library.last_error(),)  # it would make up a message of its own
            raise error
        return address

    def free(address, device):
        library.vmm_torch_free(address, 0, device, None)

    return malloc, free
