"""numba.cuda.cudadrv.driver, as far as vmmcache uses it. A MemoryPointer calls its finalizer at its end, as Numba's."""
import collections

MemoryInfo = collections.namedtuple("MemoryInfo", "free, total")


class binding:
    CUdeviceptr = int


class Stream:
    def __init__(self, number):
        self.handle = number
        self.waits = 0

    def synchronize(self):
        self.waits += 1


class Device:
    id = 0


class Context:
    def __init__(self):
        self.device = Device()
        self.waits = 0

    def create_stream(self):
        return Stream(77)

    def synchronize(self):
        self.waits += 1


class MemoryPointer:
    def __init__(self, context, pointer, size, finalizer):
        self.context, self.device_pointer, self.size, self._finalizer = context, pointer, size, finalizer

    def __del__(self):
        self._finalizer()
