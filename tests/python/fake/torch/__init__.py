"""As much of PyTorch's interface as vmmcache uses: on this one allocator that was plugged in, and nothing
else. A 'tensor' is an address; there is no GPU.
"""
import ctypes
from types import SimpleNamespace

from . import _C, accelerator, cuda

__version__ = "2.11.0+fake"
version = SimpleNamespace(cuda="13.0", hip=None)


class OutOfMemoryError(RuntimeError):
    pass


uint8 = "uint8"


class Tensor:
    """Bytes at an address."""
    dtype, shape, is_cuda, device = uint8, (), True, "cuda:0"

    def __init__(self, address, nbytes, owner=None):
        self._address, self.nbytes, self._owner = address, nbytes, owner

    def __del__(self):
        if self._owner is not None:
            self._owner(self._address)

    def data_ptr(self):
        return self._address

    def untyped_storage(self):
        return self

    def is_contiguous(self):
        return True

    def view(self, _):
        return self

    def fill_(self, value):
        ctypes.memset(self._address, value, self.nbytes)
        return self

    def tolist(self):
        return list(ctypes.string_at(self._address, self.nbytes))

    def clone(self):
        copy = ctypes.create_string_buffer(ctypes.string_at(self._address, self.nbytes), self.nbytes)
        made = Tensor(ctypes.addressof(copy), self.nbytes)
        made._buffer, made.is_cuda = copy, False
        return made


def frombuffer(buffer, dtype):
    made = Tensor(ctypes.addressof(buffer), len(buffer))
    made.is_cuda = False
    return made


def empty(nbytes, dtype=uint8, device="cuda"):
    return Tensor(cuda.caching_allocator_alloc(nbytes), nbytes, cuda.caching_allocator_delete)
