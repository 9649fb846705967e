"""The time that a process spends inside its PyTorch's allocator, taken in place: allocations and frees of all threads,
with their driver calls.

Imported by: worker.py, measure.py.
"""
import contextlib
import ctypes
import glob
import os

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inside.cpp")


def compiled(folder):
    """Compiles inside.cpp into the folder, once for all processes that ask; returns the library."""
    from torch.utils import cpp_extension
    os.makedirs(folder, exist_ok=True)
    cpp_extension.load("inside", [SOURCE], with_cuda=True, is_python_module=False, is_standalone=False,
                       build_directory=folder)
    return ctypes.CDLL(glob.glob(os.path.join(folder, "inside*.so"))[0])


class Inside:
    """Measures where begun() is entered. PyTorch must have its allocator."""

    def __init__(self, folder):
        self.library = compiled(folder)

    @contextlib.contextmanager
    def begun(self):
        if not self.library.inside_begin():
            raise RuntimeError("the allocator's table cannot be written")
        try:
            yield
        finally:
            self.library.inside_end()

    def read(self):
        """(seconds, requests) until now."""
        spent, requests = ctypes.c_uint64(), ctypes.c_uint64()
        self.library.inside_read(ctypes.byref(spent), ctypes.byref(requests))
        return 1e-9 * spent.value, requests.value
