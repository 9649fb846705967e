"""cupy.cuda, as far as vmmcache uses it."""
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


def get_current_stream():
    return SimpleNamespace(ptr=0)


def allocate(size):
    return _allocator(size)


def release(taken):
    address, free = taken
    free(address, 0)
