"""cupy.cuda, as far as vmmcache uses it."""
import weakref
from types import SimpleNamespace

from . import memory

_allocator = None
runtime = SimpleNamespace(getDevice=lambda: 0)


class PythonFunctionAllocator:
    def __init__(self, malloc, free):
        self._functions = malloc, free

    def malloc(self, size):
        malloc, free = self._functions
        return malloc(size, 0), free


def set_allocator(allocator):
    global _allocator
    _allocator = allocator


def get_allocator():
    return _allocator


class Stream:
    """Destroyed with its object, like CuPy's."""
    destroyed = []
    current = None

    def __init__(self, ptr):
        self.ptr = ptr

    def __del__(self):
        if self.ptr:
            Stream.destroyed.append(self.ptr)

    def use(self):
        Stream.current = weakref.ref(self)


def get_current_stream():
    stream = Stream.current and Stream.current()
    return stream or Stream(0)


def allocate(size):
    return _allocator(size)


def release(taken):
    address, free = taken
    free(address, 0)
