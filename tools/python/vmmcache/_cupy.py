"""install_cupy(): makes libvmmcache the allocator of CuPy."""
from __future__ import annotations

import importlib

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
            raise InstallError(f"CuPy {cupy.__version__} takes no allocator of Python functions; "
                               "8 and later do")
        _library.demand_gpu()
        allocator = cupy.cuda.PythonFunctionAllocator(*_functions(cupy))
        cupy.cuda.set_allocator(allocator.malloc)
        _device.cupy_is_installed(cupy)
        _allocator = allocator


def _functions(cupy) -> tuple:
    """malloc(size, device) and free(address, device) as CuPy calls them."""
    library = _library.load()
    current_stream, out_of_memory = cupy.cuda.get_current_stream, cupy.cuda.memory.OutOfMemoryError

    def malloc(size, device):
        address = library.vmm_torch_try_alloc(size, device, current_stream().ptr)
        if address is None:
            error = out_of_memory(size, -1)
            error.args = (_library.last_error(),)  # it would make up a message of its own
            raise error
        return address

    def free(address, device):
        library.vmm_torch_free(address, 0, device, None)

    return malloc, free
