"""As much of CuPy's interface as vmmcache uses. An 'array' is an address; there is no GPU."""
from . import cuda

__version__ = "14.0.0+fake"


class Array:
    """Memory that goes back with it."""

    def __init__(self, size):
        self._memory = cuda.allocate(size)
        self.address = self._memory[0]

    def __del__(self):
        if hasattr(self, "_memory"):
            cuda.release(self._memory)
